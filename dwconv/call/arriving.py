"""Arriving: the kernels of a plan that is open, from the first call to the one that runs on them.

    known from measurements   built when the plan is made
    predicted                 when a call of the layer comes again, and if the kernels save more than their builds take

Calls wait for those that are worth it, while there is time to wait. Until then PyTorch's op runs. C++ runs the calls
without Python, and returns to ``meet`` now and then. A kernel that is there runs while others are still on their way.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dwconv.call import background_builds, process_kernels
from dwconv.call.background_builds import Wanted
from dwconv.call.plan_kernels import chosen
from dwconv.call.tally import Tally
from dwconv.call.warned_once import warn_of_first
from dwconv.dispatch import legality
from dwconv.dispatch.advantage import saves_us
from dwconv.dispatch.decision import DispatchDecision
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Pass
from dwconv.system import interpreter

if TYPE_CHECKING:
    from dwconv.call.background_process import BackgroundProcess
    from dwconv.schedules.template import Candidate

UNTIL_READY = "PyTorch's op runs until its kernel is built in the background"
ASKED_FROM = 2
"""Calls of a layer from which its kernels are predicted: its size recurs."""
HORIZON = 1000
"""Calls of a layer that are taken to be still to come. After as many, as many again."""
_US_OF_AN_OUTPUT = 1e-3
"""What a kernel may save of a call, before anything is predicted."""
_ASK_AGAIN_S = 300.0
"""After what failed because of the machine."""
_LOOK_EVERY, _LOOK_SOON = 64, 16
"""Calls after which a plan sees whether kernels of any size came with another size; and whether it may wait now."""
_MOST_ALIKE = 64
"""Layers of one size that a model has; beyond it they are one whose weight is made anew in each call."""

_log = logging.getLogger(__name__)
Decisions = dict[Pass, DispatchDecision]


class Arriving:
    """``decide``: what the plan decides in the background, where predictions are made by a BackgroundProcess."""

    def __init__(
        self,
        problem: Problem,
        device: torch.device,
        *,
        target: Target | None,
        tally: Tally,
        decide: Callable[[BackgroundProcess], Decisions],
    ) -> None:
        self.made: Decisions | None = None
        """What was decided, with kernels that are ready."""
        self.meanwhile: list[Any] = []
        """Calls that C++ runs while the plan is open."""
        self._news: deque[Decisions] = deque()
        """What was decided, as far as its kernels were there, since ``meet`` last looked."""
        self._problem, self._device, self._target, self._tally = problem, device, target, tally
        self._decide = decide
        self._met: dict[int, int] = {}
        """Calls that Python ran, by weight."""
        self._calls, self._ask_from_calls, self._ask_from_s = 0, ASKED_FROM, 0.0
        """The first: when it was requested."""
        self._is_urgent = self._waits = False
        """The second: True if the first call waits for the kernels."""
        self._ended = threading.Event()
        """Set once they are there, or will not be soon."""
        self._never = ""
        """Why they will not be there, until a warning has reported it."""

    def begin(self, decided: Decisions, wanted: Sequence[Wanted]) -> None:
        """Have kernels built that are known from measurements, as far as all passes are ``decided``."""
        if any(each.is_open for each in decided.values()):
            self._ask()
            return
        self._ask_from_s = math.inf
        self._waits = calls_until_worth(wanted) <= HORIZON
        self._build(decided, wanted)

    def wait(self) -> bool:
        """Wait for the kernels, if they are worth it and calls of the process may still wait. True if they are
        there."""
        if self._waits and not process_kernels.is_captured(self._device):
            background_builds.wait(self._ended)
        return self.made is not None

    def meet(self, weight: int) -> Decisions | None:
        """A call with that weight: what was decided, as far as its kernels are there; None if that is as before."""
        left = _LOOK_EVERY
        if self._never:
            warn_of_first("unmade", f"{self._problem} runs on PyTorch's own op, {self._never}")
            self._never = ""
        if self.made is None and time.monotonic() >= self._ask_from_s:
            self._met[weight] = self._met.get(weight, 0) + 1
            calls = self._calls_of_layer(weight) if len(self._met) <= _MOST_ALIKE else sum(self._met.values())
            if calls >= self._ask_from_calls:
                self._ask(calls)
            else:
                left = min(left, self._ask_from_calls - 1 - calls)
        if math.isinf(self._ask_from_s) and not self.wait() and self._waits:
            left = _LOOK_SOON
        self._look_after(left if self.made is None else 0)  # calls of other kinds come here, too
        return self.news()

    def news(self) -> Decisions | None:
        """What was decided, if more of its kernels are there than before."""
        latest = None
        while self._news:
            latest = self._news.popleft()
        return self.made or latest

    def hurry(self) -> None:
        """Have the kernels decided and built now, whatever they save."""
        self._is_urgent = True
        if not math.isinf(self._ask_from_s):
            self._ask()

    def arrive(self, made: Decisions) -> None:
        """The kernels of these decisions are there. One of any size may run the layer's other sizes, too."""
        self.made = made
        process_kernels.state.changes += any(each.any_size is not None for each in made.values())
        self._look_after(0)
        self._ended.set()

    def calls_with(self, weight: int) -> int:
        """The calls of the plan while it was open."""
        return self._met.get(weight, 0) + self._tally.calls_in_cpp(weight)

    def _ask(self, calls: int = 0) -> None:
        """Have the kernels predicted, those of layers with more work first. ``calls``: as many came."""
        self._calls, self._ask_from_s = calls, math.inf
        saves_us = math.prod(self._problem.output_shape) * _US_OF_AN_OUTPUT
        self._waits = saves_us * HORIZON * 1e-6 >= background_builds.PREDICTION_S
        background_builds.predict(self._bring, device=self._device, saves_us=saves_us, builds=len(self._problem.passes))

    def _bring(self, maker: BackgroundProcess) -> None:
        """In the background: decide, and have the kernels built once they are worth it."""
        made, reason = process_kernels.attempt(self._decide, maker)
        if made is None:
            self._put_off(reason)
            return
        wanted = kernels_of(self._problem, made, device=self._device, target=self._target)
        needed = calls_until_worth(wanted)
        if self._is_urgent or needed <= max(HORIZON, self._calls):
            self._waits = needed <= HORIZON
            self._build(made, wanted)
            return
        self._ask_from_calls, self._ask_from_s, self._waits = needed, 0.0, False
        self._look_after(0)
        self._ended.set()

    def _build(self, made: Decisions, wanted: Sequence[Wanted]) -> None:
        self._ended.clear()
        missing = {each.candidate for each in wanted}

        def there(one: Wanted) -> None:
            missing.discard(one.candidate)
            self._news.append(as_far_as_built(self._problem, made, missing))
            self._look_after(0)

        def then(reason: str) -> None:
            self._put_off(reason) if reason else self.arrive(made)

        background_builds.build(wanted, then, there=there)

    def _put_off(self, reason: str) -> None:
        """What the machine is short of, it may have later."""
        _log.info("nothing is built in the background for %s now: %s", self._problem, reason)
        self._ask_from_s = time.monotonic() + _ASK_AGAIN_S
        if why := interpreter.why_none():
            self._never = f"since no process can build its kernels: {why}"
            self._ask_from_s = math.inf
        self._waits = False
        self._look_after(0)
        self._ended.set()

    def _calls_of_layer(self, weight: int) -> int:
        """The calls with that weight, up to the number that is needed; of all sizes together where one kernel runs
        them."""
        calls, layer = 0, layer_of(self._problem, self._device)
        for each in itertools.chain([self], of_layer.get(layer, ()) if layer else ()):
            calls += 0 if calls and each is self else each.calls_with(weight)
            if calls >= self._ask_from_calls:
                break
        return calls

    def _look_after(self, calls: int) -> None:
        """The calls of each kind that C++ runs on PyTorch's op before the next one returns to Python."""
        for call in self.meanwhile:
            call.left = calls


