"""What is known of a task before its threads are counted: work, shape, a few timed runs, and hardware events."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dwconv.concurrency.graph.task_graph import Task
from dwconv.concurrency.times.counters import HardwareEvents

_SIZES = re.compile(r"[(\[](\d+(?:, ?\d+)*),?[)\]]")
"""Lists of numbers in a signature: shapes and strides."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A few timed runs of a task."""

    us: Mapping[int, float]
    """By number of threads; one thread is among them."""
    events: HardwareEvents
    """Counted in the run on one thread; zeros if nothing could be counted."""


def features(task: Task, profile: Profile) -> list[float]:
    """Numbers that say how a task may scale, on logarithmic scales where only ratios matter."""
    one_us = profile.us[1]
    events = profile.events
    return [
        _log(one_us),
        *(_log(us / one_us) for count, us in sorted(profile.us.items()) if count > 1),
        _log(task.flops / one_us),
        _log(task.bytes / one_us),
        _log(task.flops / max(1, task.bytes)),
        _log(task.bytes),
        *_shape(task.signature),
        events.instructions / max(1, events.cycles),
        1e3 * events.cache_misses / max(1, events.instructions),
        float("convolution" in task.kind),
        float("backward" in task.kind),
        float("mm" in task.kind),
        float("norm" in task.kind),
    ]


def _shape(signature: str) -> list[float]:
    """Of the largest list of sizes: how many elements, and its first and last size."""
    lists = [[int(size) for size in found.split(",")] for found in _SIZES.findall(signature)]
    largest = max(lists, key=math.prod, default=[1])
    return [_log(math.prod(largest)), _log(largest[0]), _log(largest[-1])]


def _log(value: float) -> float:
    return math.log(max(value, 1e-6))
