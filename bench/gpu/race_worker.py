"""Inside the process of stage ``race``: one workload, all providers in turns.

    warm   the same tensors again and again: small ones stay in the cache
    cold   copies of the tensors in turn, together larger than the cache, each result in memory of its own

Calls are prepared before they are timed, under the settings of their provider: that costs no provider time. What they
launch is then looked at once: a provider races only with the kernels that its name promises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from bench.gpu.device import warm_up
from bench.gpu.limits import MeasureLimits, limits_of
from bench.gpu.worker import Refused, careful
from bench.launched import kernels_of, why_void
from bench.providers import Inputs, Provider, providers
from dwconv.errors import BuildError
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import build_cached
from dwconv.kernels.wire import message
from dwconv.measure.clock.caches import inputs_in_turn, results_held
from dwconv.measure.clock.cuda_clock import Captured
from dwconv.measure.clock.device import clock_of, synchronize
from dwconv.measure.clock.timing import Call, Effort, InTurn, time_in_turns
from dwconv.measure.measuring import LOAD
from dwconv.measure.processes.worker import locate
from dwconv.measure.verify.bare_kernel import LoadedKernel
from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify
from dwconv.problems.target import Target
from dwconv.records.record import Measurement
from dwconv.schedules.template import Candidate

message(Measurement)

OURS = "dwconv"
_MOST_OF_A_NAME = 120
"""Characters of a kernel's name to keep: PyTorch's have all their template arguments in them."""
_MAKING_SHARE = 0.6
"""Share of a race's seconds that making the calls may take; providers that are not ready by then do not race."""


@message
@dataclass(frozen=True, kw_only=True)
class RacerSetup:
    target: Target
    load: str = LOAD
    """``module:name`` of the function that loads an artifact; the tests plant faults here."""


@message
@dataclass(frozen=True, kw_only=True)
class Race:
    """Ask for the times of all providers on one workload."""

    candidate: Candidate
    seconds: float
    compiled: bool = False
    """True if torch.compile races, too."""
    effort_s: float = 0.5
    """Seconds for timing all providers, once warm and once cold."""


@message
@dataclass(frozen=True, kw_only=True)
class Raced:
    """Times of a call by provider, warm and cold, the kernels that it launches, and the reasons why others have none.
    Kernels are not known on a CPU."""

    warm: dict[str, Measurement]
    cold: dict[str, Measurement]
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


class Racer:
    """Handler: MeasureLimits or Race in; limits by name, or Raced out."""

    def __init__(self, setup: RacerSetup) -> None:
        self._target = setup.target
        self._clock = clock_of(setup.target)
        self._load: Callable[[Artifact], LoadedKernel] = locate(setup.load)
        warm_up(setup.target)

    def __call__(self, request: MeasureLimits | Race) -> Raced | dict[str, float] | Refused:
        return careful(self._answer, request, target=self._target)

    def _answer(self, request: MeasureLimits | Race) -> Raced | dict[str, float]:
        with torch.inference_mode():
            if isinstance(request, MeasureLimits):
                return limits_of(self._target, request.sizes)
            return self._race(request)

    def _race(self, request: Race) -> Raced:
        """Raises BuildError if our kernel is wrong, or is not what was launched."""
        making_ends_s = time.monotonic() + _MAKING_SHARE * request.seconds
        workload = request.candidate.workload
        case = make_case(workload, data="integers", device=self._target.kind)
        kernel = self._load(build_cached(request.candidate, self._target))
        verdict = verify(kernel, case)
        if not verdict.right:
            raise BuildError(f"wrong: {verdict.reason}")
        copies = inputs_in_turn(workload, case.inputs, caches="cold", target=self._target)
        held = results_held(workload, caches="cold", target=self._target)
        ours = Provider(name=OURS, make=lambda inputs: partial(kernel, *inputs))
        warm: dict[str, Call] = {}
        cold: dict[str, Call] = {}
        kernels: dict[str, tuple[str, ...]] = {}
        refused: dict[str, str] = {}
        for provider in (ours, *providers(workload, case.inputs, compiled=request.compiled)):
            if time.monotonic() > making_ends_s and len(warm) > 1:
                refused[provider.name] = "no time"
                continue
            try:
                warm[provider.name], chilled = self._made(provider, copies, held=held)
            except Exception as error:
                if provider is ours:
                    raise
                refused[provider.name] = (str(error) or type(error).__name__).partition("\n")[0][:200]
                synchronize(self._target)  # or the device is gone, and with it the race
                continue
            call, is_ours = warm[provider.name], provider is ours
            launched = kernels_of(call, device=self._target.kind)
            calls = call.count if isinstance(call, Captured) else 1
            if void := why_void(provider.name, launched, ours=kernel.artifact, calls=calls, is_ours=is_ours):
                if is_ours:
                    raise BuildError(void)
                refused[provider.name] = void
                del warm[provider.name]
                continue
            if launched is not None:
                kernels[provider.name] = tuple(sorted(name[:_MOST_OF_A_NAME] for name in launched))
            if chilled is not None:
                cold[provider.name] = chilled
        effort = Effort(round_s=0.002, rounds=15, budget_s=request.effort_s)
        return Raced(
            warm=time_in_turns(warm, clock=self._clock, effort=effort),
            cold=time_in_turns(cold, clock=self._clock, effort=effort) if cold else {},
            kernels=kernels,
            refused=refused,
        )

    def _made(self, provider: Provider, copies: Sequence[Inputs], *, held: int) -> tuple[Call, Call | None]:
        """A provider's call, warm and cold, ready to be timed. torch.compile is not timed cold: compiling once is
        enough."""
        with provider.settings():
            calls = [provider.make(inputs) for inputs in (copies[:1] if provider.slow else copies)]
            for call in calls:
                call()  # a library chooses, allocates and compiles in its first calls
            synchronize(self._target)
            warm = self._clock.ready(calls[0])
            return warm, None if provider.slow else self._clock.ready(InTurn(calls, held=held))
