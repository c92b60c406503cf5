"""The tiles of the two-level schedule, NCHW: which there are, and which of them fit."""

from __future__ import annotations

import math
from functools import partial

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw.cut import BlockTile, axis_tiles, round_up
from dwconv.schedules.cuda.fprop_dgrad_nchw.estimate import (
    STAGED_BYTES,
    outputs_of,
    registers_in_all,
    registers_of,
    staged_bytes,
)
from dwconv.schedules.cuda.gpu.hardware import (
    BANKS,
    BLOCK_TILE_CODE,
    LEAST_THREADS,
    MOST_PADDED,
    VECTOR_BYTES,
    compiled_registers,
    registers_left,
    usual_limits,
)
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value, divisors


def block_tile_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    """Knobs: the block tile, its threads, virtual threads and register tile, where the input is staged, unrolling; how
    many patches of the input shared memory holds at a time, while a block goes through several tiles in turns; which
    of its rows have padding after them, against bank conflicts; how many blocks an SM has registers for."""
    out_h, out_w = workload.output_size
    planes, heights, widths = _plane_counts(workload), _cuts(out_h, most=64), _cuts(out_w, most=128, least=4)
    wide = _wide_tiles(workload) if _copyable(workload) else []
    return ConfigSpace(
        name,
        Knob("planes", planes),
        Knob("block_h", heights),
        Knob("tile_h", sorted({part for height in heights for part in divisors(height, most=min(height, 14))})),
        Knob("threads_w", sorted({*widths, *(-(-out_w // tile) for tile in wide)})),
        Knob("vthread_h", [1, 2, 4, 8], absent=1),
        Knob("vthread_w", [1, 2, 4, 8]),
        Knob("tile_w", sorted({1, 2, 4, 8, *wide})),
        Knob("stage", ["shared", "registers"]),
        Knob("unroll", ["kernel", "row"] if workload.kernel[0] > 3 else ["kernel"]),
        Knob("pipeline", [1, 2, 3] if _copyable(workload) else [1]),
        Knob("turns", [1, 2, 3, 4, 5, 6, 8] if _copyable(workload) else [1]),
        Knob("padding", ["fetched", "copied", "none"], absent="fetched"),
        Knob("blocks_per_sm", [AS_PTXAS_LIKES, 2, 3, 4, 5, 6, 8], absent=AS_PTXAS_LIKES),
        rules=_rules(workload, target, most_threads=planes[-1] * heights[-1] * widths[-1]),
        preferred=lambda: _preferred(workload, heights=heights, widths=widths),
    )


AS_PTXAS_LIKES = 0
"""Blocks of an SM: ptxas alone decides on the registers of a thread."""


def least_tile_misfit(workload: Workload, target: CudaTarget) -> str | None:
    out_h, out_w = workload.output_size
    columns = min(out_w, 64)
    least = BlockTile(planes=1, rows=min(out_h, -(-64 // columns)), columns=columns, threads_h=1, threads_w=1)
    needed = least.plane_words(workload) * STAGED_BYTES
    if needed > target.shared_bytes_per_block:
        return f"the input of a block tile is {needed} bytes, shared memory {target.shared_bytes_per_block}"
    return None


def _copyable(workload: Workload) -> bool:
    """Where planes are needed twice, threads must put the input in its place themselves."""
    return workload.multiplier == 1


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


def _wide_tiles(workload: Workload) -> list[int]:
    """Outputs that lie an odd multiple of a vector apart in the input: neighbouring threads then read different
    banks."""
    lanes, out_w = VECTOR_BYTES // ITEMSIZE[workload.dtype], workload.output_size[1]
    least = lanes // math.gcd(lanes, workload.stride[1])
    return [least * odd for odd in (3, 5, 7) if round_up(out_w, least * odd) <= out_w * MOST_PADDED]


def _preferred(workload: Workload, *, heights: list[int], widths: list[int]) -> dict[str, Value]:
    """About 256 threads, little waste, two columns a thread where there are enough, strips of 7 or more rows, and as
    many threads across as divide the banks of shared memory, or a multiple."""
    out_h, out_w = workload.output_size
    vthreads = 2 if out_w > 32 else 1
    narrow = [w for w in widths if w <= BANKS]
    even = [w for w in narrow if BANKS % w == 0 and w >= min(8, narrow[-1])]
    width = min(even or narrow or widths[:1], key=lambda w: (round_up(out_w, w * vthreads), -w))
    strips = {height: max(divisors(height, most=min(height, 8))) for height in heights if height <= 32}
    height = min(strips, key=lambda h: (round_up(out_h, h) * (1 + 1 / min(strips[h], 7)), -h))
    outputs = strips[height] * vthreads
    return {
        "planes": max(1, 256 // (width * (height // strips[height]))),
        "block_h": height,
        "tile_h": strips[height],
        "threads_w": width,
        "vthread_h": 1,
        "vthread_w": vthreads,
        "pipeline": 1,
        "turns": 1,
        "blocks_per_sm": AS_PTXAS_LIKES,
        "unroll": "kernel" if (outputs + 1) * math.prod(workload.kernel) <= BLOCK_TILE_CODE else "row",
    }


# -- what cannot run, or cannot be fast -----------------------------------------------------------------------------

MOST_PLANES = 32
"""A plane is a thread on z, where CUDA allows 64."""


def _rules(workload: Workload, target: CudaTarget, *, most_threads: int) -> list[Rule]:
    out_h, out_w = workload.output_size
    kernel_h, kernel_w = workload.kernel

    def computed(config: Config) -> int:
        sizes = zip((workload.out_channels, out_h, out_w), axis_tiles(config), strict=True)
        planes, rows, columns = (round_up(size, tile.block) for size, tile in sizes)
        return planes * rows * columns

    def tiles_of_image(config: Config) -> int:
        sizes = zip((workload.out_channels, out_h, out_w), axis_tiles(config), strict=True)
        return math.prod(-(-size // tile.block) for size, tile in sizes)

    def unrolled(config: Config) -> int:
        taps = kernel_w * (kernel_h if config.unroll == "kernel" else 1)
        return taps * (outputs_of(config) + 1)  # and one load of each weight

    usual = usual_limits(
        target,
        threads=threads_of,
        least_threads=min(LEAST_THREADS, -(-most_threads // 2)),
        computed=computed,
        wanted=workload.out_channels * out_h * out_w,
        code=unrolled,
        most_code=BLOCK_TILE_CODE,
        registers=partial(registers_of, workload),
    )
    return [
        Rule(
            "tile_h does not divide block_h, or not vthread_h times",
            lambda c: c.block_h % (c.vthread_h * c.tile_h) != 0,
            of=("block_h", "tile_h", "vthread_h"),
        ),
        Rule(
            "in shared memory columns are strided, by vthread_w: tile_w is 1, unless vectors are copied ahead",
            lambda c: in_shared(c) and c.tile_w > 1 and c.pipeline == 1,
        ),
        Rule(
            "vectors copied ahead do not begin where a thread's outputs do: tile_w is 1",
            lambda c: in_shared(c) and c.tile_w > 1 and not begins_with_vectors(workload, c),
        ),
        Rule(
            "vectors are read for neighbouring rows: vthread_h is 1",
            lambda c: in_shared(c) and c.tile_w > 1 and c.vthread_h > 1,
        ),
        Rule(
            "vectors of strided columns are read in block tiles as wide as the map: vthread_w is 1",
            lambda c: in_shared(c) and min(c.tile_w, c.vthread_w, c.threads_w) > 1 and axis_tiles(c)[-1].block < out_w,
        ),
        Rule(
            "in registers columns are neighbours: vthread_w is 1",
            lambda c: not in_shared(c) and c.vthread_w > 1,
            of=("stage", "vthread_w"),
        ),
        Rule("in registers rows are neighbours: vthread_h is 1", lambda c: not in_shared(c) and c.vthread_h > 1),
        Rule(
            "in registers there are no banks: padding is fetched",
            lambda c: not in_shared(c) and c.padding == "none",
            of=("stage", "padding"),
        ),
        Rule(
            "nothing is copied ahead: padding is not copied",
            lambda c: c.pipeline == 1 and c.padding == "copied",
            of=("pipeline", "padding"),
        ),
        Rule(
            "all is copied ahead: padding is not none, but fetched",
            lambda c: c.pipeline > 1 and c.padding == "none",
            of=("pipeline", "padding"),
        ),
        Rule(
            "registers cannot be indexed: unroll=kernel",
            lambda c: not in_shared(c) and c.unroll != "kernel",
            of=("stage", "unroll"),
        ),
        *(Rule(*limit) for limit in usual),
        Rule("more registers than that many blocks leave", lambda c: starved(workload, c, target)),
        Rule(
            "only a block that takes turns can copy ahead: pipeline is 1 if turns is",
            lambda c: (c.pipeline > 1) != (c.turns > 1),
            of=("pipeline", "turns"),
        ),
        Rule(
            "copied ahead is what is staged in shared memory",
            lambda c: c.pipeline > 1 and not in_shared(c),
            of=("stage", "pipeline"),
        ),
        Rule("turns does not divide the tiles of an image", lambda c: tiles_of_image(c) % c.turns != 0),
        Rule("cp.async copies 4 bytes at least", lambda c: c.pipeline > 1 and not BlockTile.of(c).copy_lanes(workload)),
        Rule(
            "no tap meets the first or the last element of a vector: pipeline is 1",
            lambda c: c.pipeline > 1 and not needs_whole_vectors(workload, c),
        ),
        Rule(
            f"more than {target.shared_bytes_per_block} bytes of shared memory",
            lambda c: in_shared(c) and staged_bytes(workload, c) > target.shared_bytes_per_block,
        ),
    ]


def in_shared(config: Config) -> bool:
    return bool(config.stage != "registers")


def threads_of(config: Config) -> int:
    return math.prod(tile.threads for tile in axis_tiles(config))


def begins_with_vectors(workload: Workload, config: Config) -> bool:
    lanes = BlockTile.of(config).copy_lanes(workload)
    return lanes > 0 and config.tile_w * workload.stride[1] % lanes == 0


def needs_whole_vectors(workload: Workload, config: Config) -> bool:
    """Where stride and dilation are even, or the kernel has one column, taps leave out elements. TVM would copy, and
    read, vectors without them, which are not aligned."""
    tile, (stride, dilation) = BlockTile.of(config), (workload.stride[1], workload.dilation[1])
    first, lanes = tile.copied_patch(workload)[2], tile.copy_lanes(workload)
    taps = range(0, dilation * workload.kernel[1], dilation)
    together = config.tile_w if config.tile_w > 1 else tile.columns
    met = {(first + output * stride + tap) % lanes for output in range(together) for tap in taps}
    return max(met) - min(met) == lanes - 1


def starved(workload: Workload, config: Config, target: CudaTarget) -> bool:
    blocks = config.blocks_per_sm
    if blocks == AS_PTXAS_LIKES:
        return False
    threads = threads_of(config)
    needed = max(registers_of(workload, config), compiled_registers(registers_in_all(workload, config), target))
    return blocks * threads > target.threads_per_sm or needed > registers_left(target, threads=threads, blocks=blocks)
