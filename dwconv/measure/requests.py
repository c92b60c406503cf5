"""Requests to the measuring worker, what it answers, and the record of a candidate that comes of it.

Every new record carries the same facts, whatever happened to its candidate: device, versions, time.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from dwconv.errors import WorkerDied, WorkerError, WorkerTimeout
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import remember_checked
from dwconv.kernels.entry import message
from dwconv.measure.clock.timing import Caches
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.record import AtSize, Measurement, Status, TuningRecord, Verdict
from dwconv.schedules.template import Candidate, version_of
from dwconv.system import versions

message(Verdict)
message(Measurement)
message(AtSize)

LOAD = "dwconv.kernels.kernel:Kernel.load"


@message
@dataclass(frozen=True, kw_only=True)
class MeasureSetup:
    target: Target
    load: str = LOAD
    """``module:name`` of the function that loads an artifact; the tests plant faults here."""
    caches: Caches = "warm"
    """The state of the caches while a kernel is timed."""
    compiles_calls: bool = True
    """Compile what lets calls bypass Python, if it is not compiled yet: half a minute. Else kernels are timed through
    Python."""


@message
@dataclass(frozen=True, kw_only=True)
class PrepareRequest:
    """Make the inputs and right answers of a workload and choose the baseline, before any candidate's time counts."""

    workload: Workload
    finalists: bool = False
    """Also make the cases that finalists are verified on."""


@message
@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """Verify a finalist on other data, at other batch sizes and on other numbers of threads. Then line up the
    candidates of the race that follows: make the inputs and right answers of their workload, load and verify them.
    Nothing is timed, so others may build meanwhile."""

    finalist: Artifact | None = None
    line_up: tuple[Artifact, ...] = ()

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return (*((self.finalist,) if self.finalist else ()), *self.line_up)


@message
@dataclass(frozen=True, kw_only=True)
class TimeRequest:
    """Verify candidates of a workload, time those that are right side by side with PyTorch's op, and judge each once
    more: a trial by a glance; those of a race, which may be lined up; finalists for long, then on fresh data."""

    artifacts: tuple[Artifact, ...]
    stage: Literal["trial", "race", "final"]
    best_us: float | None = None
    """Time of the best candidate so far. A trial that is clearly slower is given up early."""


@message
@dataclass(frozen=True, kw_only=True)
class CheckAtAllSizesRequest:
    """Check a kernel of any size as before its first use in training: at sizes, and of one for every layer at numbers
    of channels, that show whether it is right at all of them."""

    artifact: Artifact


Request = PrepareRequest | CheckRequest | TimeRequest | CheckAtAllSizesRequest


@message
@dataclass(frozen=True, kw_only=True)
class Tried:
    """What came of a candidate that was timed."""

    verdict: Verdict
    times: tuple[AtSize, ...] = ()
    """At each size of its workload, with the other providers, if it is right."""


@message
@dataclass(frozen=True, kw_only=True)
class MeasureAnswer:
    """The answer to any request."""

    verdict: Verdict | None = None
    """On the finalist of a Check, and on the kernel of a CheckAtAllSizesRequest."""
    each: tuple[Tried, ...] = ()
    """Of a Time, in order."""
    is_clear: bool = False
    """Of a race, that other work disturbed it, and yet the fastest kernel is sure: the times of the others are the
    least that its turns allow."""

    @property
    def found_wrong(self) -> bool:
        """True if it judges a kernel wrong. What that did to its process, to how its threads compute for one, must not
        make others wrong: the process is to be replaced. The verdict stays."""
        verdicts = (self.verdict, *(tried.verdict for tried in self.each))
        return any(verdict is not None and not verdict.right for verdict in verdicts)


_VANDALISM = ("guard band", "input changed")


def is_vandalism(verdict: Verdict) -> bool:
    """True if a kernel wrote where it must not: the memory of its process is not to be trusted any more."""
    return verdict.reason.startswith(_VANDALISM)


