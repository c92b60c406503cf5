"""CallPlan: what runs a call, pass by pass. Ops look it up with ``plan_for`` in every step.

A CallPlan decides once and builds a kernel when it is first used. Nothing is tuned here, and no failure here stops a
training step: PyTorch's own op runs instead. The exception is an unmeasured workload with ``DWCONV_UNTUNED=error``.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Set
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dwconv import native, settings
from dwconv.call import background_builds, process_kernels, spending, untuned_warnings, warned_once
from dwconv.call.arriving import Arriving, as_far_as_built, kernels_of, layer_of, of_layer
from dwconv.call.first_decisions import first_decisions
from dwconv.call.plan_kernels import PlanKernels, chosen
from dwconv.call.tally import Tally
from dwconv.call.untuned_warnings import warn_of_untuned
from dwconv.dispatch import locked
from dwconv.dispatch.advantage import saves_us
from dwconv.dispatch.at_any_size import AtAllSizes, nearest_of_any_size
from dwconv.dispatch.decision import DispatchDecision
from dwconv.dispatch.kernel_state import OfAnySize
from dwconv.dispatch.knowledge import database
from dwconv.dispatch.of_problem import decisions
from dwconv.problems.problem import Problem
from dwconv.problems.target import Target
from dwconv.problems.workload import Pass
from dwconv.system import versions

if TYPE_CHECKING:
    from dwconv.call.background_process import BackgroundProcess

MOST_PLANS = 10_000
"""Sizes to remember at a time."""


class CallPlan:
    """The kernels that run the passes of one Problem on one device: decided once, built when first used."""

    def __init__(
        self, problem: Problem, device: torch.device, *, decisions: dict[Pass, DispatchDecision], target: Target | None
    ) -> None:
        self.problem = problem
        self.memory_format = problem.memory_format
        self.device = device
        self.target = target
        """With as many threads as PyTorch uses in its calls; None where there can be no kernels."""
        self.tally = Tally()
        self._looked_at = self.settled = 0
        """The second: how often it was decided what runs its calls."""
        self._made_at = process_kernels.state.cleared
        self.arriving = Arriving(problem, device, target=target, tally=self.tally, decide=self._predicted)
        """The kernels of an open plan."""
        self.unneeded: frozenset[Pass] = frozenset()
        """Passes that nothing is predicted of, since no call has needed them."""
        self._settle(decisions)

    def _settle(self, decisions: dict[Pass, DispatchDecision]) -> None:
        problem, target = self.problem, self.target
        self.decisions = decisions
        self.settled += 1
        self.is_open = any(each.is_open for each in decisions.values())
        """True if kernels are still on their way, or to be predicted: every call goes to ``meet``."""
        named = [pass_ for pass_, each in decisions.items() if each.command]
        refused = frozenset(named if settings.untuned() == "error" else ())
        self.is_pytorch = not refused and all(each.provider == "pytorch" for each in decisions.values())
        """True if PyTorch's own op runs every pass."""
        self.gives_both = problem.block is None and "backward" in decisions
        """True if both gradients of the layer come from one kernel, where both are requested."""
        self.kernels = PlanKernels(problem, self.device, decisions=decisions, refused=refused)
        """dwconv's kernel that runs a pass; None where PyTorch's own op does."""
        for pass_, each in decisions.items():
            self._note_any_size(each)
            if target is not None and is_for_one_size(each):
                process_kernels.state.note_prediction(problem.workload(pass_), target)
        if target is not None and not self.is_open and not refused:
            warn_of_untuned(problem, decisions)

    @property
    def is_at_once(self) -> bool:
        """True if kernels that do all of it at once were measured to be faster than one op after the other."""
        # A kernel that turned out to be wrong, or could not be built, is None.
        return all(
            decision.provider == "dwconv" and self.kernels.get(pass_, pass_) is not None
            for pass_, decision in self.decisions.items()
        )

    def resized(self, problem: Problem) -> CallPlan:
        """This plan at another size of the layer, where the same kernels run: nothing is decided or built."""
        made = object.__new__(CallPlan)
        kernels = self.kernels.resized(problem)
        made.__dict__.update(self.__dict__, problem=problem, kernels=kernels, tally=Tally())
        return made

    def meet(self, weight: int) -> bool:
        """A call of an open plan, with that ``weight``, a number: layers may be alike. True if more of its kernels are
        there than before: from now on they run."""
        is_news = self.arriving.made is None and process_kernels.state.changes != self._looked_at
        if is_news and (made := self._by_any_size()):
            self.arriving.arrive(made)
        return self._take(self.arriving.meet(weight))

    def _take(self, arrived: dict[Pass, DispatchDecision] | None) -> bool:
        if arrived is None:
            return False
        with process_kernels.lock:
            if self.is_open:
                self._settle(arrived)
        return True

    def ran(self, pass_: Pass, weight: Tensor | None = None) -> None:
        """An op that Python runs."""
        self.tally.ops[pass_] += 1
        if self.is_open and weight is not None:
            self.meet(weight.data_ptr())

    def decide_now(self) -> None:
        """What is decided in the background, at once."""
        made, _ = process_kernels.attempt(
            decisions, self.problem, self.device, state=process_kernels.state, target=self.target
        )
        if made is not None:
            self.arriving.arrive(made[0])

    def _predicted(self, maker: BackgroundProcess) -> dict[Pass, DispatchDecision]:
        state = dataclasses.replace(process_kernels.state, expect=maker.expect)
        made, _ = decisions(self.problem, self.device, state=state, target=self.target)
        for pass_, decision in made.items():
            if self.target and is_for_one_size(decision):
                process_kernels.state.note_prediction(self.problem.workload(pass_), self.target)
        for decision in made.values():
            self._note_any_size(decision)
        return made

    def _by_any_size(self) -> dict[Pass, DispatchDecision] | None:
        """What runs if the layer has kernels of any size for all that is open; None if it has not."""
        self._looked_at = process_kernels.state.changes
        made, _ = decisions(self.problem, self.device, state=process_kernels.state, target=self.target, later=True)
        found = [chosen(self.problem, each) for each in made.values()]
        is_there = all(process_kernels.is_ready(*each, self.device) for each in found if each)
        return made if is_there and not any(each.is_open for each in made.values()) else None

    def until_ready(self) -> None:
        """PyTorch's op runs the passes whose kernels are known and not built yet. They are built from now on."""
        decided = self.decisions
        if wanted := kernels_of(self.problem, decided, device=self.device, target=self.target):
            self._settle(as_far_as_built(self.problem, decided, {each.candidate for each in wanted}))
            self.arriving.begin(decided, wanted)

    def wait(self) -> None:
        """Wait until the kernels that are known are there, if calls of the process may still wait."""
        self.arriving.wait()
        self._take(self.arriving.news())

    def _note_any_size(self, decision: DispatchDecision) -> None:
        """From now on a kernel of any size, with its expected times, may run the layer at its other sizes, too."""
        candidate = decision.any_size
        if candidate is None or decision.expected is None or self.target is None:
            return
        if self._made_at != process_kernels.state.cleared:  # it was forgotten while its kernels were on their way
            return
        of_layer = process_kernels.state.any_size[candidate.workload.of_one_size.layer, self.target.device]
        if nearest_of_any_size(of_layer, candidate.workload) is None:
            of_layer.append(OfAnySize(candidate=candidate, expected=decision.expected))
            process_kernels.state.changes += 1


