"""Candidates as a GPU of known constants would run them."""

from __future__ import annotations

import dataclasses
import math
import random

from bench.gpu.fit import MeasuredWork
from dwconv.problems.cost_constants import CostConstants
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.schedules.cuda.gpu.cost import BlockWork, constants_of, total_us

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
WORKLOADS, CANDIDATES = 8, 10


def works(draw: random.Random, *, elements: float) -> tuple[BlockWork, ...]:
    """A kernel that moves so many elements, cut in some way; often with a small one after it."""
    blocks = draw.choice([40, 132, 300, 1000, 4000])
    threads = draw.choice([64, 128, 256])
    once = 8 * elements
    kernel = BlockWork(
        blocks=blocks, threads=threads, registers=draw.choice([32, 64, 128]), shared_bytes=draw.choice([0, 20_000]),
        instructions=elements * draw.choice([0.3, 1, 3]) / blocks, fma=elements * draw.choice([0.1, 0.4]) / blocks,
        lines=elements * draw.choice([0.05, 0.1, 0.3]) / blocks, bank_turns=elements * draw.choice([0, 0.2]) / blocks,
        dram_bytes=once, cache_bytes=once * draw.choice([1, 2, 5]), again_bytes=once * draw.choice([0, 0.5]),
        bytes_in_flight=threads * draw.choice([16, 32, 64]), waits=draw.choice([1, 4, 16]),
    )  # fmt: skip
    small = dataclasses.replace(kernel, blocks=20, dram_bytes=1e4, cache_bytes=1e4, again_bytes=0.0)
    return (kernel, small) if draw.random() < 0.4 else (kernel,)


def measured_with(truth: CostConstants, *, noise: float = 0.0, workloads: int = WORKLOADS) -> list[MeasuredWork]:
    """What candidates would take on a GPU of these constants."""
    draw, there = random.Random(0), dataclasses.replace(SM_90, fitted=truth)
    found = []
    for number in range(workloads):
        elements = 10 ** draw.uniform(5, 8.5)
        for _ in range(CANDIDATES):
            cut = works(draw, elements=elements)
            us = total_us(cut, there, warm=True) * math.exp(draw.gauss(0, noise))
            found.append(MeasuredWork(workload=f"layer {number}", works=cut, median_us=us))
    return found


def truth(**times: float) -> CostConstants:
    """The computed constants, some of them times something."""
    known = constants_of(SM_90)
    return dataclasses.replace(known, **{name: getattr(known, name) * by for name, by in times.items()})


OTHERWISE = truth(
    memory_gb_per_s=0.8, cache_gb_per_s=0.6, clock_ghz=1.1, launch_us=1.7, dram_latency_cycles=0.7,
    bytes_in_flight_per_sm=0.6, not_hidden=2.0, alone=0.5,
)  # fmt: skip
