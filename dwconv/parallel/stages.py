"""From a model and a plan to the stages that this rank runs, and the groups of ranks that they talk to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from dwconv.errors import InvalidPlan
from dwconv.parallel.boundary import Boundary, StageModule
from dwconv.parallel.pipeline_schedules import Part, parts_a_rank, parts_of
from dwconv.parallel.plan import Plan
from dwconv.parallel.replica_batch_norm import synchronise_batch_norms
from dwconv.parallel.running_stage import RunningStage
from dwconv.parallel.stage_gradients import StageGradients


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The ranks as pipeline × data, and the groups that this one is in."""

    mesh: DeviceMesh
    pipeline: dist.ProcessGroup
    gradients: Sequence[dist.ProcessGroup]
    """One for each part that a rank runs, over the same replicas: what one sends waits for no other."""
    statistics: dist.ProcessGroup
    """The replicas once more, for batch normalisation, which goes on while gradients are sent."""


def make_grid(plan: Plan, device: torch.device, *, timeout_s: float) -> Grid:
    """Join the groups of the plan; every rank of the default group calls it."""
    replicas = plan.stages[0].replicas
    ranks = torch.arange(plan.world).view(len(plan.stages), replicas)
    pipeline = _joined(ranks.T.tolist(), timeout_s=timeout_s)
    data = [_joined(ranks.tolist(), timeout_s=timeout_s) for _ in range(parts_a_rank(plan) + 1)]
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
    names: dict[str, str]
    """The model's names of what the stage calls otherwise: parameters and buffers."""


def make_stages(
    model: nn.Module, pieces: Sequence[nn.Module], plan: Plan, *, grid: Grid, example: Tensor, synchronised: bool
) -> list[MadeStage]:
    """The stages that this rank runs. ``pieces``: the layers of the plan, made of the model's own parameters.
    ``example``: a microbatch. ``synchronised``: batch normalisation with the statistics of all replicas."""
    parts = parts_of(plan)
    _check_shared_parameters(pieces, parts)
    edges = _edges(pieces, parts, example)
    known = {id(tensor): name for name, tensor in model.state_dict(keep_vars=True).items()}
    position, made = grid.pipeline.rank(), []
    for group, part in zip(grid.gradients, parts[position :: len(plan.stages)], strict=True):
        module = StageModule(
            pieces[part.first : part.last],
            received=edges[part.index] if part.index else None,
            sent=edges[part.index + 1] if part.index + 1 < len(parts) else None,
        )
        names = {name: known[id(tensor)] for name, tensor in module.state_dict(keep_vars=True).items()}
        if synchronised and grid.statistics.size() > 1:
            synchronise_batch_norms(module, grid.statistics)
        module.to(example.device)
        gradients = StageGradients(
            module.parameters(), group=group if group.size() > 1 else None, microbatches=plan.microbatches
        )
        running = RunningStage(
            module,
            index=part.index,
            count=len(parts),
            device=example.device,
            group=grid.pipeline,
            gradients=gradients,
            output=edges[-1],
        )
        made.append(MadeStage(running=running, names=names))
    return made


def _edges(pieces: Sequence[nn.Module], parts: Sequence[Part], example: Tensor) -> list[Boundary]:
    """What goes into the first part, from part to part, and out of the last, for one microbatch: from a forward pass
    that changes nothing."""
    edges, x = [Boundary.like(example)], example
    with torch.no_grad():
        for part in parts:
            for piece in pieces[part.first : part.last]:
                trained = [module for module in piece.modules() if module.training]
                x = piece.eval().to(example.device)(x)
                for module in trained:
                    module.training = True
            edges.append(Boundary.like(x))
    return edges


def _check_shared_parameters(pieces: Sequence[nn.Module], parts: Sequence[Part]) -> None:
    """Raises InvalidPlan where two parts have a parameter in common: each would train its own."""
    owner: dict[int, int] = {}
    for part in parts:
        for piece in pieces[part.first : part.last]:
            for name, parameter in piece.named_parameters():
                other = owner.setdefault(id(parameter), part.index)
                if other != part.index:
                    raise InvalidPlan(
                        f"parts {other} and {part.index} of the pipeline share the parameter {name} of shape "
                        f"{tuple(parameter.shape)}; keep the layers that use it in one stage"
                    )
