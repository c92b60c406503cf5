"""fprop, NCHW, CUDA, float32.

    plane OH × OW                block tile, one of ``planes``     what one thread owns
    ┌──────┬──────┬──────┐       vthread 0     vthread 1           ┌─ row r:    column t, column t + threads_w, …
    │ tile │ tile │  …   │  ──►  t0 t1 … t31   t0 t1 … t31    ──►  ├─ row r+1:  …
    └──────┴──────┴──────┘       (neighbours read neighbours)      └─ tile_h rows × vthread_w columns, in registers

The block's input patch, halo and padding included, is staged in shared memory. With ``stage=registers``, for small
kernels, each thread reads the patch of its own tile_h × tile_w neighbouring outputs straight from global memory.
"""

from __future__ import annotations

import math

from tvm import s_tir

from dwconv.schedules.compute_nchw import BlockTile, fprop_nchw, round_up
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value, divisors
from dwconv.schedules.template import ScheduleTemplate
from dwconv.schedules.two_level import Tile, keep_in_registers, stage_in_registers, stage_in_shared, two_level
from dwconv.target import CudaTarget, Target
from dwconv.workload import ITEMSIZE, Workload

NAME = "cuda.fprop_nchw"


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CudaTarget)
    out_h, out_w = workload.output_size
    planes, heights, widths = _plane_counts(workload), _cuts(out_h, most=64), _cuts(out_w, most=128, least=7)
    return ConfigSpace(
        NAME,
        Knob("planes", planes),
        Knob("block_h", heights),
        Knob("tile_h", sorted({part for height in heights for part in divisors(height, most=min(height, 14))})),
        Knob("threads_w", widths),
        Knob("vthread_w", [1, 2, 4]),
        Knob("tile_w", [1, 2, 4]),
        Knob("stage", ["shared", "registers"]),
        Knob("unroll", ["kernel", "row"] if workload.kernel[0] > 3 else ["kernel"]),
        rules=_rules(workload, target, most_threads=planes[-1] * heights[-1] * widths[-1]),
        preferred=_preferred(workload, heights=heights, widths=widths),
    )


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    tile, shared = _block_tile(config), _shared(config)
    sch = s_tir.Schedule(fprop_nchw(workload, tile, shared=shared))
    staged, total, y = (sch.get_sblock(name) for name in ("staged", "sum", "y"))
    partition = two_level(sch, total, tiles=_tiles(config))
    if shared:
        stage_in_shared(
            sch,
            staged,
            fetched=sch.get_sblock("fetched"),
            partition=partition,
            plane_words=tile.plane_words(workload),
            row_words=tile.row_words(workload),
            in_flight=LOADS_IN_FLIGHT,
        )
    else:
        stage_in_registers(sch, staged, partition=partition)
    keep_in_registers(sch, total, partition=partition, result=y, unrolled=2 if config.unroll == "kernel" else 1)
    return sch


