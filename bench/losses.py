"""``python -m bench losses --model NAME``: whether a model learns the same with its blocks as one.

Training makes differences grow: rounding alone drives two runs of one model apart, until they are as far apart as runs
can be. So a model with blocks is held against how far the plain one comes from itself, from the same start on the same
made-up batches:

    plain, all threads ─┐
    plain, one thread  ─┼─ three pairs: how far the losses of two runs are apart by chance
    plain, rounded     ─┘
    blocks, all threads ─┐
    blocks, one thread  ─┴─ each with each plain run

Losses do not show a gradient that is slightly wrong: chance moves them as much. So before the first step and after the
last one the gradients of both models are compared with those of float64.
"""

from __future__ import annotations

import copy
import itertools
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import dwconv
from bench.networks import add_size_arguments, image_for, memory_format_of, network_of
from bench.paired_steps import made_up, moved_by_one_rounding, step_of
from bench.results import add_log_argument, add_out_argument, name_part, read_alone, write_results
from dwconv.call.call_plan import plans
from dwconv.commands.command_line import ArgumentParser, from_0, whole
from dwconv.errors import WorkerDied
from dwconv.problems.target import cpu_target

BATCHES = 16
"""Different ones, over and over, so that there is something to learn."""
RATE = 1e-3
"""So low that a few random images do not make the losses jump."""
Batches = Sequence[tuple[Tensor, Tensor]]


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench losses", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", required=True, help="timm:NAME, torchvision:NAME, MODULE:CLASS or a network's name")
    add_size_arguments(parser)
    parser.add_argument("--contiguous", action="store_true", help="images lie contiguous, not channels_last")
    parser.add_argument("--steps", type=whole, default=200, help="of each run, default 200")
    parser.add_argument("--seeds", type=whole, default=5, help="starts, each with batches of its own, default 5")
    parser.add_argument("--seconds", type=from_0, default=60, help="for the race of what is untuned, default 60")
    add_log_argument(parser)
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    read_alone(arguments.log)
    network = network_of(arguments.model, batch=arguments.batch, image=arguments.image)
    target = cpu_target()
    image = image_for(network, contiguous=arguments.contiguous)
    layout = memory_format_of(network, contiguous=arguments.contiguous)
    rows = []
    as_one: nn.Module | None = None
    for seed in range(arguments.seeds):
        torch.manual_seed(seed)
        plain = network.make().train().to(memory_format=layout)  # type: ignore[call-overload]
        batches = [made_up(image) for _ in range(BATCHES)]
        if as_one is None:  # what is raced once is known to those after it
            as_one = dwconv.convert(copy.deepcopy(plain), image, seconds=arguments.seconds, blocks=True)
        as_one.load_state_dict(plain.state_dict())
        row = {"seed": seed, **row_of(plain, as_one, batches, steps=arguments.steps, threads=target.threads)}
        print(line_of(row), flush=True)
        rows.append(row)
    print(summary_of(rows))
    facts = {"network": network.name, "batch": network.batch, "sample": network.sample, "steps": arguments.steps}
    write_results(f"losses-{name_part(network.name)}", target=target, rows=rows, folder=arguments.out, **facts)
    return 0


def row_of(plain: nn.Module, as_one: nn.Module, batches: Batches, *, steps: int, threads: int) -> dict[str, Any]:
    """How far apart the runs of a start are, and how wrong their gradients, before and after. Raises WorkerDied if no
    block runs as one."""
    train = partial(run_of, batches=batches, steps=steps)
    before = _steps_as_one()
    counts = {"all threads": threads, "one thread": 1}
    blocks = {f"blocks, {name}": train(copy.deepcopy(as_one), threads=count) for name, count in counts.items()}
    as_one_a_step = (_steps_as_one() - before) / (2 * steps)
    if not as_one_a_step:
        raise WorkerDied("no block runs as one: give more --seconds, or larger images")
    trained = copy.deepcopy(plain)
    plains = {
        "plain, all threads": train(trained, threads=threads),
        "plain, one thread": train(copy.deepcopy(plain), threads=1),
        "plain, rounded": train(moved_by_one_rounding(plain), threads=threads),
    }
    gradients = {}
    for when, model in (("before", plain), ("after", trained)):
        as_one.load_state_dict(model.state_dict())
        gradients[when] = gradient_errors(model, as_one, batches[0])
    return {
        "as_one_a_step": as_one_a_step,
        "chance": [distance(one, other) for one, other in itertools.combinations(plains.values(), 2)],
        "blocks": [distance(one, other) for one in plains.values() for other in blocks.values()],
        "last_loss": {name: statistics.mean(losses[-BATCHES:]) for name, losses in (plains | blocks).items()},
        "gradients": gradients,
    }


