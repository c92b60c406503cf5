"""Cut layers into stages so that the slowest part of the pipeline is as fast as possible.

The parts are the stages, each with the sum of its gradients over its replicas, and the links of their ranks, which send
gradients to the stage before and activations to the one after, one at a time. In the long run a step takes as long as
its slowest part: the bottleneck. It is found by dynamic programming: what the layers i to the end take at best, in s
stages, is

    best(i, s) = min over j of  max( stage(i to j),  link(at i and j),  best(j, s − 1) )

A stage that does not fit into the memory of a rank counts as impossible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise

import torch.distributed as dist
from torch import Tensor, nn

from dwconv.discovery.step import check_model
from dwconv.errors import InvalidArgument, NoPlan
from dwconv.parallel.joining import agreed, check_joined
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
from dwconv.system import given

MICROBATCHES_A_RANK = 2
_INTERLEAVED_STAGES_A_RANK = 2


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The requested form of a plan, and the ranks that there are."""

    world: int
    link: Link
    microbatches: int
    """All that the batch is cut into."""
    schedule: str = "1f1b"
    stages: int | None = None
    """None for any number."""
    memory_bytes: int | None = None
    """The memory of each rank; None if it does not matter."""

    @property
    def stages_per_rank(self) -> int:
        """Two for ``interleaved``."""
        return _INTERLEAVED_STAGES_A_RANK if self.schedule == "interleaved" else 1

    def stage_counts(self) -> list[int]:
        """The numbers of stages with as many replicas each, and as many microbatches for each replica."""
        groups = [
            count for count in range(1, self.world + 1)
            if self.world % count == 0 and self.microbatches % (self.world // count) == 0
        ]  # fmt: skip
        counts = [count * self.stages_per_rank for count in groups]
        return [count for count in counts if self.stages in (None, count)]

    def check(self) -> None:
        """Raises NoPlan if no model whatever has such a plan."""
        check_schedule(self.schedule)
        if self.world < 1:
            raise NoPlan(f"world={self.world} is too small; use at least 1")
        if self.stages is None:
            return
        groups, left = divmod(self.stages, self.stages_per_rank)
        if left:
            raise NoPlan(f"stages={self.stages} are not {self.stages_per_rank} for each rank; use a multiple of it")
        if groups > self.world:
            raise NoPlan(f"world={self.world} is smaller than the {groups} stages; every stage needs a rank of its own")
        if not self.stage_counts():
            raise NoPlan(
                f"world={self.world} ranks do not share out evenly over {groups} stages with {self.microbatches} "
                "microbatches; use a number of stages that divides it"
            )


def partition(layers: Sequence[LayerCost], shape: Shape, *, stages: int) -> Plan:
    """The plan of so many stages, of least bottleneck time, that fits into memory. Raises NoPlan if there is none.

    With several stages a rank ``simulate`` computes the memory."""
    if stages > len(layers):
        raise NoPlan(f"stages={stages} are more than the {len(layers)} layers; use at most {len(layers)}")
    replicas = shape.world * shape.stages_per_rank // stages
    price = _Prices(layers, shape, stages=stages, replicas=replicas)

    @cache
    def best(first: int, left: int) -> tuple[float, tuple[int, ...]]:
        """The bottleneck of the layers from ``first`` on in ``left`` stages, and where these end; none if they do not
        fit."""
        if left == 1:
            us = max(price.stage_us(first, len(layers), number=stages - 1), price.link_us(first))
            return us, (len(layers),) if us < math.inf else ()
        found: tuple[float, tuple[int, ...]] = (math.inf, ())
        for last in range(first + 1, len(layers) - left + 2):
            own_us = price.stage_us(first, last, number=stages - left)
            if own_us >= found[0]:  # with more layers it only grows
                break
            rest_us, ends = best(last, left - 1)
            us = max(own_us, price.link_us(first, last), rest_us)
            if us < found[0]:
                found = us, (last, *ends)
        return found

    _, ends = best(0, stages)
    if not ends:
        raise NoPlan(
            f"no plan of {stages} stages for {shape.world} ranks fits into memory={(shape.memory_bytes or 0) / 1e9:g} "
            "GB a rank; give more memory, more ranks, or more and smaller microbatches"
        )
    return Plan(
        layers=tuple(layers),
        stages=tuple(Stage(first=first, last=last, replicas=replicas) for first, last in pairwise((0, *ends))),
        microbatches=shape.microbatches // replicas,
        schedule=shape.schedule,
        link=shape.link,
        stages_per_rank=shape.stages_per_rank,
    )


class _Prices:
    """What each part of a plan of ``stages`` takes."""

    def __init__(self, layers: Sequence[LayerCost], shape: Shape, *, stages: int, replicas: int) -> None:
        self._shape, self._stages, self._replicas = shape, stages, replicas
        self._microbatches = shape.microbatches // replicas
        self._compute_us = [
            *accumulate((each.forward_us + each.dgrad_us + each.wgrad_us for each in layers), initial=0)
        ]
        self._parameter_bytes = [*accumulate((each.parameter_bytes for each in layers), initial=0)]
        self._saved_bytes = [*accumulate((each.saved_bytes for each in layers), initial=0)]
        self._carried_bytes = [0, *(each.output_bytes for each in layers)]

    def stage_us(self, first: int, last: int, *, number: int) -> float:
        """The time of the stage of this number; infinite if it does not fit into memory."""
        parameter_bytes = self._parameter_bytes[last] - self._parameter_bytes[first]
        limit_bytes = self._shape.memory_bytes
        if limit_bytes is not None and self._shape.stages_per_rank == 1:
            kept_bytes = self._carried_bytes[first] + self._saved_bytes[last] - self._saved_bytes[first]
            if COPIES_OF_PARAMETERS * parameter_bytes + self._held(number) * kept_bytes > limit_bytes:
                return math.inf
        compute_us = self._compute_us[last] - self._compute_us[first]
        return self._microbatches * compute_us + sum_us(self._shape.link, parameter_bytes, ranks=self._replicas)

    def _held(self, number: int) -> int:
        """Microbatches whose activations a rank of the stage holds at most."""
        on_their_way = {"gpipe": self._microbatches, "1f1b": self._stages - number, "zero-bubble": self._stages}
        return min(self._microbatches, on_their_way[self._shape.schedule])

    def link_us(self, *cuts: int) -> float:
        """The time that a rank sends to its neighbours: what crosses the model before each of these layers, either
        way. Nothing crosses before the first."""
        sent_us = sum(transfer_us(self._shape.link, self._carried_bytes[cut]) for cut in cuts if cut)
        return self._microbatches * sent_us


# -- a plan for the ranks that run -------------------------------------------------------------------------------------


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
    check_model(model)
    check_joined()
    if not isinstance(batch, Tensor):
        raise InvalidArgument(f"batch={given.shown(batch)} is no Tensor; give the batch of a step, of all ranks")
    for name, count in (("stages", stages), ("replicas", replicas), ("microbatches", microbatches)):
        if count is not None:
            given.whole(name, count, least=1)
    world = dist.get_world_size()
    shape = Shape(world=world, link=link, microbatches=microbatches or MICROBATCHES_A_RANK * world, schedule=schedule)
    each = shape.stages_per_rank
    replicas = replicas or max(1, world * each // (stages or world * each))
    stages = stages or max(1, world // replicas) * each
    if stages * replicas != world * each:
        raise NoPlan(
            f"{stages} stages, {each} a rank, with {replicas} replicas do not fit world={world}; start "
            f"{max(1, stages // each) * replicas} ranks, or change the stages or the replicas"
        )
    shape.check()
    check_batch(batch, microbatches=shape.microbatches)
    if shape.microbatches % replicas:
        raise NoPlan(f"microbatches={shape.microbatches} are not divisible by {replicas} replicas; change one of them")
    microbatch = batch[: len(batch) // shape.microbatches]
    return agreed(
        lambda: partition(layer_costs(pieces(model, microbatch), microbatch, seconds=COSTS_S), shape, stages=stages)
    )


def check_batch(batch: Tensor, *, microbatches: int) -> None:
    """Raises NoPlan for a batch that cannot be shared out."""
    if len(batch) % microbatches:
        raise NoPlan(f"a batch of {len(batch)} is not divisible by microbatches={microbatches}; change one of them")
