"""Plain execution and schedules, timed in turns, and which of them runs.

    plain   S1   S3   S1+S3   gradients        a few steps of each, in turns, on threads of its own
    plain        S3                            the best one against plain, longer
    S3 runs, if it is faster than plain by more than the noise, and nothing disturbed the times; else plain

The fastest of many may be so by chance, so it is timed again, and only that time counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dwconv.concurrency.engine import workers
from dwconv.concurrency.options import PLAIN
from dwconv.concurrency.task_timer import TimeLeft
from dwconv.errors import OutOfTime
from dwconv.measure.clock.timing import Call, Clock, Lap
from dwconv.records.record import CONTENDED, Measurement

_SIGMAS = 3.0
_MEDIAN_ERROR = 1.25 / 1.35
"""Standard error of a median over its rounds' interquartile range, times the root of their number."""
_LEAST_GAIN = 0.01
"""A smaller gain is not worth a thing that can go wrong."""
_LEAST_ROUNDS, _ROUNDS, _FINAL_ROUNDS = 3, 5, 15
_WARM_UP = 2
"""Calls before one that is timed: the first starts the threads that it needs, and the next still finds new memory."""
_SHARE = 0.6
"""The share of the time for the first comparison."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What ran how fast. ``steps``: by name, plain execution among them, the last time each was measured."""

    winner: str
    """``plain``, or the schedule that runs."""
    reason: str
    steps: dict[str, Measurement]
    trusted: bool
    """False if other work disturbed the times, or there were too few: plain execution runs, and nothing is kept."""


def rest() -> None:
    """End the threads of the last run. Teams of OpenMP that idle workers still have count as threads of the process;
    where these are more than the cores, OpenMP's threads sleep at every join, and plain execution takes up to twice as
    long."""
    workers.end()


def lap_apart(clock: Clock, call: Call) -> Lap:
    """One call of a step, on threads of its own, which some calls before have warmed up."""
    rest()
    for _ in range(_WARM_UP):
        call()
    return clock.lap(call, times=1)


def noise_us(one: Measurement, other: Measurement) -> float:
    """By how much two medians may differ without meaning anything."""
    errors = [_MEDIAN_ERROR * each.spread_us / math.sqrt(max(each.rounds, 1)) for each in (one, other)]
    return _SIGMAS * math.hypot(*errors)


def fastest(calls: Mapping[str, Call], *, clock: Clock, budget: TimeLeft, fall_back: bool) -> Ranking:
    """Time ``calls``, of which one is ``plain`` and the first ones of the others are the most promising. Without
    ``fall_back`` plain execution is measured beside the others, but does not win. Raises OutOfTime, at most one call
    late, if there is too little time to compare anything."""
    calls = {name: budget.bounded(call) for name, call in calls.items()}
    others = _affordable(calls, budget)
    if not others:
        return Ranking(winner=PLAIN, reason="no schedule was offered", steps={}, trusted=True)
    steps: dict[str, Measurement] = {}
    if len(others) > 1:
        first = {name: calls[name] for name in (PLAIN, *others)}
        steps = _timed(first, clock=clock, rounds=_ROUNDS, budget=budget.part(_SHARE))
        others.sort(key=lambda name: steps[name].median_us)
    best = others[0]
    final = _timed({PLAIN: calls[PLAIN], best: calls[best]}, clock=clock, rounds=_FINAL_ROUNDS, budget=budget)
    steps |= final
    plain, found = final[PLAIN], final[best]
    noise = noise_us(plain, found)
    gained_us = plain.median_us - found.median_us
    reason = _reason(best, gained_us=gained_us, noise=noise, plain_us=plain.median_us)
    wins = gained_us > max(noise, _LEAST_GAIN * plain.median_us)
    lost = max(plain.contention, found.contention)
    if lost > CONTENDED:
        said = f"other work took {lost:.0%} of the time while it was measured, so no schedule counts"
        return Ranking(winner=PLAIN, reason=said, steps=steps, trusted=False)
    return Ranking(
        winner=best if wins or not fall_back else PLAIN,
        reason=reason if wins or fall_back else f"{reason}; plain execution was ruled out",
        steps=steps,
        trusted=True,
    )


def _affordable(calls: Mapping[str, Call], budget: TimeLeft) -> list[str]:
    """The schedules that there is time to compare, by a first step of plain execution; none if there are
    none. Raises OutOfTime if there is no time for any."""
    others = [name for name in calls if name != PLAIN]
    if not others:
        return []
    left_s = budget.left_s
    calls[PLAIN]()
    took_s = left_s - budget.left_s
    turns = budget.left_s / max(took_s * (_WARM_UP + 1), 1e-9)
    if turns < 2 * _LEAST_ROUNDS:
        raise OutOfTime("there is no time to compare steps")
    most = int(turns) // _LEAST_ROUNDS - 3  # beside plain in both comparisons, and the winner once more
    return others[: max(1, most)]


def _reason(best: str, *, gained_us: float, noise: float, plain_us: float) -> str:
    share = f"{abs(gained_us) / plain_us:.1%}"
    if gained_us <= 0:
        return f"{best}, the fastest schedule, is {share} slower than plain execution"
    said = f"{best} is {share} faster than plain execution"
    least = max(noise, _LEAST_GAIN * plain_us)
    return said if gained_us > least else f"{said}, which may be noise: {least / plain_us:.1%} and less does not count"


def _timed(calls: Mapping[str, Call], *, clock: Clock, rounds: int, budget: TimeLeft) -> dict[str, Measurement]:
    """A step is long, so a lap is one call. There are ``rounds`` rounds, or fewer when the time is up, but
    some."""
    lost = clock.overall()
    taken: list[dict[str, Lap]] = []
    uncontended: list[dict[str, Lap]] = []
    while len(taken) < rounds and (len(taken) < _LEAST_ROUNDS or budget.left_s):
        lost_in_round = clock.overall()
        try:
            taken.append({name: lap_apart(clock, call) for name, call in calls.items()})
        except OutOfTime:
            if len(taken) < _LEAST_ROUNDS:
                raise
            break
        if lost_in_round() <= CONTENDED and not any(lap.contended for lap in taken[-1].values()):
            uncontended.append(taken[-1])
    kept = uncontended if len(uncontended) >= _LEAST_ROUNDS else taken
    overall = lost()
    return {name: measurement([laps[name] for laps in kept], lost=overall) for name in calls}


def measurement(laps: Sequence[Lap], *, lost: float) -> Measurement:
    """Of laps of one call each. ``lost``: the share of their time that other work took."""
    contention = max(lost, statistics.mean(lap.lost for lap in laps))
    return Measurement.of([lap.seconds * 1e6 for lap in laps], contention=contention)
