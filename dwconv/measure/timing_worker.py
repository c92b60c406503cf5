"""Inside the measuring worker: verify and time artifacts.

Prepared is what all candidates of a workload share: inputs, right answers, PyTorch's calls. TimingHandler is the
handler: a request in, what was measured out.
"""

from __future__ import annotations

import contextlib
import math
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
)
from dwconv.measure.processes.worker import first_line, locate
from dwconv.measure.providers import around_call, better_layout, pytorch_by_layout, transposed_call
from dwconv.measure.requests import (
    LOAD,
    CheckAtAllSizesRequest,
    CheckRequest,
    MeasureAnswer,
    MeasureSetup,
    Request,
    TimeRequest,
    Tried,
)
from dwconv.measure.verify.bare_kernel import LoadedKernel
from dwconv.measure.verify.cases import Case, cases_of_finalists, exact_case, fresh_case, wrong
from dwconv.measure.verify.first_use import fault_at_first_use
from dwconv.measure.verify.verify import explained, verify, verify_call, verify_finalist
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload, by
from dwconv.records.record import AROUND, TRANSPOSED, AtSize, Verdict
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
        self.exact = exact_case(workload, device=self._device, images=images)
        self._inputs = inputs_in_turn(workload, self.exact.inputs, caches=caches, target=target)
        self._held = results_held(workload, caches=caches, target=target)
        calls = [pytorch_by_layout(workload, *inputs) for inputs in self._inputs]
        in_turn = {name: InTurn([each[name] for each in calls], held=self._held) for name in calls[0]}
        self.providers = ready(in_turn, clock)
        self.beside = dict(self.providers)
        """The providers, of a block PyTorch's ops besides its convolution, and of some dgrad PyTorch's transposed
        convolution: what finalists are timed beside."""
        for name, of in ((AROUND, around_call), (TRANSPOSED, transposed_call)):
            found = [call for call in (of(workload, *inputs) for inputs in self._inputs) if call]
            if found:
                with contextlib.suppress(CannotBeCaptured):
                    self.beside |= ready({name: InTurn(found, held=self._held)}, clock)

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


class _LoadedCandidate:
    """A candidate's kernel at each size of its workload, and the verdict on it."""

    def __init__(self, kernel: LoadedKernel, prepared: Sequence[Prepared]) -> None:
        here, *elsewhere = prepared
        self.kernels = [kernel, *(_at(kernel, each.workload) for each in elsewhere)]
        self.verdict = verify(kernel, here.exact)
        for there, each in zip(self.kernels[1:], elsewhere, strict=True):
            if self.verdict.right:
                at_size = explained(verify(there, each.exact), f"at {by(each.workload.input_size)}")
                self.verdict = self.verdict if at_size.right else at_size


