"""The schedules of PyTorch's pipelining by name, and how the layers of a plan are spread over its ranks for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from dwconv.errors import InvalidPlan
from dwconv.parallel.plan import Plan

_MULTI: dict[str, type[ScheduleInterleaved1F1B | ScheduleInterleavedZeroBubble]] = {
    "interleaved": ScheduleInterleaved1F1B,
    "zero-bubble": ScheduleInterleavedZeroBubble,  # with one part a rank: ZB-H1 of the paper
}
_SINGLE: dict[str, type[ScheduleGPipe | Schedule1F1B]] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
SCHEDULES = (*_SINGLE, *_MULTI)
"""Names of schedules."""
INTERLEAVED_PARTS = 2
"""Parts of the model that a rank has under the interleaved schedule."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Layers ``first`` to ``last`` (``last`` excluded), which one rank runs in one go."""

    index: int
    first: int
    last: int


def check_plan(plan: Plan) -> None:
    """Raises InvalidPlan, in one line, for a plan that cannot be run."""
    if plan.schedule not in SCHEDULES:
        raise InvalidPlan(f"schedule={plan.schedule} is unknown; use one of {', '.join(SCHEDULES)}")
    if not plan.stages or plan.microbatches < 1:
        raise InvalidPlan(f"a plan of {len(plan.stages)} stages and {plan.microbatches} microbatches; give 1 or more")
    replicas = [stage.replicas for stage in plan.stages]
    if len(set(replicas)) > 1:
        raise InvalidPlan(
            f"the stages have {', '.join(map(str, replicas))} replicas; only equal numbers can be run, since ranks are "
            "a grid of pipeline × data"
        )
    edges = [0, *(stage.last for stage in plan.stages)]
    if [stage.first for stage in plan.stages] != edges[:-1] or edges[-1] != len(plan.layers):
        raise InvalidPlan(f"stages that end at {edges[1:]} do not hold each of {len(plan.layers)} layers once, in order")
    if any(stage.first >= stage.last for stage in plan.stages):
        raise InvalidPlan(f"stages that end at {edges[1:]} leave one without a layer; use fewer stages")
    ranks = len(plan.stages)
    if ranks > 1 and plan.schedule != "gpipe" and plan.microbatches < ranks:
        raise InvalidPlan(
            f"microbatches={plan.microbatches} leave stages of {plan.schedule} without work; give {ranks} or more, or "
            "use gpipe"
        )
    if plan.schedule in _MULTI and plan.microbatches % max(1, plan.microbatches // ranks):
        raise InvalidPlan(
            f"microbatches={plan.microbatches} cannot be shared out by {plan.schedule} over {ranks} stages; give a "
            f"multiple of {ranks}"
        )
    if parts_a_rank(plan) * ranks > len(plan.layers):
        raise InvalidPlan(
            f"{plan.schedule} has {INTERLEAVED_PARTS} parts a rank, and the model {len(plan.layers)} layers for "
            f"{ranks} ranks; use fewer stages, or 1f1b"
        )


def parts_a_rank(plan: Plan) -> int:
    """How many parts of the model a rank runs."""
    return INTERLEAVED_PARTS if plan.schedule == "interleaved" and len(plan.stages) > 1 else 1


def parts_of(plan: Plan) -> list[Part]:
    """The parts that a microbatch runs through, dealt out to the ranks of a pipeline in turn: the stages, or for the
    interleaved schedule twice as many of about equal time."""
    ends = [stage.last for stage in plan.stages]
    if parts_a_rank(plan) > 1:
        times_us = [layer.forward_us + layer.dgrad_us + layer.wgrad_us for layer in plan.layers]
        ends = even_ends(times_us, parts=parts_a_rank(plan) * len(plan.stages))
    return [Part(index=index, first=first, last=last) for index, (first, last) in enumerate(pairwise([0, *ends]))]


def even_ends(times_us: Sequence[float], *, parts: int) -> list[int]:
    """Where to end each of ``parts`` so that the longest takes the least time; no part is empty."""
    until = [0.0, *accumulate(times_us)]
    layers = len(times_us)
    # longest[last]: the longest of the parts so far that hold the layers before ``last``, and where they end
    longest: dict[int, tuple[float, list[int]]] = {last: (until[last], [last]) for last in range(1, layers + 1)}
    for part in range(1, parts):
        longest = {
            last: min(
                (max(longest[first][0], until[last] - until[first]), [*longest[first][1], last])
                for first in range(part, last)
            )
            for last in range(part + 1, layers + 1)
        }
    return longest[layers][1]


def make_schedule(
    plan: Plan, stages: Sequence[PipelineStage], loss: Callable[..., Any]
) -> ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B | ScheduleInterleavedZeroBubble:
    """The plan's schedule over this rank's ``stages``. Gradients are summed over the microbatches, not averaged."""
    if plan.schedule in _MULTI:
        return _MULTI[plan.schedule](list(stages), plan.microbatches, loss_fn=loss, scale_grads=False)
    return _SINGLE[plan.schedule](stages[0], plan.microbatches, loss_fn=loss, scale_grads=False)