def is_for_one_size(decision: DispatchDecision) -> bool:
    """True if it was predicted, and not of a kernel of any size."""
    is_predicted = decision.expected is not None and decision.record is None
    return is_predicted and decision.any_size is None and not (decision.workload and decision.workload.any_size)


def plan_for(problem: Problem, device: torch.device, *, needs: Set[Pass] | None = None) -> CallPlan:
    """The plan for these sizes on ``device``. The look-up costs a microsecond or two; the first one decides. ``needs``:
    the passes that the call needs; None for all. Raises InvalidSetting."""
    key = (problem, device, torch.get_num_threads() if device.type == "cpu" else native.is_out())
    found = _plans.get(key)
    if found is None or (found.unneeded and (needs is None or needs & found.unneeded)):
        began_s = time.monotonic()
        with process_kernels.lock:
            if len(_plans) >= MOST_PLANS:
                _plans.clear()
                of_layer.clear()
                _at_all_sizes.clear()
                untuned_warnings.forget_sizes()
            sizeless = dataclasses.replace(problem, input_shape=problem.input_shape[:2]), *key[1:]
            found = _as_at_other_sizes(problem, sizeless) or _new_plan(problem, device, sizeless=sizeless, needs=needs)
            _plans[key] = found
            if found.is_open and (layer := layer_of(problem, device)):
                of_layer.setdefault(layer, []).append(found.arriving)
        background_builds.begin()
        spending.of_process.spend(time.monotonic() - began_s)
        if found.is_open:
            found.wait()
    return found


