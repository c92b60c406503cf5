"""Cut layers into stages, and divide ranks among them, so that a simulated step is as fast as possible.

Where there are few ways to do it, each is simulated, but for those whose busiest rank alone computes longer than the
best step. Elsewhere the search begins where the slowest part of the pipeline is as fast as possible. The parts are the
stages, each with the sum of its gradients over its replicas, and the links of their ranks, which send gradients to the
stage before and activations to the one after, one at a time. In the long run a step takes as long as its slowest part:
the bottleneck. For given replicas it is found by dynamic programming: what the layers i to the end take at best, in s
stages, is

    best(i, s) = min over j of  max( stage(i to j),  link(at i and j),  best(j, s − 1) )

A stage that does not fit into the memory of a rank counts as impossible. From there the search moves a cut by a layer,
or a rank from one stage to another, as long as the simulated step gets shorter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, combinations, islice, pairwise

from dwconv.errors import NoPlan
from dwconv.parallel.planning.pipeline_plan import (
    COPIES_OF_PARAMETERS,
    LayerCost,
    Plan,
    Stage,
    lag,
    sum_us,
    transfer_us,
    warmup,
)
from dwconv.parallel.planning.shape import Shape
from dwconv.parallel.planning.simulated_step import SimulatedRanks

_FEW = 200
"""Plans of which each is simulated."""
_STARTS = 3
"""Ways to divide the ranks from which the search begins."""
_MOST_WAYS = 100


def partition(layers: Sequence[LayerCost], shape: Shape, *, stages: int) -> Plan:
    """The plan of so many stages of the least simulated step that fits into memory: of all, where these are few; else
    that of a search. ``shape`` has one schedule. Raises NoPlan if there is none.

    With several stages a rank, and for any plan in the end, ``simulate`` computes the memory."""
    if stages > len(layers):
        raise NoPlan(f"stages={stages} are more than the {len(layers)} layers; use at most {len(layers)}")
    groups = stages // shape.stages_per_rank
    search = _Search(tuple(layers), shape)
    ways = list(islice(shape.ways(groups), _MOST_WAYS))
    if len(ways) * math.comb(len(layers) - 1, stages - 1) <= _FEW:
        cuts = [(*inner, len(layers)) for inner in combinations(range(1, len(layers)), stages - 1)]
        found = search.best_of([(way, ends) for way in ways for ends in cuts])
    else:
        found = search.climbed(ways, stages=stages)
    if found is None or search.step_us(found) == math.inf:
        raise NoPlan(
            f"no plan of {stages} stages for {shape.world} ranks fits into memory={(shape.memory_bytes or 0) / 1e9:g} "
            "GB a rank; give more memory, more ranks, or more and smaller microbatches"
        )
    return search.plan(found)


_Cut = tuple[tuple[int, ...], tuple[int, ...]]
"""The replicas of each group of ranks, and the layers at which stages end."""


class _Search:
    """Plans of a shape, by their simulated steps."""

    def __init__(self, layers: tuple[LayerCost, ...], shape: Shape) -> None:
        assert shape.schedule is not None
        self._layers, self._shape, self._schedule = layers, shape, shape.schedule
        self._compute_us = _computing(layers)
        self._known_us: dict[_Cut, float] = {}

    def plan(self, cut: _Cut) -> Plan:
        counts, ends = cut
        return Plan(
            layers=self._layers,
            stages=tuple(
                Stage(first=first, last=last, replicas=counts[number % len(counts)])
                for number, (first, last) in enumerate(pairwise((0, *ends)))
            ),
            microbatches=self._shape.microbatches // counts[0],
            schedule=self._schedule,
            link=self._shape.link,
            stages_per_rank=self._shape.stages_per_rank,
        )

    def step_us(self, cut: _Cut) -> float:
        """Of a simulated step; infinite if it does not fit into memory."""
        if cut not in self._known_us:
            ran = SimulatedRanks(self.plan(cut), self._shape.link)
            limit_bytes = self._shape.memory_bytes
            fits = limit_bytes is None or self._shape.stages_per_rank > 1 or max(ran.peak_bytes) <= limit_bytes
            self._known_us[cut] = ran.end_us if fits else math.inf
        return self._known_us[cut]

    def best_of(self, cuts: Sequence[_Cut]) -> _Cut | None:
        """The one of the shortest step."""
        best = None
        for least_us, cut in sorted((self._busiest_us(cut), cut) for cut in cuts):
            if best is not None and least_us >= self.step_us(best):
                break
            if best is None or self.step_us(cut) < self.step_us(best):
                best = cut
        return best

    def _busiest_us(self, cut: _Cut) -> float:
        """What the rank that computes longest does; a step takes no less."""
        plan = self.plan(cut)
        of_groups = [0.0] * plan.groups
        for number, stage in enumerate(plan.stages):
            of_groups[number % plan.groups] += self._compute_us[stage.last] - self._compute_us[stage.first]
        return max(len(plan.runs(group, 0)) * us for group, us in enumerate(of_groups))

    def climbed(self, ways: Sequence[tuple[int, ...]], *, stages: int) -> _Cut | None:
        """From the ways of least bottleneck, to where no step beside is shorter."""
        starts = sorted(
            ((us, (way, ends)) for way in ways for us, ends in [self._least_bottleneck(way, stages)] if ends)
        )  # fmt: skip
        return min((self._climb(cut) for _, cut in starts[:_STARTS]), key=self.step_us, default=None)

    def _climb(self, cut: _Cut) -> _Cut:
        while True:
            best = min(self._beside(cut), key=self.step_us, default=cut)
            if self.step_us(best) >= self.step_us(cut):
                return cut
            cut = best

    def _beside(self, cut: _Cut) -> Iterator[_Cut]:
        """With a cut elsewhere by one layer, or a rank in another group."""
        counts, ends = cut
        for number, by in ((number, by) for number in range(len(ends) - 1) for by in (-1, 1)):
            moved = (*ends[:number], ends[number] + by, *ends[number + 1 :])
            if all(first < last for first, last in pairwise((0, *moved))):
                yield counts, moved
        if self._shape.replicas is not None or self._shape.stages_per_rank > 1:
            return
        for giver, taker in ((giver, taker) for giver in range(len(counts)) for taker in range(len(counts))):
            changed = tuple(each - (number == giver) + (number == taker) for number, each in enumerate(counts))
            if giver != taker and self._shape.shares_out(changed):
                yield changed, ends

    def _least_bottleneck(self, way: tuple[int, ...], stages: int) -> tuple[float, tuple[int, ...]]:
        """The bottleneck of the best cuts for these replicas, and where stages end; nowhere if none fits."""
        count = len(self._layers)
        # Where stages end does not matter to how many microbatches a rank holds.
        price = _Prices(self.plan((way, tuple(range(1, stages + 1)))), self._shape)

        @cache
        def best(first: int, left: int) -> tuple[float, tuple[int, ...]]:
            if left == 1:
                us = max(price.stage_us(first, count, number=stages - 1), price.link_us(first, number=stages - 1))
                return us, (count,) if us < math.inf else ()
            number = stages - left
            found: tuple[float, tuple[int, ...]] = (math.inf, ())
            for last in range(first + 1, count - left + 2):
                own_us = price.stage_us(first, last, number=number)
                if own_us >= found[0]:  # with more layers it only grows
                    break
                rest_us, ends = best(last, left - 1)
                us = max(own_us, price.link_us(first, last, number=number), rest_us)
                if us < found[0]:
                    found = us, (last, *ends)
            return found

        return best(0, stages)


def _computing(layers: Sequence[LayerCost]) -> list[float]:
    """Of one microbatch, up to each layer."""
    return [*accumulate((each.forward_us + each.dgrad_us + each.wgrad_us for each in layers), initial=0.0)]


class _Prices:
    """What each part of a plan takes, wherever its stages end."""

    def __init__(self, plan: Plan, shape: Shape) -> None:
        self._plan, self._shape = plan, shape
        layers = plan.layers
        self._compute_us = _computing(layers)
        self._parameter_bytes = [*accumulate((each.parameter_bytes for each in layers), initial=0)]
        self._saved_bytes = [*accumulate((each.saved_bytes for each in layers), initial=0)]
        self._carried_bytes = [0, *(each.output_bytes for each in layers)]

    def stage_us(self, first: int, last: int, *, number: int) -> float:
        """The time of the stage of this number; infinite if it does not fit into memory."""
        replicas = self._plan.stages[number].replicas
        parameter_bytes = self._parameter_bytes[last] - self._parameter_bytes[first]
        limit_bytes = self._shape.memory_bytes
        if limit_bytes is not None and self._shape.stages_per_rank == 1:
            kept_bytes = self._carried_bytes[first] + self._saved_bytes[last] - self._saved_bytes[first]
            if COPIES_OF_PARAMETERS * parameter_bytes + self._held(number) * kept_bytes > limit_bytes:
                return math.inf
        compute_us = self._compute_us[last] - self._compute_us[first]
        return self._runs(number) * compute_us + sum_us(self._shape.link, parameter_bytes, ranks=replicas)

    def _runs(self, number: int) -> int:
        """The microbatches of the first replica of a stage, which has no fewer than the others."""
        return len(self._plan.runs(number % self._plan.groups, 0))

    def _held(self, number: int) -> int:
        """Microbatches whose activations a rank of the stage holds at most."""
        on_their_way = {
            "gpipe": self._runs(number),
            "1f1b": warmup(self._plan, number) + 1,
            "zero-bubble": warmup(self._plan, number) + 1 + lag(self._plan, number),
        }
        return min(self._runs(number), on_their_way[self._plan.schedule])

    def link_us(self, *cuts: int, number: int) -> float:
        """The time that a rank of a stage sends to its neighbours, as it receives from them: what crosses the model
        before each of these layers, either way. Nothing crosses before the first."""
        sent_us = sum(transfer_us(self._shape.link.at_once, self._carried_bytes[cut]) for cut in cuts if cut)
        return self._runs(number) * sent_us
