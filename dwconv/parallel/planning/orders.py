"""Schedules by name: in which order a rank runs the passes of its stages and microbatches.

They are those of torch.distributed.pipelining: ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B and
ScheduleInterleavedZeroBubble. With replicas that differ from stage to stage, which those cannot run, as many
microbatches are on their way as keep the ranks that follow busy.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dwconv.parallel.planning.plan import Plan, check_schedule


@dataclass(frozen=True, kw_only=True)
class Action:
    """A pass of one microbatch through one stage."""

    what: Literal["forward", "backward", "dgrad", "wgrad"]
    """``backward``: both gradients; dgrad and wgrad apart where the weights' can wait, in ``zero-bubble``."""
    stage: int
    microbatch: int
    """Numbered over those that this rank runs."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """One group of ranks in a pipeline, and how much it runs."""

    group: int
    groups: int
    stages_per_rank: int
    microbatches: int
    """Those of one rank."""
    ahead: int
    """Microbatches that may be on their way from here to the last stage and back, this group's own included."""
    behind: int
    """The same for the groups before this one, without its own."""


def place_of(plan: Plan, *, group: int, replica: int = 0) -> Place:
    """The place of one rank of ``plan``."""
    replicas = [stage.replicas for stage in plan.stages[: plan.groups]]
    return Place(
        group=group,
        groups=plan.groups,
        stages_per_rank=plan.stages_per_rank,
        microbatches=len(range(replica, plan.microbatches * replicas[0], replicas[group])),
        ahead=math.ceil(sum(replicas[group:]) / replicas[group]),
        behind=math.ceil(sum(replicas[:group]) / replicas[group]),
    )


def why_not(plan: Plan) -> str:
    """Why its schedule does not fit its microbatches; empty if it does. With one stage every schedule does."""
    groups, microbatches = plan.groups, plan.microbatches
    if len(plan.stages) == 1:
        return ""
    if plan.schedule == "1f1b" and microbatches < groups:
        return f"1f1b needs at least as many microbatches as stages: {microbatches} are fewer than {groups}"
    rounds = max(1, microbatches // groups)
    if plan.schedule in ("interleaved", "zero-bubble") and microbatches % rounds:
        return (
            f"{plan.schedule} runs {microbatches} microbatches in {rounds} rounds of {groups} ranks, which does not "
            "come out even"
        )
    return ""


def actions(schedule: str, place: Place) -> list[Action]:
    """The passes that a rank runs, in order. Raises NoPlan for an unknown schedule."""
    check_schedule(schedule)
    if schedule == "gpipe":
        return [*_passes(place, what="forward"), *_passes(place, what="backward")]
    if schedule == "1f1b":
        return _one_by_one(place, warmup=place.ahead - 1)
    before = (place.stages_per_rank - 1) * _round(place)
    if schedule == "interleaved":
        return _one_by_one(place, warmup=before + 2 * (place.ahead - 1))
    return _apart(_one_by_one(place, warmup=before + place.ahead - 1), lag=place.behind)


def _round(place: Place) -> int:
    """Microbatches that go through one of a rank's stages before its next stage has its turn."""
    return max(1, place.microbatches // max(1, place.microbatches // place.groups))


def _stage_order(place: Place) -> list[int]:
    """By number of forward pass, the position of the stage among the rank's."""
    turns = range(math.ceil(place.microbatches / _round(place)) * place.stages_per_rank)
    positions = [turn % place.stages_per_rank for turn in turns for _ in range(_round(place))]
    return positions[: place.microbatches * place.stages_per_rank]


def _passes(place: Place, *, what: Literal["forward", "backward"]) -> list[Action]:
    """All passes of one kind, in order."""
    seen: Counter[int] = Counter()
    found = []
    for position in _stage_order(place):
        stage = position if what == "forward" else place.stages_per_rank - 1 - position
        found.append(Action(what=what, stage=stage * place.groups + place.group, microbatch=seen[stage]))
        seen[stage] += 1
    return found


def _one_by_one(place: Place, *, warmup: int) -> list[Action]:
    """Some forward passes, then one forward and one backward in turns."""
    forwards, backwards = _passes(place, what="forward"), _passes(place, what="backward")
    warmup = min(warmup, len(forwards))
    pairs = itertools.zip_longest(forwards[warmup:], backwards)
    return [*forwards[:warmup], *(action for pair in pairs for action in pair if action)]


def _apart(order: Sequence[Action], *, lag: int) -> list[Action]:
    """The same with dgrad and wgrad apart: each wgrad comes ``lag`` backward passes later, or at the end."""
    found: list[Action] = []
    waiting: list[Action] = []
    for action in order:
        if action.what == "forward":
            found.append(action)
            continue
        found.append(Action(what="dgrad", stage=action.stage, microbatch=action.microbatch))
        waiting.append(Action(what="wgrad", stage=action.stage, microbatch=action.microbatch))
        if len(waiting) > lag:
            found.append(waiting.pop(0))
    return [*found, *waiting]
