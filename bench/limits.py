"""How near a time is to what the device allows, by the level of the caches that its tensors come from.

    fits the inner caches of the threads     the bandwidth of that level, of all threads together
    fits the last level                      its bandwidth
    larger, or cold caches                   what the last level can hold of it comes from there, the rest from memory

A time below that is none: less was done, or more was counted. So it stops a benchmark, unless it was the limits that
other work had made too low; they are measured again first.
"""

from __future__ import annotations

import dataclasses

from dwconv.errors import BeyondLimit
from dwconv.measure.clock.caches import MOST_TENSORS, TIMES_THE_CACHE, Caches
from dwconv.measure.limits.limits import EXCEEDED, doubt, with_limits
from dwconv.problems.target import CpuTarget, Limits

_READ_ONLY = 1.5
"""Bytes that are read alone come so many times as fast as a copy moves them: a copy also reads what it overwrites."""


def percent_of_limit(
    name: str, us: float, *, bytes_moved: int, flops: int, target: CpuTarget, caches: Caches = "warm"
) -> float:
    """The least time that ``target``, whose limits are known, needs for the traffic and the arithmetic, in per cent of
    ``us``, the microseconds that the row ``name`` took. Raises BeyondLimit, which names the row, if it is less than
    that, also by limits that were measured again."""

    def percent(limits: Limits) -> float:
        most_gb_per_s = bandwidth(limits, bytes_moved=bytes_moved, target=target, caches=caches)
        return max(bytes_moved / most_gb_per_s, flops / limits.peak_gflop_per_s) / 10 / us

    assert target.limits is not None
    found = percent(target.limits)
    if found <= 100 * EXCEEDED:
        return found
    doubt(target)
    limits = with_limits(dataclasses.replace(target, limits=None)).limits
    assert limits is not None
    if (again := percent(limits)) > 100 * EXCEEDED:
        raise BeyondLimit(
            f"{name}: {us:.1f} µs is {again:.0f} % of the speed that this device allows with {caches} caches, so the "
            "time or what is counted in it is wrong; what was tuned is kept, no results are written"
        )
    return again


def bandwidth(limits: Limits, *, bytes_moved: int, target: CpuTarget, caches: Caches) -> float:
    """GB/s that tensors of so many bytes in all may come with."""
    last_level_bytes = float(target.cache_bytes + target.others_cache_bytes)
    of_copies = 1.0
    if caches == "cold":  # copies of the tensors that fill the last level a few times: of each, so much may be left
        of_copies = min(1.0, max(1 / TIMES_THE_CACHE, last_level_bytes / (MOST_TENSORS * bytes_moved)))
    found = min(of_copies, last_level_bytes / bytes_moved)
    inner = [level.gb_per_s * target.threads for level in limits.levels if bytes_moved <= level.bytes * target.threads]
    cache_gb_per_s: float = max([limits.cache_gb_per_s, *(inner if caches == "warm" else ())])
    if found == 1.0:
        return cache_gb_per_s
    return 1 / (found / cache_gb_per_s + (1 - found) / max(_READ_ONLY * limits.memory_gb_per_s, 1e-9))
