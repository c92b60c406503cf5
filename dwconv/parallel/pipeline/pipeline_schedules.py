"""The schedules of PyTorch's pipelining by name, and how the layers of a plan are spread over its ranks for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from dwconv.errors import NoPlan
from dwconv.parallel.planning.orders import why_not
from dwconv.parallel.planning.plan import Plan
from dwconv.parallel.planning.plan_files import check_plan

_MULTI: dict[str, type[ScheduleInterleaved1F1B | ScheduleInterleavedZeroBubble]] = {
    "interleaved": ScheduleInterleaved1F1B,
    "zero-bubble": ScheduleInterleavedZeroBubble,  # with one part a rank: ZB-H1 of the paper
}
_SINGLE: dict[str, type[ScheduleGPipe | Schedule1F1B]] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def check_runs(plan: Plan) -> None:
    """Raises NoPlan, in one line, for a plan that cannot be run."""
    check_plan(plan)
    if not plan.is_even:
        raise NoPlan(
            f"the stages have {', '.join(str(stage.replicas) for stage in plan.stages)} replicas; only equal numbers "
            "can be run, since ranks are a grid of pipeline × data"
        )
    if plan.stages_per_rank > 1 and plan.schedule not in _MULTI:
        raise NoPlan(f"{plan.schedule} runs one stage a rank, not {plan.stages_per_rank}; use interleaved")
    if why := why_not(plan):
        raise NoPlan(f"{why}; use a multiple of {plan.groups}, or gpipe")


def check_splits(plan: Plan, model: nn.Module) -> None:
    """Raises NoPlan, in one line, if this PyTorch cannot split the backward pass of the layers of ``model`` in two."""
    splits = plan.schedule == "zero-bubble" and plan.groups > 1
    if splits and torch.__version__ < "2.13" and any("plain_class" in vars(type(each)) for each in model.modules()):
        raise NoPlan(
            f"schedule=zero-bubble needs PyTorch 2.13 to split the backward pass of dwconv's layers, and this is "
            f"{torch.__version__}; use 1f1b, or dwconv.revert the model"
        )


def make_schedule(
    plan: Plan, stages: Sequence[PipelineStage], loss: Callable[..., Any]
) -> ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B | ScheduleInterleavedZeroBubble:
    """The plan's schedule over this rank's ``stages``. Gradients are summed over the microbatches, not averaged."""
    if plan.schedule in _MULTI and plan.groups > 1:
        return _MULTI[plan.schedule](list(stages), plan.microbatches, loss_fn=loss, scale_grads=False)
    name = plan.schedule if plan.groups > 1 else "1f1b"  # alone, it holds the activations of one microbatch
    return _SINGLE[name](stages[0], plan.microbatches, loss_fn=loss, scale_grads=False)
