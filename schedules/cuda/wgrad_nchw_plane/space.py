"""Blocks of whole planes that sum over images: which fit, what they may cost, where to start. No TVM here."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial

from dwconv.problems.block import NOTHING
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.cost import price
from dwconv.schedules.cuda.gpu.plane_layout import MOST_TURNS
from dwconv.schedules.cuda.wgrad_nchw_plane.cut import ImagePlanes, cut_of, kind_of
from dwconv.schedules.cuda.wgrad_nchw_plane.estimate import block_works, holds, thread_work
from dwconv.schedules.space import ConfigSpace, Knob, Limit, Value, rules_of
from dwconv.schedules.taps import HEIGHT, WIDTH, Axis

MOST_CODE = {"wgrad": hardware.WEIGHT_GRADIENT_PLANES_CODE, "backward": hardware.BACKWARD_PLANES_CODE}
MOST_COLUMNS = 32
"""Of a wgrad: pieces of longer rows nearly fill the lines of memory, and are read as well from where they are."""
GRADIENT_TILES_H, BACKWARD_TILES = (2, 4, 5, 7, 8, 14), (2, 4, 7, 8, 14)
PLANES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
THREAD_PLANES = (1, 2)
IMAGES = (1, 2, 4, 8, 16, 32, 64)
SPLIT_N = (1, 2, 4, 8, 16, 32)
PIPELINE = (1, 2, 3, 4)
MOST_COPIES = 32
"""Copies of each tensor that a thread has under way for one image."""
TILES_TRIED = 8
"""Tiles for which blocks are weighed, to find where to start."""
FEW_PLANES, FEW_IMAGES, FEW_SPLITS, FEW_STAGES = (1, 4), (1, 8, 32), (1, 8, 32), (1, 2)
"""Of a tile's blocks, those by which tiles are weighed."""
MOST_ISSUE, CROWDED_COST = 0.5, 3.0
"""Share of the memory's time that instructions may take, and what more of it costs: they would hold up the loads."""
HALVES_COST = 1.05
"""Where planes begin within words, so that elements are read one by one."""


def misfit(workload: Workload, target: CudaTarget) -> str | None:
    sizes, itemsize = (workload.input_size, workload.output_size), ITEMSIZE[workload.dtype]
    is_gradient = workload.pass_ == "wgrad"
    if not is_gradient and workload.block != NOTHING:
        return f"block={workload.block}: it is for a convolution with nothing around it"
    if workload.multiplier > 1:
        return f"multiplier={workload.multiplier}: a plane of x would need several of dy"
    if is_gradient and max(size[1] for size in sizes) > MOST_COLUMNS:
        return f"rows of more than {MOST_COLUMNS} pixels need no shared memory to be read whole"
    if any(workload.channels * math.prod(size) * itemsize % hardware.LEAST_COPY_BYTES for size in sizes):
        return f"images that are no multiple of {hardware.LEAST_COPY_BYTES} bytes, the least that is copied"
    if next(tiles(workload, target), None) is not None:
        return None
    tiles_h, tiles_w = _tile_sizes(workload)
    least = _alone(workload, 1, tiles_h[-1], tiles_w[-1])
    if not is_gradient and least.planes_bytes > target.shared_bytes_per_block:
        return f"planes of x and dy take {least.planes_bytes} bytes, a block has {target.shared_bytes_per_block}"
    return "every tile has more sums or more straight code than a thread can have"


def image_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    tiles_h, tiles_w = _tile_sizes(workload)
    return ConfigSpace(
        name,
        Knob("planes", PLANES),
        Knob("images", IMAGES),
        Knob("thread_planes", THREAD_PLANES),
        Knob("tile_h", tiles_h),
        Knob("tile_w", tiles_w),
        Knob("split_n", SPLIT_N),
        Knob("pipeline", PIPELINE),
        rules=rules_of(partial(cut_of, workload), _limits(workload, target)),
        preferred=lambda: _preferred(workload, target),
    )


