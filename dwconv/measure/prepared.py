"""Prepared: what all candidates of a workload share in the measuring worker: inputs, right answers, PyTorch's calls."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cached_property, partial

from dwconv.errors import CannotBeCaptured
from dwconv.measure.clock.caches import Caches, inputs_in_turn, results_held
from dwconv.measure.clock.timing import Call, Clock, InTurn
from dwconv.measure.providers import around_call, better_layout, pytorch_calls
from dwconv.measure.verify.bare_kernel import LoadedKernel
from dwconv.measure.verify.cases import Case, cases_of_finalists, fresh_case, make_case
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.record import AROUND


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

    def make_finalists_cases(self) -> None:
        """Make them now, so that they do not count as the first finalist's time."""
        _ = self.finalists_cases, self.fresh

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
