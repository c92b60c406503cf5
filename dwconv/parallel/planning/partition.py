"""Cut layers into stages, and divide the ranks among them, so that the slowest part of the pipeline is as fast as
possible.

The parts are the stages, each with the sum of its gradients over its replicas, and the links between them. In the long
run a step takes as long as its slowest part: the bottleneck. It is found by dynamic programming from the last layer
back. What the layers i to the end take at best, on w ranks, r of them in the first stage:

    best(i, w, r) = min over j, s of  max( stage(i to j, on r),  link(at j, from r to s),  best(j, w − r, s) )

A stage that does not fit into the memory of a rank counts as impossible: how many microbatches are on their way in a
stage is known from the ranks after it, which are w.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import torch.distributed as dist
from torch import Tensor, nn

from dwconv.errors import NoPlan
from dwconv.parallel.joining import agreed
from dwconv.parallel.planning.costs import layer_costs
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.plan import (
    COPIES_OF_PARAMETERS,
    LayerCost,
    Link,
    Plan,
    Stage,
    check_schedule,
    sum_us,
    transfer_us,
)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The ranks that there are."""

    world: int
    link: Link
    memory_bytes: int | None = None
    """The memory of each rank; None if it does not matter."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The requested form of a plan."""

    microbatches: int
    """All that the batch is cut into."""
    schedule: str
    stages: int | None = None
    """None for any number."""
    is_even: bool = False
    """As many replicas of every stage, so that it can be run."""
    stages_per_rank: int = 1


def partition(layers: Sequence[LayerCost], cluster: Cluster, shape: Shape) -> Plan:
    """The plan of least bottleneck time that fits into memory, on all ranks. Raises NoPlan if there is none.

    With several stages a rank their replicas must be even, and ``simulate`` computes the memory."""
    check_shape(cluster, shape)
    if shape.stages is not None and shape.stages > len(layers):
        raise NoPlan(f"stages={shape.stages} are more than the {len(layers)} layers; use at most {len(layers)}")
    search = _Search(layers, cluster, shape)
    best = min((search.of(counts, stages) for counts, stages in _choices(cluster, shape)), key=lambda each: each.us)
    if not best.stages:
        raise NoPlan(_none_fits(cluster, shape))
    return Plan(
        layers=tuple(layers),
        stages=best.stages,
        microbatches=shape.microbatches // best.stages[0].replicas,
        schedule=shape.schedule,
        link=cluster.link,
        stages_per_rank=shape.stages_per_rank,
    )


def _held(schedule: str, *, total: int, replicas: int, before: int, after: int) -> int:
    """Microbatches whose activations a rank holds at most. ``after`` counts the ranks from its own stage on."""
    own = math.ceil(total / replicas)
    ahead, behind = math.ceil(after / replicas), math.ceil(before / replicas)
    return min(own, {"gpipe": own, "zero-bubble": ahead + behind}.get(schedule, ahead))


