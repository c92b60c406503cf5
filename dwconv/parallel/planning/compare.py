"""Compare the plans that could be: plain data parallelism, pipelines with even replicas, and with uneven ones.

The pipelines of least bottleneck time are simulated, for every number of stages; the least time of a step decides.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dwconv.errors import NoPlan
from dwconv.parallel.planning.partition import Cluster, Shape, check_shape, partition
from dwconv.parallel.planning.plan import COPIES_OF_PARAMETERS, LayerCost, Plan, Stage, stage_cost, why_not
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


# -- tables for a terminal ---------------------------------------------------------------------------------------------


def print_proposal(proposal: Proposal, console: Console) -> None:
    """Print the plans, the stages of those to take, and what is recommended."""
    console.print(_table_of_plans(proposal))
    for candidate in _shown(proposal):
        console.print(_table_of_stages(candidate))
    for reason in proposal.left_out:
        console.print(f"left out: {reason}", markup=False, soft_wrap=True)
    console.print(recommendation(proposal), markup=False, soft_wrap=True)
    console.print(_NOTE, markup=False, soft_wrap=True)


_NOTE = (
    "×: times as fast as plain data parallelism. exposed: communication that no computing hides. runs: a mesh pipeline "
    "× data can. All is computed, from measured layers and the given link, without the loss and the optimizer's step. "
    f"Memory: parameters {COPIES_OF_PARAMETERS} times (values, gradients, momentum), and what is kept for the backward "
    "pass."
)


def recommendation(proposal: Proposal) -> str:
    """One or two sentences: what to run, and how it compares with plain data parallelism."""
    best, data_parallel, to_run = proposal.best, proposal.data_parallel, proposal.best_to_run
    if best is data_parallel:
        pipelines = [each for each in proposal.candidates if not each.is_data_parallel]
        if not pipelines:
            return "recommended: plain data parallelism"
        slower = pipelines[0].step.step_us / best.step.step_us
        pipeline = pipelines[0].name
        return f"recommended: plain data parallelism; the best pipeline, {pipeline}, takes {slower:.2f} times as long"
    against = (
        f"{data_parallel.step.step_us / best.step.step_us:.2f} times as fast as plain data parallelism"
        if data_parallel
        else "plain data parallelism does not fit"
    )
    sentence = f"recommended: {best.name}, {against}"
    if to_run is None:
        return f"{sentence}; no mesh pipeline × data can run it, since its replicas differ"
    if to_run is not best:
        sentence += (
            f"; its replicas differ, which no mesh pipeline × data can run: {to_run.name} is the best that can be run"
        )
    return sentence


def _shown(proposal: Proposal) -> list[Candidate]:
    """The best pipeline, and the best that can be run."""
    pipelines = [each for each in proposal.candidates if not each.is_data_parallel]
    return [
        *pipelines[:1],
        *[each for each in pipelines[1:] if each.plan.is_even and not pipelines[0].plan.is_even][:1],
    ]


def _table_of_plans(proposal: Proposal) -> Table:
    table = Table(box=SIMPLE_HEAD, title=_title(proposal), title_justify="left", pad_edge=False)
    table.add_column("plan", no_wrap=True)
    for heading in ("step ms", "×", "bubble", "exposed ms", "memory MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("runs", no_wrap=True)
    data_parallel = proposal.data_parallel
    for each in proposal.candidates:
        step = each.step
        table.add_row(
            each.name,
            f"{step.step_us / 1e3:.2f}",
            f"{data_parallel.step.step_us / step.step_us:.2f}" if data_parallel else "",
            f"{step.bubble:.0%}",
            f"{step.exposed_communication_us / 1e3:.2f}",
            _mb(max(step.memory_bytes)),
            "yes" if each.plan.is_even else "no",
        )
    return table


def _title(proposal: Proposal) -> str:
    plan = proposal.best.plan
    pipeline = next((each.plan for each in proposal.candidates if not each.is_data_parallel), plan)
    link = f"a link of {plan.link.gb_s:g} GB/s and {plan.link.latency_us:g} µs"
    batch = f"{pipeline.microbatches * pipeline.stages[0].replicas} microbatches"
    return f"{_counted(plan.world, 'rank')}, {link}, {len(plan.layers)} layers, {batch}, {pipeline.schedule}"


def _table_of_stages(candidate: Candidate) -> Table:
    plan = candidate.plan
    table = Table(box=SIMPLE_HEAD, title=f"{candidate.name}: ms a microbatch, MB", title_justify="left", pad_edge=False)
    table.add_column("stage", justify="right")
    table.add_column("ranks")
    table.add_column("layers", overflow="fold")
    for heading in ("forward", "dgrad", "wgrad", "parameters", "sends", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    replicas = [stage.replicas for stage in plan.stages[: plan.groups]]
    first_ranks = [0, *itertools.accumulate(replicas)]
    for number, stage in enumerate(plan.stages):
        cost = stage_cost(plan.layers, first=stage.first, last=stage.last)
        group = number % plan.groups
        begin, end = first_ranks[group], first_ranks[group + 1]
        first, last = plan.layers[stage.first].name, plan.layers[stage.last - 1].name
        table.add_row(
            str(number),
            str(begin) if end == begin + 1 else f"{begin} to {end - 1}",
            first if first == last else f"{first} … {last}",
            *(f"{us / 1e3:.2f}" for us in (cost.forward_us, cost.dgrad_us, cost.wgrad_us)),
            _mb(cost.parameter_bytes),
            _mb(cost.output_bytes) if number + 1 < len(plan.stages) else "",
            _mb(max(candidate.step.memory_bytes[begin:end])),
        )
    return table


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f}" if size_bytes >= 1e5 else f"{size_bytes / 1e6:.3f}"


def _counted(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one}s"