def misfit_of_answer(request: Request, answer: object) -> str:
    """Why ``answer`` does not answer ``request``; empty if it does."""
    if not isinstance(answer, MeasureAnswer):
        return f"{type(answer).__name__} is not a measurement"
    has_finalist = isinstance(request, CheckRequest) and request.finalist is not None
    if (has_finalist or isinstance(request, CheckAtAllSizesRequest)) and answer.verdict is None:
        return "no verdict"
    count = len(request.artifacts) if isinstance(request, TimeRequest) else 0
    if len(answer.each) != count:
        return f"{len(answer.each)} measurements of {count} kernels"
    if isinstance(request, TimeRequest):
        for artifact, tried in zip(request.artifacts, answer.each, strict=True):
            sizes = [each.input_size for each in artifact.candidate.workload.at_each_size]
            if [each.input_size for each in tried.times] != (sizes if tried.verdict.right else []):
                return f"times at {len(tried.times)} sizes, not at {len(sizes)}"
            taken = [each for at_size in tried.times for each in (at_size.measurement, *at_size.providers.values())]
            if not all(map(_is_time, taken)):
                return "times that are none"
    return ""


def _is_time(taken: Measurement) -> bool:
    """Whether a record can hold it."""
    in_range = 0 < taken.median_us < math.inf and 0 <= taken.spread_us < math.inf
    return in_range and 0 <= taken.contention <= 1 and taken.rounds >= 0 and not taken.computed


# -- records ---------------------------------------------------------------------------------------------------------


def new_record(candidate: Candidate, target: Target, *, status: Status) -> TuningRecord:
    """A record of ``candidate`` made now, without any measurement or verdict yet."""
    facts = {**versions.installed(), "template": str(version_of(candidate.config.template))}
    return TuningRecord(
        workload=candidate.workload,
        config=candidate.config,
        device=target.device,
        status=status,
        versions={**facts, "math": "fast"} if target.fast_math else facts,
        created=versions.now(),
    )


def status_after(error: WorkerError, *, otherwise: Status) -> Status:
    """How far a candidate got whose worker ended in ``error``; ``otherwise`` if the worker lives on."""
    if isinstance(error, WorkerTimeout):
        return Status.TIMEOUT
    return Status.CRASHED if isinstance(error, WorkerDied) else otherwise


def measured_record(artifact: Artifact, tried: Tried, *, target: Target) -> TuningRecord:
    """Of a candidate that was verified, and timed if it was right."""
    known = new_record(artifact.candidate, target, status=Status.OK if tried.verdict.right else Status.WRONG)
    known = dataclasses.replace(known, verdict=tried.verdict, resources=artifact.resources, detail=tried.verdict.reason)
    if not tried.times:
        return known
    here, *others = tried.times
    return dataclasses.replace(known, measurement=here.measurement, providers=here.providers, others=tuple(others))


def failed_to_build(candidate: Candidate, error: WorkerError, *, target: Target) -> TuningRecord:
    """Of a candidate that has no artifact."""
    status = status_after(error, otherwise=Status.COMPILE_ERROR)
    while_building = "while building: " if isinstance(error, WorkerDied) else ""
    return dataclasses.replace(new_record(candidate, target, status=status), detail=f"{while_building}{error}")


def failed_to_run(artifact: Artifact, error: WorkerError, *, target: Target) -> TuningRecord:
    """Of a candidate whose worker could not answer."""
    status = status_after(error, otherwise=Status.RUNTIME_ERROR)
    known = new_record(artifact.candidate, target, status=status)
    return dataclasses.replace(known, resources=artifact.resources, detail=str(error))


def right_finalist(artifact: Artifact, record: TuningRecord, *, target: Target, sure: bool) -> TuningRecord:
    """``record`` of a finalist that was right: confirmed if its time is ``sure``. Training with its kernel does not
    check it again; one of any size is checked at a few sizes first."""
    threads = {target.threads, 1} if isinstance(target, CpuTarget) else set[int]()
    if not artifact.candidate.workload.any_size:
        remember_checked(artifact, target, threads=threads)
    return dataclasses.replace(record, confirmed=sure)
