"""Until: when a search has come near enough to what the device allows, and what it leaves.

    the best has the requested share of the limit                      ──► it is near
    further trials are expected to gain less than 1 % of a step,
    and less than 1 − share of the pass, so that many add up to little ──► little is left

A search gains ever less: as many trials again are expected to gain what the second half of them gained, and never less
than ``_USUAL_GAIN`` over their number. The limit bounds both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dwconv.records.record import Status, TuningRecord

WORTH = 0.01
"""Share of a step that further trials of a pass must be expected to gain."""
LEAST_TRIALS = 8
"""Before these nothing is expected."""
_USUAL_GAIN = 0.6
"""Over the number of trials: the share that all further ones gain where the latest gained nothing."""


@dataclass(frozen=True, kw_only=True)
class Until:
    """For the search of one pass."""

    share: float
    """Of the device's limit, and of what all further trials may come to: from there on its search is over."""
    calls: int
    """How often a step runs the pass."""
    step_us: float
    """How long all depthwise passes of a step take, as far as it is known."""

    def is_near(self, best_us: float, limit_us: float | None) -> bool:
        """Whether the best is near the limit; False if that is unknown. A time below it shows that it is wrong."""
        return limit_us is not None and self.share * best_us <= limit_us <= best_us

    def is_little_left(self, bests_us: Sequence[float], limit_us: float | None) -> bool:
        """``bests_us``: the best time after each trial, infinite before one has worked."""
        if len(bests_us) < LEAST_TRIALS or math.isinf(bests_us[-1]):
            return False
        left_us = further_us(bests_us, limit_us)
        return self.calls * left_us < WORTH * self.step_us and left_us <= (1 - self.share) * bests_us[-1]


@dataclass(frozen=True, kw_only=True)
class TuningLeft:
    """What all further tuning is expected to gain of a step, in microseconds. Prints as ``≤ 4 % of a step``."""

    us: float
    step_us: float
    """All depthwise passes; the step takes longer."""

    @property
    def share(self) -> float:
        return self.us / self.step_us if self.step_us else 0.0

    def __str__(self) -> str:
        return f"≤ {math.ceil(100 * self.share)} % of a step"


def further_us(bests_us: Sequence[float], limit_us: float | None) -> float:
    """What all further trials are expected to gain, in microseconds of one call: at most what the limit leaves."""
    best_us = bests_us[-1]
    earlier_us = bests_us[(len(bests_us) - 1) // 2]
    lately = 1.0 if math.isinf(earlier_us) else 1 - best_us / earlier_us
    expected_us = best_us * min(1.0, max(lately, _USUAL_GAIN / len(bests_us)))
    is_bound = limit_us is not None and limit_us <= best_us  # a time below the limit shows that the limit is wrong
    return min(expected_us, best_us - limit_us) if is_bound and limit_us is not None else expected_us


def bests_us(records: Iterable[TuningRecord]) -> list[float]:
    """The best time after each trial; of several records of a configuration the first counts."""
    best_us, seen, found = math.inf, set(), []
    for record in records:
        if record.config not in seen:
            seen.add(record.config)
            if record.status is Status.OK and record.measurement:
                best_us = min(best_us, record.measurement.median_us)
            found.append(best_us)
    return found