def as_far_as_built(problem: Problem, made: Decisions, missing: Collection[Candidate]) -> Decisions:
    """Decisions in which PyTorch's op still runs the passes whose kernels are ``missing``."""
    return {
        pass_: dataclasses.replace(decision, provider="pytorch", reason=UNTIL_READY, is_open=True)
        if (known := chosen(problem, decision)) and known[0] in missing
        else decision
        for pass_, decision in made.items()
    }


def kernels_of(problem: Problem, made: Decisions, *, device: torch.device, target: Target | None) -> list[Wanted]:
    """The kernels of decisions that are not there yet."""
    threads = target.threads if isinstance(target, CpuTarget) else 1
    found = []
    for each in made.values():
        if (known := chosen(problem, each)) and not process_kernels.is_ready(*known, device):
            is_shared = known[0].workload.layer_kind in process_kernels.state.shared_kinds
            found.append(
                Wanted(
                    candidate=known[0], target=known[1], device=device, threads=threads, saves_us=saves_us(each),
                    is_known=bool(each.record and each.record.confirmed and not each.expected),
                    built=legality.built_for(*known, is_shared=is_shared),
                )
            )  # fmt: skip
    return found


def calls_until_worth(wanted: Sequence[Wanted]) -> int:
    """How often a layer must run until kernels have saved what their builds take. One for every layer takes longer, and
    several layers share it."""
    if not wanted:
        return 0
    saved_s = 1e-6 * sum(each.saves_us for each in wanted)
    return math.ceil(len(wanted) * background_builds.BUILD_S["one size"] / saved_s) if saved_s > 0 else sys.maxsize


Layer = tuple[Problem, torch.device]


def layer_of(problem: Problem, device: torch.device) -> Layer | None:
    """What a layer has in common at every size, where one kernel may run all of them; else None."""
    if problem.block:
        return None
    return dataclasses.replace(problem, input_shape=(0, problem.input_shape[1])), device


of_layer: dict[Layer, list[Arriving]] = {}
"""Of plans that were open, at all sizes of a layer."""
