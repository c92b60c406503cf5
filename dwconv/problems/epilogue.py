"""The right answer of an epilogue, and the error that a kernel is allowed: of what is stored in place of a sum z.

silu            y = z · σ(z)
silu_gradient   dz = dy · silu′(z),  silu′(z) = σ(z) · (1 + z · (1 − σ(z)))
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dwconv.problems.workload import Workload

_STEEPEST = 1.1
"""silu′ is at most 1.0998…; silu″, the next, at most 0.5."""
_MOST_CURVED = 0.5
_ROUNDINGS = 8.0
"""Rounding errors of one float32 operation, or units in the last place of an exp, that an epilogue may add up."""
_SMALLEST_STEP = 2.0**-149
"""Below the smallest normal number of float32, where σ(z) has fewer digits, errors are of this size."""


def apply(workload: Workload, z: Tensor, dy: Tensor | None) -> Tensor:
    """What is stored for the sums ``z``, in their type."""
    if workload.epilogue == "none":
        return z
    if workload.epilogue == "silu":
        return F.silu(z)
    assert dy is not None
    # PyTorch's derivative makes NaN of ±∞, as kernels do.
    return torch.ops.aten.silu_backward(dy.to(z.dtype), z)


def allowed_error(workload: Workload, z: Tensor, dy: Tensor | None, *, of_z: Tensor | float, rounding: float) -> Tensor:
    """The error that float32 arithmetic may leave in the result, before it is stored, if that of ``z`` is at most
    ``of_z``; ``rounding``: the relative error of one operation. All in float64."""
    own, least = _ROUNDINGS * rounding, _SMALLEST_STEP * (1 + z.abs())
    if workload.epilogue == "silu":
        return _STEEPEST * of_z + own * F.silu(z).abs() + least
    assert workload.epilogue == "silu_gradient" and dy is not None
    sigmoid = torch.sigmoid(z)
    magnitude = sigmoid * (1 + z.abs() * torch.sigmoid(-z))  # of its terms, which may cancel out
    return dy.double().abs() * (_MOST_CURVED * of_z + own * magnitude + least)


def weight_scale(workload: Workload) -> float:
    """What whole-numbered weights are multiplied by, so that sums of them stay where an activation still keeps them
    apart: for large z it is z or zero. A power of two, which changes no rounding."""
    if workload.epilogue == "none":
        return 1.0
    return 2.0 ** -max(0, math.ceil(math.log2(math.sqrt(math.prod(workload.kernel)))))
