"""From a model and a plan to the stages that this rank runs, and the groups of ranks that they communicate with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from dwconv.discovery.content_kinds import write_where_different
from dwconv.discovery.unchanged import unchanged
from dwconv.errors import NoPlan
from dwconv.parallel.batch_norm import sync_bn
from dwconv.parallel.data.replicas import communication, data_parallel
from dwconv.parallel.data.ways import Communication
from dwconv.parallel.lost_ranks import made_in_time
from dwconv.parallel.pipeline.running_stage import Boundary, RunningStage, StageModule
from dwconv.parallel.pipeline.spans import Sends, Step
from dwconv.parallel.pipeline.stage_gradients import DEFAULT, StageGradients
from dwconv.parallel.planning.pipeline_plan import Plan, check_plan, why_not
from dwconv.parallel.planning.split_backward import can_split


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The groups of ranks that this one is in."""

    mesh: DeviceMesh | None
    """pipeline × data; None where stages have different numbers of replicas."""
    messages: Mapping[tuple[Sends, int], dist.ProcessGroup]
    """By which activations and gradients go to a stage."""
    gradients: Sequence[dist.ProcessGroup]
    """One for each stage that a rank runs, over the same replicas: what one sends waits for no other."""
    statistics: dist.ProcessGroup | None
    """The replicas once more, for batch normalisation, which goes on while gradients are sent; None where it is not
    synchronised."""


def make_grid(plan: Plan, device: torch.device, *, timeout_s: float, synchronises: bool = False) -> Grid:
    """Join the groups of the plan; every rank of the default group calls it."""
    rows = [list(plan.ranks(group)) for group in range(plan.groups)]
    columns = [list(column) for column in zip(*rows, strict=True)] if plan.is_even else [list(range(plan.world))]

    def joined(groups: list[list[int]]) -> dist.ProcessGroup:
        """The one of the groups that this rank is in; every rank makes all of them."""
        mine: dist.ProcessGroup
        make = partial(dist.new_subgroups_by_enumeration, groups, timeout=timedelta(seconds=timeout_s))
        mine, _ = made_in_time(make, timeout_s=timeout_s)
        return mine

    pipeline = joined(columns)
    data = [joined(rows) for _ in range(plan.stages_per_rank)]
    mesh = None
    if plan.is_even:
        mesh = DeviceMesh.from_group([pipeline, data[0]], device.type, mesh=rows, mesh_dim_names=("pipeline", "data"))
    last, is_tagged = len(plan.stages) - 1, device.type == "cpu"
    ways: list[tuple[Sends, int]] = [("activations", stage + 1) for stage in range(last)]
    ways += [("gradients", stage) for stage in range(last)]
    # gloo finds a message by its tag. It sends one once the receiver has said that it has memory; what it says waits
    # behind what it sends in the same group: up and down have one each. On NCCL messages between two ranks go in the
    # order in which both name them: each way has a group, and a stream, of its own.
    if is_tagged and ways:
        down = joined(columns)
        messages = {way: pipeline if _is_up(*way, groups=plan.groups) else down for way in ways}
    else:
        messages = {way: joined(columns) for way in ways}
    statistics = joined(rows) if synchronises else None
    return Grid(mesh=mesh, messages=messages, gradients=data, statistics=statistics)


def _is_up(what: Sends, stage: int, *, groups: int) -> bool:
    """Whether such a message goes to a later group of ranks: where a rank runs several stages, the last one sends
    activations to the first."""
    sender = stage + (-1 if what == "activations" else 1)
    return stage % groups > sender % groups


def make_stages(
    pieces: Sequence[nn.Module],
    plan: Plan,
    *,
    names: Mapping[int, tuple[str, ...]],
    grid: Grid,
    edges: Sequence[Boundary],
    divisor: int,
    device: torch.device,
    step: Step,
    way: Communication | None,
    measure_s: float,
) -> list[RunningStage]:
    """The stages that this rank runs, which start on all replicas as on the first. ``pieces``: the layers of the plan,
    made of the model's own parameters. ``names``: what the model calls its tensors, by id. ``edges``: what
    ``boundaries`` found. ``divisor``: of the gradients. ``step``: notes what the stages do. ``way``: in which gradients
    are sent; None for the one that is measured in ``measure_s``, if that is not 0."""
    first, _ = plan.place(dist.get_rank())
    mine, made = range(first, len(plan.stages), plan.groups), []
    for group, index in zip(grid.gradients, mine, strict=True):
        stage, last = plan.stages[index], index + 1 == len(plan.stages)
        module = StageModule(
            pieces[stage.first : stage.last],
            received=edges[index] if index else None,
            sent=None if last else edges[index + 1],
        )
        own = {name: names[id(tensor)] for name, tensor in module.state_dict(keep_vars=True).items()}
        as_on_the_first([*module.parameters(), *module.buffers()], group)
        if grid.statistics is not None:
            sync_bn(module, group=grid.statistics)
        chosen = way
        if way is None and group.size() > 1 and measure_s:
            chosen = _fastest(module, edges[index], group, device=device, seconds=measure_s)
        gradients = StageGradients(
            module.parameters(), group=group if group.size() > 1 else None, divisor=divisor, stage=index, step=step,
            way=chosen or DEFAULT,
        )  # fmt: skip
        count = len(plan.stages)
        made.append(RunningStage(module, index=index, count=count, gradients=gradients, step=step, names=own))
    return made


def _fastest(
    module: StageModule, edge: Boundary, group: dist.ProcessGroup, *, device: torch.device, seconds: float
) -> Communication:
    """The way that ``data_parallel`` measures for the layers of a stage, among its replicas. The module is as before
    afterwards."""
    if not edge.dtype.is_floating_point:
        return DEFAULT
    example = torch.randn_like(edge.buffer(device), requires_grad=module.received is not None)
    if module.received is None and edge.channels_last:
        example = torch.randn(edge.shape, dtype=edge.dtype, device=device).to(memory_format=torch.channels_last)
    if not uses_all(module, example):  # as DistributedDataParallel needs it
        return DEFAULT
    return communication(data_parallel(module, example, process_group=group, seconds=seconds)).chosen


def uses_all(module: nn.Module, example: Tensor) -> bool:
    """Whether there are trained parameters, and each gets a gradient in a step. The module is as before afterwards."""
    parameters = [each for each in module.parameters() if each.requires_grad]
    with unchanged(module, [example]), torch.enable_grad():
        output = module(example)
        if not parameters or not output.requires_grad:
            return False
        found = torch.autograd.grad(output, parameters, torch.ones_like(output), allow_unused=True)
    return all(each is not None for each in found)


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


def check_runs(plan: Plan) -> None:
    """Raises NoPlan, in one line, for a plan that cannot be run."""
    check_plan(plan)
    if plan.stages_per_rank > 1 and plan.schedule not in ("interleaved", "zero-bubble"):
        raise NoPlan(f"{plan.schedule} runs one stage a rank, not {plan.stages_per_rank}; use interleaved")
    if why := why_not(plan):
        raise NoPlan(f"{why}; use a multiple of {plan.groups}, or gpipe")


def check_splits(plan: Plan, model: nn.Module) -> None:
    """Raises NoPlan, in one line, if this PyTorch cannot split the backward pass of the layers of ``model`` in two."""
    if plan.schedule == "zero-bubble" and plan.groups > 1 and not can_split(model):
        raise NoPlan(
            f"schedule=zero-bubble needs PyTorch 2.13 to split the backward pass of dwconv's layers, and this is "
            f"{torch.__version__}; use 1f1b, or dwconv.revert the model"
        )
