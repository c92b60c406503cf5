"""The limits of a device, measured: nominal figures are higher than any kernel can reach.

Whichever stage comes first measures them, in seconds: smoke, else race. They need not be known of a new device.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from bench.gpu.run import Run, say
from bench.gpu.worker import GpuFailure, GpuWorker
from dwconv.kernels.entry import message
from dwconv.measure.clock.device import clock_of
from dwconv.measure.clock.timing import Call, Effort, time_in_turns
from dwconv.problems.target import CudaTarget, Limits, Target
from dwconv.schedules.cuda.gpu.cost import LAUNCH_US

EFFORT = Effort(round_s=0.004, rounds=15, budget_s=0.6)


_LEAST_RATE = 1e-6
"""Keeps a limit of zero from being divided by."""


@message
@dataclass(frozen=True, kw_only=True)
class MeasureLimits:
    """A request for the limits of the device, measured on these sizes."""

    memory_bytes: int = 1 << 30
    """Size of a copy in memory: many times the cache."""
    small_bytes: int = 4 << 20
    """Size of a copy like that of a small map, which stays in the cache and ends before all of the device is busy."""
    product: int = 8192
    """Rows and columns of the matrices that are multiplied."""


_START_S = 30.0
"""Time limit of the measurement, the start of its process included."""


def known_limits(run: Run, worker: GpuWorker, sizes: MeasureLimits, *, stage: str) -> None:
    """Measure the limits in ``worker``, whose handler answers ``sizes``, unless they are known; print them."""
    if not run.state.left("limits", ["device"]) or not run.pace.fits:
        return
    try:
        answer = worker.ask(sizes, timeout_s=_START_S, within_s=run.pace.left_s)
        known: dict[str, Any] = {name: round(value, 3) for name, value in answer.items()}
    except GpuFailure as failure:
        known = {"failed": str(failure)}
    run.state.put("limits", "device", known)
    taken = _taken_for_limits(run.target)
    text = (f"{name} {value}" + (f" ({taken[name]:g})" if name in taken else "") for name, value in known.items())
    say(stage, f"limits of the device, in brackets what is taken for them: {', '.join(text)}")


def _taken_for_limits(target: Target) -> dict[str, Any]:
    """What computed costs go by."""
    if not isinstance(target, CudaTarget):
        return {}
    return {**dataclasses.asdict(target.limits), "clock_ghz": target.clock_ghz, "launch_us": LAUNCH_US}


def limits_of(target: Target, sizes: MeasureLimits) -> dict[str, float]:
    """Copy bandwidths in GB/s, read and written bytes together; float32 multiply-adds in GFLOP/s; the time from one
    launch to the next in µs; and on a GPU its clock under load in GHz, and its last cache in bytes."""
    of_any = {
        "memory_gb_per_s": copy_gb_per_s(sizes.memory_bytes, target),
        "cache_gb_per_s": copy_gb_per_s(target.cache_bytes // 4, target),
        "small_gb_per_s": copy_gb_per_s(sizes.small_bytes, target),
        "peak_gflop_per_s": fma_gflop_per_s(sizes.product, target),
        "launch_us": launch_us(target),
    }
    if target.kind == "cpu":
        return of_any
    return {**of_any, "clock_ghz": clock_ghz(target), "cache_bytes": target.cache_bytes}


def as_limits(known: dict[str, float], target: Target) -> Limits:
    """The limits that were measured; for the others, the published ones of the device."""
    names = ("memory_gb_per_s", "cache_gb_per_s", "peak_gflop_per_s")
    none: dict[str, Any] = dict.fromkeys(names, _LEAST_RATE)
    published = target.limits or Limits(cache_bytes=target.cache_bytes, **none)
    measured: dict[str, Any] = {name: max(known[name], _LEAST_RATE) for name in names if name in known}
    return dataclasses.replace(published, cache_bytes=target.cache_bytes, **measured)


def copy_gb_per_s(size_bytes: int, target: Target) -> float:
    """Bandwidth of a copy of ``size_bytes``, read and written bytes together."""
    source = torch.zeros(max(1, size_bytes // 4), device=target.kind)
    copied = torch.empty_like(source)
    # Not copy_: in a graph the driver copies, and 1 GiB on an H200 at 2.7 TB/s, where a kernel reaches 4.2.
    return 2 * source.nbytes / _median_us(lambda: torch.neg(source, out=copied), target) / 1e3


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


def launch_us(target: Target) -> float:
    """The time from one launch to the next of kernels that do next to nothing."""
    one = torch.zeros(1, device=target.kind)
    return _median_us(lambda: one.add_(1), target)


def clock_ghz(target: Target) -> float:
    """Cycles in a nanosecond, of a kernel that counts them."""
    return _SPUN_CYCLES / _median_us(lambda: torch.cuda._sleep(_SPUN_CYCLES), target) / 1e3  # type: ignore[no-untyped-call]


_SPUN_CYCLES = 1_000_000


def _median_us(call: Call, target: Target) -> float:
    taken = time_in_turns({"call": call}, clock=clock_of(target), effort=EFFORT)
    return max(taken["call"].median_us, 1e-6)