def foresee(problem: Problem, device: torch.device) -> None:
    """Have kernels built that are known from measurements, for a call that may come."""
    made, target = decisions(problem, device, state=process_kernels.state, later=True)
    if target is not None and locked.current() is None:
        wanted = kernels_of(problem, made, device=device, target=target)
        background_builds.build(wanted, then=lambda reason: None)


def _as_at_other_sizes(problem: Problem, sizeless: _Sizeless) -> CallPlan | None:
    """The plan of a layer that kernels of any size run at its other sizes; None if another one may run it here."""
    for decided, plan in _at_all_sizes.get(sizeless, ()):
        if decided.holds_at(problem, plan.device, broken=process_kernels.state.broken):
            return plan.resized(problem)
    return None


def decisions_for(problem: Problem, device: torch.device) -> tuple[dict[Pass, DispatchDecision], Target | None]:
    """What a plan that is made now would decide in the end: ``dispatch.of_problem.decisions``, by what this process has
    measured."""
    return decisions(problem, device, state=process_kernels.state)


def plans() -> list[CallPlan]:
    """All plans that were made since decisions were last forgotten, in that order."""
    with process_kernels.lock:
        return list(_plans.values())


def decide_open_plans() -> bool:
    """Decide now what would be decided in the background: each open plan has its kernels from its next call on, which
    builds what is not built. False if none is open."""
    found = [plan for plan in plans() if plan.is_open]
    for plan in found:
        plan.decide_now()
    return bool(found)


def _new_plan(problem: Problem, device: torch.device, *, sizeless: _Sizeless, needs: Set[Pass] | None) -> CallPlan:
    first = first_decisions(problem, device, needs=needs)
    plan = CallPlan(problem, device, decisions=first.made, target=first.target)
    plan.unneeded = first.unneeded
    if first.later and problem.epilogue == "none" and not problem.block and versions.can_build():
        plan.until_ready()
    target = first.target
    if target and not plan.is_open:
        decided, _ = process_kernels.attempt(
            AtAllSizes.of, problem, plan.decisions, target=target, broken=process_kernels.state.broken
        )
        if decided:
            _at_all_sizes.setdefault(sizeless, []).append((decided, plan))
    return plan


def _saved_s() -> float:
    """What kernels have saved in calls so far, as it was some tenths of a second ago."""
    now_s = time.monotonic()
    if now_s >= _saved[1]:
        saved_us = 0.0
        for plan in list(_plans.values()):
            if not plan.is_open and not plan.is_pytorch:
                passes = sum((each.passes for each in plan.tally.counted()), plan.tally.counted_ops())
                ours = {pass_: saves_us(each) for pass_, each in plan.decisions.items()}
                saved_us += sum(ours.get(pass_, 0.0) * count for pass_, count in passes.items())
        _saved[:] = [saved_us * 1e-6, now_s + _SAVED_FOR_S]
    return _saved[0]


_SAVED_FOR_S = 0.3
_saved = [0.0, 0.0]
"""What was saved, and until when that figure will do."""
spending.saved_s = _saved_s


def made_of_plans() -> dict[Any, Any]:
    """A dictionary for what is made of plans, as recorded calls: it is emptied when these are forgotten."""
    _made_of_plans.append({})
    return _made_of_plans[-1]


def forget_calls() -> None:
    """Forget all recorded calls, here and in C++; the next ones look their plans up."""
    for made in _made_of_plans:
        made.clear()
    native.forget()


def forget() -> None:
    """Forget all decisions, kernels and warnings, and read the tuning logs again when they are next needed."""
    with process_kernels.lock:
        forget_calls()
        _plans.clear()
        of_layer.clear()
        _at_all_sizes.clear()
        untuned_warnings.forget_sizes()
        warned_once.forget()
        database.cache_clear()
        locked.read.cache_clear()
        locked.agreed.clear()
        _saved[:] = [0.0, 0.0]
        background_builds.forget()
        process_kernels.forget()


_Sizeless = tuple[Problem, torch.device, int]
"""With its batch, and without a size; the device, and PyTorch's threads."""
_made_of_plans: list[dict[Any, Any]] = []
_plans: dict[tuple[Problem, torch.device, int], CallPlan] = {}
_at_all_sizes: dict[_Sizeless, list[tuple[AtAllSizes, CallPlan]]] = {}
"""What was decided of layers for all their sizes, with the first plan of each."""