def _choices(cluster: Cluster, shape: Shape) -> Iterable[tuple[tuple[int, ...], int | None]]:
    """Replicas that a stage may have, and the number of stages that goes with them."""
    if not shape.is_even and shape.stages_per_rank == 1:
        counts = tuple(count for count in range(1, cluster.world + 1) if shape.microbatches % count == 0)
        return [(counts, shape.stages)]
    return [
        ((count,), cluster.world // count * shape.stages_per_rank)
        for count in range(1, cluster.world + 1)
        if cluster.world % count == 0
        and shape.microbatches % count == 0
        and shape.stages in (None, cluster.world // count * shape.stages_per_rank)
    ]


def check_shape(cluster: Cluster, shape: Shape) -> None:
    """Raises NoPlan if no model whatever has such a plan."""
    check_schedule(shape.schedule)
    if cluster.world < 1:
        raise NoPlan(f"world={cluster.world} is too small; use at least 1")
    if shape.stages is None:
        return
    groups, left = divmod(shape.stages, shape.stages_per_rank)
    if left:
        raise NoPlan(f"stages={shape.stages} are not {shape.stages_per_rank} for each rank; use a multiple of it")
    if groups > cluster.world:
        raise NoPlan(f"world={cluster.world} is smaller than the {groups} stages; every stage needs a rank of its own")
    if not list(_choices(cluster, shape)):
        raise NoPlan(
            f"world={cluster.world} ranks do not share out evenly over {groups} stages with {shape.microbatches} "
            "microbatches; use a number of stages that divides it"
        )


def _none_fits(cluster: Cluster, shape: Shape) -> str:
    stages = "any number of" if shape.stages is None else str(shape.stages)
    if cluster.memory_bytes is None:
        return f"no plan for {cluster.world} ranks: there are too few layers for {stages} stages"
    return (
        f"no plan of {stages} stages for {cluster.world} ranks fits into memory={cluster.memory_bytes / 1e9:g} GB a "
        "rank; give more memory, more ranks, or more and smaller microbatches"
    )


# -- the search ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Best:
    """Stages for some layers, up to the last one."""

    us: float
    stages: tuple[Stage, ...]
    """Empty if it cannot be."""


_IMPOSSIBLE = _Best(us=math.inf, stages=())


class _Search:
    def __init__(self, layers: Sequence[LayerCost], cluster: Cluster, shape: Shape) -> None:
        self._cluster, self._shape = cluster, shape
        self._count = len(layers)
        self._compute_us = list(
            accumulate((each.forward_us + each.dgrad_us + each.wgrad_us for each in layers), initial=0.0)
        )
        self._parameter_bytes = list(accumulate((each.parameter_bytes for each in layers), initial=0))
        self._saved_bytes = list(accumulate((each.saved_bytes for each in layers), initial=0))
        self._carried_bytes = [0, *(each.output_bytes for each in layers)]

    def of(self, counts: tuple[int, ...], stages: int | None) -> _Best:
        """The best for all layers on all ranks, with these counts of replicas and this number of stages."""
        ranks = counts[0] * stages if self._shape.stages_per_rank > 1 and stages else self._cluster.world

        @cache
        def best(first: int, ranks: int, replicas: int, stages: int | None) -> _Best:
            if ranks == replicas:
                us = self._stage_us(first, self._count, replicas, ranks) if stages in (None, 1) else math.inf
                alone = Stage(first=first, last=self._count, replicas=replicas)
                return _Best(us=us, stages=(alone,)) if us < math.inf else _IMPOSSIBLE
            left = None if stages is None else stages - 1
            found = _IMPOSSIBLE
            if left == 0:
                return found
            for last in range(first + 1, self._count):
                own_us = self._stage_us(first, last, replicas, ranks)
                if own_us >= found.us:  # with more layers it only grows
                    break
                for following in counts:
                    link_us = self._link_us(last, min(replicas, following))
                    if following > ranks - replicas or link_us >= found.us:
                        continue
                    rest = best(last, ranks - replicas, following, left)
                    us = max(own_us, link_us, rest.us)
                    if us < found.us:
                        found = _Best(us=us, stages=(Stage(first=first, last=last, replicas=replicas), *rest.stages))
            return found

        return min((best(0, ranks, count, stages) for count in counts if count <= ranks), key=lambda each: each.us)

    def _stage_us(self, first: int, last: int, replicas: int, ranks: int) -> float:
        """The time of a stage on ``replicas`` of ``ranks`` that are left; infinite if it does not fit."""
        parameter_bytes = self._parameter_bytes[last] - self._parameter_bytes[first]
        total = self._shape.microbatches
        limit_bytes = self._cluster.memory_bytes
        if limit_bytes is not None and self._shape.stages_per_rank == 1:
            held = _held(
                self._shape.schedule,
                total=total,
                replicas=replicas,
                before=self._cluster.world - ranks,
                after=ranks,
            )
            kept_bytes = self._carried_bytes[first] + self._saved_bytes[last] - self._saved_bytes[first]
            if COPIES_OF_PARAMETERS * parameter_bytes + held * kept_bytes > limit_bytes:
                return math.inf
        compute_us = self._compute_us[last] - self._compute_us[first]
        return total / replicas * compute_us + sum_us(self._cluster.link, parameter_bytes, ranks=replicas)

    def _link_us(self, cut: int, pairs: int) -> float:
        """The time that the link before layer ``cut`` is busy, if ``pairs`` of ranks use it side by side."""
        return self._shape.microbatches / pairs * transfer_us(self._cluster.link, self._carried_bytes[cut])


# -- a plan for the ranks that run -------------------------------------------------------------------------------------


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
