"""The space of weight gradients by whole planes: which configurations there are, and which workloads have one. No TVM
here."""

from __future__ import annotations

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.image_planes_space import Family, cuts, misfit_of_images, sizes, space_of, tiles
from dwconv.schedules.cuda.gpu.limits import WEIGHT_GRADIENT_PLANES as MOST_CODE
from dwconv.schedules.cuda.weight_gradient_planes.cut import Cut
from dwconv.schedules.cuda.weight_gradient_planes.estimate import block_works, thread_work
from dwconv.schedules.space import ConfigSpace

TILES_H = (2, 4, 5, 7, 8, 14)
MOST_COLUMNS = 32
"""Pieces of longer rows nearly fill the lines of memory: threads read them as well from where they are."""


def plane_misfit(workload: Workload, target: CudaTarget) -> str | None:
    """Why no configuration fits; None if one does."""
    if workload.multiplier > 1:
        return f"multiplier={workload.multiplier}: a plane of x would need several of dy"
    if max(size[1] for size in sizes(workload)) > MOST_COLUMNS:
        return f"rows of more than {MOST_COLUMNS} pixels need no shared memory to be read whole"
    if reason := misfit_of_images(workload):
        return reason
    if next(tiles(_FAMILY, workload, target), None) is None:
        return "every tile has more sums or more straight code than a thread can have"
    return None


def plane_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    return space_of(_FAMILY, name, workload, target)


def _tiles(workload: Workload) -> tuple[list[int], list[int]]:
    return cuts(workload.output_size[0], TILES_H), cuts(workload.output_size[1], ())


_FAMILY = Family(cut=Cut, tiles=_tiles, thread_work=thread_work, block_works=block_works, most_code=MOST_CODE)
