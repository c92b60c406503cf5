"""Inside the measuring worker: verify and time artifacts.

    Prepared     what all candidates of a workload share: inputs, right answers, PyTorch's calls
    Grid         candidates of one workload, loaded and verified, until they are timed side by side

Measurer is the handler: a request in, what was measured out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import torch

from dwconv.errors import CannotBeCaptured, DeviceLost
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.kernel import Kernel
from dwconv.measure.clock.device import clock_of, get_ready, is_lost, synchronize
from dwconv.measure.clock.timing import (
    FINAL,
    RACE,
    TRIAL,
    Caches,
    Call,
    Clock,
    InTurn,
    clearly_faster,
    inputs_in_turn,
    results_held,
    rounds_in_turns,
    time_in_turns,
)
from dwconv.measure.processes.worker import locate, one_line
from dwconv.measure.providers import around_call, better_layout, pytorch_calls
from dwconv.measure.requests import LOAD, Check, Comparison, Measured, MeasureSetup, Prepare, Request, Trial
from dwconv.measure.verify.bare_kernel import LoadedKernel
from dwconv.measure.verify.cases import Case, cases_of_finalists, fresh_case, make_case, wrong
from dwconv.measure.verify.first_use import fault_at_first_use
from dwconv.measure.verify.verify import explained, verify, verify_call, verify_finalist
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload, by
from dwconv.records.record import AROUND, AtSize, Measurement, Verdict
from dwconv.schedules.template import Candidate

# A trial ends early if even its best round is this much slower than the best candidate so far.
HOPELESS = 1.3


class Prepared:
    """Inputs, answers and providers for all candidates of a workload."""

    def __init__(
        self, workload: Workload, *, target: Target, clock: Clock, caches: Caches, images: int | None = None
    ) -> None:
        """``images``: how many different images are enough; they repeat."""
        self.workload = workload
        self._clock = clock
        self._device = target.kind
        self._fast_math = target.fast_math
        self.exact = make_case(workload, data="integers", device=self._device, images=images)
        self._inputs = inputs_in_turn(workload, self.exact.inputs, caches=caches, target=target)
        self._held = results_held(workload, caches=caches, target=target)
        calls = [pytorch_calls(workload, *inputs) for inputs in self._inputs]
        in_turn = {name: InTurn([each[name] for each in calls], held=self._held) for name in calls[0]}
        self.providers = ready(in_turn, clock)
        self.beside = dict(self.providers)
        """The providers, and of a block PyTorch's ops besides its convolution: what finalists are timed beside."""
        around = [call for call in (around_call(workload, *inputs) for inputs in self._inputs) if call]
        if around:
            with contextlib.suppress(CannotBeCaptured):
                self.beside |= ready({AROUND: InTurn(around, held=self._held)}, clock)

    @cached_property
    def baseline(self) -> str:
        """The provider of PyTorch's better layout, by a glance."""
        return better_layout(self.providers, clock=self._clock)

    @cached_property
    def finalists_cases(self) -> list[Case]:
        return cases_of_finalists(self.workload, device=self._device, fast_math=self._fast_math)

    @cached_property
    def fresh(self) -> Case:
        return fresh_case(self.workload, device=self._device)

    def call(self, kernel: LoadedKernel) -> Call:
        """The call of a kernel, as a user calls it."""
        return InTurn([partial(kernel, *inputs) for inputs in self._inputs], held=self._held)


def ready(calls: Mapping[str, Call], clock: Clock) -> dict[str, Call]:
    """The calls that the clock can time. Raises CannotBeCaptured if there are none."""
    ready: dict[str, Call] = {}
    for name, call in calls.items():
        try:
            ready[name] = clock.ready(call)
        except CannotBeCaptured:
            if name == list(calls)[-1] and not ready:
                raise
    return ready


IMAGES = 3
"""Different images that candidates of a race are verified on at first, as in the cases of finalists."""

_LATE = "after it was timed"


def is_late(verdict: Verdict) -> bool:
    """True of a wrong verdict from after the timing; others came before it."""
    return verdict.reason.endswith(f"({_LATE})")