def _tile_sizes(workload: Workload) -> tuple[list[int], list[int]]:
    """Rows, and columns, that a thread may have: whole strides, so that the taps of a tile do not depend on where it
    is."""
    if workload.pass_ == "wgrad":
        return cuts(workload.output_size[0], GRADIENT_TILES_H), cuts(workload.output_size[1], ())
    rows, columns = (
        [axis.down * count for count in cuts(-(-axis.outputs // axis.down), BACKWARD_TILES)]
        for axis in (Axis.of_input_gradient(workload, number) for number in (HEIGHT, WIDTH))
    )
    return rows, columns


def cuts(size: int, some: Sequence[int]) -> list[int]:
    """Ways to cut ``size``: ``some``, and into up to four parts, where the last one leaves little idle."""
    found = {cut for cut in (*some, *(-(-size // parts) for parts in (1, 2, 3, 4))) if cut <= size}
    return sorted(cut for cut in found if -(-size // cut) * cut <= hardware.MOST_PADDED * size)


# -- what cannot run, or cannot be fast ----------------------------------------------------------------------------


def _limits(workload: Workload, target: CudaTarget) -> list[Limit]:
    return [
        ("threads share planes unevenly", lambda cut: cut.planes % cut.thread_planes != 0),
        (f"fewer than {hardware.LEAST_THREADS} threads", lambda cut: cut.threads < hardware.LEAST_THREADS),
        (f"more than {target.threads_per_block} threads", lambda cut: cut.threads > target.threads_per_block),
        (
            f"more than {hardware.MOST_IMAGES} images at a time",
            lambda cut: cut.images * cut.split_n > hardware.MOST_IMAGES,
        ),
        *_limits_of_threads(workload, target),
        ("copies of too few bytes", lambda cut: cut.copied_bytes < hardware.LEAST_COPY_BYTES),
        (
            f"more than {MOST_COPIES} copies of a thread at a time",
            lambda cut: max(map(cut.copies, cut.layout.held)) > MOST_COPIES,
        ),
        (
            f"more than {hardware.MOST_WORKSPACE_BYTES >> 20} MiB of partial sums",
            lambda cut: cut.split_n > 1 and 4 * cut.split_n * cut.results > hardware.MOST_WORKSPACE_BYTES,
        ),
        hardware.limit_of_shared(target),
        ("more registers than there are", lambda cut: not holds(cut, target, 1)),
    ]


def _limits_of_threads(workload: Workload, target: CudaTarget) -> list[Limit]:
    most = MOST_CODE[workload.pass_]
    return [
        (f"more than {hardware.MOST_PADDED}× the outputs wanted", lambda cut: cut.padded > hardware.MOST_PADDED),
        (f"more than {most} instructions unrolled", lambda cut: thread_work(cut).instructions_of_image > most),
        ("more registers than a thread can have", lambda cut: thread_work(cut).registers > target.registers_per_thread),
    ]


def _fits(cut: ImagePlanes, target: CudaTarget) -> bool:
    return not any(test(cut) for _, test in _limits(cut.workload, target))


# -- what is preferred ---------------------------------------------------------------------------------------------


def tiles(workload: Workload, target: CudaTarget) -> Iterator[ImagePlanes]:
    for each, tile_h, tile_w in itertools.product(THREAD_PLANES, *_tile_sizes(workload)):
        alone = _alone(workload, each, tile_h, tile_w)
        if any(test(alone) for _, test in _limits_of_threads(workload, target)):
            continue
        blocks = (
            dataclasses.replace(alone, planes=planes, images=images)
            for images, planes in itertools.product(IMAGES, reversed(PLANES))
        )
        cut = next((cut for cut in blocks if _fits(cut, target)), None)
        if cut is not None:
            yield cut


def _alone(workload: Workload, thread_planes: int, tile_h: int, tile_w: int) -> ImagePlanes:
    return kind_of(workload)(
        workload=workload, planes=thread_planes, images=1, thread_planes=thread_planes, tile_h=tile_h, tile_w=tile_w,
        split_n=1, pipeline=1,
    )  # fmt: skip


@lru_cache(maxsize=256)
def _preferred(workload: Workload, target: CudaTarget) -> dict[str, Value]:
    """The block that is estimated to take the least time, for some of the tiles, of those whose threads meet in no
    bank."""

    def slowness(cut: ImagePlanes) -> float:
        outputs = cut.tile_h * cut.tile_w * cut.thread_planes
        return thread_work(cut).instructions_of_image / outputs * cut.padded

    def cost(cut: ImagePlanes) -> tuple[bool, float]:
        halves = HALVES_COST if cut.layout.neighbours == "even planes" else 1.0
        return cut.layout.turns > MOST_TURNS, _microseconds(cut, target) * halves

    def weight(tile: ImagePlanes) -> tuple[bool, float]:
        few = itertools.product(FEW_PLANES, FEW_IMAGES, FEW_SPLITS, FEW_STAGES)
        return min(map(cost, _blocks_of(tile, target, few)), default=(True, math.inf))

    # Of both gradients, tiles of the fewest instructions may need so many registers that little is on its way.
    tried = sorted(tiles(workload, target), key=slowness if workload.pass_ == "wgrad" else weight)[:TILES_TRIED]
    shapes = list(itertools.product(PLANES, IMAGES, SPLIT_N, PIPELINE))
    best = min((cut for tile in tried for cut in _blocks_of(tile, target, shapes)), key=cost, default=None)
    if best is None:
        return {}
    return {field.name: getattr(best, field.name) for field in dataclasses.fields(best) if field.name != "workload"}


def _blocks_of(
    tile: ImagePlanes, target: CudaTarget, shapes: Iterable[tuple[int, int, int, int]]
) -> Iterator[ImagePlanes]:
    """Blocks of a tile of these (planes, images, split_n, pipeline)."""
    images = max(1, tile.workload.batch)
    for planes, at_a_time, split_n, pipeline in shapes:
        useful = split_n * at_a_time <= images or at_a_time == split_n == 1
        if useful and pipeline <= -(-images // (at_a_time * split_n)) and planes <= tile.workload.channels:
            cut = dataclasses.replace(tile, planes=planes, images=at_a_time, split_n=split_n, pipeline=pipeline)
            if _fits(cut, target):
                yield cut


def _microseconds(cut: ImagePlanes, target: CudaTarget) -> float:
    """The price of both kernels; more where instructions would hold up the loads, and where much is left to sum when
    nothing is on its way any more."""
    priced = [price(each, target) for each in block_works(cut, target)]
    cycles_per_us, warps = target.clock_ghz * 1e3, -(-cut.threads // hardware.WARP)
    work = thread_work(cut)
    last = work.instructions_of_image * max(1.0, warps / target.issue_slots) + work.instructions_of_sums
    blocks = cut.channel_blocks * cut.split_n
    spread = priced[0].busy_us["issue"] * blocks / (math.ceil(blocks / target.sms) * target.sms)
    crowded = max(0.0, spread - MOST_ISSUE * cut.workload.bytes / target.limits.memory_gb_per_s / 1e3)
    return sum(each.microseconds for each in priced) + last / cycles_per_us + CROWDED_COST * crowded
