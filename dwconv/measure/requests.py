"""Requests to the measuring worker, what it answers, and the record of a candidate that comes of it.

Every new record carries the same facts, whatever happened to its candidate: device, versions, time.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

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
class Prepare:
    """Make the inputs and right answers of a workload and choose the baseline, before any candidate's time counts."""

    workload: Workload
    finalists: bool = False
    """Also make the cases that finalists are verified on."""


@message
@dataclass(frozen=True, kw_only=True)
class Trial:
    """Verify a candidate, time it beside the baseline, and judge one more call of it."""

    artifact: Artifact
    best_us: float | None = None
    """Time of the best candidate so far. A clearly slower one is given up early."""

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return (self.artifact,)


@message
@dataclass(frozen=True, kw_only=True)
class Check:
    """Verify a finalist on other data, at other batch sizes and on other numbers of threads. Then line up the
    candidates of the comparison that follows: make the inputs and right answers of their workload, load and verify
    them. Nothing is timed, so others may build meanwhile."""

    finalist: Artifact | None = None
    line_up: tuple[Artifact, ...] = ()

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return (*((self.finalist,) if self.finalist else ()), *self.line_up)


@message
@dataclass(frozen=True, kw_only=True)
class Final:
    """Time checked finalists side by side with the providers, then verify each on fresh data."""

    artifacts: tuple[Artifact, ...]


@message
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Time candidates of a workload, side by side with the providers, and judge one more call of each. Those that are
    not lined up are lined up first."""

    artifacts: tuple[Artifact, ...]


Request = Prepare | Trial | Check | Final | Comparison


@message
@dataclass(frozen=True, kw_only=True)
class Measured:
    """The verdict of a Trial, or of the finalist in a Check; the measurements of a Trial, a Final or a Comparison, one
    per kernel that is right, in order, and those of the other providers."""

    verdict: Verdict | None = None
    verdicts_after: tuple[Verdict, ...] = ()
    """After the timing of a Final or a Comparison: one per kernel, in order."""
    kernels: tuple[Measurement, ...] = ()
    providers: dict[str, Measurement] = field(default_factory=dict)
    others: tuple[tuple[AtSize, ...], ...] = ()
    """What each of these kernels took at the sizes of ``Workload.also_at``, if there are any."""
    is_clear: bool = False
    """Of a Comparison, that other work disturbed it, and yet the fastest kernel is sure: the times of the others
    are the least that its turns allow."""

    @property
    def of_each(self) -> list[Measured]:
        """Of a Final or a Comparison: kernel by kernel, as a Trial would give it."""
        times = iter(zip(self.kernels, self.others or [()] * len(self.kernels), strict=True))
        found = []
        for verdict in self.verdicts_after:
            one = Measured(verdict=verdict)
            if verdict.right:
                taken, elsewhere = next(times)
                one = Measured(verdict=verdict, kernels=(taken,), providers=self.providers, others=(elsewhere,))
            found.append(one)
        return found


# Faults after which the memory of the measuring worker is not to be trusted.
_VANDALISM = ("guard band", "input changed")


def is_vandalism(verdict: Verdict) -> bool:
    """True if a kernel wrote where it must not: the memory of its process is not to be trusted any more."""
    return verdict.reason.startswith(_VANDALISM)


def found_wrong(answer: Measured) -> bool:
    """True if it judges a kernel wrong. What that did to its process, to how its threads compute for one, must not
    make others wrong: the process is to be replaced. The verdict stays."""
    return any(not verdict.right for verdict in (answer.verdict, *answer.verdicts_after) if verdict is not None)


def misfit_of_answer(request: Request, answer: object) -> str:
    """Why ``answer`` does not answer ``request``; empty if it does."""
    if not isinstance(answer, Measured):
        return f"{type(answer).__name__} is not a measurement"
    judged = isinstance(request, Trial) or (isinstance(request, Check) and request.finalist is not None)
    if judged and answer.verdict is None:
        return "no verdict"
    count = len(request.artifacts) if isinstance(request, Final | Comparison) else 0
    if len(answer.verdicts_after) != count:
        return f"{len(answer.verdicts_after)} verdicts on {count} kernels"
    timed = [answer.verdict] if isinstance(request, Trial) else answer.verdicts_after
    wanted = sum(verdict is not None and verdict.right for verdict in timed)
    if len(answer.kernels) != wanted:
        return f"{len(answer.kernels)} measurements of {wanted} kernels"
    times = [*answer.kernels, *answer.providers.values()]
    for each in (each for of_kernel in answer.others for each in of_kernel):
        times += each.measurement, *each.providers.values()
    if not all(0 < taken.median_us < math.inf for taken in times):
        return "times that are none"
    if wanted and isinstance(request, Trial | Final) and not _has_all_sizes(request, answer):
        return "times at other sizes than those wanted"
    return ""


def _has_all_sizes(request: Trial | Final, answer: Measured) -> bool:
    wanted = request.artifacts[0].candidate.workload.also_at
    given = answer.others or [()] * len(answer.kernels)
    return len(given) == len(answer.kernels) and all(
        tuple(each.input_size for each in of_kernel) == wanted for of_kernel in given
    )


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


def measured_record(artifact: Artifact, measured: Measured, *, target: Target) -> TuningRecord:
    """Of a candidate that was verified, and timed if it was right."""
    verdict = measured.verdict
    right = verdict is not None and verdict.right
    known = new_record(artifact.candidate, target, status=Status.OK if right else Status.WRONG)
    return dataclasses.replace(
        known,
        measurement=measured.kernels[0] if measured.kernels else None,
        verdict=verdict,
        providers=measured.providers,
        others=measured.others[0] if measured.others else (),
        resources=artifact.resources,
        detail="" if verdict is None else verdict.reason,
    )


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