class Grid:
    """The candidates of one workload. ``load`` loads an artifact."""

    def __init__(self, prepared: Prepared, *, load: Callable[[Artifact], LoadedKernel]) -> None:
        self._prepared = prepared
        self._load = load
        self._kernels: dict[Candidate, LoadedKernel] = {}
        self._verdicts: dict[Candidate, Verdict] = {}

    def kernel(self, artifact: Artifact) -> LoadedKernel | None:
        """The kernel of a candidate that was lined up here."""
        return self._kernels.get(artifact.candidate)

    def line_up(self, artifacts: Sequence[Artifact]) -> None:
        """Load and verify the candidates that are not here yet."""
        for artifact in artifacts:
            if artifact.candidate not in self._kernels:
                kernel = self._load(artifact)
                self._verdicts[artifact.candidate] = verify(kernel, self._prepared.exact)
                self._kernels[artifact.candidate] = kernel

    def time(self, artifacts: Sequence[Artifact], *, clock: Clock) -> Measured:
        """Time those that are right, beside PyTorch's op; then judge one more call of each."""
        self.line_up(artifacts)
        candidates = [artifact.candidate for artifact in artifacts]
        right = {candidate: f"dwconv {i}" for i, candidate in enumerate(candidates) if self._verdicts[candidate].right}
        if not right:
            return Measured(verdicts_after=tuple(self._verdicts[candidate] for candidate in candidates), kernels=())
        calls = {name: self._prepared.call(self._kernels[candidate]) for candidate, name in right.items()}
        beside = self._prepared.beside
        taken = rounds_in_turns({**calls, **beside}, clock=clock, effort=RACE)
        for candidate in right:
            last = verify_call(self._kernels[candidate], self._prepared.exact)
            if not last.right:
                self._verdicts[candidate] = explained(last, _LATE)
        still_right = [right[candidate] for candidate in right if self._verdicts[candidate].right]
        clear = {} if self._prepared.workload.block else clearly_faster(taken, still_right, beside)
        times = {**taken.measurements, **clear}
        return Measured(
            verdicts_after=tuple(self._verdicts[candidate] for candidate in candidates),
            kernels=tuple(times[right[each]] for each in candidates if self._verdicts[each].right),
            providers={name: times[name] for name in beside},
            is_clear=bool(clear),
        )


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
        self._elsewhere: tuple[Prepared, ...] = ()
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
            for each in (prepared, *self._at_other_sizes(request.workload)):
                _ = each.baseline
                if request.finalists:
                    _ = each.fresh
            if request.finalists:
                _ = prepared.finalists_cases
            return Measured()
        if isinstance(request, Trial):
            return self._trial(request)
        if isinstance(request, Check):
            judged = self._check(request.finalist) if request.finalist else Measured()
            if request.line_up:
                self._grid_of(request.line_up).line_up(request.line_up)
            return judged
        if isinstance(request, Comparison):
            return self._grid_of(request.artifacts).time(request.artifacts, clock=self._clock)
        return self._final(request.artifacts)

    def _prepare(self, workload: Workload, *, images: int | None = None) -> Prepared:
        """Inputs, answers and providers for all candidates of a workload, kept until another workload comes."""
        workload = workload.of_one_size
        if self._prepared is None or self._prepared.workload != workload:
            self._prepared = self._grid = None  # free the memory of the one before
            self._elsewhere = ()
            self._prepared = Prepared(
                workload, target=self._target, clock=self._clock, caches=self._caches, images=images
            )
        return self._prepared

    def _at_other_sizes(self, workload: Workload) -> tuple[Prepared, ...]:
        """The same at each size of ``also_at``."""
        sizes = [each.of_one_size for each in workload.at_each_size[1:]]
        if [each.workload for each in self._elsewhere] != sizes:
            self._elsewhere = tuple(
                Prepared(each, target=self._target, clock=self._clock, caches=self._caches) for each in sizes
            )
        return self._elsewhere

    def _grid_of(self, artifacts: tuple[Artifact, ...]) -> Grid:
        prepared = self._prepare(artifacts[0].candidate.workload, images=IMAGES)
        if self._grid is None:
            self._grid = Grid(prepared, load=self._load)
        return self._grid

    def _trial(self, request: Trial) -> Measured:
        prepared = self._prepare(request.artifact.candidate.workload)
        kernel = self._load(request.artifact)
        elsewhere = [(_at(kernel, each), each) for each in self._at_other_sizes(request.artifact.candidate.workload)]
        verdict = verify(kernel, prepared.exact)
        for there, each in elsewhere if verdict.right else ():
            at_size = explained(verify(there, each.exact), f"at {by(each.workload.input_size)}")
            if not at_size.right:
                return Measured(verdict=at_size)
        if not verdict.right:
            return Measured(verdict=verdict)
        taken = self._time_a_trial(kernel, prepared, best_us=request.best_us)
        others = tuple(
            AtSize(input_size=each.workload.input_size, measurement=times.pop("dwconv"), providers=times)
            for there, each in elsewhere
            if (times := self._time_a_trial(there, each, best_us=None))
        )
        for there, each in ((kernel, prepared), *elsewhere):
            last = verify_call(there, each.exact)
            if not last.right:
                return Measured(verdict=explained(last, _LATE))
        return Measured(verdict=verdict, kernels=(taken.pop("dwconv"),), providers=taken, others=(others,))

    def _time_a_trial(
        self, kernel: LoadedKernel, prepared: Prepared, *, best_us: float | None
    ) -> dict[str, Measurement]:
        return time_in_turns(
            {"dwconv": prepared.call(kernel), prepared.baseline: prepared.providers[prepared.baseline]},
            clock=self._clock,
            effort=TRIAL,
            hopeless_above_us=None if best_us is None else best_us * HOPELESS,
        )

    def _check(self, artifact: Artifact) -> Measured:
        lined_up = self._grid.kernel(artifact) if self._grid else None
        kernel, workload = lined_up or self._load(artifact), artifact.candidate.workload
        verdict = verify_finalist(kernel, self._prepare(workload).finalists_cases)
        for each in self._at_other_sizes(workload) if verdict.right else ():
            at_size = verify(_at(kernel, each), each.fresh)
            if not at_size.right:
                return Measured(verdict=explained(at_size, f"at {by(each.workload.input_size)}"))
        if verdict.right and workload.also_at:
            threads = (torch.get_num_threads(), 1)
            device, fast_math = torch.device(self._target.kind), self._target.fast_math
            if fault := fault_at_first_use(kernel, device, threads=threads, fast_math=fast_math):
                return Measured(verdict=wrong(fault))
        return Measured(verdict=verdict)

    def _final(self, artifacts: tuple[Artifact, ...]) -> Measured:
        workload, kernels = artifacts[0].candidate.workload, [self._load(artifact) for artifact in artifacts]
        timed = [self._time_finalists(kernels, self._prepare(workload))]
        for each in self._at_other_sizes(workload):
            timed.append(self._time_finalists([_at(kernel, each) for kernel in kernels], each))
        times, verdicts = zip(*timed, strict=True)
        after = [next((each for each in found if not each.right), found[0]) for found in zip(*verdicts, strict=True)]
        right = [found for found, verdict in zip(zip(*times, strict=True), after, strict=True) if verdict.right]
        return Measured(
            verdicts_after=tuple(after),
            kernels=tuple(here.measurement for here, *_ in right),
            providers=times[0][0].providers,
            others=tuple(tuple(elsewhere) for _, *elsewhere in right),
        )

    def _time_finalists(
        self, kernels: Sequence[LoadedKernel], prepared: Prepared
    ) -> tuple[list[AtSize], list[Verdict]]:
        """Of each kernel its time at that size, and the verdict on fresh data after it."""
        calls = {f"dwconv {i}": prepared.call(kernel) for i, kernel in enumerate(kernels)}
        taken = time_in_turns({**calls, **prepared.beside}, clock=self._clock, effort=FINAL)
        providers, size = {name: taken[name] for name in prepared.beside}, prepared.workload.input_size
        times = [AtSize(input_size=size, measurement=taken[name], providers=providers) for name in calls]
        return times, [explained(verify(kernel, prepared.fresh), _LATE) for kernel in kernels]


def _at(kernel: LoadedKernel, prepared: Prepared) -> LoadedKernel:
    """A kernel of any size at another size."""
    assert isinstance(kernel, Kernel) and kernel.any_size is not None, "no other has other sizes"
    return kernel.any_size.at(kernel.workload.with_input_size(prepared.workload.input_size))