def run_of(model: nn.Module, *, batches: Batches, steps: int, threads: int) -> list[float]:
    """The losses of ``steps`` steps of the model."""
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(0)  # whatever drops draws the same
        step = step_of(model, rate=RATE)
        return [step(*batches[number % len(batches)]) for number in range(steps)]
    finally:
        torch.set_num_threads(usual)


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """How far the losses of two runs are apart, the mean of all steps."""
    return statistics.mean(abs(a - b) for a, b in zip(one, other, strict=True))


def gradient_errors(plain: nn.Module, as_one: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Of models with the same weights: how far the gradients of the plain one are from those of float64, as a share of
    these, and how many times as far those with blocks are, for the median parameter and at most. Those whose gradient
    is all rounding, as that of a bias before a norm is, do not count."""
    images, labels = batch
    exact = _gradients(copy.deepcopy(plain).double(), images.double(), labels)
    found = {
        "plain": _gradients(copy.deepcopy(plain), images, labels),
        "blocks": _gradients(copy.deepcopy(as_one), images, labels),
    }
    errors = {
        name: [float((one - right).norm() / right.norm()) for one, right in zip(each, exact, strict=True)]
        for name, each in found.items()
    }
    some = [pair for pair in zip(errors["plain"], errors["blocks"], strict=True) if 0 < pair[0] < 1]
    return {
        "plain": statistics.median(one for one, _ in some),
        "blocks": statistics.median(other / one for one, other in some),
        "blocks_at_most": max(other / one for one, other in some),
    }


def _gradients(model: nn.Module, images: Tensor, labels: Tensor) -> list[Tensor]:
    """Those of all parameters, in float64."""
    torch.manual_seed(0)
    nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
    return [parameter.grad.double() for parameter in model.parameters() if parameter.grad is not None]


def _steps_as_one() -> int:
    """Backward passes of blocks as one, so far."""
    return sum(plan.tally.counted_ops()["backward"] for plan in plans() if plan.problem.block)


def line_of(row: dict[str, Any]) -> str:
    """What is printed of a start."""
    text = "; ".join(
        f"{when}, gradients are {found['plain']:.1e} wrong, {found['blocks']:.2f} times that with blocks"
        for when, found in row["gradients"].items()
    )
    return (
        f"start {row['seed']}: losses {statistics.median(row['chance']):.2g} apart by chance, with "
        f"{row['as_one_a_step']:.0f} blocks as one {statistics.median(row['blocks']):.2g}; {text}"
    )


def summary_of(rows: Sequence[dict[str, Any]]) -> str:
    """All starts together."""
    chance, blocks = (statistics.median(apart for row in rows for apart in row[key]) for key in ("chance", "blocks"))
    farther = sum(statistics.median(row["blocks"]) > statistics.median(row["chance"]) for row in rows)
    found = [found for row in rows for found in row["gradients"].values()]
    median, most = statistics.median(each["blocks"] for each in found), max(each["blocks_at_most"] for each in found)
    return (
        f"\n{len(rows)} starts: losses {blocks:.2g} apart with blocks as one, {chance:.2g} by chance, farther than by "
        f"chance in {farther}; gradients {median:.2f} times as wrong, at most {most:.1f}"
    )
