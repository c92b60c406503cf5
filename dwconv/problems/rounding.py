"""Numbers in float64, each beside a bound on the error that float32 arithmetic may leave in it.

What is computed of numbers takes their errors along, to first order. Near a kink of an activation, as near as the error
of what it is applied to, either derivative is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dwconv.problems.block import Activation
from dwconv.problems.workload import DType

ROUNDING = 2.0**-24
"""The relative error of one float32 operation."""
SHORT_SUM = 8.0
"""Rounding errors of a sum of n terms grow like sqrt(n), if they are independent; the constant covers short sums."""
FEW = 8.0
"""Roundings of what is no sum."""
_STORE_ROUNDING: dict[DType, float] = {"float32": ROUNDING, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The relative error of storing a number."""
SMALLEST_STEP: dict[DType, float] = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""What numbers below the smallest normal one of a type are rounded to."""
SMALLEST = SMALLEST_STEP["float32"]


@dataclass(frozen=True, kw_only=True)
class ActivationBounds:
    """What of an activation bounds errors."""

    apply: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    steepest: float
    """Its derivative is at most so large."""
    most_curved: float
    """The derivative changes by at most so much for each unit, but for the kinks."""
    kinks: tuple[tuple[float, float], ...] = ()
    """Where the derivative jumps, and by how much."""


def _silu_derivative(z: Tensor) -> Tensor:
    sigmoid = torch.sigmoid(z)
    return sigmoid * (1 + z * torch.sigmoid(-z))


def _gelu_derivative(z: Tensor) -> Tensor:
    return 0.5 * torch.erfc(-z / math.sqrt(2)) + z * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


KINDS: dict[Activation, ActivationBounds] = {
    "identity": ActivationBounds(apply=lambda z: z, derivative=torch.ones_like, steepest=1, most_curved=0),
    "relu": ActivationBounds(
        apply=F.relu, derivative=lambda z: (z > 0).to(z.dtype), steepest=1, most_curved=0, kinks=((0, 1),)
    ),
    "relu6": ActivationBounds(
        apply=F.relu6,
        derivative=lambda z: ((z > 0) & (z < 6)).to(z.dtype),
        steepest=1,
        most_curved=0,
        kinks=((0, 1), (6, 1)),
    ),
    "hardswish": ActivationBounds(
        apply=F.hardswish,
        derivative=lambda z: torch.where(z <= -3, 0.0, torch.where(z < 3, z / 3 + 0.5, 1.0)).to(z.dtype),
        steepest=1.5,
        most_curved=1 / 3,
        kinks=((-3, 0.5), (3, 0.5)),
    ),
    "silu": ActivationBounds(apply=F.silu, derivative=_silu_derivative, steepest=1.1, most_curved=0.5),
    "gelu": ActivationBounds(apply=F.gelu, derivative=_gelu_derivative, steepest=1.13, most_curved=0.8),
}


@dataclass(frozen=True)
class About:
    """Numbers, and how far a kernel's may be off, to first order."""

    value: Tensor
    error: Tensor

    @property
    def magnitude(self) -> Tensor:
        return self.value.abs() + self.error


def stored(dtype: DType, value: Tensor, error: Tensor) -> Tensor:
    """The error of numbers that are rounded to a type when they already have ``error``."""
    return error + _STORE_ROUNDING[dtype] * (value.abs() + error) + SMALLEST_STEP[dtype]


def rounding_of_means(image: Tensor) -> float:
    return ROUNDING * (SHORT_SUM + math.sqrt(image.shape[1]))


def product(first: About, second: About) -> About:
    value = first.value * second.value
    carried = first.error * second.magnitude + first.value.abs() * second.error
    return About(value, carried + FEW * ROUNDING * value.abs())


def spread_out(channels: About, x: About) -> About:
    return About(over_pixels(channels.value, x), over_pixels(channels.error, x))


def exact(value: Tensor) -> About:
    return About(value, torch.zeros_like(value))


def moments(x: About, axes: tuple[int, ...]) -> tuple[About, About]:
    """The mean of each channel over ``axes``, and its variance. Kernels sum what is left beside a pixel of the channel,
    or of a part of it, so that no sum is larger than the channel's spread makes it."""
    mean = x.value.mean(axes)
    off = (x.value - over_pixels(mean, x)).abs()
    spread = off + over_pixels(off.amax(axes), x)
    rounding = ROUNDING * (SHORT_SUM + math.sqrt(count_along(x.value, axes)))
    of_mean = x.error.mean(axes) + rounding * spread.mean(axes) + FEW * ROUNDING * mean.abs()
    carried = x.error + over_pixels(of_mean, x)
    of_var = (2 * off * carried + carried**2).mean(axes) + rounding * (spread**2).mean(axes) + SMALLEST
    return About(mean, of_mean), About((off**2).mean(axes), of_var)


def sum_of(x: About, axes: tuple[int, ...] | None = None) -> About:
    """Over ``axes``; by default all but that of the channels."""
    axes = axes or all_but_channels(x.value)
    count = count_along(x.value, axes)
    own = ROUNDING * (SHORT_SUM + math.sqrt(count)) * x.magnitude.sum(axes) + count * SMALLEST
    return About(x.value.sum(axes), x.error.sum(axes) + own)


def count_along(image: Tensor, axes: tuple[int, ...]) -> int:
    """Elements along these axes."""
    return math.prod(image.shape[axis] for axis in axes)


def activated(act: Activation, z: About) -> About:
    kind = KINDS[act]
    a = kind.apply(z.value)
    own = 0.0 if act in ("identity", "relu", "relu6") else FEW * ROUNDING * (a.abs() + SMALLEST)
    if act == "gelu":  # whose 1 + erf(z) cancels out for negative z, in PyTorch, too
        own = own + FEW * ROUNDING * z.value.abs()
    return About(a, kind.steepest * z.error + own)


def through(act: Activation, z: About, gradient: About) -> About:
    """``gradient`` · act′(z)"""
    kind = KINDS[act]
    slope = kind.derivative(z.value)
    off = kind.most_curved * z.error + (0.0 if kind.most_curved == 0 else FEW * ROUNDING * (1 + slope.abs()))
    for at, jump in kind.kinks:
        off = off + jump * ((z.value - at).abs() <= z.error)
    return About(gradient.value * slope, gradient.error * (slope.abs() + off) + gradient.value.abs() * off)


def over_pixels(channels: Tensor, like: About) -> Tensor:
    return channels.view(*channels.shape, *(1,) * (like.value.dim() - 2))


def all_but_channels(image: Tensor) -> tuple[int, ...]:
    return (0, *pixel_axes(image))


def pixel_axes(image: Tensor) -> tuple[int, ...]:
    """The axes of its pixels."""
    return tuple(range(2, image.dim()))
