"""Plan: what runs a call, pass by pass. Ops look it up with ``plan_for`` in every step.

A Plan decides once and builds a kernel when it is first used. Nothing is tuned here, and no failure here stops a
training step: PyTorch's own op runs instead. The exception is an unmeasured workload with ``DWCONV_UNTUNED=error``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from dwconv import native, settings
from dwconv.call import background_builds, loaded, untuned_warnings
from dwconv.call.plan_kernels import PlanKernels, chosen
from dwconv.call.tally import Tally
from dwconv.call.untuned_warnings import is_first, untuned, warn_of_first
from dwconv.dispatch import locked
from dwconv.dispatch.any_size import AtAllSizes, nearest_of_any_size
from dwconv.dispatch.decision import DispatchDecision
from dwconv.dispatch.kernel_state import KernelState, OfAnySize
from dwconv.dispatch.knowledge import database
from dwconv.dispatch.of_problem import decisions
from dwconv.errors import InvalidWorkload, Untuned, warn
from dwconv.problems.as_written import tune_command
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import PASSES, Pass
from dwconv.system import interpreter, versions

if TYPE_CHECKING:
    from dwconv.call.background_builds import Maker
    from dwconv.schedules.template import Candidate

_log = logging.getLogger(__name__)

Made = TypeVar("Made")
MOST_PLANS = 10_000
"""Sizes to remember at a time."""
_ASK_AGAIN_S = 300.0
"""After what failed because of the machine."""
BUILT_FROM = 64
"""A build takes a core some tenths of a second. It is likely to pay from this many calls of a layer at one size."""
_AGAIN = 2
_MOST_ALIKE = 64
"""Layers of one size that a model has; beyond it they are one whose weight is made anew in each call."""


class Plan:
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
        self._looked_at = 0
        self._made_at = loaded.state.cleared
        self._met: dict[int, int] = {}
        """Calls that Python ran, by weight."""
        self.meanwhile: list[Any] = []
        """Calls that C++ runs while the plan is open."""
        self._ask_from_s = 0.0
        self._arrived: dict[Pass, DispatchDecision] | None = None
        """What was decided in the background, with kernels that are ready."""
        self._unmade = ""
        """Why that will not be, until a warning has reported it."""
        self._settle(decisions)

    def _settle(self, decisions: dict[Pass, DispatchDecision]) -> None:
        problem, target = self.problem, self.target
        self.decisions = decisions
        self.is_open = any(each.is_open for each in decisions.values())
        """True if predictions are still to be made: every call goes to ``meet``."""
        named = [pass_ for pass_, each in decisions.items() if each.command]
        self._refused = frozenset(named if settings.untuned() == "error" else ())
        """Passes that must not run before they are tuned."""
        self.is_pytorch = not self._refused and all(each.provider == "pytorch" for each in decisions.values())
        """True if PyTorch's own op runs every pass."""
        self.gives_both = problem.block is None and "backward" in decisions
        """True if both gradients of the layer come from one kernel, where both are requested."""
        self.kernels = PlanKernels(problem, self.device, decisions=decisions, refused=self._refused, check=self.check)
        """dwconv's kernel that runs a pass; None where PyTorch's own op does."""
        for pass_, each in decisions.items():
            self._note_any_size(each)
            if target is not None and is_for_one_size(each):
                loaded.state.note_prediction(problem.workload(pass_), target)
        if not self.is_open:
            self._warn_of_untuned()

    def resized(self, problem: Problem) -> Plan:
        """The same at another size of the layer, where the same kernels run: nothing is decided or built."""
        made = object.__new__(Plan)
        kernels = self.kernels.resized(problem)
        made.__dict__.update(self.__dict__, problem=problem, kernels=kernels, tally=Tally(), _met={}, meanwhile=[])
        return made

    def meet(self, weight: int) -> bool:
        """A call of an open plan. Its kernels are made in the background: at once if they are known from measurements;
        if they are predicted, when the size has come ``BUILT_FROM`` times with the same ``weight``, a number: layers
        may be alike. What is on disk is loaded when it comes again. True if they are there: from now on they run."""
        work: Callable[[Maker], None] | None = None
        calls = 0
        if self._unmade:
            warn_of_first("unmade", f"{self.problem} runs on PyTorch's own op, {self._unmade}")
            self._unmade = ""
        if self._arrived is None and loaded.state.changes != self._looked_at:
            self._arrived = self._by_any_size()
        if self._arrived is None and time.monotonic() >= self._ask_from_s:
            self._met[weight] = self._met.get(weight, 0) + 1
            calls = self._calls_of_layer(weight)
            is_known = any(each.is_open and each.record for each in self.decisions.values())
            if is_known or calls >= BUILT_FROM or len(self._met) > _MOST_ALIKE:
                work = self._bring
            elif self._met[weight] == _AGAIN and background_builds.has_kept():
                work = self._bring_kept
            if work:
                self._ask_from_s = math.inf
        if calls != 1:
            self._look_after(BUILT_FROM if work or not calls else BUILT_FROM - 1 - calls)
        if self._arrived is not None:
            self._look_after(0)  # calls of other kinds come here, too
            with loaded.lock:
                if self.is_open:
                    self._settle(self._arrived)
            return True
        if work:
            background_builds.ask(work)
        return False

    def _calls_of_layer(self, weight: int) -> int:
        """The calls with that weight, up to ``BUILT_FROM``; of all sizes together where one kernel runs them."""
        calls, layer = 0, _layer_of(self.problem, self.device)
        for plan in itertools.chain([self], _of_layer.get(layer, ()) if layer else ()):
            calls += 0 if calls and plan is self else plan.calls_with(weight)
            if calls >= BUILT_FROM:
                break
        return calls

    def calls_with(self, weight: int) -> int:
        """The calls of the plan while it was open."""
        return self._met.get(weight, 0) + self.tally.calls_in_cpp(weight)

    def _look_after(self, calls: int) -> None:
        """The calls of each kind that C++ runs on PyTorch's op before the next one returns to Python."""
        for call in self.meanwhile:
            call.left = calls

    def ran(self, pass_: Pass, weight: Tensor | None = None) -> None:
        """An op that Python runs."""
        self.tally.ops[pass_] += 1
        if self.is_open and weight is not None:
            self.meet(weight.data_ptr())

    def _bring(self, maker: Maker, *, again_s: float = _ASK_AGAIN_S) -> None:
        """In the background: decide, and have the kernels made and loaded. What the machine is short of, it may have
        ``again_s`` later."""
        made, reason = loaded.attempt(lambda: self._predicted(maker))
        if made is None:
            _log.info("nothing is built in the background for %s now: %s", self.problem, reason)
            if again_s and (why := interpreter.why_none()):
                self._unmade = f"since no process can build its kernels: {why}"
                again_s = math.inf
            self._ask_from_s = time.monotonic() + again_s
        self._arrived = made
        self._look_after(0)

    def _bring_kept(self, _: Maker) -> None:
        """Load what earlier processes predicted and built, if all of it is there."""
        self._bring(background_builds.Maker(starts=False), again_s=0.0)

    def decide_now(self) -> None:
        """``_bring`` without the background."""
        made, _ = loaded.attempt(lambda: decisions(self.problem, self.device, state=loaded.state, target=self.target))
        if made is not None:
            self._arrived = made[0]
            self._look_after(0)

    def _predicted(self, maker: Maker) -> dict[Pass, DispatchDecision]:
        state = dataclasses.replace(loaded.state, expect=maker.expect)
        made, _ = decisions(self.problem, self.device, state=state, target=self.target)
        for pass_, decision in made.items():
            if self.target and is_for_one_size(decision):
                loaded.state.note_prediction(self.problem.workload(pass_), self.target)
        for decision in made.values():
            if known := chosen(self.problem, decision):
                self._make(*known, maker)
        for decision in made.values():
            self._note_any_size(decision)
        return made

    def _by_any_size(self) -> dict[Pass, DispatchDecision] | None:
        """What runs if the layer has kernels of any size for all that is open; None if it has not."""
        self._looked_at = loaded.state.changes
        made, _ = decisions(self.problem, self.device, state=loaded.state, target=self.target, later=True)
        found = [chosen(self.problem, each) for each in made.values()]
        is_there = all(loaded.is_ready(*each, self.device) for each in found if each)
        return made if is_there and not any(each.is_open for each in made.values()) else None

    def until_ready(self) -> None:
        """PyTorch's op runs the passes whose kernels are not built yet."""
        found = {
            pass_: dataclasses.replace(decision, provider="pytorch", reason=UNTIL_READY, is_open=True)
            if (known := chosen(self.problem, decision)) and not loaded.is_ready(*known, self.device)
            else decision
            for pass_, decision in self.decisions.items()
        }
        if any(each.is_open for each in found.values()):
            self._settle(found)

    def _make(self, candidate: Candidate, target: Target, maker: Maker) -> None:
        """Have a kernel made. An error of the build or of the load is reported at the first use of the kernel."""
        if not loaded.is_ready(candidate, target, self.device):
            threads = self.target.threads if isinstance(self.target, CpuTarget) else 1
            if fault := maker.make(candidate, target, threads=threads):
                loaded.unbuilt[candidate, self.device] = fault
                return
        if target.kind == "cpu":  # a GPU's is loaded by the thread that runs it
            kernel, _ = loaded.attempt(lambda: loaded.load(candidate, target, self.device))
            if kernel is not None:
                loaded.kernels.setdefault((candidate, self.device), kernel)

    def check(self, passes: Collection[Pass]) -> None:
        """Raises Untuned if one of ``passes`` must not run before it is tuned."""
        if refused := [pass_ for pass_ in passes if pass_ in self._refused]:
            fate = "must be tuned, as DWCONV_UNTUNED=error requires"
            raise Untuned(untuned(self.problem, {pass_: self.decisions[pass_] for pass_ in refused}, fate=fate))

    def _note_any_size(self, decision: DispatchDecision) -> None:
        """From now on a kernel of any size, with its expected times, may run the layer at its other sizes, too."""
        candidate = decision.any_size
        if candidate is None or decision.expected is None or self.target is None:
            return
        if self._made_at != loaded.state.cleared:  # it was forgotten while its kernels were on their way
            return
        of_layer = loaded.state.any_size[candidate.workload.of_one_size.layer, self.target.device]
        if nearest_of_any_size(of_layer, candidate.workload) is None:
            of_layer.append(OfAnySize(candidate=candidate, expected=decision.expected))
            loaded.state.changes += 1

    def _warn_of_untuned(self) -> None:
        """Warn of the first untuned layer. No warning for predicted kernels: ``explain`` names the command. None for
        epilogues and blocks: without a kernel the plan without one runs."""
        if self.target is None or self._refused or self.problem.epilogue != "none" or self.problem.block:
            return
        sizes = untuned_warnings.sizes_of(self.problem)
        if sizes in _met:
            return
        _met.add(sizes)
        if refused := [pass_ for pass_, each in self.decisions.items() if each.too_many_sizes]:
            self._warn_of_many_sizes(refused[0])
        slow = untuned_warnings.left_to_pytorch(self.decisions)
        if slow and (message := untuned_warnings.of_an_example(sizes, _slow_passes)):
            is_first("untuned")
            warn(message)
        elif slow:
            warn_of_first("untuned", untuned(self.problem, slow, fate="run on PyTorch's own op"))

    def _warn_of_many_sizes(self, pass_: Pass) -> None:
        """Warn that further sizes of a layer run on PyTorch's op."""
        warn_of_first(
            "sizes",
            f"{self.problem} and further sizes of this layer run on PyTorch's own op: "
            f"{self.decisions[pass_].reason}; pad to fewer sizes, or tune those that matter: "
            f"{tune_command(self.problem.workload('fprop'), PASSES)}",
        )


