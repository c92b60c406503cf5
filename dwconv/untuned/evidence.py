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
class MeasuredConfigs:
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

    def gain(self, config: Config) -> float | None:
        """PyTorch's time in the workload's layout over its own; None if it was not measured."""
        cost = self.costs.get(config)
        return None if cost is None else self.same_layout / cost


def best_records(measured: Iterable[MeasuredConfigs]) -> list[TuningRecord]:
    """The record of the best configuration of each."""
    return [one.records[one.best] for one in measured]


def evidence(records: Iterable[TuningRecord]) -> list[MeasuredConfigs]:
    """The measurements beside PyTorch's op, in the order of devices and workloads. Disturbed times, relaxed arithmetic
    and GPUs are left out; of several records of one candidate the one of better rank counts."""
    found: dict[tuple[str, str], dict[Config, TuningRecord]] = {}
    for record in records:
        usable = record.status is Status.OK and record.measured and not record.contended and not record.fast_math
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


def _measured(records: list[TuningRecord], target: CpuTarget) -> MeasuredConfigs:
    first = records[0]
    own = f"-{first.workload.layout}"
    ratios = [  # a trial is timed beside the better layout alone, which may be the other one
        other[1].median_us / record.baseline[1].median_us
        for record in records
        if (other := record.alternative) and record.baseline and other[0].endswith(own)
    ]
    return MeasuredConfigs(
        target=target,
        workload=first.workload,
        costs={record.config: record.relative_time for record in records if record.relative_time is not None},
        records={record.config: record for record in records},
        same_layout=statistics.median(ratios) if ratios else 1.0,
    )


# -- workloads as numbers, for trees -----------------------------------------------------------------------------------


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
