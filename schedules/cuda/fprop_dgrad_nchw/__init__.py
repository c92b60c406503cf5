"""Block tiles, NCHW, CUDA: the two-level partition with virtual threads, by TVM's schedule primitives.

fprop

    plane OH × OW                block tile, one of ``planes``     what one thread owns
    ┌──────┬──────┬──────┐       vthread 0     vthread 1           ┌─ row r:    column t, column t + threads_w, …
    │ tile │ tile │  …   │  ──►  t0 t1 … t31   t0 t1 … t31    ──►  ├─ row r+1:  …
    └──────┴──────┴──────┘       (neighbours read neighbours)      └─ tile_h rows × vthread_w columns, in registers

The block's input patch, halo and padding included, is staged in shared memory, in float32. With ``stage=registers``,
for small kernels, each thread reads the patch of its own tile_h × tile_w neighbouring outputs straight from global
memory. With ``pipeline`` buffers a block goes through several tiles in ``turns``, and copies the patches of the next
ones (cp.async, as they lie) while it computes one; a thread with ``tile_w`` neighbouring columns reads them in vectors
that lie in the patch as they were copied. ``padding`` is room between staged rows where threads of several
rows would meet in the banks. ``vthread_h`` strides rows as ``vthread_w`` strides columns.

dgrad, at stride 1: fprop from dy to dx, with the kernel turned round and what the padding left

        dx[h] = Σ dy[h + P − kh·D] · w[kh] = Σ dy[h + kh′·D − P′] · w[KH − 1 − kh′],   P′ = D·(KH − 1) − P
"""

from __future__ import annotations

import dataclasses
from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Pair, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw.estimate import block_work
from dwconv.schedules.cuda.fprop_dgrad_nchw.picture import tiling as picture
from dwconv.schedules.cuda.fprop_dgrad_nchw.space import block_tile_space, least_tile_misfit
from dwconv.schedules.cuda.gpu.cost import BlockWork, estimated, one_kernel
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import family


def misfit(workload: Workload, target: CudaTarget) -> str | None:
    if workload.pass_ == "dgrad":
        if workload.stride != (1, 1):
            return f"it is for stride 1, the workload has {workload.stride}"
        if workload.multiplier != 1:
            return f"it is for multiplier 1, the workload has {workload.multiplier}"
        if min(min(_padding_left(workload, axis)) for axis in (0, 1)) < 0:
            return f"padding={workload.padding} is wider than the kernel"
    return least_tile_misfit(as_fprop(workload), target)


def space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    return block_tile_space(name, as_fprop(workload), target)


def work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    return block_work(as_fprop(workload), config, target)


def schedule(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.fprop_dgrad_nchw.kernel import schedule_block_tile

    if workload.pass_ == "fprop":
        return schedule_block_tile(workload, config)
    return schedule_block_tile(as_fprop(workload), config, names=("dy", "w", "dx"), flip=True)


def as_fprop(workload: Workload) -> Workload:
    """The convolution that takes dy to dx; an fprop itself."""
    if workload.pass_ == "fprop":
        return workload
    return dataclasses.replace(
        workload,
        pass_="fprop",
        input_size=workload.output_size,
        padding=(_padding_left(workload, 0), _padding_left(workload, 1)),
    )


def _padding_left(workload: Workload, axis: int) -> Pair:
    before, after = workload.padding[axis]
    reach = workload.dilation[axis] * (workload.kernel[axis] - 1)
    return reach - before, reach - after


def tiling(workload: Workload, config: Config) -> str:
    turned = "" if workload.pass_ == "fprop" else "dgrad as fprop from dy to dx\n\n"
    return turned + picture(as_fprop(workload), config)


TEMPLATES = family(
    "cuda.{pass_}_nchw",
    GATHERS,
    layout="nchw",
    misfit=misfit,
    space=space,
    schedule=schedule,
    version=3,
    tiling=tiling,
    **estimated(one_kernel(work)),
)
