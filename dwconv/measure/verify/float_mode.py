"""Float mode: how the CPU rounds, and whether it keeps denormals. Each thread has its own; code that changes it and
leaves it so makes whatever runs there later give other results."""

from __future__ import annotations

import sys

import torch

MODE_CHANGED = "float mode: it changed how the CPU rounds, or made it flush denormals, and left it so"

# Not written where they are used: Python would compute with constants beforehand.
_ONE, _LITTLE, _SMALLEST_NORMAL = 1.0, 2.0**-60, sys.float_info.min
_PER_THREAD = 1 << 15
"""Elements that PyTorch gives to one thread at least."""


def mode() -> tuple[bool, ...]:
    """Of this thread: the same value, the same mode."""
    return (_SMALLEST_NORMAL / 2 != 0.0, _ONE + _LITTLE == _ONE, _ONE - _LITTLE == _ONE)


def team_keeps_denormals() -> bool:
    """True if all threads do that PyTorch's operators run on."""
    tensor = torch.full((_PER_THREAD * torch.get_num_threads(),), torch.finfo(torch.float32).tiny)
    return bool(tensor.mul_(0.5).ne_(0.0).all())
