"""From a model and a plan to the stages that this rank runs, and the groups of ranks that they communicate with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from dwconv.discovery.tensor_contents import write_where_different
from dwconv.discovery.unchanged import unchanged
from dwconv.errors import NoPlan
from dwconv.parallel.pipeline.running_stage import Boundary, RunningStage, StageGradients, StageModule
from dwconv.parallel.planning.plan import Plan, check_plan, why_not


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The ranks as pipeline × data, and the groups that this one is in."""

    mesh: DeviceMesh
    pipeline: dist.ProcessGroup
    gradients: Sequence[dist.ProcessGroup]
    """One for each stage that a rank runs, over the same replicas: what one sends waits for no other."""


def make_grid(plan: Plan, device: torch.device, *, timeout_s: float) -> Grid:
    """Join the groups of the plan; every rank of the default group calls it."""
    ranks = torch.arange(plan.world).view(plan.groups, plan.replicas)

    def joined(groups: list[list[int]]) -> dist.ProcessGroup:
        """The one of the groups that this rank is in; every rank makes all of them."""
        mine: dist.ProcessGroup
        mine, _ = dist.new_subgroups_by_enumeration(groups, timeout=timedelta(seconds=timeout_s))  # type: ignore[no-untyped-call]
        return mine

    pipeline = joined(ranks.T.tolist())
    data = [joined(ranks.tolist()) for _ in range(plan.stages_per_rank)]
    mesh = DeviceMesh.from_group(
        [pipeline, data[0]], device.type, mesh=ranks.tolist(), mesh_dim_names=("pipeline", "data")
    )
    return Grid(mesh=mesh, pipeline=pipeline, gradients=data)


def make_stages(
    pieces: Sequence[nn.Module],
    plan: Plan,
    *,
    names: Mapping[int, tuple[str, ...]],
    grid: Grid,
    edges: Sequence[Boundary],
    device: torch.device,
    divisor: int,
) -> list[RunningStage]:
    """The stages that this rank runs, which start on all replicas as on the first. ``pieces``: the layers of the plan,
    made of the model's own parameters. ``names``: what the model calls its tensors, by id. ``edges``: what
    ``boundaries`` found. ``divisor``: of the gradients."""
    mine, made = range(grid.pipeline.rank(), len(plan.stages), plan.groups), []
    for group, index in zip(grid.gradients, mine, strict=True):
        stage, last = plan.stages[index], index + 1 == len(plan.stages)
        module = StageModule(
            pieces[stage.first : stage.last],
            received=edges[index] if index else None,
            sent=None if last else edges[index + 1],
        )
        own = {name: names[id(tensor)] for name, tensor in module.state_dict(keep_vars=True).items()}
        as_on_the_first([*module.parameters(), *module.buffers()], group)
        gradients = StageGradients(module.parameters(), group=group if group.size() > 1 else None, divisor=divisor)
        made.append(
            RunningStage(
                module,
                index=index,
                count=len(plan.stages),
                device=device,
                group=grid.pipeline,
                gradients=gradients,
                names=own,
                given=edges[0],
                output=edges[-1],
            )
        )
    return made


@torch.no_grad()
def as_on_the_first(tensors: Iterable[Tensor], group: dist.ProcessGroup) -> None:
    """Give ``tensors`` the values that they have on the first rank of ``group``: ranks may be seeded differently."""
    if group.size() == 1:
        return
    for tensor in tensors:
        sent = tensor.detach().clone(memory_format=torch.contiguous_format)
        dist.broadcast(sent, group=group, group_src=0)
        write_where_different(tensor, sent)


def boundaries(model: nn.Module, pieces: Sequence[nn.Module], plan: Plan, example: Tensor) -> list[Boundary]:
    """What goes into the first stage, from stage to stage, and out of the last, for one microbatch."""
    edges, x = [Boundary.like(example)], example
    with unchanged(model, [example]), torch.no_grad():
        for stage in plan.stages:
            for piece in pieces[stage.first : stage.last]:
                x = piece(x)
            edges.append(Boundary.like(x))
    return edges


# -- PyTorch's schedules -----------------------------------------------------------------------------------------------


_MULTI: dict[str, type[ScheduleInterleaved1F1B | ScheduleInterleavedZeroBubble]] = {
    "interleaved": ScheduleInterleaved1F1B,
    "zero-bubble": ScheduleInterleavedZeroBubble,  # with one part a rank: ZB-H1 of the paper
}
_SINGLE: dict[str, type[ScheduleGPipe | Schedule1F1B]] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def check_runs(plan: Plan) -> None:
    """Raises NoPlan, in one line, for a plan that cannot be run."""
    check_plan(plan)
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
