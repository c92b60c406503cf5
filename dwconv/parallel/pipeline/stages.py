"""From a model and a plan to the stages that this rank runs, and the groups of ranks that they talk to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from dwconv.discovery.unchanged import unchanged
from dwconv.parallel.pipeline.boundary import Boundary, StageModule
from dwconv.parallel.pipeline.replica_batch_norm import synchronise_batch_norms
from dwconv.parallel.pipeline.running_stage import RunningStage
from dwconv.parallel.pipeline.stage_gradients import StageGradients
from dwconv.parallel.planning.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The ranks as pipeline × data, and the groups that this one is in."""

    mesh: DeviceMesh
    pipeline: dist.ProcessGroup
    gradients: Sequence[dist.ProcessGroup]
    """One for each stage that a rank runs, over the same replicas: what one sends waits for no other."""
    statistics: dist.ProcessGroup
    """The replicas once more, for batch normalisation, which goes on while gradients are sent."""


def make_grid(plan: Plan, device: torch.device, *, timeout_s: float) -> Grid:
    """Join the groups of the plan; every rank of the default group calls it."""
    replicas = plan.stages[0].replicas
    ranks = torch.arange(plan.world).view(plan.groups, replicas)
    pipeline = _joined(ranks.T.tolist(), timeout_s=timeout_s)
    data = [_joined(ranks.tolist(), timeout_s=timeout_s) for _ in range(plan.stages_per_rank + 1)]
    mesh = DeviceMesh.from_group(
        [pipeline, data[-1]], device.type, mesh=ranks.tolist(), mesh_dim_names=("pipeline", "data")
    )
    return Grid(mesh=mesh, pipeline=pipeline, gradients=data[:-1], statistics=data[-1])


def _joined(groups: Sequence[Sequence[int]], *, timeout_s: float) -> dist.ProcessGroup:
    """Make every group, on every rank, in the same order; the one that this rank is in."""
    mine = None
    for ranks in groups:
        group = dist.new_group(list(ranks), timeout=timedelta(seconds=timeout_s))
        if dist.get_rank() in ranks:
            mine = group
    assert isinstance(mine, dist.ProcessGroup)
    return mine


@dataclass(frozen=True, kw_only=True)
class MadeStage:
    """A stage of this rank."""

    running: RunningStage
    names: dict[str, tuple[str, ...]]
    """The model's names of what the stage calls otherwise: parameters and buffers. One that is shared has several."""


def make_stages(
    pieces: Sequence[nn.Module],
    plan: Plan,
    *,
    names: Mapping[int, tuple[str, ...]],
    grid: Grid,
    edges: Sequence[Boundary],
    device: torch.device,
    synchronised: bool,
    divisor: int,
) -> list[MadeStage]:
    """The stages that this rank runs, which start on all replicas as on the first. ``pieces``: the layers of the plan,
    made of the model's own parameters. ``names``: what the model calls its tensors, by id. ``edges``: what
    ``boundaries`` found. ``synchronised``: batch normalisation with the statistics of all replicas. ``divisor``: of
    the gradients."""
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
        if synchronised and grid.statistics.size() > 1:
            synchronise_batch_norms(module, grid.statistics)
        gradients = StageGradients(module.parameters(), group=group if group.size() > 1 else None, divisor=divisor)
        running = RunningStage(
            module,
            index=index,
            count=len(plan.stages),
            device=device,
            group=grid.pipeline,
            gradients=gradients,
            given=edges[0],
            output=edges[-1],
        )
        made.append(MadeStage(running=running, names=own))
    return made


@torch.no_grad()
def as_on_the_first(tensors: Iterable[Tensor], group: dist.ProcessGroup) -> None:
    """Give ``tensors`` the values that they have on the first rank of ``group``: ranks may be seeded differently."""
    if group.size() == 1:
        return
    for tensor in tensors:
        dense = tensor.detach().contiguous()
        dist.broadcast(dense, group=group, group_src=0)
        tensor.copy_(dense)


def boundaries(model: nn.Module, pieces: Sequence[nn.Module], plan: Plan, example: Tensor) -> list[Boundary]:
    """What goes into the first stage, from stage to stage, and out of the last, for one microbatch."""
    edges, x = [Boundary.like(example)], example
    with unchanged(model, [example]), torch.no_grad():
        for stage in plan.stages:
            for piece in pieces[stage.first : stage.last]:
                x = piece(x)
            edges.append(Boundary.like(x))
    return edges
