"""The space of both gradients by whole planes: which configurations there are, and which workloads have one. No TVM."""

from __future__ import annotations

from dwconv.problems.block import NOTHING
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.backward_planes.cut import Cut
from dwconv.schedules.cuda.backward_planes.estimate import block_works, thread_work
from dwconv.schedules.cuda.gpu.image_planes_space import Family, cuts, misfit_of_images, space_of, tiles
from dwconv.schedules.cuda.gpu.limits import BACKWARD_PLANES as MOST_CODE
from dwconv.schedules.space import ConfigSpace
from dwconv.schedules.taps import HEIGHT, WIDTH, Axis

TILES = (2, 4, 7, 8, 14)


def plane_misfit(workload: Workload, target: CudaTarget) -> str | None:
    """Why no configuration fits; None if one does."""
    if workload.block != NOTHING:
        return f"block={workload.block}: it is for a convolution with nothing around it"
    if workload.multiplier > 1:
        return f"multiplier={workload.multiplier}: a plane of x would need several of dy"
    if reason := misfit_of_images(workload):
        return reason
    if next(tiles(_FAMILY, workload, target), None) is not None:
        return None
    tiles_h, tiles_w = _tiles(workload)
    least = Cut(
        workload=workload, planes=1, images=1, thread_planes=1, tile_h=tiles_h[-1], tile_w=tiles_w[-1], split_n=1,
        pipeline=1,
    )  # fmt: skip
    if least.planes_bytes > target.shared_bytes_per_block:
        return f"planes of x and dy take {least.planes_bytes} bytes, a block has {target.shared_bytes_per_block}"
    return "every tile has more sums or more straight code than a thread can have"


def plane_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    return space_of(_FAMILY, name, workload, target)


def _tiles(workload: Workload) -> tuple[list[int], list[int]]:
    """Whole strides: then the taps of a tile do not depend on where it is."""
    rows, columns = (Axis.of_input_gradient(workload, number) for number in (HEIGHT, WIDTH))
    return _tiles_of(rows), _tiles_of(columns)


def _tiles_of(axis: Axis) -> list[int]:
    return [axis.down * count for count in cuts(-(-axis.outputs // axis.down), TILES)]


_FAMILY = Family(
    cut=Cut,
    tiles=_tiles,
    thread_work=thread_work,
    block_works=block_works,
    most_code=MOST_CODE,
    weighs_tiles=True,
)
