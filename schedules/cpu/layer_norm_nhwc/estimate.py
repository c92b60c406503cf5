"""The estimated cost of a convolution with its LayerNorm: of the passes of the convolution alone, and of the norm. No
TVM here."""

from __future__ import annotations

import math

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cpu.fprop_dgrad_nhwc.estimate import estimate_us as gather_us
from dwconv.schedules.cpu.layer_norm_nhwc.cut import LayerNormCut, gather_config, weight_config
from dwconv.schedules.cpu.shared.cost import CpuWork, Traffic, conversions, largest_share, price
from dwconv.schedules.cpu.shared.limits import threads_of
from dwconv.schedules.cpu.wgrad_nhwc.estimate import estimate_us as weight_gradient_us
from dwconv.schedules.space import Config

PIXEL_INSTRUCTIONS = {"forward": 30.0, "backward": 60.0}
"""For the statistics of a pixel: to add up lanes, and a square root."""


def estimate_us(workload: Workload, config: Config, target: CpuTarget) -> float:
    cut = LayerNormCut(workload, config, target)
    convolution_us = gather_us(cut.gathered, gather_config(workload, config), target)
    if workload.pass_ == "backward":
        convolution_us += weight_gradient_us(workload.convolution("wgrad"), weight_config(workload, config), target)
    return convolution_us + price(_norm_work(cut, threads=threads_of(config, target)), target)


def _norm_work(cut: LayerNormCut, *, threads: int) -> CpuWork:
    workload, is_forward = cut.workload, cut.workload.pass_ == "forward"
    pixels = float(workload.batch * math.prod(workload.output_size))
    vectors = pixels * cut.gather.block_vectors
    blocks = cut.gather.rows.blocks if is_forward else cut.blocks
    tasks = workload.batch * blocks
    loads, stores = (3 * vectors, vectors) if is_forward else (5 * vectors, 3 * vectors)
    image_bytes = ITEMSIZE[workload.dtype] * pixels * workload.channels
    read = Traffic(bytes=image_bytes * (1 if is_forward else 2), held_bytes=workload.bytes / threads)
    # What goes from the convolution to the norm and back stays in the cache.
    held = 4.0 * workload.channels * math.prod(workload.output_size) / (blocks if is_forward else 1)
    return CpuWork(
        tasks=tasks,
        threads=threads,
        share=largest_share(tasks, threads),
        tiles=pixels,
        multiply_adds=2 * loads,
        loads=loads,
        stores=stores,
        others=PIXEL_INSTRUCTIONS[workload.pass_] * pixels + conversions(workload.dtype, loaded=loads, stored=stores),
        turns=3 * vectors,
        traffic=(read, Traffic(bytes=2 * 4 * pixels * workload.channels, held_bytes=held)),
        scratches=0 if is_forward else tasks,
    )
