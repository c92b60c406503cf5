"""How sums of several threads, and of several blocks, become one: plain integers, no TVM here."""

from __future__ import annotations

SHARED_WORDS = 4096
"""Of shared memory for sums on their way from thread to thread. More sums than fit go in turns."""


def first_half(mates: int) -> int:
    """Threads that add what the others pass on, the first time."""
    return -(-mates // 2)


def halvings(mates: int) -> int:
    """Until one of the threads has all sums."""
    return (mates - 1).bit_length()


ADDING_LANES, ADDING_THREADS = 32, 256
"""Of the second kernel's blocks: so many neighbouring results, and at most so many threads."""


def adding_shares(parts: int) -> int:
    """Threads of the second kernel that share the parts of a result."""
    return max(1, min(ADDING_THREADS // ADDING_LANES, parts // 4))
