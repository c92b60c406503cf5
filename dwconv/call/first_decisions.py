"""First decisions: what runs a problem with which a call comes for the first time, and the warnings that go with it.

No error of deciding stops a training step: PyTorch's own op runs, and one warning gives the reason.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Set
from dataclasses import dataclass

import torch

from dwconv import settings
from dwconv.call import process_kernels
from dwconv.call.arriving import layer_of
from dwconv.call.plan_kernels import chosen
from dwconv.call.warned_once import is_first, warn_of_first
from dwconv.dispatch import legality, locked
from dwconv.dispatch.decide import on_pytorch
from dwconv.dispatch.decision import DispatchDecision
from dwconv.dispatch.knowledge import database
from dwconv.dispatch.of_problem import decisions
from dwconv.errors import InvalidConfig, InvalidWorkload, warn
from dwconv.problems.problem import Problem
from dwconv.problems.target import Target
from dwconv.problems.workload import Pass

_UNNEEDED = "no call has needed it"
_Decisions = dict[Pass, DispatchDecision]


@dataclass(frozen=True, kw_only=True)
class FirstDecisions:
    """What a plan begins with."""

    made: _Decisions
    target: Target | None
    """None where there can be no kernels."""
    unneeded: frozenset[Pass]
    """Passes that nothing is predicted of, since no call has needed them."""
    later: bool
    """True if kernels are predicted and built in the background."""


def first_decisions(problem: Problem, device: torch.device, *, needs: Set[Pass] | None) -> FirstDecisions:
    """``needs``: the passes that the call needs; None for all. Raises InvalidSetting."""
    settings.untuned()  # what these two raise is meant for the user; other errors of deciding stop no training step
    settings.nan()
    lock = locked.current()
    later = settings.untuned() == "predict" and lock is None and not locked.agreed_on(problem, device)
    with contextlib.suppress(InvalidWorkload):  # of another type: PyTorch's op runs
        for pass_ in problem.passes if layer_of(problem, device) else ():
            process_kernels.state.meet(problem.workload(pass_))
    made, target = _decided(problem, device, later=later)
    if lock is not None:
        _warn_of_lock(lock, problem, made, target)
    for damage in database().problems if target and not lock else ():
        if is_first(damage):
            warn(damage)
    if later and target:
        made = _at_first_size(made, problem, target, device)
    unneeded = _unneeded(made, needs)
    made |= {pass_: on_pytorch(_UNNEEDED) for pass_ in unneeded}
    return FirstDecisions(made=made, target=target, unneeded=unneeded, later=later)


def _decided(problem: Problem, device: torch.device, *, later: bool) -> tuple[_Decisions, Target | None]:
    made, reason = (
        (None, process_kernels.ABANDONED)
        if process_kernels.lock.abandoned
        else process_kernels.attempt(decisions, problem, device, state=process_kernels.state, later=later)
    )
    if made is not None:
        return made
    if is_first(reason):
        warn(f"everything runs on PyTorch's own op: {reason}")
    return dict.fromkeys(problem.passes, DispatchDecision(provider="pytorch", reason=reason)), None


def _warn_of_lock(lock: locked.LockFile, problem: Problem, made: _Decisions, target: Target | None) -> None:
    """Warn where something else runs than in the run that was locked."""
    if lock.other_versions and is_first(lock.other_versions):
        warn(f"DWCONV_LOCK={lock.path} was made with {lock.other_versions}: bits may differ")
    if target and (threads := lock.other_threads(problem, target)) and is_first("threads of the lock"):
        warn(
            f"DWCONV_LOCK={lock.path} was made with {threads} threads, and PyTorch has {torch.get_num_threads()} here: "
            f"kernels give the same bits, PyTorch's own ops may not; torch.set_num_threads({threads}) runs the same"
        )
    if reasons := [each.reason for each in made.values() if each.is_not_as_locked]:
        warn_of_first("lock", f"{problem} runs on PyTorch's own op: {reasons[0]}")


def _unneeded(made: Mapping[Pass, DispatchDecision], needs: Set[Pass] | None) -> frozenset[Pass]:
    """Passes of which nothing is known, and which calls do not need, as the first layer of a model no gradient of its
    input: kernels of the others run without them."""
    is_known = any(each.provider == "dwconv" for each in made.values())
    if needs is None or not is_known:
        return frozenset()
    return frozenset(pass_ for pass_, each in made.items() if each.is_open and pass_ not in needs)


def _at_first_size(made: _Decisions, problem: Problem, target: Target, device: torch.device) -> _Decisions:
    """A kernel of any size that is not built yet takes three times as long to build as the same for one size, which
    runs until the layer has come with a second one, or several layers share it."""
    from dwconv.schedules.template import Candidate, fitting

    found = dict(made)
    for pass_, each in made.items():
        known = chosen(problem, each)
        if problem.block or not (known and known[0].workload.any_size and each.record):
            continue
        workload = dataclasses.replace(problem.workload(pass_), bias=known[0].workload.bias)
        is_shared = (
            workload.layer_kind in process_kernels.state.shared_kinds
            or process_kernels.state.meets_several_sizes(workload)
        )
        if not (is_shared or process_kernels.is_ready(*known, device)):
            with contextlib.suppress(InvalidConfig):
                space = fitting(known[0].config.template, workload, target).space(workload, target)
                config = space.nearest(known[0].config)
                legality.check(Candidate(workload, config), target, broken=process_kernels.state.broken)
                found[pass_] = dataclasses.replace(each, workload=workload, config=config)
    return found
