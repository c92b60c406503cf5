"""Inside the measuring worker: verify and time artifacts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from dwconv.errors import DeviceLost
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.wire import message
from dwconv.measure.clock.caches import Caches
from dwconv.measure.clock.device import clock_of, get_ready, is_lost, synchronize
from dwconv.measure.clock.timing import FINAL, TRIAL, time_in_turns
from dwconv.measure.grid import IMAGES, Grid
from dwconv.measure.prepared import Prepared
from dwconv.measure.processes.worker import locate, one_line
from dwconv.measure.verify.bare_kernel import LoadedKernel
from dwconv.measure.verify.verify import explained, verify, verify_call, verify_finalist
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.record import Measurement, Verdict

message(Verdict)
message(Measurement)

LOAD = "dwconv.kernels.kernel:Kernel.load"

# A trial ends early if even its best round is this much slower than the best candidate so far.
HOPELESS = 1.3


@message
@dataclass(frozen=True, kw_only=True)
class MeasureSetup:
    target: Target
    load: str = LOAD
    """``module:name`` of the function that loads an artifact; the tests plant faults here."""
    caches: Caches = "warm"
    """The state of the caches while a kernel is timed."""
    compiles_calls: bool = True
    """Compile what lets calls bypass Python, if nobody has yet: half a minute. Else kernels are timed through
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


@message
@dataclass(frozen=True, kw_only=True)
class Check:
    """Verify a finalist on other data, at other batch sizes and on other numbers of threads."""

    artifact: Artifact


@message
@dataclass(frozen=True, kw_only=True)
class Final:
    """Time checked finalists side by side with the baseline, then verify each on fresh data."""

    artifacts: tuple[Artifact, ...]


@message
@dataclass(frozen=True, kw_only=True)
class LineUp:
    """Make the inputs and right answers of a workload, load its candidates and verify them, for the comparison that
    follows. Before that, verify the winner of the last comparison as a finalist. Nothing is timed, so others may build
    meanwhile."""

    artifacts: tuple[Artifact, ...]
    winner: Artifact | None = None


@message
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Time candidates of a workload, side by side with the providers, and judge one more call of each. Those that are
    not lined up are lined up first."""

    artifacts: tuple[Artifact, ...]


Request = Prepare | Trial | Check | Final | LineUp | Comparison


@message
@dataclass(frozen=True, kw_only=True)
class Measured:
    """The verdict of a Trial, a Check, or of the winner in a LineUp; the measurements of a Trial, a Final or a
    Comparison, one per kernel in order, and those of the other providers. In a Comparison only kernels that are
    right are measured."""

    verdict: Verdict | None = None
    verdicts_after: tuple[Verdict, ...] = ()
    """After the timing of a Final or a Comparison: one per kernel, in order."""
    kernels: tuple[Measurement, ...] = ()
    providers: dict[str, Measurement] = field(default_factory=dict)
    is_clear: bool = False
    """Of a Comparison, that its winner is told although other work disturbed it."""


class Measurer:
    """Handler of the measuring worker; it measures one kernel at a time, on a quiet machine."""

    def __init__(self, setup: MeasureSetup) -> None:
        if isinstance(setup.target, CpuTarget):
            torch.set_num_threads(setup.target.threads)
        self._target = setup.target
        self._caches = setup.caches
        self._clock = clock_of(setup.target)
        self._load: Callable[[Artifact], LoadedKernel] = locate(setup.load)
        self._prepared: Prepared | None = None
        self._grid: Grid | None = None
        if setup.load == LOAD:  # now, so that it does not count as the first candidate's time
            get_ready(setup.target, compiles_calls=setup.compiles_calls)

    def __call__(self, request: Request) -> Measured:
        with torch.inference_mode():
            try:
                answer = self._answer(request)
                synchronize(self._target)  # a late error must not be blamed on the next kernel
            except Exception as error:
                if is_lost(self._target):
                    raise DeviceLost(one_line(error)) from None
                raise
            return answer

    def _answer(self, request: Request) -> Measured:
        if isinstance(request, Prepare):
            prepared = self._prepare(request.workload)
            _ = prepared.baseline
            if request.finalists:
                prepared.make_finalists_cases()
            return Measured()
        if isinstance(request, Trial):
            return self._trial(request)
        if isinstance(request, Check):
            return self._check(request.artifact)
        if isinstance(request, LineUp):
            return self._line_up(request)
        if isinstance(request, Comparison):
            timed = self._grid_of(request.artifacts).time(request.artifacts, clock=self._clock)
            return Measured(
                verdicts_after=timed.verdicts, kernels=timed.kernels, providers=timed.providers, is_clear=timed.is_clear
            )
        return self._final(request.artifacts)

    def _prepare(self, workload: Workload, *, images: int | None = None) -> Prepared:
        """Inputs, answers and providers for all candidates of a workload, kept until another workload comes."""
        if self._prepared is None or self._prepared.workload != workload:
            self._prepared = self._grid = None  # free the memory of the one before
            self._prepared = Prepared(
                workload, target=self._target, clock=self._clock, caches=self._caches, images=images
            )
        return self._prepared

    def _grid_of(self, artifacts: tuple[Artifact, ...]) -> Grid:
        prepared = self._prepare(artifacts[0].candidate.workload, images=IMAGES)
        if self._grid is None:
            self._grid = Grid(prepared, load=self._load)
        return self._grid

    def _line_up(self, request: LineUp) -> Measured:
        judged = Measured() if request.winner is None else self._check(request.winner)
        if request.artifacts:
            self._grid_of(request.artifacts).line_up(request.artifacts)
        return judged

    def _trial(self, request: Trial) -> Measured:
        prepared = self._prepare(request.artifact.candidate.workload)
        kernel = self._load(request.artifact)
        verdict = verify(kernel, prepared.exact)
        if not verdict.right:
            return Measured(verdict=verdict)
        taken = time_in_turns(
            {"dwconv": prepared.call(kernel), prepared.baseline: prepared.providers[prepared.baseline]},
            clock=self._clock,
            effort=TRIAL,
            hopeless_above_us=None if request.best_us is None else request.best_us * HOPELESS,
        )
        last = verify_call(kernel, prepared.exact)
        if not last.right:
            return Measured(verdict=explained(last, "after it was timed"))
        return Measured(verdict=verdict, kernels=(taken.pop("dwconv"),), providers=taken)

    def _check(self, artifact: Artifact) -> Measured:
        lined_up = self._grid.kernel(artifact) if self._grid else None
        kernel = lined_up or self._load(artifact)
        return Measured(verdict=verify_finalist(kernel, self._prepare(artifact.candidate.workload).finalists_cases))

    def _final(self, artifacts: tuple[Artifact, ...]) -> Measured:
        prepared = self._prepare(artifacts[0].candidate.workload)
        kernels = [self._load(artifact) for artifact in artifacts]
        calls = {f"dwconv {i}": prepared.call(kernel) for i, kernel in enumerate(kernels)}
        taken = time_in_turns({**calls, **prepared.beside}, clock=self._clock, effort=FINAL)
        verdicts = [explained(verify(kernel, prepared.fresh), "after it was timed") for kernel in kernels]
        return Measured(
            verdicts_after=tuple(verdicts), kernels=tuple(taken.pop(name) for name in calls), providers=taken
        )
