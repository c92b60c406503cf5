"""Inside the measuring worker: verify and time artifacts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch

from dwconv.build.artifact import Artifact
from dwconv.build.wire import message
from dwconv.errors import CannotBeCaptured, DeviceLost
from dwconv.measure.bare_kernel import LoadedKernel
from dwconv.measure.caches import Caches, inputs_in_turn, results_held
from dwconv.measure.cases import Case, cases_of_finalists, fresh_case, make_case
from dwconv.measure.device import clock_of, get_ready, is_lost, synchronize
from dwconv.measure.providers import better_layout, pytorch_calls
from dwconv.measure.timing import FINAL, TRIAL, Call, Clock, InTurn, time_in_turns
from dwconv.measure.verify import verify, verify_call, verify_finalist
from dwconv.measure.worker import locate, one_line
from dwconv.records.record import Measurement, Verdict
from dwconv.target import CpuTarget, Target
from dwconv.workload import Workload

message(Verdict)
message(Measurement)

LOAD = "dwconv.build.kernel:Kernel.load"

# A trial ends early if even its best round is this much slower than the best candidate so far.
_HOPELESS = 1.3


@message
@dataclass(frozen=True, kw_only=True)
class MeasureSetup:
    target: Target
    load: str = LOAD
    """``module:name`` of the function that loads an artifact; the tests plant faults here."""
    caches: Caches = "warm"
    """The state of the caches while a kernel is timed."""


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
class Measured:
    """The verdict of a Trial or a Check; the measurements of a Trial or a Final, one per kernel in order, and those of
    the other providers."""

    verdict: Verdict | None = None
    verdicts_after: tuple[Verdict, ...] = ()
    """After the timing of a Final: one per kernel, in order."""
    kernels: tuple[Measurement, ...] = ()
    providers: dict[str, Measurement] = field(default_factory=dict)


class Measurer:
    """Handler of the measuring worker; it measures one kernel at a time, on a quiet machine."""

    def __init__(self, setup: MeasureSetup) -> None:
        if isinstance(setup.target, CpuTarget):
            torch.set_num_threads(setup.target.threads)
        self._target = setup.target
        self._caches = setup.caches
        self._clock = clock_of(setup.target)
        self._load: Callable[[Artifact], LoadedKernel] = locate(setup.load)
        self._prepared: _Prepared | None = None
        if setup.load == LOAD:
            get_ready(setup.target)  # now, so that it does not count as the first candidate's time

    def __call__(self, request: Prepare | Trial | Check | Final) -> Measured:
        with torch.inference_mode():
            try:
                answer = self._answer(request)
                synchronize(self._target)  # a late error must not be blamed on the next kernel
            except Exception as error:
                if is_lost(self._target):
                    raise DeviceLost(one_line(error)) from error
                raise
            return answer

    def _answer(self, request: Prepare | Trial | Check | Final) -> Measured:
        if isinstance(request, Prepare):
            prepared = self._prepare(request.workload)
            if request.finalists:
                prepared.make_finalists_cases()
            return Measured()
        if isinstance(request, Trial):
            return self._trial(request)
        if isinstance(request, Check):
            return self._check(request.artifact)
        return self._final(request.artifacts)

    def _prepare(self, workload: Workload) -> _Prepared:
        """Inputs, answers and providers for all candidates of a workload, kept until another workload comes."""
        if self._prepared is None or self._prepared.workload != workload:
            self._prepared = None  # free the memory of the one before
            self._prepared = _Prepared(workload, target=self._target, clock=self._clock, caches=self._caches)
        return self._prepared

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
            hopeless_above_us=None if request.best_us is None else request.best_us * _HOPELESS,
        )
        last = verify_call(kernel, prepared.exact)
        if not last.right:
            return Measured(verdict=_explained(last, "after it was timed"))
        return Measured(verdict=verdict, kernels=(taken.pop("dwconv"),), providers=taken)

    def _check(self, artifact: Artifact) -> Measured:
        kernel = self._load(artifact)
        verdict: Verdict | None = None
        for case in self._prepare(artifact.candidate.workload).finalists_cases:
            verdict = verify_finalist(kernel, case)
            if not verdict.right:
                return Measured(verdict=_explained(verdict, f"at batch size {case.workload.batch}, {case.data} data"))
        return Measured(verdict=verdict)

    def _final(self, artifacts: tuple[Artifact, ...]) -> Measured:
        prepared = self._prepare(artifacts[0].candidate.workload)
        kernels = [self._load(artifact) for artifact in artifacts]
        calls = {f"dwconv {i}": prepared.call(kernel) for i, kernel in enumerate(kernels)}
        taken = time_in_turns({**calls, **prepared.providers}, clock=self._clock, effort=FINAL)
        verdicts = [_explained(verify(kernel, prepared.fresh), "after it was timed") for kernel in kernels]
        return Measured(
            verdicts_after=tuple(verdicts), kernels=tuple(taken.pop(name) for name in calls), providers=taken
        )


def _ready(calls: Mapping[str, Call], clock: Clock) -> dict[str, Call]:
    """The calls that the clock can time. Raises CannotBeCaptured if there are none."""
    ready: dict[str, Call] = {}
    for name, call in calls.items():
        try:
            ready[name] = clock.ready(call)
        except CannotBeCaptured:
            if name == list(calls)[-1] and not ready:
                raise
    return ready


def _explained(verdict: Verdict, when: str) -> Verdict:
    """``verdict``; if it is wrong, the reason says ``when``."""
    return verdict if verdict.right else dataclasses.replace(verdict, reason=f"{verdict.reason} ({when})")


class _Prepared:
    """Inputs, answers and providers for all candidates of a workload."""

    def __init__(self, workload: Workload, *, target: Target, clock: Clock, caches: Caches) -> None:
        self.workload = workload
        self._device = target.kind
        self._fast_math = target.fast_math
        self.exact = make_case(workload, data="integers", device=self._device)
        self._inputs = inputs_in_turn(workload, self.exact.inputs, caches=caches, target=target)
        self._held = results_held(workload, caches=caches, target=target)
        calls = [pytorch_calls(workload, *inputs) for inputs in self._inputs]
        in_turn = {name: InTurn([each[name] for each in calls], held=self._held) for name in calls[0]}
        self.providers = _ready(in_turn, clock)
        self.baseline = better_layout(self.providers, clock=clock)

    @cached_property
    def finalists_cases(self) -> list[Case]:
        return cases_of_finalists(self.workload, device=self._device, fast_math=self._fast_math)

    @cached_property
    def fresh(self) -> Case:
        return fresh_case(self.workload, device=self._device)

    def make_finalists_cases(self) -> None:
        """Make them now, so that they do not count as the first finalist's time."""
        _ = self.finalists_cases, self.fresh

    def call(self, kernel: LoadedKernel) -> Call:
        """The call of a kernel, as a user calls it."""
        return InTurn([partial(kernel, *inputs) for inputs in self._inputs], held=self._held)
