"""A plan for the ranks that run, whose layers are timed on all of them at once."""

from __future__ import annotations

from dataclasses import replace

import torch.distributed as dist
from torch import Tensor, nn

from dwconv.discovery.step import check_model
from dwconv.errors import InvalidArgument, NoPlan
from dwconv.parallel.joining import agreed, check_joined
from dwconv.parallel.planning.compare import Proposal, propose
from dwconv.parallel.planning.cost_of_layers import layer_costs
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.pipeline_plan import Link, Plan
from dwconv.parallel.planning.shape import MICROBATCHES_A_RANK, Shape
from dwconv.parallel.planning.split_backward import can_split
from dwconv.system import given

COSTS_S = 3.0
LINK = Link(gb_s=1.0, latency_us=50.0)
"""About what gloo has within a machine."""


def plan_for_ranks(
    model: nn.Module,
    batch: Tensor,
    *,
    schedule: str | None = None,
    stages: int | None = None,
    replicas: int | None = None,
    microbatches: int | None = None,
    link: Link = LINK,
    sync_bn: bool = False,
) -> Plan:
    """The plan for all ranks of the default group, the same on each of them; every rank calls it with the same model.

    All ranks time the layers at once, since they share a machine in a step, too; the times of the first count.
    ``batch``: of a step, of all ranks together, on the device of the rank. ``schedule``: the order of the passes, by
    default that of the least simulated step. ``stages``: likewise, also one: plain data parallelism, which needs no
    microbatches. ``replicas``: of every stage; by default any, also numbers that differ. ``microbatches``: that the
    whole batch is cut into, by default two for each rank. ``link``: between two ranks. ``sync_bn``: for a pipeline that
    has it, whose replicas all have as many microbatches. Raises NoPlan.
    """
    check_model(model)
    check_joined()
    if not isinstance(batch, Tensor):
        raise InvalidArgument(f"batch={given.shown(batch)} is no Tensor; give the batch of a step, of all ranks")
    if not isinstance(link, Link):
        raise InvalidArgument(
            f"link={given.shown(link)} is no Link; give one of dwconv.parallel.planning.pipeline_plan"
        )
    for name, count in (("stages", stages), ("replicas", replicas), ("microbatches", microbatches)):
        if count is not None:
            given.whole(name, count, least=1)
    world = dist.get_world_size()
    shape = Shape(
        world=world, link=link, microbatches=microbatches or MICROBATCHES_A_RANK * world, schedule=schedule,
        stages=stages, replicas=replicas, splits=can_split(model), evenly=sync_bn,
    )  # fmt: skip
    if replicas is not None:
        fitting = _stages_of(shape, replicas)
        shape = replace(shape, stages=fitting) if schedule is not None else shape
    check_batch(batch, microbatches=shape.microbatches)
    shape.check()
    counts = [len(batch) // shape.microbatches]
    if len(batch) % world == 0 and shape.allows_one_stage():  # a rank's share in plain data parallelism
        counts.append(len(batch) // world)
    mine = [
        layer_costs(pieces(model, part), part, seconds=COSTS_S / len(counts))
        for part in (batch[:count] for count in counts)
    ]
    return agreed(lambda: _best(propose(mine[0], shape, on_whole_share=mine[1] if len(mine) > 1 else None), shape))


def _best(proposal: Proposal, shape: Shape) -> Plan:
    found = proposal.pipeline
    if shape.stages is not None or shape.allows_one_stage():
        found = proposal.best_of(shape.stages)
    if found is None:
        raise NoPlan(f"no plan of {shape.stages or 'several'} stages: {'; '.join(proposal.left_out)}")
    return found.plan


def _stages_of(shape: Shape, replicas: int) -> int:
    """How many, with so many replicas each. Raises NoPlan, in one line, if the numbers do not fit the ranks."""
    each = shape.stages_per_rank
    stages = shape.stages or max(1, shape.world // replicas) * each
    if stages * replicas != shape.world * each:
        raise NoPlan(
            f"{stages} stages, {each} a rank, with {replicas} replicas do not fit world={shape.world}; start "
            f"{max(1, stages // each) * replicas} ranks, or change the stages or the replicas"
        )
    if shape.microbatches % replicas:
        raise NoPlan(f"microbatches={shape.microbatches} are not divisible by {replicas} replicas; change one of them")
    return stages


def check_batch(batch: Tensor, *, microbatches: int) -> None:
    """Raises NoPlan for a batch that cannot be shared out."""
    if len(batch) % microbatches:
        raise NoPlan(f"a batch of {len(batch)} is not divisible by microbatches={microbatches}; change one of them")
