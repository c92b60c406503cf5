"""Compare the plans that could be: plain data parallelism, pipelines with even replicas, and with uneven ones.

The pipelines of least bottleneck time are simulated, for every number of stages; the least time of a step decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dwconv.errors import NoPlan
from dwconv.parallel.planning.orders import why_not
from dwconv.parallel.planning.partition import Cluster, Shape, check_shape, partition
from dwconv.parallel.planning.plan import LayerCost, Plan, Stage
from dwconv.parallel.planning.simulation import SimulatedStep, simulate


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A plan, and one simulated step of it."""

    plan: Plan
    step: SimulatedStep

    @property
    def is_data_parallel(self) -> bool:
        """True for one stage on all ranks."""
        return len(self.plan.stages) == 1

    @property
    def name(self) -> str:
        """For people."""
        stages = self.plan.stages[: self.plan.groups]
        if self.is_data_parallel:
            return "data parallelism" if self.plan.world > 1 else "one rank"
        counts = [stage.replicas for stage in stages]
        each = f" ({self.plan.stages_per_rank} a rank)" if self.plan.stages_per_rank > 1 else ""
        if not self.plan.is_even:
            return f"{len(counts)} stages on {' + '.join(map(str, counts))} ranks"
        return f"{len(self.plan.stages)} stages{each}" + (f" × {counts[0]} replicas" if counts[0] > 1 else "")


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The plans that fit, each simulated."""

    candidates: tuple[Candidate, ...]
    """By time of a step."""
    left_out: tuple[str, ...]
    """Why others do not fit, a line each."""

    @property
    def best(self) -> Candidate:
        """The one to take."""
        return self.candidates[0]

    @property
    def best_to_run(self) -> Candidate | None:
        """The best of those that a mesh pipeline × data can run."""
        return next((each for each in self.candidates if each.plan.is_even), None)

    @property
    def data_parallel(self) -> Candidate | None:
        """Plain data parallelism; None if it does not fit."""
        return next((each for each in self.candidates if each.is_data_parallel), None)


def propose(
    layers: Sequence[LayerCost],
    cluster: Cluster,
    shape: Shape,
    *,
    on_whole_share: Sequence[LayerCost] | None = None,
) -> Proposal:
    """The plans for ``cluster``, by the costs of layers for one microbatch.

    ``shape.stages`` leaves the pipelines with other numbers of stages out. ``on_whole_share``: the costs for all that
    one of ``cluster.world`` ranks has of the batch, for plain data parallelism, which needs no microbatches; without it
    data parallelism runs the microbatches one after the other. Raises NoPlan if nothing fits.
    """
    check_shape(cluster, shape)
    candidates: list[Candidate] = []
    left_out: list[str] = []
    for plan in _plans(layers, cluster, shape, on_whole_share=on_whole_share, left_out=left_out):
        candidate = Candidate(plan=plan, step=simulate(plan))
        if any(plan.stages == each.plan.stages for each in candidates):
            continue
        reason = why_not(plan) or _too_large(candidate.step, cluster)
        if reason:
            left_out.append(f"{candidate.name}: {reason}")
        else:
            candidates.append(candidate)
    if not candidates:
        raise NoPlan(f"no plan for world={cluster.world}: {'; '.join(dict.fromkeys(left_out))}")
    candidates.sort(key=lambda each: each.step.step_us)
    return Proposal(candidates=tuple(candidates), left_out=tuple(dict.fromkeys(left_out)))


def _plans(
    layers: Sequence[LayerCost],
    cluster: Cluster,
    shape: Shape,
    *,
    on_whole_share: Sequence[LayerCost] | None,
    left_out: list[str],
) -> Iterator[Plan]:
    """Data parallelism comes first: of plans that are as fast, the first is best."""
    data_parallel = _data_parallel(on_whole_share or layers, cluster, shape, at_once=on_whole_share is not None)
    if data_parallel is None:
        left_out.append(
            f"data parallelism: {shape.microbatches} microbatches do not share out over {cluster.world} ranks"
        )
    else:
        yield data_parallel
    shapes = [
        dataclasses.replace(shape, stages=groups * shape.stages_per_rank, is_even=True)
        for groups in range(2, min(cluster.world, len(layers) // shape.stages_per_rank) + 1)
        if cluster.world % groups == 0 and shape.stages in (None, groups * shape.stages_per_rank)
    ]
    if shape.stages_per_rank == 1 and shape.stages != 1:
        shapes.append(shape)
    for each in shapes:
        try:
            yield partition(layers, cluster, each)
        except NoPlan as error:
            left_out.append(str(error))


def _data_parallel(layers: Sequence[LayerCost], cluster: Cluster, shape: Shape, *, at_once: bool) -> Plan | None:
    microbatches, left = (1, 0) if at_once else divmod(shape.microbatches, cluster.world)
    if left:
        return None
    return Plan(
        layers=tuple(layers),
        stages=(Stage(first=0, last=len(layers), replicas=cluster.world),),
        microbatches=microbatches,
        schedule="1f1b",
        link=cluster.link,
    )


def _too_large(step: SimulatedStep, cluster: Cluster) -> str:
    needed_bytes = max(step.memory_bytes)
    if cluster.memory_bytes is None or needed_bytes <= cluster.memory_bytes:
        return ""
    return f"needs {needed_bytes / 1e9:.3g} GB a rank, and {cluster.memory_bytes / 1e9:.3g} GB are there"
