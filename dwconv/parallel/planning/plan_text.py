"""A comparison of plans, as tables for a terminal."""

from __future__ import annotations

import itertools

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dwconv.parallel.planning.compare import Candidate, Proposal
from dwconv.parallel.planning.prices import COPIES_OF_PARAMETERS, stage_cost


def print_proposal(proposal: Proposal, console: Console) -> None:
    """Print the plans, the stages of those to take, and what is recommended."""
    console.print(_plans(proposal))
    for candidate in _shown(proposal):
        console.print(_stages(candidate))
    for reason in proposal.left_out:
        console.print(f"left out: {reason}", markup=False, soft_wrap=True)
    console.print(recommendation(proposal), markup=False, soft_wrap=True)
    console.print(_NOTE, markup=False, soft_wrap=True)


_NOTE = (
    "×: times as fast as plain data parallelism. exposed: communication that no computing hides. runs: a mesh pipeline "
    "× data can. All is computed, from measured layers and the link that was given, without the loss and the "
    f"optimizer's step. Memory: parameters {COPIES_OF_PARAMETERS} times (values, gradients, momentum), and what waits "
    "for the backward pass."
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


def _plans(proposal: Proposal) -> Table:
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


def _stages(candidate: Candidate) -> Table:
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
