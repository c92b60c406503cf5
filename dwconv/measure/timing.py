"""How long a call takes: in rounds, taking turns with whatever it is compared to.

What disturbs a machine for a while then disturbs all of them alike. A round is many calls, so that reading the clock
costs nothing; the median over the rounds forgets those that were interrupted.
"""

from __future__ import annotations

import math
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from dwconv.records.record import Measurement

Call = Callable[[], object]

_LEAST_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much time to spend."""

    round_s: float
    """A round takes at least this long."""
    rounds: int
    """Undisturbed rounds of each call that are enough."""
    budget_s: float
    """After this long, what there is must do, if it is three rounds."""


# One trial; the last word on the finalists; and a first impression.
TRIAL = Effort(round_s=0.002, rounds=15, budget_s=0.15)
FINAL = Effort(round_s=0.004, rounds=31, budget_s=1.5)
GLANCE = Effort(round_s=0.001, rounds=5, budget_s=0.05)


@dataclass(frozen=True, kw_only=True)
class Lap:
    """Some calls in a row."""

    seconds: float
    disturbed: bool
    """Another process had one of our cores meanwhile: a parallel kernel then waits for its slowest thread, for
    milliseconds."""


class Clock(Protocol):
    """Times calls that run on a device."""

    def lap(self, call: Call, *, times: int) -> Lap: ...


class CpuClock:
    """The wall clock."""

    def lap(self, call: Call, *, times: int) -> Lap:
        interruptions = _interruptions()
        started = time.perf_counter()
        for _ in range(times):
            call()
        seconds = time.perf_counter() - started
        return Lap(seconds=seconds, disturbed=_interruptions() > interruptions)


class CudaClock:
    """CUDA events around the calls, on the device's own clock. The device waits for the first launch, and for every one
    that takes longer to come than the kernel before it to run: so does who calls it. CUDA graphs leave that out.

    Not yet run on a GPU."""

    def lap(self, call: Call, *, times: int) -> Lap:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return Lap(seconds=start.elapsed_time(end) / 1e3, disturbed=False)


def time_in_turns(
    calls: Mapping[str, Call], *, clock: Clock, effort: Effort, hopeless_above_us: float | None = None
) -> dict[str, Measurement]:
    """Measure ``calls`` round by round, one after the other.

    Disturbed rounds are set aside, the same for all, where enough others are left. Ends after three rounds if the
    first of ``calls`` is clearly slower than ``hopeless_above_us``."""
    started = time.perf_counter()
    times = {name: _calls_a_round(call, clock=clock, round_s=effort.round_s) for name, call in calls.items()}
    rounds: list[dict[str, Lap]] = []
    first = next(iter(calls))
    while True:
        rounds.append({name: _round(call, clock=clock, times=times[name]) for name, call in calls.items()})
        good = [laps for laps in rounds if not any(lap.disturbed for lap in laps.values())]
        if len(good) >= effort.rounds:
            break
        if len(rounds) < _LEAST_ROUNDS:
            continue
        if time.perf_counter() - started > effort.budget_s:
            break
        fastest_us = min(laps[first].seconds for laps in rounds) / times[first] * 1e6
        if hopeless_above_us is not None and fastest_us > hopeless_above_us:
            break
    kept = good if len(good) >= _LEAST_ROUNDS else rounds
    return {name: _measurement([laps[name].seconds / times[name] * 1e6 for laps in kept]) for name in calls}


def _calls_a_round(call: Call, *, clock: Clock, round_s: float) -> int:
    """How many calls fill a round; warms up on the way."""
    call()
    lap = clock.lap(call, times=1)
    if lap.disturbed:  # it may have taken any time
        lap = min(lap, clock.lap(call, times=1), key=lambda lap: lap.seconds)
    once_s = max(lap.seconds, 1e-7)
    if once_s < round_s:  # a single short call is mostly clock and cold caches
        times = math.ceil(round_s / 2 / once_s)
        once_s = max(clock.lap(call, times=times).seconds / times, 1e-7)
    return math.ceil(round_s / once_s)


def _round(call: Call, *, clock: Clock, times: int) -> Lap:
    if times > 1:  # take the caches over from the call before; where one call fills a round, that hardly matters
        call()
    return clock.lap(call, times=times)


def _measurement(rounds_us: list[float]) -> Measurement:
    quarter, _, three_quarters = statistics.quantiles(rounds_us, n=4, method="inclusive")
    return Measurement(
        median_us=statistics.median(rounds_us), spread_us=three_quarters - quarter, rounds=len(rounds_us)
    )


def _interruptions() -> int:
    """How often a thread of this process has had to give its core to another process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
