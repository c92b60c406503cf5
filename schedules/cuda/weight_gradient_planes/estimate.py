"""The work of a block of the weight gradient by whole planes, in plain integers. No TVM here."""

from __future__ import annotations

import math

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, WARP
from dwconv.schedules.cuda.gpu.occupancy import occupancy, registers_left
from dwconv.schedules.cuda.gpu.split_sum import adding_work
from dwconv.schedules.cuda.weight_gradient_planes.cut import Cut
from dwconv.schedules.cuda.weight_gradient_planes.thread_work import (
    instructions_of_image,
    instructions_of_sums,
    loads_of,
    products_of,
    registers_of,
)


def block_works(cut: Cut, target: CudaTarget) -> tuple[BlockWork, ...]:
    """The kernel that reads x and dy, and the one that adds what its blocks wrote, if they are several parts."""
    first = _of_sums(cut, target)
    if cut.split_n == 1:
        return (first,)
    return first, adding_work(parts=cut.split_n, results=cut.results, target=target)


def _of_sums(cut: Cut, target: CudaTarget) -> BlockWork:
    workload, itemsize = cut.workload, ITEMSIZE[cut.workload.dtype]
    warps, sums = -(-cut.threads // WARP), instructions_of_sums(cut)
    width = min(cut.x.lanes, cut.dy.lanes) * itemsize
    read = warps * loads_of(cut) * max(1.0, width / BANK_BYTES) * cut.layout.turns
    piece = cut.images * cut.planes * (cut.x.elements + cut.dy.elements) * itemsize
    written = float(BANK_BYTES * cut.split_n * cut.results if cut.split_n > 1 else 0)
    return BlockWork(
        blocks=cut.channel_blocks * cut.split_n,
        threads=cut.threads,
        registers=registers_left(target, threads=cut.threads, blocks=blocks_at_a_time(cut, target)),
        shared_bytes=cut.shared_bytes,
        instructions=warps * (cut.turns * instructions_of_image(cut) + sums),
        fma=float(warps * cut.turns * products_of(cut)),
        lines=cut.turns * piece / LINE_BYTES,
        bank_turns=cut.turns * (read + piece / LINE_BYTES) + warps * sums / 4,
        dram_bytes=workload.bytes + written,
        cache_bytes=workload.bytes + written,
        bytes_in_flight=float(min(cut.pipeline, cut.turns) * piece),
        waits=math.ceil(cut.turns / cut.pipeline),  # as many turns as have room ask for their planes at once
        loads_ahead=cut.pipeline > 1,
    )


def blocks_at_a_time(cut: Cut, target: CudaTarget) -> int:
    """Blocks on an SM, by its threads, its shared memory, and the registers that a thread should need; at least 1."""
    alone = occupancy(threads=cut.threads, registers=1, shared_bytes=cut.shared_bytes, target=target)
    return next((count for count in range(alone.blocks_per_sm, 0, -1) if holds(cut, target, count)), 1)


def holds(cut: Cut, target: CudaTarget, count: int) -> bool:
    """Whether so many blocks on an SM leave a thread the registers that it should need."""
    left = registers_left(target, threads=cut.threads, blocks=count)
    return left >= min(registers_of(cut), target.registers_per_thread)
