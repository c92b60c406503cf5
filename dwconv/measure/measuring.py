"""Inside the measuring worker: an artifact becomes a verdict and a measurement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch

from dwconv import native
from dwconv.build.artifact import Artifact
from dwconv.build.wire import message
from dwconv.measure.caches import Caches, InTurn, inputs_in_turn, results_held
from dwconv.measure.providers import better_layout, pytorch_calls
from dwconv.measure.timing import FINAL, TRIAL, Call, Clock, CpuClock, CudaClock, time_in_turns
from dwconv.measure.verify import Case, LoadedKernel, make_case, verify
from dwconv.measure.worker import locate
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
    """``module:name`` of what loads an artifact; the tests plant faults here."""
    caches: Caches = "warm"
    """How a CPU kernel finds its memory while it is timed."""


@message
@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Make the inputs and right answers of a workload and choose the baseline, before any candidate's time counts."""

    workload: Workload


@message
@dataclass(frozen=True, kw_only=True)
class Trial:
    """Verify a candidate, then time it beside the baseline."""

    artifact: Artifact
    best_us: float | None = None
    """The best candidate known: one that is clearly slower is given up early."""


@message
@dataclass(frozen=True, kw_only=True)
class Check:
    """Verify a finalist on other data and at other batch sizes."""

    artifact: Artifact


@message
@dataclass(frozen=True, kw_only=True)
class Final:
    """Time finalists, which were checked, beside each other and the baseline."""

    artifacts: tuple[Artifact, ...]


@message
@dataclass(frozen=True, kw_only=True)
class Measured:
    """Verdict of a Trial or a Check, measurements of a Trial or a Final: one a kernel, in order, and the providers'."""

    verdict: Verdict | None = None
    kernels: tuple[Measurement, ...] = ()
    providers: dict[str, Measurement] = field(default_factory=dict)


class Measurer:
    """Handler of the measuring worker: one kernel at a time on a quiet machine."""

    def __init__(self, setup: MeasureSetup) -> None:
        if isinstance(setup.target, CpuTarget):
            torch.set_num_threads(setup.target.threads)
        self._device = setup.target.kind
        self._caches = setup.caches
        self._clock: Clock = CudaClock() if setup.target.kind == "cuda" else CpuClock()
        self._load: Callable[[Artifact], LoadedKernel] = locate(setup.load)
        self._prepared: _Prepared | None = None
        if setup.load == LOAD:
            import tvm  # noqa: F401  takes a second or two, in which others can do something

            native.native()  # compiled the first time, which takes longer than a candidate may

    def __call__(self, request: Prepare | Trial | Check | Final) -> Measured:
        with torch.inference_mode():
            if isinstance(request, Prepare):
                self._prepare(request.workload)
                return Measured()
            if isinstance(request, Trial):
                return self._trial(request)
            if isinstance(request, Check):
                return self._check(request.artifact)
            return self._final(request.artifacts)

    def _prepare(self, workload: Workload) -> _Prepared:
        """What all candidates of a workload share; kept until another workload comes."""
        if self._prepared is None or self._prepared.workload != workload:
            self._prepared = None  # free the memory of the one before
            self._prepared = _Prepared(workload, device=self._device, clock=self._clock, caches=self._caches)
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
        return Measured(verdict=verdict, kernels=(taken.pop("dwconv"),), providers=taken)

    def _check(self, artifact: Artifact) -> Measured:
        kernel = self._load(artifact)
        verdict: Verdict | None = None
        for case in self._prepare(artifact.candidate.workload).others:
            verdict = verify(kernel, case)
            if not verdict.right:
                reason = f"{verdict.reason} (at batch size {case.workload.batch})"
                return Measured(verdict=dataclasses.replace(verdict, reason=reason))
        return Measured(verdict=verdict)

    def _final(self, artifacts: tuple[Artifact, ...]) -> Measured:
        prepared = self._prepare(artifacts[0].candidate.workload)
        calls = {f"dwconv {i}": prepared.call(self._load(artifact)) for i, artifact in enumerate(artifacts)}
        taken = time_in_turns({**calls, **prepared.providers}, clock=self._clock, effort=FINAL)
        return Measured(kernels=tuple(taken.pop(name) for name in calls), providers=taken)


class _Prepared:
    """What all candidates of a workload share."""

    def __init__(self, workload: Workload, *, device: str, clock: Clock, caches: Caches) -> None:
        self.workload = workload
        self.exact = make_case(workload, data="integers", device=device)
        self._inputs = inputs_in_turn(workload, self.exact.inputs, caches=caches)
        self._held = results_held(workload, caches=caches)
        calls = [pytorch_calls(workload, *inputs) for inputs in self._inputs]
        self.providers: dict[str, Call] = {
            name: InTurn([each[name] for each in calls], held=self._held) for name in calls[0]
        }
        self.baseline = better_layout(self.providers, clock=clock)
        self._device = device

    @cached_property
    def others(self) -> list[Case]:
        """Other data and other batch sizes; the largest last, whose verdict is the one that is kept."""
        return [
            make_case(self.workload.with_batch(batch), data="normal", seed=batch, device=self._device)
            for batch in (1, self.workload.batch + 1)
        ]

    def call(self, kernel: LoadedKernel) -> Call:
        """A kernel as its user calls it."""
        return InTurn([partial(kernel, *inputs) for inputs in self._inputs], held=self._held)