def _slow_passes(problem: Problem, device: torch.device) -> Collection[Pass]:
    found = decisions_for(problem, device)[0]
    return () if any(each.is_open for each in found.values()) else untuned_warnings.left_to_pytorch(found)


def _layer_of(problem: Problem, device: torch.device) -> tuple[Problem, torch.device] | None:
    """What the layer has in common at every size, where one kernel may run all of them; else None."""
    if problem.block:
        return None
    return dataclasses.replace(problem, input_shape=(0, problem.input_shape[1])), device


def is_for_one_size(decision: DispatchDecision) -> bool:
    """True if it was predicted, and not of a kernel of any size."""
    is_predicted = decision.expected is not None and decision.record is None
    return is_predicted and decision.any_size is None and not (decision.workload and decision.workload.any_size)


def plan_for(problem: Problem, device: torch.device) -> Plan:
    """The plan for these sizes on ``device``. The look-up costs a microsecond or two; the first one decides. Raises
    InvalidSetting."""
    key = (problem, device, torch.get_num_threads() if device.type == "cpu" else native.is_out())
    found = _plans.get(key)
    if found is None:
        with loaded.lock:
            if len(_plans) >= MOST_PLANS:
                _plans.clear()
                _of_layer.clear()
                _at_all_sizes.clear()
                _met.clear()
            sizeless = dataclasses.replace(problem, input_shape=problem.input_shape[:2]), *key[1:]
            found = _as_at_other_sizes(problem, sizeless) or _new_plan(problem, device, sizeless=sizeless)
            _plans[key] = found
            if found.is_open and (layer := _layer_of(problem, device)):
                _of_layer.setdefault(layer, []).append(found)
    return found