class TimingHandler:
    """Handler of the measuring worker; it measures one kernel at a time, on a quiet machine."""

    def __init__(self, setup: MeasureSetup) -> None:
        if isinstance(setup.target, CpuTarget):
            torch.set_num_threads(setup.target.threads)
        self._target = setup.target
        self._caches = setup.caches
        self._clock = clock_of(setup.target)
        self._load: Callable[[Artifact], LoadedKernel] = locate(setup.load)
        self._prepared: list[Prepared] = []
        """At each size of the latest workload."""
        self._lined_up: dict[Candidate, _LoadedCandidate] = {}
        """Candidates of that workload, until they are timed side by side."""
        self._right: set[bytes] = set()
        """The machine code of kernels of any size that were right as finalists at one of them."""
        if setup.load == LOAD:  # now, so that it does not count as the first candidate's time
            get_ready(setup.target, compiles_calls=setup.compiles_calls)

    def __call__(self, request: Request) -> MeasureAnswer:
        with torch.inference_mode():
            try:
                answer = self._answer(request)
                synchronize(self._target)  # a late error must not be blamed on the next kernel
            except Exception as error:
                if is_lost(self._target):
                    raise DeviceLost(first_line(error)) from None
                raise
            return answer

    def _answer(self, request: Request) -> MeasureAnswer:
        if isinstance(request, TimeRequest):
            return self._time(request)
        if isinstance(request, CheckRequest):
            judged = self._check(request.finalist) if request.finalist else None
            self._line_up(request.line_up)
            return MeasureAnswer(verdict=judged)
        if isinstance(request, CheckAtAllSizesRequest):
            return MeasureAnswer(verdict=self._check_at_all_sizes(self._load(request.artifact)))
        prepared = self._prepare(request.workload)
        for each in prepared:
            _ = each.baseline
            if request.finalists:
                _ = each.fresh
        if request.finalists:
            _ = prepared[0].finalists_cases
        return MeasureAnswer()

    def _prepare(self, workload: Workload, *, images: int | None = None) -> list[Prepared]:
        """What all candidates of a workload share, at each of its sizes; kept until another workload comes."""
        sizes = [each.of_one_size for each in workload.at_each_size]
        if [each.workload for each in self._prepared] != sizes:
            self._prepared, self._lined_up = [], {}  # free the memory of the one before
            self._prepared = [
                Prepared(each, target=self._target, clock=self._clock, caches=self._caches, images=images)
                for each in sizes
            ]
        return self._prepared

    def _line_up(self, artifacts: Sequence[Artifact]) -> list[_LoadedCandidate]:
        """Load and verify the candidates of a race that are not lined up yet."""
        for artifact in artifacts:
            prepared = self._prepare(artifact.candidate.workload, images=IMAGES)
            if artifact.candidate not in self._lined_up:
                self._lined_up[artifact.candidate] = _LoadedCandidate(self._load(artifact), prepared)
        return [self._lined_up[artifact.candidate] for artifact in artifacts]

    def _time(self, request: TimeRequest) -> MeasureAnswer:
        stage = request.stage
        if stage == "race":
            loaded = self._line_up(request.artifacts)
        else:
            prepared = self._prepare(request.artifacts[0].candidate.workload)
            loaded = [_LoadedCandidate(self._load(artifact), prepared) for artifact in request.artifacts]
        verdicts = {f"dwconv {number}": each.verdict for number, each in enumerate(loaded)}
        right = {name: each.kernels for name, each in zip(verdicts, loaded, strict=True) if each.verdict.right}
        times: dict[str, list[AtSize]] = {name: [] for name in right}
        is_clear = False
        for place, here in enumerate(self._prepared) if right else ():
            beside = {here.baseline: here.providers[here.baseline]} if stage == "trial" else here.beside
            taken = rounds_in_turns(
                {**{name: here.call(kernels[place]) for name, kernels in right.items()}, **beside},
                clock=self._clock,
                effort={"trial": TRIAL, "race": RACE, "final": FINAL}[stage],
                hopeless_above_us=request.best_us * HOPELESS if request.best_us and place == 0 else None,
            )
            for name, kernels in right.items():
                kernel = kernels[place]
                last = verify(kernel, here.fresh) if stage == "final" else verify_call(kernel, here.exact)
                if not last.right:
                    verdicts[name] = explained(last, "after it was timed")
            found = taken.measurements
            if stage == "race":
                still_right = [name for name in right if verdicts[name].right]
                clear = clearly_faster(taken, still_right, here.providers, parts=beside.keys() & {AROUND})
                found, is_clear = {**found, **clear}, bool(clear)
            providers = {name: found[name] for name in beside}
            for name, own in times.items():
                size = here.workload.input_size
                own.append(AtSize(input_size=size, measurement=found[name], providers=providers))
        each = [
            Tried(verdict=verdict, times=tuple(times[name]) if verdict.right else ())
            for name, verdict in verdicts.items()
        ]
        return MeasureAnswer(each=tuple(each), is_clear=is_clear)

    def _check(self, artifact: Artifact) -> Verdict:
        workload = artifact.candidate.workload
        here, *elsewhere = self._prepare(workload)
        lined_up = self._lined_up.get(artifact.candidate)
        code = artifact.library if artifact.candidate.workload.any_size else b""
        if lined_up and code in self._right:  # it was right at this size, too, before it was timed and after
            return lined_up.verdict
        kernel = lined_up.kernels[0] if lined_up else self._load(artifact)
        if lined_up and code:  # at its own size it was right before it was timed and after: a small one shows the rest
            small = _small(here.workload)
            cases = cases_of_finalists(small, device=self._target.kind, fast_math=self._target.fast_math)
            verdict = verify_finalist(_at(kernel, small), cases)
        else:
            verdict = verify_finalist(kernel, here.finalists_cases)
        for each in elsewhere if verdict.right else ():
            at_size = verify(_at(kernel, each.workload), each.fresh)
            if not at_size.right:
                return explained(at_size, f"at {by(each.workload.input_size)}")
        if verdict.right and elsewhere and not (at_all := self._check_at_all_sizes(kernel)).right:
            return at_all
        if verdict.right and code:
            self._right.add(code)
        return verdict

    def _check_at_all_sizes(self, kernel: LoadedKernel) -> Verdict:
        threads, device = (torch.get_num_threads(), 1), torch.device(self._target.kind)
        fault = fault_at_first_use(kernel, device, threads=threads, fast_math=self._target.fast_math)
        return wrong(fault) if fault else Verdict(right=True, max_error=0.0, allowed_error=0.0)


def _at(kernel: LoadedKernel, workload: Workload) -> LoadedKernel:
    """A kernel of any size at the size of ``workload``."""
    assert isinstance(kernel, Kernel) and kernel.any_size is not None, "no other has other sizes"
    return kernel.any_size.at(kernel.workload.with_input_size(workload.input_size))


_SMALL_PIXELS = 1000


def _small(workload: Workload) -> Workload:
    """The workload on images of some ``_SMALL_PIXELS``, if its kernel is no larger."""
    size = list(workload.input_size)
    least = [step * (taps - 1) + 1 for step, taps in zip(workload.dilation, workload.kernel, strict=True)]
    while math.prod(size) > _SMALL_PIXELS:
        halves = [max(fewest, -(-each // 2)) for each, fewest in zip(size, least, strict=True)]
        axis = max(range(len(size)), key=lambda axis: size[axis] - halves[axis])
        if halves[axis] >= size[axis]:
            break
        size[axis] = halves[axis]
    return workload.with_input_size(tuple(size))
