"""How the threads of a block that have sums in common halve until one is left: plain integers, no TVM here."""

from __future__ import annotations

SHARED_WORDS = 4096
"""Of shared memory for sums on their way from thread to thread. More sums than fit go in turns."""


def first_half(mates: int) -> int:
    """Threads that add what the others pass on, the first time."""
    return -(-mates // 2)


def halvings(mates: int) -> int:
    """Until one of the threads has all sums."""
    return (mates - 1).bit_length()
