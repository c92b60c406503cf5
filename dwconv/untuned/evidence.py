"""Evidence: tuning records as what can be learnt from them, workload by workload."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from dwconv.problems.target import CpuTarget, cpu_of_device
from dwconv.problems.workload import ALL_PASSES, Workload
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The configurations of one workload that were measured on one device."""

    target: CpuTarget
    """The CPU of its device's name."""
    workload: Workload
    costs: dict[Config, float]
    """Of each configuration: its time over PyTorch's, measured in turns with it, both layouts' better one."""
    records: dict[Config, TuningRecord]
    same_layout: float
    """PyTorch's time in the workload's own layout over its time in the better one; 1 where that was not measured."""

    @property
    def best(self) -> Config:
        return min(self.costs, key=lambda config: self.costs[config])

    def loss(self, config: Config) -> float | None:
        """How many times as long as the best it takes; None if it was not measured."""
        cost = self.costs.get(config)
        return None if cost is None else cost / self.costs[self.best]

    def gain(self, config: Config) -> float | None:
        """PyTorch's time in the workload's layout over its own; None if it was not measured."""
        cost = self.costs.get(config)
        return None if cost is None else self.same_layout / cost


def best_records(measured: Iterable[Measured]) -> list[TuningRecord]:
    """The record of the best configuration of each."""
    return [one.records[one.best] for one in measured]


def evidence(records: Iterable[TuningRecord]) -> list[Measured]:
    """The measurements beside PyTorch's op, in the order of devices and workloads. Disturbed times, relaxed arithmetic
    and GPUs are left out; of several records of one candidate the one of better rank counts."""
    found: dict[tuple[str, str], dict[Config, TuningRecord]] = {}
    for record in records:
        usable = record.status is Status.OK and record.measured and not record.disturbed and not record.fast_math
        if usable and record.baseline:
            known = found.setdefault((record.device, record.workload.key), {})
            if record.config not in known or record.rank < known[record.config].rank:
                known[record.config] = record
    targets = {device: cpu_of_device(device) for device, _ in found}
    return [
        _measured(list(found[device, key].values()), target)
        for device, key in sorted(found)
        if (target := targets[device]) is not None
    ]


def _measured(records: list[TuningRecord], target: CpuTarget) -> Measured:
    first = records[0]
    own = f"-{first.workload.layout}"
    ratios = [  # a trial is timed beside the better layout alone, which may be the other one
        other[1].median_us / record.baseline[1].median_us
        for record in records
        if (other := record.alternative) and record.baseline and other[0].endswith(own)
    ]
    return Measured(
        target=target,
        workload=first.workload,
        costs={record.config: record.relative_time for record in records if record.relative_time is not None},
        records={record.config: record for record in records},
        same_layout=statistics.median(ratios) if ratios else 1.0,
    )


# -- workloads and configurations as numbers, for trees ------------------------------------------------------------

_WORDS = ("none", "kw", "taps", "scratch", "images", "channels", "planes", "cached", "streamed", "group")
"""Values of knobs that are words; others are orders of loops, distinguished by their letters."""


def of_workload(workload: Workload) -> list[float]:
    """The sizes, as powers of two, and what does not fill vectors."""
    (*depth_taps, kernel_h, kernel_w), (*depths, out_h, out_w) = workload.kernel, workload.output_size
    return [
        float(ALL_PASSES.index(workload.pass_)),
        float(workload.layout == "nhwc"),
        math.log2(kernel_h),
        math.log2(kernel_w),
        math.log2(math.prod(workload.kernel)),
        math.log2(math.prod(workload.stride)),
        math.log2(math.prod(workload.dilation)),
        math.log2(workload.multiplier),
        math.log2(workload.channels),
        float(workload.channels % 8 != 0),
        float(workload.channels % 16 != 0),
        math.log2(out_h),
        math.log2(out_w),
        out_w % 16 / 16,
        math.log2(workload.batch),
        math.log2(workload.bytes),
        math.log2(workload.flops),
        float(workload.padding[-1][0] != workload.padding[-1][1]),
        float(workload.bias),
        float(workload.dtype == "bfloat16"),
        float(workload.dtype == "float16"),
        math.log2(math.prod(depth_taps)),
        math.log2(math.prod(depths)),
    ]


def of_candidate(workload: Workload, config: Config, *, knobs: tuple[str, ...]) -> list[float]:
    """The workload's features, the template's ``knobs``, and how many tiles those make of the axis in their name, and
    what of the last tile is wasted. NaN for a knob that the configuration has not."""
    values = config.to_dict()
    *_, height, width = workload.result_size
    *_, kernel_h, kernel_w = workload.kernel
    extents = {"h": height, "w": width, "c": workload.out_channels, "kh": kernel_h, "kw": kernel_w}
    row = of_workload(workload)
    for name in knobs:
        value, extent = values.get(name), extents.get(name.rpartition("_")[2])
        row.append(_number(value))
        if extent is not None and isinstance(value, int) and value > 0:
            row += [math.log2(extent / value), -(-extent // value) * value / extent]
        elif extent is not None:
            row += [math.nan, math.nan]
    return row


def _number(value: int | str | None) -> float:
    if value is None:
        return math.nan
    if isinstance(value, int):
        return math.log2(value) if value > 0 else float(value - 1)
    return float(_WORDS.index(value)) if value in _WORDS else float(sum(map(ord, value[-1:])))