def misfit(workload: Workload, target: Target) -> str | None:
    assert isinstance(target, CudaTarget)
    if workload.dtype != "float32":
        return f"it is for float32, the workload is {workload.dtype}"
    out_h, out_w = workload.output_size
    columns = min(out_w, 64)
    least = BlockTile(planes=1, rows=min(out_h, -(-64 // columns)), columns=columns, threads_h=1, threads_w=1)
    needed = least.plane_words(workload) * ITEMSIZE[workload.dtype]
    if needed > target.shared_bytes_per_block:
        return f"the input of a block tile is {needed} bytes, shared memory {target.shared_bytes_per_block}"
    return None


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cuda", pass_="fprop", layout="nchw", misfit=misfit, space=space, schedule=schedule
)


# -- the tiles -----------------------------------------------------------------------------------------------------


def _tiles(config: Config) -> tuple[Tile, Tile, Tile]:
    """The cut of (channels, rows, columns)."""
    return (
        Tile(threads=config.planes),
        Tile(threads=config.block_h // config.tile_h, registers=config.tile_h),
        Tile(vthreads=config.vthread_w, threads=config.threads_w, registers=config.tile_w),
    )


def _block_tile(config: Config) -> BlockTile:
    planes, rows, columns = _tiles(config)
    return BlockTile(
        planes=planes.block,
        rows=rows.block,
        columns=columns.block,
        threads_h=rows.threads,
        threads_w=columns.threads,
    )


def _plane_counts(workload: Workload) -> list[int]:
    """Output channels of a block: those of whole input channels; where these are too many, an equal part of them."""
    multiplier, channels = workload.multiplier, workload.out_channels
    if multiplier > MOST_PLANES:
        return divisors(multiplier, most=MOST_PLANES)
    counts = {multiplier * count for count in (1, 2, 4, 8, 16, 32, workload.channels)}
    return sorted(c for c in counts if c <= MOST_PLANES and round_up(channels, c) <= channels * MOST_PADDED)


def _cuts(size: int, *, most: int, least: int = 1) -> list[int]:
    """Ways to cut ``size``: its divisors, powers of two and even parts, where the last piece leaves little idle."""
    powers = [1, 2, 4, 8, 16, 32, 64, 128]
    parts = [-(-size // count) for count in (1, 2, 3, 4)]
    cuts = {cut for cut in (*divisors(size, most=min(size, most)), *powers, *parts) if cut <= most}
    snug = sorted(cut for cut in cuts if round_up(size, cut) <= size * MOST_PADDED)
    return [cut for cut in snug if cut >= min(least, size)] or snug


def _preferred(workload: Workload, *, heights: list[int], widths: list[int]) -> dict[str, Value]:
    """About 256 threads, little waste, two columns a thread where there are enough, strips of 7 or more rows."""
    out_h, out_w = workload.output_size
    vthreads = 2 if out_w > 32 else 1
    width = min((w for w in widths if w <= 32), key=lambda w: (round_up(out_w, w * vthreads), -w), default=widths[0])
    strips = {height: max(divisors(height, most=min(height, 8))) for height in heights if height <= 32}
    height = min(strips, key=lambda h: (round_up(out_h, h) * (1 + 1 / min(strips[h], 7)), -h))
    outputs = strips[height] * vthreads
    return {
        "planes": max(1, 256 // (width * (height // strips[height]))),
        "block_h": height,
        "tile_h": strips[height],
        "threads_w": width,
        "vthread_w": vthreads,
        "unroll": "kernel" if (outputs + 1) * math.prod(workload.kernel) <= MOST_UNROLLED else "row",
    }


# -- what cannot run, or cannot be fast -----------------------------------------------------------------------------

LOADS_IN_FLIGHT = 12
"""Of one thread while it stages: enough for a busy SM to have the 50 KB on their way that saturate the memory."""
MOST_PADDED = 1.3
"""Outputs computed over outputs wanted."""
MOST_UNROLLED = 1300
"""Beyond it compiling takes more than a second, and the code leaves the instruction cache."""
OTHER_REGISTERS = 24
"""For addresses, counters and the values in flight."""
LEAST_THREADS = 32
MOST_PLANES = 32
"""A plane is a thread on z, where CUDA allows 64."""


def _rules(workload: Workload, target: CudaTarget, *, most_threads: int) -> list[Rule]:
    out_h, out_w = workload.output_size
    least_threads = min(LEAST_THREADS, -(-most_threads // 2))
    wanted = workload.out_channels * out_h * out_w
    kernel_h, kernel_w = workload.kernel

    def computed(config: Config) -> int:
        sizes = zip((workload.out_channels, out_h, out_w), _tiles(config), strict=True)
        planes, rows, columns = (round_up(size, tile.block) for size, tile in sizes)
        return planes * rows * columns

    def unrolled(config: Config) -> int:
        taps = kernel_w * (kernel_h if config.unroll == "kernel" else 1)
        return taps * (_outputs(config) + 1)  # and one load of each weight

    def registers(config: Config) -> int:
        return _outputs(config) + _patch_words(workload, config) + OTHER_REGISTERS

    return [
        Rule("tile_h does not divide block_h", lambda c: c.block_h % c.tile_h != 0),
        Rule("in shared memory columns are strided, by vthread_w: tile_w is 1", lambda c: _shared(c) and c.tile_w > 1),
        Rule("in registers columns are neighbours: vthread_w is 1", lambda c: not _shared(c) and c.vthread_w > 1),
        Rule("registers cannot be indexed: unroll=kernel", lambda c: not _shared(c) and c.unroll != "kernel"),
        Rule(f"more than {target.threads_per_block} threads", lambda c: _threads(c) > target.threads_per_block),
        Rule(f"fewer than {least_threads} threads", lambda c: _threads(c) < least_threads),
        Rule(f"more than {MOST_PADDED}× the outputs wanted", lambda c: computed(c) > MOST_PADDED * wanted),
        Rule(f"more than {MOST_UNROLLED} FMAs and weights unrolled", lambda c: unrolled(c) > MOST_UNROLLED),
        Rule(
            "more registers than there are",
            lambda c: registers(c) > min(target.registers_per_thread, target.registers_per_sm // _threads(c)),
        ),
        Rule(
            f"more than {target.shared_bytes_per_block} bytes of shared memory",
            lambda c: _shared(c) and _staged_bytes(workload, c) > target.shared_bytes_per_block,
        ),
    ]


def _shared(config: Config) -> bool:
    return bool(config.stage != "registers")


def _threads(config: Config) -> int:
    return int(config.planes * (config.block_h // config.tile_h) * config.threads_w)


def _outputs(config: Config) -> int:
    """Outputs of one thread."""
    return int(config.tile_h * config.vthread_w * config.tile_w)


def _patch_words(workload: Workload, config: Config) -> int:
    """Input words a thread holds: what it fetches at a time, or the patch of its own outputs."""
    if _shared(config):
        return max(LOADS_IN_FLIGHT, workload.kernel[1])
    kernel, stride, dilation = workload.kernel, workload.stride, workload.dilation
    height = (config.tile_h - 1) * stride[0] + dilation[0] * (kernel[0] - 1) + 1
    width = (config.tile_w - 1) * stride[1] + dilation[1] * (kernel[1] - 1) + 1
    return int(height * width)


def _staged_bytes(workload: Workload, config: Config) -> int:
    planes = -(-config.planes // workload.multiplier)
    return planes * _block_tile(config).plane_words(workload) * ITEMSIZE[workload.dtype]
