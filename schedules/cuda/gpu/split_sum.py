"""How sums of several threads, and of several blocks, become one: plain integers, no TVM here."""

from __future__ import annotations

from dwconv.problems.target import CudaTarget
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, WARP

SHARED_WORDS = 4096
"""Shared memory for sums on their way from thread to thread. More sums than fit go in turns."""


def first_half(mates: int) -> int:
    """Threads that add what the others pass on, the first time."""
    return -(-mates // 2)


def halvings(mates: int) -> int:
    """Until one of the threads has all sums."""
    return (mates - 1).bit_length()


ADDING_LANES, ADDING_THREADS = 32, 256
"""A block of the second kernel has so many neighbouring results, and at most so many threads."""

ADDED_AT_A_TIME = 4
"""Parts that a thread of the second kernel has on their way."""
ADDING_INSTRUCTIONS, ADDING_REGISTERS = 8, 32
"""Instructions of a thread of the second kernel for each part, and its registers."""


def adding_shares(parts: int) -> int:
    """Threads of the second kernel that share the parts of a result."""
    return max(1, min(ADDING_THREADS // ADDING_LANES, parts // 4))


def adding_work(*, parts: int, results: int, target: CudaTarget) -> BlockWork:
    """The second kernel: ``results`` sums of ``parts`` each, which the blocks of the first one wrote."""
    shares = adding_shares(parts)
    blocks, threads = -(-results // ADDING_LANES), shares * ADDING_LANES
    warps, each = -(-threads // WARP), parts / shares
    size = float(BANK_BYTES * parts * results)
    return BlockWork(
        blocks=blocks,
        threads=threads,
        registers=ADDING_REGISTERS,
        shared_bytes=0,
        instructions=warps * ADDING_INSTRUCTIONS * each,
        fma=0.0,
        lines=warps * each,
        bank_turns=0.0,
        dram_bytes=size if size > target.limits.cache_bytes / 2 else 0.0,  # else it is still in the cache
        cache_bytes=size,
        bytes_in_flight=float(BANK_BYTES * min(each, ADDED_AT_A_TIME) * threads),
    )
