"""Compare the plans that could be: plain data parallelism, and pipelines of every schedule and number of stages.

For each of these ``partition`` gives the pipeline of the least simulated step. The least of all decides, if it is
clearly less than that of data parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dwconv.errors import NoPlan
from dwconv.parallel.planning.partition import partition
from dwconv.parallel.planning.pipeline_plan import (
    COPIES_OF_PARAMETERS,
    LayerCost,
    Link,
    Plan,
    Stage,
    stage_cost,
    why_not,
)
from dwconv.parallel.planning.shape import Shape
from dwconv.parallel.planning.simulated_step import SimulatedStep, simulate_step

SURELY = 1.1
"""Simulated steps of real ones are off by 10 % and less, but for few."""


@dataclass(frozen=True, kw_only=True)
class SimulatedPlan:
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
        if self.is_data_parallel:
            return "data parallelism" if self.plan.world > 1 else "one rank"
        stages = f"{len(self.plan.stages)} stages"
        if not self.plan.is_even:
            return f"{stages} on {self.plan.on} ranks, {self.plan.schedule}"
        each = f" ({self.plan.stages_per_rank} a rank)" if self.plan.stages_per_rank > 1 else ""
        replicas = f" × {self.plan.replicas} replicas" if self.plan.replicas > 1 else ""
        return f"{stages}{each}{replicas}, {self.plan.schedule}"


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The plans that fit, each simulated."""

    candidates: tuple[SimulatedPlan, ...]
    """By time of a step."""
    left_out: tuple[str, ...]
    """Why others do not fit, a line each."""

    @property
    def best(self) -> SimulatedPlan:
        """The one to take: data parallelism, unless a pipeline is faster by more than simulated steps are off."""
        least, plain = self.candidates[0], self.data_parallel
        return plain if plain and plain.step.step_us <= SURELY * least.step.step_us else least

    def best_of(self, stages: int | None) -> SimulatedPlan | None:
        """The one to take of so many stages, or of any; None if there is none."""
        if stages is None:
            return self.best
        return next((each for each in self.candidates if len(each.plan.stages) == stages), None)

    @property
    def data_parallel(self) -> SimulatedPlan | None:
        """Plain data parallelism; None if it does not fit."""
        return next((each for each in self.candidates if each.is_data_parallel), None)

    @property
    def pipeline(self) -> SimulatedPlan | None:
        """The best one; None if none fits."""
        return next((each for each in self.candidates if not each.is_data_parallel), None)


def propose(
    layers: Sequence[LayerCost], shape: Shape, *, on_whole_share: Sequence[LayerCost] | None = None
) -> Proposal:
    """The plans of ``shape``, by the costs of layers for one microbatch.

    ``shape.stages`` leaves the pipelines with other numbers of stages out. ``on_whole_share``: the costs for all that
    one of ``shape.world`` ranks has of the batch, for plain data parallelism, which needs no microbatches; without it
    data parallelism runs the microbatches one after the other. Raises NoPlan if nothing fits.
    """
    candidates: list[SimulatedPlan] = []
    left_out: list[str] = []
    for plan in _plans(layers, shape, on_whole_share=on_whole_share, left_out=left_out):
        candidate = SimulatedPlan(plan=plan, step=simulate_step(plan))
        reason = why_not(plan) or _too_large(candidate.step, shape)
        if reason:
            left_out.append(f"{candidate.name}: {reason}")
        else:
            candidates.append(candidate)
    if not candidates:
        raise NoPlan(f"no plan for world={shape.world}: {'; '.join(dict.fromkeys(left_out))}")
    candidates.sort(key=lambda each: each.step.step_us)  # of plans that are as fast, data parallelism stays first
    return Proposal(candidates=tuple(candidates), left_out=tuple(dict.fromkeys(left_out)))


def _plans(
    layers: Sequence[LayerCost], shape: Shape, *, on_whole_share: Sequence[LayerCost] | None, left_out: list[str]
) -> Iterator[Plan]:
    shapes = shape.of_one_schedule()
    microbatches, left = (1, 0) if on_whole_share else divmod(shape.microbatches, shape.world)
    if left:
        left_out.append(
            f"data parallelism: {shape.microbatches} microbatches do not share out over {shape.world} ranks"
        )
    else:
        costs = tuple(on_whole_share or layers)
        whole = Stage(first=0, last=len(layers), replicas=shape.world)
        yield Plan(layers=costs, stages=(whole,), microbatches=microbatches, schedule="1f1b", link=shape.link)
    for each, stages in ((one, stages) for one in shapes for stages in one.stage_counts()):
        is_on_one_group = stages == each.stages_per_rank and (stages == 1 or shape.stages is None)
        if is_on_one_group or (stages > len(layers) and shape.stages is None):
            continue
        try:
            yield partition(layers, each, stages=stages)
        except NoPlan as error:
            left_out.append(str(error))