def _as_at_other_sizes(problem: Problem, sizeless: _Sizeless) -> Plan | None:
    """The plan of a layer that kernels of any size run at its other sizes; None if another one may run it here."""
    for decided, plan in _at_all_sizes.get(sizeless, ()):
        if decided.holds_at(problem, plan.device, broken=loaded.state.broken):
            return plan.resized(problem)
    return None


def decisions_for(problem: Problem, device: torch.device) -> tuple[dict[Pass, DispatchDecision], Target | None]:
    """What a plan that is made now would decide in the end: ``dispatch.of_problem.decisions``, by what this process has
    measured."""
    return decisions(problem, device, state=loaded.state)


def kernel_state() -> KernelState:
    """The verdicts of this process on its kernels."""
    return loaded.state


def plans() -> list[Plan]:
    """All plans that were made since decisions were last forgotten, in that order."""
    with loaded.lock:
        return list(_plans.values())


def decide_open_plans() -> bool:
    """Decide now what would be decided in the background: each open plan has its kernels from its next call on, which
    builds what is not built. False if none is open."""
    found = [plan for plan in plans() if plan.is_open]
    for plan in found:
        plan.decide_now()
    return bool(found)


def _new_plan(problem: Problem, device: torch.device, *, sizeless: _Sizeless) -> Plan:
    settings.untuned()  # what these two raise is meant for the user; other errors of deciding stop no training step
    settings.nan()
    lock = locked.current()
    later = settings.untuned() == "predict" and lock is None and not locked.agreed_on(problem, device)
    with contextlib.suppress(InvalidWorkload):  # of another type: PyTorch's op runs
        for pass_ in problem.passes if _layer_of(problem, device) else ():
            loaded.state.meet(problem.workload(pass_))
    made, reason = (
        (None, loaded.ABANDONED)
        if loaded.lock.abandoned
        else loaded.attempt(lambda: decisions(problem, device, state=loaded.state, later=later))
    )
    if made is None and is_first(reason):
        warn(f"everything runs on PyTorch's own op: {reason}")
    chosen, target = made or (dict.fromkeys(problem.passes, DispatchDecision(provider="pytorch", reason=reason)), None)
    if lock and lock.other_versions and is_first(lock.other_versions):
        warn(f"DWCONV_LOCK={lock.path} was made with {lock.other_versions}: bits may differ")
    if lock and target and (threads := lock.other_threads(problem, target)) and is_first("threads of the lock"):
        warn(
            f"DWCONV_LOCK={lock.path} was made with {threads} threads, and PyTorch has {torch.get_num_threads()} here: "
            f"kernels give the same bits, PyTorch's own ops may not; torch.set_num_threads({threads}) runs the same"
        )
    if reasons := [each.reason for each in chosen.values() if each.is_not_as_locked]:
        warn_of_first("lock", f"{problem} runs on PyTorch's own op: {reasons[0]}")
    for damage in database().problems if target and not lock else ():
        if is_first(damage):
            warn(damage)
    plan = Plan(problem, device, decisions=chosen, target=target)
    if later and problem.epilogue == "none" and not problem.block and versions.can_build():
        plan.until_ready()
    if target and not plan.is_open:
        decided, _ = loaded.attempt(
            lambda: AtAllSizes.of(problem, plan.decisions, target=target, broken=loaded.state.broken)
        )
        if decided:
            _at_all_sizes.setdefault(sizeless, []).append((decided, plan))
    return plan


def forget() -> None:
    """Forget all decisions, kernels and warnings, and read the tuning logs again when they are next needed."""
    with loaded.lock:
        _plans.clear()
        _of_layer.clear()
        _at_all_sizes.clear()
        _met.clear()
        untuned_warnings.forget()
        database.cache_clear()
        locked.read.cache_clear()
        locked.agreed.clear()
        background_builds.forget()
        loaded.forget()


UNTIL_READY = "PyTorch's op runs until its kernel is built in the background"
_Sizeless = tuple[Problem, torch.device, int]
"""With its batch, and without a size; the device, and PyTorch's threads."""
_plans: dict[tuple[Problem, torch.device, int], Plan] = {}
_of_layer: dict[tuple[Problem, torch.device], list[Plan]] = {}
"""The plans that were open, of a layer's sizes."""
_at_all_sizes: dict[_Sizeless, list[tuple[AtAllSizes, Plan]]] = {}
"""What was decided of layers for all their sizes, with the first plan of each."""
_met: set[str] = set()
"""``Workload.batchless_key`` of all that plans were made for, tuned or not."""
