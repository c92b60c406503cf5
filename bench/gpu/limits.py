"""The limits of a device, measured: nominal figures are higher than any kernel can reach."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from dwconv.kernels.wire import message
from dwconv.measure.clock.device import clock_of
from dwconv.measure.clock.timing import Call, Effort, time_in_turns
from dwconv.problems.target import Limits, Target

EFFORT = Effort(round_s=0.004, rounds=15, budget_s=0.6)


_LEAST_RATE = 1e-6
"""Keeps a limit of zero from being divided by."""


@message
@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes on which the limits are measured."""

    memory_bytes: int = 1 << 30
    """Size of a copy in memory: many times the cache."""
    small_bytes: int = 4 << 20
    """Size of a copy like that of a small map, which stays in the cache and ends before all of the device is busy."""
    product: int = 8192
    """Rows and columns of the matrices that are multiplied."""


def limits_of(target: Target, sizes: Sizes) -> dict[str, float]:
    """Copy bandwidths in GB/s, read and written bytes together, and float32 multiply-adds in GFLOP/s."""
    return {
        "memory_gb_per_s": copy_gb_per_s(sizes.memory_bytes, target),
        "cache_gb_per_s": copy_gb_per_s(target.cache_bytes // 4, target),
        "small_gb_per_s": copy_gb_per_s(sizes.small_bytes, target),
        "peak_gflop_per_s": fma_gflop_per_s(sizes.product, target),
    }


def as_limits(known: dict[str, float], target: Target) -> Limits:
    """The limits that were measured; for the others, the published ones of the device."""
    nominal = dataclasses.asdict(target.limits) if target.limits else {}

    def rate(name: str) -> float:
        return max(known.get(name) or nominal.get(name, 0.0), _LEAST_RATE)

    return Limits(
        cache_bytes=target.cache_bytes,
        memory_gb_per_s=rate("memory_gb_per_s"),
        cache_gb_per_s=rate("cache_gb_per_s"),
        peak_gflop_per_s=rate("peak_gflop_per_s"),
    )


def copy_gb_per_s(size_bytes: int, target: Target) -> float:
    """Bandwidth of a copy of ``size_bytes``, read and written bytes together."""
    source = torch.zeros(max(1, size_bytes), dtype=torch.uint8, device=target.kind)
    copied = torch.empty_like(source)
    return 2 * source.nbytes / _median_us(lambda: copied.copy_(source), target) / 1e3


def fma_gflop_per_s(size: int, target: Target) -> float:
    """Rate of a large matrix product without tensor cores, two operations for each multiply-add: within some per cent
    of what the device can issue."""
    a, b = (torch.randn(size, size, device=target.kind) for _ in range(2))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return 2 * size**3 / _median_us(lambda: a @ b, target) / 1e3
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _median_us(call: Call, target: Target) -> float:
    taken = time_in_turns({"call": call}, clock=clock_of(target), effort=EFFORT)
    return max(taken["call"].median_us, 1e-6)
