"""Ranks that agree: on devices of one name, the layers of an example run the same kernels on every rank of a job.

    every rank        what it decided of each call, as a digest
    the first of      where digests differ, what it decided: all of that device follow
    every rank        builds these kernels, and reports which cannot run on it: PyTorch's op runs those passes on all

Tuning logs, packs and settings may differ from rank to rank. Where all decide alike, nothing is changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from dwconv.call import process_kernels
from dwconv.call.plan_kernels import PlanKernels
from dwconv.discovery import Discovery
from dwconv.dispatch import legality, loaded_packs, locked
from dwconv.dispatch.decision import DispatchDecision
from dwconv.dispatch.of_problem import decisions
from dwconv.errors import InvalidConfig, InvalidWorkload, NoTemplate, warn
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, Target, target_of
from dwconv.problems.workload import Pass
from dwconv.schedules.template import Candidate
from dwconv.tuner.model_race import gathered

_Call = tuple[str, Problem]
"""With the device's name."""
_Decisions = dict[Pass, DispatchDecision]


@dataclass(frozen=True, kw_only=True)
class _Differing:
    """A call that ranks decided differently. ``first``: the rank that the others follow."""

    call: _Call
    first: int
    others: tuple[int, ...]


def agree(discovery: Discovery) -> None:
    """Let every rank run what the first one decided, for the calls of the example. Every rank has to call it. Rank by
    rank the first of those that follow it warns, once, of what differed."""
    devices = _devices_of(discovery)
    mine = {call: _decided(call[1], device) for call, device in devices.items()}
    differing = _differing(gathered({call: _digest(made) for call, made in mine.items()}))
    if not differing:
        return
    rank = dist.get_rank()
    sent = {each.call: mine[each.call] for each in differing if each.first == rank}
    followed = {call: made for theirs in gathered(sent) for call, made in theirs.items() if call in devices}
    faults = gathered({call: _faults(call[1], made, devices[call]) for call, made in followed.items()})
    firsts = {each.call: each.first for each in differing}
    for call, made in followed.items():
        found = {pass_: fault for theirs in faults for pass_, fault in theirs.get(call, {}).items()}
        locked.agree(call[1], devices[call], _agreed(made, found, devices[call], first=firsts[call]))
    _warn_of([each for each in differing if each.first == rank], faults, calls=len(devices))


def _devices_of(discovery: Discovery) -> dict[_Call, torch.device]:
    """The calls of the example that may have kernels, with those of blocks, in training and in evaluation."""
    layers = [layer for layer in discovery.layers if layer not in discovery.left_out]
    found = [(problem, layer.device) for layer in layers for problem, _ in layer.problems()]
    for block in discovery.counted_blocks:
        assert block.problem is not None
        found += [(block.problem, block.device), (block.problem.in_evaluation, block.device)]
    return {(target_of(device).device, problem): device for problem, device in found}


def _decided(problem: Problem, device: torch.device) -> _Decisions:
    """What goes wrong on one rank may not keep the others waiting."""
    made, reason = process_kernels.attempt(decisions, problem, device, state=process_kernels.state)
    return made[0] if made else {pass_: DispatchDecision(provider="pytorch", reason=reason) for pass_ in problem.passes}


def _digest(made: Mapping[Pass, DispatchDecision]) -> str:
    """Of what decides which code runs."""
    fields = {
        pass_: [each.config.to_dict(), each.workload.to_dict(), _threads(each.target)]
        for pass_, each in made.items()
        if each.provider == "dwconv" and each.config and each.workload
    }
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _threads(target: Target | None) -> int:
    return target.threads if isinstance(target, CpuTarget) else 0


def _differing(of_ranks: list[dict[_Call, str]]) -> list[_Differing]:
    ranks: dict[_Call, list[int]] = {}
    for rank, digests in enumerate(of_ranks):
        for call in digests:
            ranks.setdefault(call, []).append(rank)
    found = []
    for call, (first, *others) in ranks.items():
        unlike = tuple(rank for rank in others if of_ranks[rank][call] != of_ranks[first][call])
        if unlike:
            found.append(_Differing(call=call, first=first, others=unlike))
    return found


def _faults(problem: Problem, made: _Decisions, device: torch.device) -> dict[Pass, str]:
    """What keeps kernels of another rank from running on this one, which builds them to find out."""
    kernels = PlanKernels(problem, device, decisions=made, refused=())
    faults = {}
    for pass_, each in made.items():
        if each.provider == "dwconv":
            fault, error = process_kernels.attempt(_fault, each, kernels, device)
            faults[pass_] = fault or error
    return {pass_: fault for pass_, fault in faults.items() if fault}


def _fault(decision: DispatchDecision, kernels: PlanKernels, device: torch.device) -> str:
    here = replace(decision, target=_target_of(decision, device))
    assert here.workload is not None and here.config is not None and here.target is not None
    try:
        if not loaded_packs.has(here.workload, here.config, here.target):
            legality.check(Candidate(here.workload, here.config), here.target, broken=process_kernels.state.broken)
    except (InvalidConfig, InvalidWorkload, NoTemplate) as error:
        return str(error)
    return kernels.fault(here)


def _target_of(decision: DispatchDecision, device: torch.device) -> Target:
    """The kernel is built for as many threads as on the rank that decided: it gives the same bits."""
    target = target_of(device)
    return replace(target, threads=_threads(decision.target)) if isinstance(target, CpuTarget) else target


def _agreed(made: _Decisions, faults: Mapping[Pass, str], device: torch.device, *, first: int) -> _Decisions:
    found: _Decisions = {}
    for pass_, each in made.items():
        if fault := faults.get(pass_):
            if pass_ != "backward" or "dgrad" not in made:  # else two kernels run in its place
                reason = f"a rank cannot run what rank {first} decided: {fault}"
                found[pass_] = DispatchDecision(provider="pytorch", reason=reason, record=each.record)
        elif each.provider == "dwconv":
            found[pass_] = replace(
                each, target=_target_of(each, device), reason=f"as rank {first} decided: {each.reason}"
            )
        else:
            found[pass_] = replace(each, reason=f"as rank {first} decided: {each.reason}")
    return found


def _warn_of(differing: list[_Differing], faults: list[dict[_Call, dict[Pass, str]]], *, calls: int) -> None:
    """Of those that follow this rank."""
    if not differing:
        return
    others = sorted({rank for each in differing for rank in each.others})
    named = "rank " + str(others[0]) if len(others) == 1 else f"{len(others)} ranks"
    said = (
        f"{named} decided differently from rank {differing[0].first} in {len(differing)} of {calls} calls, such as "
        f"{differing[0].call[1]}, and run what it decided: their tuning logs, packs or settings differ"
    )
    failed = [
        f"rank {rank} cannot run {pass_} of {call[1]}: {fault}"
        for rank, theirs in enumerate(faults)
        for call, of_call in theirs.items()
        for pass_, fault in of_call.items()
        if call in {each.call for each in differing}
    ]
    if failed:
        said += f"; {failed[0]}; PyTorch's op runs {'it' if len(failed) == 1 else f'{len(failed)} such passes'} on all"
    warn(said)
