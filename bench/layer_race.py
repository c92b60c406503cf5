"""Inside the process of ``bench cpu``: one pass of a layer, our kernel and all others who can run it, in turns.

    our kernel  ──► verified as a finalist ─┐
    each rival  ──► its result is judged ───┴─► rounds in turns ──► our kernel verified once more

Everyone is held to the same answers, within the same bounds. A rival that cannot run the pass, or computes something
else, does not race, and the reason is kept. ``ControlRace``: the same kernel twice, in everything else the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType

import torch

from bench.providers import Inputs, Provider, plain, providers
from dwconv import settings
from dwconv.errors import BuildError, WorkerError, one_line
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import build_cached
from dwconv.kernels.wire import message
from dwconv.measure.clock.caches import Caches, inputs_in_turn, results_held
from dwconv.measure.clock.device import clock_of, get_ready
from dwconv.measure.clock.timing import FINAL, Call, InTurn, rounds_in_turns
from dwconv.measure.measuring import LOAD
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.processes.worker import locate
from dwconv.measure.verify.bare_kernel import LoadedKernel
from dwconv.measure.verify.cases import CASES_OF_A_FINALIST, Case, cases_of_finalists, fresh_case, make_case
from dwconv.measure.verify.judge import judge_all
from dwconv.measure.verify.verify import verify, verify_finalist
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.records.record import Measurement
from dwconv.schedules.template import Candidate

message(Measurement)

OURS, AGAIN, WIDE_TYPE = "dwconv", "dwconv again", "dwconv float32"
_COMPILING_S = 120.0
"""torch.compile may take so much longer, in both layouts."""
_REASON = 200
"""Characters of the reason why a rival does not race."""


@message
@dataclass(frozen=True, kw_only=True)
class LayerSetup:
    target: CpuTarget
    load: str = LOAD
    """``module:name`` of the function that loads an artifact; the tests plant faults here."""


@message
@dataclass(frozen=True, kw_only=True)
class LayerRace:
    """Ask for the times of all who can run the workload of a candidate."""

    candidate: Candidate
    caches: Caches
    compiled: bool = False
    """True if torch.compile races, too."""
    beside: Candidate | None = None
    """Our kernel for the same pass in float32."""


@message
@dataclass(frozen=True, kw_only=True)
class ControlRace:
    """Ask for the times of a candidate and of itself."""

    candidate: Candidate
    caches: Caches


@message
@dataclass(frozen=True, kw_only=True)
class LayerTimes:
    """What everyone took, in the order of their names' first rounds, and why others did not race."""

    measurements: dict[str, Measurement]
    rounds_us: dict[str, tuple[float, ...]]
    refused: dict[str, str] = field(default_factory=dict)


class LayerRacer:
    """Handler: LayerRace or ControlRace in, LayerTimes out."""

    def __init__(self, setup: LayerSetup) -> None:
        torch.set_num_threads(setup.target.threads)
        self._target = setup.target
        self._clock = clock_of(setup.target)
        self._load = locate(setup.load)
        get_ready(setup.target, compiles_calls=True)

    def __call__(self, request: LayerRace | ControlRace) -> LayerTimes:
        """Raises BuildError if our kernel is wrong."""
        with torch.inference_mode():
            return self._race(request)

    def _race(self, request: LayerRace | ControlRace) -> LayerTimes:
        workload = request.candidate.workload
        kernel = self._right(request.candidate)
        case = make_case(workload, data="integers")
        copies = inputs_in_turn(workload, case.inputs, caches=request.caches, target=self._target)
        held = results_held(workload, caches=request.caches, target=self._target)

        def ours(kernel: LoadedKernel) -> Call:
            return InTurn([partial(kernel, *inputs) for inputs in copies], held=held)

        calls = {OURS: ours(kernel)}
        refused: dict[str, str] = {}
        if isinstance(request, ControlRace):
            calls[AGAIN] = ours(kernel)
        else:
            if request.compiled:  # or, after a few workloads, it would run all others as they are and say nothing
                torch._dynamo.reset()
            for provider in providers(workload, case.inputs, compiled=request.compiled):
                try:
                    calls[provider.name] = _rival(provider, case, copies, held=held)
                except Exception as error:  # noqa: BLE001  whatever a library raises, it does not race
                    refused[provider.name] = one_line(str(error) or type(error).__name__, most=_REASON)
            if request.beside is not None:
                calls[WIDE_TYPE] = self._beside(request.beside, caches=request.caches)
        taken = rounds_in_turns(calls, clock=self._clock, effort=FINAL)
        _check(verify(kernel, fresh_case(workload, device="cpu")).reason, workload)
        return LayerTimes(measurements=taken.measurements, rounds_us=taken.rounds_us, refused=refused)

    def _right(self, candidate: Candidate) -> LoadedKernel:
        """The kernel of a candidate, verified as a finalist."""
        artifact: Artifact = build_cached(candidate, self._target)
        kernel: LoadedKernel = self._load(artifact)
        cases = cases_of_finalists(candidate.workload, device="cpu")
        _check(verify_finalist(kernel, cases).reason, candidate.workload)
        return kernel

    def _beside(self, candidate: Candidate, *, caches: Caches) -> Call:
        kernel, workload = self._right(candidate), candidate.workload
        inputs = make_case(workload, data="integers").inputs
        copies = inputs_in_turn(workload, inputs, caches=caches, target=self._target)
        held = results_held(workload, caches=caches, target=self._target)
        return InTurn([partial(kernel, *each) for each in copies], held=held)


def _check(reason: str, workload: Workload) -> None:
    if reason:
        raise BuildError(f"wrong: {reason}")


def _rival(provider: Provider, case: Case, copies: Sequence[Inputs], *, held: int) -> Call:
    """The call of a provider on all copies in turn. Raises BuildError if its result is wrong, and what it raises."""
    if provider.slow and len(copies) > 1:
        raise BuildError("it is compiled for one set of tensors, and not timed on several in turn")
    with provider.settings():
        calls = [provider.make(inputs) for inputs in copies]
        result = calls[0]()
        results = [plain(each) for each in (result if isinstance(result, tuple) else (result,))]
        _check(judge_all(results, case).reason, case.workload)
        for call in calls[1:]:
            call()  # a library chooses and allocates in its first calls
    return InTurn(calls, held=held)


class LayerRaces:
    """Asks for races in a process of its own, which is replaced if it dies. A context manager. Raises WorkerError if a
    race failed, WorkerCannotStart if none can be run."""

    def __init__(self, target: CpuTarget, *, load: str = LOAD) -> None:
        setup = LayerSetup(target=target, load=load)
        role = "bench.layer_race:LayerRacer"
        self._process = IsolatedProcess(role, setup, threads=target.threads, vector_set=target.vector_set)

    def __enter__(self) -> LayerRaces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()

    def ask(self, request: LayerRace | ControlRace) -> LayerTimes:
        """The answer. One that was wrong must not make others wrong: its process is replaced."""
        compiling_s = _COMPILING_S if isinstance(request, LayerRace) and request.compiled else 0.0
        share = CASES_OF_A_FINALIST * (2 if isinstance(request, LayerRace) and request.beside else 1)
        try:
            answer: LayerTimes = self._process.call(request, timeout_s=settings.RUN_TIMEOUT_S * share + compiling_s)
        except WorkerError:
            self._process.kill()
            raise
        return answer
