"""A plan for the ranks that run: the first of them times the layers, and cuts so that the slowest stage is fastest."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor, nn

from dwconv.errors import NoPlan
from dwconv.parallel.agreement import agreed
from dwconv.parallel.planning.costs import layer_costs
from dwconv.parallel.planning.partition import Cluster, Shape, check_shape, partition
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.plan import Link, Plan

MICROBATCHES_A_RANK = 2
INTERLEAVED_STAGES_A_RANK = 2
COSTS_S = 3.0
LINK = Link(gb_s=1.0, latency_us=50.0)
"""About what gloo has within a machine."""


def plan_for_ranks(
    model: nn.Module,
    batch: Tensor,
    *,
    schedule: str = "1f1b",
    stages: int | None = None,
    replicas: int | None = None,
    microbatches: int | None = None,
    link: Link = LINK,
) -> Plan:
    """The plan for all ranks of the default group, the same on each of them; every rank calls it with the same model.

    ``batch``: of a step, of all ranks together, on the device of the first. ``stages``: by default one for each rank
    of a pipeline, two with the ``interleaved`` schedule. ``replicas``: of each stage, by default as many as the ranks
    allow. ``microbatches``: that the whole batch is cut into, by default two for each rank. Raises NoPlan.
    """
    world, each = dist.get_world_size(), INTERLEAVED_STAGES_A_RANK if schedule == "interleaved" else 1
    replicas = replicas or max(1, world * each // (stages or world * each))
    stages = stages or max(1, world // replicas) * each
    if stages * replicas != world * each:
        raise NoPlan(
            f"{stages} stages, {each} a rank, with {replicas} replicas do not fit world={world}; start "
            f"{max(1, stages // each) * replicas} ranks, or change the stages or the replicas"
        )
    shape = Shape(
        microbatches=microbatches or MICROBATCHES_A_RANK * world,
        schedule=schedule,
        stages=stages,
        is_even=True,
        stages_per_rank=each,
    )
    cluster = Cluster(world=world, link=link)
    check_shape(cluster, shape)
    check_batch(batch, microbatches=shape.microbatches)
    microbatch = batch[: len(batch) // shape.microbatches]
    return agreed(
        lambda: partition(layer_costs(pieces(model, microbatch), microbatch, seconds=COSTS_S), cluster, shape)
    )


def check_batch(batch: Tensor, *, microbatches: int) -> None:
    """Raises NoPlan for a batch that cannot be shared out."""
    if len(batch) % microbatches:
        raise NoPlan(f"a batch of {len(batch)} is not divisible by microbatches={microbatches}; change one of them")
