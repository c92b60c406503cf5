"""The schedules of PyTorch's pipelining by name, and how the layers of a plan are spread over its ranks for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def check_plan(plan: Plan) -> None:
    """Raises InvalidPlan, in one line, for a plan that cannot be run."""
    if plan.schedule not in SCHEDULES:
        raise InvalidPlan(f"schedule={plan.schedule} is unknown; use one of {', '.join(SCHEDULES)}")
    if not plan.stages or plan.microbatches < 1:
        raise InvalidPlan(f"a plan of {len(plan.stages)} stages and {plan.microbatches} microbatches; give 1 or more")
    if not plan.is_even:
        raise InvalidPlan(
            f"the stages have {', '.join(str(stage.replicas) for stage in plan.stages)} replicas; only equal numbers "
            "can be run, since ranks are a grid of pipeline × data"
        )
    edges = [0, *(stage.last for stage in plan.stages)]
    if [stage.first for stage in plan.stages] != edges[:-1] or edges[-1] != len(plan.layers):
        raise InvalidPlan(
            f"stages that end at {edges[1:]} do not hold each of {len(plan.layers)} layers once, in order"
        )
    if any(stage.first >= stage.last for stage in plan.stages):
        raise InvalidPlan(f"stages that end at {edges[1:]} leave one without a layer; use fewer stages")
    if len(plan.stages) % plan.stages_per_rank or (plan.stages_per_rank > 1 and plan.schedule not in _MULTI):
        raise InvalidPlan(
            f"{len(plan.stages)} stages, {plan.stages_per_rank} a rank, cannot be run by {plan.schedule}; use "
            "interleaved, with a multiple of stages"
        )
    if plan.groups > 1 and (why := _misfit(plan)):
        raise InvalidPlan(f"microbatches={plan.microbatches}: {why}")


def _misfit(plan: Plan) -> str:
    """Why the microbatches do not fit the schedule; empty if they do."""
    if plan.schedule == "1f1b" and plan.microbatches < plan.groups:
        return f"1f1b needs one for each of {plan.groups} stages; give {plan.groups} or more, or use gpipe"
    rounds = max(1, plan.microbatches // plan.groups)
    if plan.schedule in _MULTI and plan.microbatches % rounds:
        return f"{plan.schedule} runs them in {rounds} equal rounds; give a multiple of {plan.groups}"
    return ""


def make_schedule(
    plan: Plan, stages: Sequence[PipelineStage], loss: Callable[..., Any]
) -> ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B | ScheduleInterleavedZeroBubble:
    """The plan's schedule over this rank's ``stages``. Gradients are summed over the microbatches, not averaged."""
    if plan.schedule in _MULTI:
        return _MULTI[plan.schedule](list(stages), plan.microbatches, loss_fn=loss, scale_grads=False)
    return _SINGLE[plan.schedule](stages[0], plan.microbatches, loss_fn=loss, scale_grads=False)
