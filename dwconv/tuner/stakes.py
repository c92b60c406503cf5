"""Stakes: how much time of a step there is to win in a workload, which says what is raced, or tuned, first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dwconv.records.record import TuningRecord
from dwconv.target import Target
from dwconv.tuner.again import current
from dwconv.untuned.gain import expected
from dwconv.workload import Workload

MOST_STARTS = 3
"""Configurations of one workload that are raced."""
_TRIED = 40
"""Configurations that are raced in all, about: workloads with more to win get more of them, and each gets one."""
_GB_PER_S, _GFLOP_PER_S = 20.0, 100.0
"""Where the device's limits are unknown. Only the order of workloads depends on them."""
_GAIN = {"fprop": 2.2, "dgrad": 3.1, "wgrad": 2.6}
"""Times as fast as PyTorch's op where nothing better is known: the geometric means of the benchmarks."""
_GAIN_OF_LARGE_WGRAD = 29.0
_LARGE_KERNEL = 25
_LEFT_TO_WIN = 0.05
"""Share of a kernel's time that a search still wins where some of the known configurations were measured."""


def stakes_us(counts: Mapping[Workload, int], target: Target, records: Sequence[TuningRecord]) -> dict[Workload, float]:
    """The time that a step is expected to win by a tuned kernel, in all calls of a workload; 0 if none is expected."""
    return {
        workload: count * max(0.0, _win_us(workload, target, records)) for workload, count in counts.items() if count
    }


def most_to_win_first(
    counts: Mapping[Workload, int], target: Target, records: Sequence[TuningRecord]
) -> list[Workload]:
    """The workloads in descending order of the time that a step is expected to win by tuning all calls of their layer:
    of what is measured on this device already, little. The passes of a layer stay together."""
    fastest_us: dict[Workload, float] = {}
    for record in current(record for record in records if record.device == target.device):
        if record.measurement and record.measured and record.workload in counts:
            us = record.measurement.median_us
            fastest_us[record.workload] = min(us, fastest_us.get(record.workload, us))
    stakes = stakes_us({each: counts[each] for each in counts if each not in fastest_us}, target, records)
    stakes |= {each: counts[each] * _LEFT_TO_WIN * us for each, us in fastest_us.items()}
    of_layers: dict[Workload, float] = {}
    for each, stake in stakes.items():
        layer = each.for_pass("dgrad")  # the same for all its passes, with a bias or without
        of_layers[layer] = of_layers.get(layer, 0.0) + stake
    return sorted(counts, key=lambda each: of_layers.get(each.for_pass("dgrad"), 0.0), reverse=True)


def shares(stakes: Mapping[Workload, float]) -> dict[Workload, int]:
    """How many configurations of each workload to race."""
    total = sum(stakes.values()) or 1.0
    return {workload: min(MOST_STARTS, max(1, math.ceil(_TRIED * stake / total))) for workload, stake in stakes.items()}


def _win_us(workload: Workload, target: Target, records: Sequence[TuningRecord]) -> float:
    hoped = expected(workload, target, records)
    if hoped is not None:
        return hoped.us * (hoped.gain - 1)
    if target.limits:
        least_us = target.limits.limit_us(bytes_moved=workload.bytes, flops=workload.flops)
    else:
        least_us = max(workload.bytes / _GB_PER_S, workload.flops / _GFLOP_PER_S) / 1e3
    large = workload.pass_ == "wgrad" and math.prod(workload.kernel) >= _LARGE_KERNEL
    return least_us * ((_GAIN_OF_LARGE_WGRAD if large else _GAIN[workload.pass_]) - 1)