def _too_large(step: SimulatedStep, shape: Shape) -> str:
    needed_bytes = max(step.memory_bytes)
    if shape.memory_bytes is None or needed_bytes <= shape.memory_bytes:
        return ""
    return f"needs {needed_bytes / 1e9:.3g} GB a rank, and {shape.memory_bytes / 1e9:.3g} GB are there"


# -- as text -----------------------------------------------------------------------------------------------------------


def report(proposal: Proposal) -> str:
    """The plans, of each number of stages with its best schedule; the stages of the best pipeline; and what is
    recommended."""
    shown = proposal.pipeline or proposal.best
    plan, data_parallel = shown.plan, proposal.data_parallel
    lines = [
        f"{plan.world} rank{'s' if plan.world > 1 else ''}, a link of {_link(plan.link)}, {len(plan.layers)} layers, "
        f"{plan.parts} microbatches",
        f"{'plan':44} {'step ms':>9} {'×':>6} {'bubble':>7} {'exposed ms':>11} {'memory MB':>10}",
    ]
    best: dict[int, SimulatedPlan] = {}
    for each in proposal.candidates:
        best.setdefault(len(each.plan.stages), each)
    for each in best.values():
        step = each.step
        times = f"{data_parallel.step.step_us / step.step_us:.2f}" if data_parallel else ""
        lines.append(
            f"{each.name:44} {step.step_us / 1e3:9.2f} {times:>6} {step.bubble:7.0%} "
            f"{step.exposed_communication_us / 1e3:11.2f} {_mb(max(step.memory_bytes)):>10}"
        )
    if proposal.pipeline:
        lines += ["", *_stages(proposal.pipeline)]
    lines += ["", *(f"left out: {reason}" for reason in proposal.left_out), recommendation(proposal), _NOTE]
    return "\n".join(lines)


def _link(link: Link) -> str:
    both = f" one way, {link.both_ways_gb_s:.3g} each way at once," if link.both_ways_gb_s else ""
    sums = ""
    if link.summing_us_a_mb or link.crowding_us_a_mb:
        sums = f" (a MB of a sum: {link.summing_us_a_mb:.0f} µs more, {link.crowding_us_a_mb:.0f} µs of computing)"
    return f"{link.gb_s:.3g} GB/s{both} and {link.latency_us:.3g} µs{sums}"


_NOTE = (
    "×: times as fast as plain data parallelism. exposed: communication that no computing hides. All is computed, from "
    f"measured layers and the given link, without the loss and the optimizer's step. Memory: parameters "
    f"{COPIES_OF_PARAMETERS} times (values, gradients, momentum), and what is kept for the backward pass."
)


def recommendation(proposal: Proposal) -> str:
    """What to run, and how it compares with plain data parallelism."""
    best, data_parallel, pipeline = proposal.best, proposal.data_parallel, proposal.pipeline
    if best is data_parallel:
        if pipeline is None:
            return "recommended: plain data parallelism"
        slower = pipeline.step.step_us / best.step.step_us
        close = ", which is too close to be sure" if slower < 1 else ""
        return (
            f"recommended: plain data parallelism; the best pipeline, {pipeline.name}, takes {slower:.2f} times as long"
            f"{close}"
        )
    if data_parallel is None:
        return f"recommended: {best.name}, plain data parallelism does not fit"
    faster = data_parallel.step.step_us / best.step.step_us
    return f"recommended: {best.name}, {faster:.2f} times as fast as plain data parallelism"


def _stages(candidate: SimulatedPlan) -> list[str]:
    plan = candidate.plan
    lines = [f"{candidate.name}, ms a microbatch and MB:"]
    lines.append(
        f"{'stage':>5} {'ranks':8} {'forward':>8} {'dgrad':>8} {'wgrad':>8} {'parameters':>11} {'memory':>9}  layers"
    )
    for number, stage in enumerate(plan.stages):
        cost = stage_cost(plan.layers, first=stage.first, last=stage.last)
        on = plan.ranks(number % plan.groups)
        ranks = f"{on[0]}" if len(on) == 1 else f"{on[0]} to {on[-1]}"
        times = " ".join(f"{us / 1e3:8.2f}" for us in (cost.forward_us, cost.dgrad_us, cost.wgrad_us))
        names = [layer.name for layer in plan.layers[stage.first : stage.last]]
        lines.append(
            f"{number:5} {ranks:8} {times} {_mb(cost.parameter_bytes):>11} "
            f"{_mb(candidate.step.memory_bytes[on[0]]):>9}  {' … '.join(dict.fromkeys((names[0], names[-1])))}"
        )
    return lines


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f}" if size_bytes >= 1e5 else f"{size_bytes / 1e6:.3f}"
