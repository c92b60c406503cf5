"""A whole scaling curve from the times of a few thread counts."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dwconv.concurrency.graph.task_graph import ScalingCurve


def interpolated(tried_us: Mapping[int, float], *, cores: int) -> ScalingCurve:
    """The curve through ``tried_us`` for 1 to ``cores`` threads.

    Between two counts the time is a line over 1/threads, which is exact where a part of the work is serial and the rest
    is divided evenly (Amdahl). Beyond the last count the line through the last two goes on over the threads, but never
    downwards: trying ended there because time did not fall any more."""
    counts = sorted(tried_us)
    return ScalingCurve(median_us={count: _at(count, counts, tried_us) for count in range(1, cores + 1)})


def _at(count: int, counts: list[int], tried_us: Mapping[int, float]) -> float:
    if count in tried_us:
        return tried_us[count]
    below = [known for known in counts if known < count]
    above = [known for known in counts if known > count]
    if not below:
        return tried_us[above[0]]
    if not above:
        return _beyond(count, counts, tried_us)
    low, high = below[-1], above[0]
    weight = (1 / count - 1 / high) / (1 / low - 1 / high)
    return weight * tried_us[low] + (1 - weight) * tried_us[high]


def _beyond(count: int, counts: list[int], tried_us: Mapping[int, float]) -> float:
    last = counts[-1]
    if len(counts) == 1:
        return tried_us[last]
    before = counts[-2]
    slope_us = max(0.0, (tried_us[last] - tried_us[before]) / (last - before))
    return tried_us[last] + slope_us * (count - last)


def amdahl_us(threads: int, *, one_us: float, all_us: float, cores: int) -> float:
    """The time with ``threads`` threads of work whose serial part follows from one thread and from all cores."""
    if cores == 1:
        return one_us
    weight = (1 / threads - 1 / cores) / (1 - 1 / cores)
    return max(weight * one_us + (1 - weight) * all_us, math.ulp(0.0))
