"""``torchrun … -m dwconv.parallel train``: trains a model on made-up images, on the ranks of a plan."""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dwconv import convert
from dwconv.commands.command_line import ArgumentParser, above_0, integers, named_path, whole, whole_from_0
from dwconv.errors import DwconvWarning, NoPlan
from dwconv.model.by_name import load_model
from dwconv.parallel.joining import ParserOfRanks, Rank, agreed, ranks, run_on_ranks
from dwconv.parallel.pipeline.pipeline import TIMEOUT_S, Pipeline, StepTimes
from dwconv.parallel.plan import add_model, add_pipeline
from dwconv.parallel.planning.for_ranks import check_batch, plan_for_ranks
from dwconv.parallel.planning.plan import Plan, read_plan

_BATCHES = 4
"""Batches of made-up images, which are trained on in turns."""


def main(argv: Sequence[str]) -> int:
    return run_on_ranks(_train, list(argv))


def _train(argv: list[str] | None) -> int:
    arguments = parser_of_train().parse_args(argv)
    with ranks(timeout_s=arguments.timeout) as rank:
        pipeline, batches = _prepared(arguments, rank)
        if rank.is_first:
            print(_told(pipeline.plan), flush=True)
        times = _steps(pipeline, batches, arguments, prints=rank.is_first)
        if rank.is_first and len(times) > 1:
            print(_summary(times[1:], images=len(batches[0])), flush=True)
    return 0


# -- what is trained -------------------------------------------------------------------------------------------------


def _prepared(arguments: argparse.Namespace, rank: Rank) -> tuple[Pipeline, list[Tensor]]:
    """The pipeline, and the images of all batches."""
    shape = integers("input", arguments.input)
    if len(shape) != 4 or min(shape) < 1:
        raise NoPlan(f"input={arguments.input} is not four sizes N,C,H,W from 1")
    form = torch.channels_last if arguments.channels_last else torch.contiguous_format
    torch.manual_seed(arguments.seed)
    batches = [torch.randn(shape, device=rank.device).contiguous(memory_format=form) for _ in range(_BATCHES)]
    model = load_model(arguments.model).to(rank.device).train()
    if arguments.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if arguments.convert:
        model = convert(model)
    plan = _plan(model, batches[0], arguments)
    check_batch(batches[0], microbatches=plan.microbatches * plan.replicas)
    share = batches[0][: shape[0] // plan.replicas]
    loss = nn.functional.cross_entropy
    return Pipeline(model, plan, loss=loss, example=share, timeout_s=arguments.timeout), batches


def _plan(model: nn.Module, batch: Tensor, arguments: argparse.Namespace) -> Plan:
    if arguments.plan:
        return agreed(lambda: read_plan(arguments.plan))
    return plan_for_ranks(
        model, batch, schedule=arguments.schedule, stages=arguments.stages, replicas=arguments.replicas,
        microbatches=arguments.microbatches,
    )  # fmt: skip


# -- steps -----------------------------------------------------------------------------------------------------------


def _steps(
    pipeline: Pipeline, batches: Sequence[Tensor], arguments: argparse.Namespace, *, prints: bool
) -> list[StepTimes]:
    shape = pipeline.output_shape
    if len(shape) != 2:
        raise NoPlan(
            f"the model gives a tensor of shape {tuple(shape)} for a microbatch; train needs one of (N, classes)"
        )
    torch.manual_seed(arguments.seed)
    targets = torch.randint(0, shape[1], (_BATCHES, len(batches[0])), device=batches[0].device)
    parameters = list(pipeline.parameters())  # none, where the layers of this rank have none
    optimizer = torch.optim.SGD(parameters, lr=arguments.rate, momentum=0.9) if parameters else None
    times = []
    for step in range(arguments.steps):
        x, target = (pipeline.share(each[step % _BATCHES]) for each in (batches, targets))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if not prints else "default", DwconvWarning)
            loss = pipeline.step(x, target)
        if optimizer is not None:
            optimizer.step()
        assert pipeline.times is not None
        times.append(pipeline.times)
        if prints:
            print(f"step {step + 1:3}   loss {loss:.4f}   {1e3 * times[-1].step_s:9.1f} ms", flush=True)
    return times


# -- what is printed -------------------------------------------------------------------------------------------------


def _told(plan: Plan) -> str:
    lines = [
        f"{plan.on} ranks ({'pipeline × data' if plan.is_even else 'of each stage'}), {plan.schedule}, {plan.parts} "
        "microbatches"
    ]
    for number, stage in enumerate(plan.stages):
        ranks = plan.ranks(number % plan.groups)
        on = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        names = [layer.name for layer in plan.layers[stage.first : stage.last]]
        lines.append(f"stage {number} on {on}: {names[0]}" + (f" to {names[-1]}" if len(names) > 1 else ""))
    return "\n".join(lines)


def _summary(times: Sequence[StepTimes], *, images: int) -> str:
    """Of this rank, without the first step."""
    step_s, exposed_s = (statistics.median(getattr(each, name) for each in times) for name in ("step_s", "exposed_s"))
    return (
        f"median of {len(times)} steps: {1e3 * step_s:.1f} ms, {images / step_s:.1f} images a second; "
        f"{1e3 * exposed_s:.1f} ms of it wait for gradients of replicas"
    )


# -- the command line --------------------------------------------------------------------------------------------------


def parser_of_train() -> ArgumentParser:
    """The parser of the command."""
    parser = ParserOfRanks(
        prog="python -m dwconv.parallel train",
        description="Train a model from (N, C, H, W) to (N, classes) on made-up images, its layers spread over "
        "pipeline stages and each stage over replicas: started by torchrun, or alone.",
        epilog="Without --plan the first rank times the layers and cuts them into stages.",
    )
    add_model(parser)
    add_pipeline(parser)
    parser.add_argument("--convert", action="store_true", help="convert depthwise layers first")
    for name, kind, default, meta, told in (
        ("plan", named_path, None, "FILE", "that python -m dwconv.parallel plan --json wrote"),
        ("replicas", whole, None, "R", "of each stage, default as many as ranks allow"),
        ("steps", whole, 10, "N", "default 10"),
        ("rate", above_0, 0.01, "X", "learning rate, default 0.01"),
        ("seed", whole_from_0, 0, "N", "of parameters and images, default 0"),
        ("timeout", above_0, TIMEOUT_S, "S", f"seconds to wait for another rank, default {TIMEOUT_S:g}"),
    ):
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=meta, help=told)
    return parser
