"""What is known of a kernel of any size at a size that it was not measured at, or predicted for; and AtAllSizes, what
was decided at one size where that holds at every other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from dwconv import settings
from dwconv.dispatch import knowledge, legality, loaded_packs, locked
from dwconv.dispatch.advantage import beats_pytorch, least_times
from dwconv.errors import InvalidConfig, InvalidWorkload
from dwconv.kernels.operand import MOST_ELEMENTS
from dwconv.problems.block import NOTHING
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import PASSES, Pass, Sizes, Workload
from dwconv.records.database import Database
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate, fitting
from dwconv.untuned import gain, other_size

if TYPE_CHECKING:
    from dwconv.dispatch.decision import DispatchDecision
    from dwconv.dispatch.kernel_state import OfAnySize
    from dwconv.schedules.space import Config


def of_any_size(workload: Workload, config: Config, target: Target) -> Candidate | None:
    """The kernel of a configuration as one of any size, on all threads; None if there is no such kernel."""
    try:
        workload = workload.with_any_size()
        space = fitting(config.template, workload, target).space(workload, target)
        return Candidate(workload, legality.on_all_threads(space.nearest(config), target))
    except (InvalidWorkload, InvalidConfig):
        return None


# -- measured ----------------------------------------------------------------------------------------------------------


def measured_nearest(
    workload: Workload, target: Target, *, known: Database, size: Sizes | None = None
) -> list[tuple[Target, TuningRecord, TuningRecord]]:
    """The kernels of any size of the layer that were measured at some size: what the record was made on, the record,
    and what it says of the nearest size that it has. Those that a search found near this size come first, then the
    nearest. ``size``: another one than that of ``workload``."""
    size = size or workload.input_size
    found = [
        (on, record, nearest_of(record, size)) for on, record in knowledge.at_any_size(workload, target, known=known)
    ]

    def order(each: tuple[Target, TuningRecord, TuningRecord]) -> tuple[bool, float, bool]:
        octaves = octaves_apart(each[2].workload.input_size, size)
        return not (each[1].ends_search and octaves <= other_size.OCTAVES[-1]), octaves, not each[1].confirmed

    return sorted(found, key=order)


def fastest_of_any_size(workload: Workload, target: Target, *, known: Database) -> tuple[Candidate, Target] | None:
    """The kernel that would serve sizes of the layer near to that of ``workload``, and what it is built for; None if
    there is none, or PyTorch's op is faster."""
    if workload.block == NOTHING or not isinstance(target, CpuTarget):
        return None
    for on, record, nearest in measured_nearest(workload, target, known=known):
        return (Candidate(record.workload, record.config), on) if beats_pytorch(nearest, on) else None
    return None


def as_at(record: TuningRecord, workload: Workload) -> TuningRecord:
    """What a record of the layer of ``workload`` says of the nearest size that it has, computed for this one."""
    nearest = nearest_of(record, workload.input_size)
    times = times_of(workload, nearest.workload)
    if times == 1.0 or nearest.measurement is None:
        return nearest
    taken = {name: replace(each, median_us=each.median_us * times) for name, each in nearest.providers.items()}
    ours = replace(nearest.measurement, median_us=nearest.measurement.median_us * times)
    return replace(nearest, measurement=ours, providers=taken)


def nearest_of(record: TuningRecord, size: Sizes) -> TuningRecord:
    """What a record says of the size nearest to ``size``."""
    return min(record.at_each_size, key=lambda each: octaves_apart(each.workload.input_size, size))


def times_of(workload: Workload, measured: Workload) -> float:
    """How many times as long a kernel is taken to run at the size of ``workload`` as where it was measured: times
    follow the number of pixels."""
    return pixels(workload.output_shape) / pixels(measured.output_shape)


def pixels(shape: Sequence[int]) -> int:
    """Of a tensor of this shape, in all images."""
    batch, _, *size = shape
    return batch * math.prod(size)


# -- predicted ---------------------------------------------------------------------------------------------------------


def nearest_of_any_size(of_layer: Sequence[OfAnySize], workload: Workload) -> OfAnySize | None:
    """The one whose size is the nearest to that of ``workload``; None if none is near enough to predict from."""
    octaves = {
        number: octaves_apart(each.candidate.workload.input_size, workload.input_size)
        for number, each in enumerate(of_layer)
        if each.candidate.workload.any_size and each.candidate.workload.is_row == workload.is_row
    }
    nearest = min(octaves, key=octaves.__getitem__, default=None)
    return None if nearest is None or octaves[nearest] > other_size.OCTAVES[-1] else of_layer[nearest]


def octaves_apart(one: Sizes, other: Sizes) -> float:
    """How far apart two sizes of images are."""
    return sum(abs(math.log2(size / others)) for size, others in zip(one, other, strict=True))


_SHARE: dict[str, dict[str, float]] = {
    "nhwc": {"fprop": 0.85, "dgrad": 0.75, "wgrad": 0.5},
    "nchw": {"fprop": 0.4, "dgrad": 0.3, "wgrad": 0.4},
    "nchw rows": {"fprop": 0.7, "dgrad": 0.75, "wgrad": 0.85},
    "cuda": {"fprop": 0.83, "dgrad": 0.78, "wgrad": 0.8},
    "cuda, k ≥ 7": {"fprop": 0.64, "dgrad": 0.63, "wgrad": 0.57},
}
"""The speed of a kernel of any size over that of one for the size, with the same configuration, on two cores of an AMD
EPYC (family 25 model 17): the least of twelve layers, k 3 to 31; in NCHW of five with k 3 and 7, one of them at another
size, too; and of single rows of k 4 and 31 at lengths of 203 to 400, where the configuration was chosen for 400. On
CUDA the least of seven layers in float16 on an H200 with cold caches, the best of some four configurations over the
tuned kernel: for k ≥ 7 that is one on tensor cores."""


def expected_of_any_size(expected: gain.Expected, workload: Workload, target: Target) -> gain.Expected:
    """What is expected of a kernel for the size, as what is expected of one for any."""
    sort: str = workload.layout
    if target.kind != "cpu":
        sort = target.kind if max(workload.kernel) < 7 else f"{target.kind}, k ≥ 7"
    elif workload.is_row and workload.layout == "nchw":
        sort = "nchw rows"
    share = _SHARE[sort][workload.pass_]
    return replace(expected, us=expected.us / share, gain=expected.gain * share, at_least=expected.at_least * share)


# -- decided once for all sizes ----------------------------------------------------------------------------------------


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
    again in microseconds at each other size."""

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
