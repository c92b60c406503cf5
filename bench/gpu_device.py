"""What ``bench cuda`` asks of the device it runs on: few functions, the same on a CPU, where tests run them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

from dwconv import native, settings
from dwconv.measure.timing import Call, Clock, CpuClock, CudaClock, Effort, Lap, time_in_turns
from dwconv.records.record import Measurement
from dwconv.target import Target


def clock_of(target: Target) -> Clock:
    """Times calls on the target."""
    return CudaClock() if target.kind == "cuda" else CpuClock()


def cache_bytes(target: Target) -> int:
    """Size of the last cache before the memory."""
    return target.limits.cache_bytes if target.kind == "cuda" else target.cache_bytes


def warm_up(target: Target) -> None:
    """Make the device and what loads kernels ready, which takes seconds at its first use in a process; raises the
    device's error."""
    import tvm  # noqa: F401

    if target.kind == "cpu":  # the short way of calls is compiled the first time
        native.native(limit_s=0.8 * settings.WORKER_START_TIMEOUT_S)
    torch.zeros(1, device=target.kind)
    synchronize(target)


def synchronize(target: Target) -> None:
    """Wait until the device has done what it was given; raises its error."""
    if target.kind == "cuda":
        torch.cuda.synchronize()


def made_ready(call: Call, *, clock: Clock) -> Call:
    """What laps are taken of: on a GPU a graph of many calls. Raises CannotBeCaptured."""
    ready: Callable[[Call], Call] | None = getattr(clock, "ready", None)
    return ready(call) if ready else call


def timed_as_made(
    calls: Mapping[str, Call], *, clock: Clock, effort: Effort, calls_in_each: Mapping[str, int] | None = None
) -> dict[str, Measurement]:
    """``time_in_turns`` of calls that ``made_ready`` gave, each under its own settings. Where one of them is several
    calls in a row, ``calls_in_each`` tells how many: times are of one."""
    taken = time_in_turns(calls, clock=_AsMade(clock), effort=effort)
    counts = calls_in_each or {}
    return {name: _of_one(measured, max(1, counts.get(name, 1))) for name, measured in taken.items()}


def host_us(call: Call, *, target: Target, calls: int = 200) -> float:
    """What a call takes the caller, who does not wait for the device."""
    for _ in range(10):
        call()
    synchronize(target)
    started_s = time.perf_counter()
    for _ in range(calls):
        call()
    taken_s = time.perf_counter() - started_s
    synchronize(target)
    return taken_s / max(1, calls) * 1e6


class _AsMade:
    """The clock, of calls that are ready already."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def ready(self, call: Call) -> Call:
        return call

    def lap(self, call: Call, *, times: int) -> Lap:
        return self._clock.lap(call, times=times)

    def overall(self) -> Callable[[], float]:
        return self._clock.overall()


def _of_one(measured: Measurement, calls: int) -> Measurement:
    return Measurement(
        median_us=measured.median_us / calls,
        spread_us=measured.spread_us / calls,
        rounds=measured.rounds,
        contention=measured.contention,
    )
