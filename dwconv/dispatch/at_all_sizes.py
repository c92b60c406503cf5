"""AtAllSizes: what was decided for a layer at one size, where that holds at every other: looked at in microseconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from dwconv import settings
from dwconv.dispatch import knowledge, legality, loaded_packs, locked
from dwconv.dispatch.advantage import least_times
from dwconv.dispatch.times_at_any_size import measured_nearest, pixels
from dwconv.kernels.operand import MOST_ELEMENTS
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import PASSES, Pass, Sizes, Workload
from dwconv.records.database import Database
from dwconv.records.record import TuningRecord

if TYPE_CHECKING:
    from dwconv.dispatch.decision import DispatchDecision


@dataclass(frozen=True, kw_only=True)
class _Nearest:
    """What a kernel of any size was measured to take at the size that is the nearest."""

    kernel: Workload
    """The pass at another size; without the bias, if that is swept."""
    record: TuningRecord
    size: Sizes
    """The one that it was measured at."""
    from_pixels: float
    """The output of fewer takes less time than a call."""
    is_only: bool
    """True if nothing else is known of the layer."""

    def is_nearest(self, size: Sizes, target: Target, *, known: Database) -> bool:
        if self.is_only:
            return True
        _, record, nearest = measured_nearest(self.kernel, target, known=known, size=size)[0]
        return record is self.record and nearest.workload.input_size == self.size


@dataclass(frozen=True, kw_only=True)
class AtAllSizes:
    """What runs a layer on kernels of any size, by what was measured at the nearest size: decided once, and looked at
    again in microseconds."""

    target: Target
    known: Database
    measured_at: frozenset[Sizes]
    """Where records of the size itself decide."""
    nearest: tuple[_Nearest, ...]
    relies_on: tuple[object, ...]

    @classmethod
    def of(
        cls, problem: Problem, decisions: Mapping[Pass, DispatchDecision], *, target: Target, broken: legality.Broken
    ) -> AtAllSizes | None:
        """What was decided, at all sizes; None if something else decided."""
        known = knowledge.database()
        if not isinstance(target, CpuTarget) or problem.block or decisions.keys() - PASSES or locked.current():
            return None
        ways: list[Workload] = []
        found: list[_Nearest] = []
        for pass_, each in decisions.items():
            asked = problem.workload(pass_)
            own = [asked, *([replace(asked, bias=False)] if asked.bias else ())]
            ways += own
            if each.provider != "dwconv" or each.expected or each.record is None or not each.record.workload.any_size:
                return None
            if each.workload is None or not each.workload.any_size:  # built for the first size
                return None
            kernel = own[each.record.workload.bias != asked.bias]
            on, record, nearest = measured_nearest(kernel, target, known=known)[0]
            if record is not each.record:
                return None
            times = least_times(nearest, on, sweeps=kernel is not asked)
            every = knowledge.at_any_size(kernel, target, known=known)
            found.append(_Nearest(
                kernel=kernel, record=record, size=nearest.workload.input_size,
                from_pixels=times * pixels(nearest.workload.output_shape),
                is_only=len(every) + len(record.others) == 1,
            ))  # fmt: skip
        if known.knows("backward") and not problem.bias and problem.epilogue == "none":
            ways.append(problem.workload("backward"))
        measured_at = frozenset(size for each in ways for size in known.sizes_of(each))
        if problem.input_shape[2:] in measured_at:
            return None
        relies_on = _relied_on(problem, problem.output_shape, broken=broken)
        return cls(target=target, known=known, measured_at=measured_at, nearest=tuple(found), relies_on=relies_on)

    def holds_at(self, problem: Problem, device: torch.device, *, broken: legality.Broken) -> bool:
        """Whether all of it holds for a problem that differs in the size alone. Raises InvalidSetting."""
        size, output_shape = problem.input_shape[2:], problem.output_shape
        count = pixels(output_shape)
        return (
            size not in self.measured_at
            and all(count > each.from_pixels for each in self.nearest)
            and all(each.is_nearest(size, self.target, known=self.known) for each in self.nearest)
            and max(math.prod(problem.input_shape), math.prod(output_shape)) <= MOST_ELEMENTS
            and knowledge.database() is self.known
            and _relied_on(problem, output_shape, broken=broken) == self.relies_on
            and locked.current() is None
            and locked.agreed_on(problem, device) is None
        )


def _relied_on(problem: Problem, output_shape: Sequence[int], *, broken: legality.Broken) -> tuple[object, ...]:
    """What changes decisions besides records and sizes. To kernels, images of height 1 are another layer, too."""
    is_row = problem.axes == 2 and problem.input_shape[2] == problem.weight_shape[2] == output_shape[2] == 1
    return is_row, len(broken), loaded_packs.count(), settings.nan(), settings.untuned(), settings.cpu_vector_set()
