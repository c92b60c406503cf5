"""``torchrun … -m dwconv.parallel train``: trains a model on made-up images, on the ranks of a plan."""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dwconv import convert
from dwconv.commands.command_line import ArgumentParser, above_0, integers, whole
from dwconv.errors import DwconvWarning, NoPlan
from dwconv.model.by_name import load_model
from dwconv.parallel.joining import ParserOfRanks, Rank, agreed, ranks, run_on_ranks
from dwconv.parallel.pipeline.pipeline import TIMEOUT_S, BatchNorm, Pipeline, StepTimes
from dwconv.parallel.pipeline.running_stage import Span
from dwconv.parallel.planning.partition import LINK, MICROBATCHES_A_RANK, check_batch, plan_for_ranks
from dwconv.parallel.planning.plan import SCHEDULES, Link, Plan, read_plan
from dwconv.parallel.planning.timeline import Event, What, print_timeline, timeline_files

_BATCHES = 4
"""Batches of made-up images, which are trained on in turns."""
_BATCH_NORM: dict[BatchNorm, str] = {
    "microbatch": "batch normalisation: the statistics of each microbatch alone",
    "synchronised": "batch normalisation: the statistics of each microbatch on all replicas together",
}


def main(argv: Sequence[str]) -> int:
    return run_on_ranks(_train, list(argv))


def _train(argv: list[str] | None) -> int:
    arguments = parser_of_train().parse_args(argv)
    with ranks(timeout_s=arguments.timeout) as rank:
        timeline = agreed(lambda: timeline_files(arguments.timeline)) if arguments.timeline else None
        pipeline, images = _prepared(arguments, rank)
        if rank.is_first:
            print(_told(pipeline.plan), flush=True)
            if pipeline.has_batch_norm:
                print(_BATCH_NORM[arguments.batch_norm], flush=True)
        times = _steps(pipeline, images, arguments, prints=rank.is_first)
        if rank.is_first and len(times) > 1:
            print(_summary(times[1:], images=images.shape[1]), flush=True)
        if timeline:
            events = measured_events(pipeline)
            if rank.is_first:
                size = f"{len(pipeline.plan.stages)} stages × {pipeline.plan.stages[0].replicas}"
                print_timeline(events, *timeline, title=f"One step of {size}, as measured")
    return 0


# -- what is trained -------------------------------------------------------------------------------------------------


def _prepared(arguments: argparse.Namespace, rank: Rank) -> tuple[Pipeline, Tensor]:
    """The pipeline, and the images of all batches."""
    shape = integers("input", arguments.input)
    if len(shape) != 4 or min(shape) < 1:
        raise NoPlan(f"input={arguments.input} is not four sizes N,C,H,W from 1")
    torch.manual_seed(arguments.seed)
    images = torch.randn(_BATCHES, *shape, device=rank.device)
    model = load_model(arguments.model).to(rank.device).train()
    if arguments.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if arguments.convert:
        model = convert(model)
    plan = _plan(model, _in_layout(images[0], arguments), arguments)
    check_batch(images[0], microbatches=plan.microbatches * plan.stages[0].replicas)
    pipeline = Pipeline(
        model,
        plan,
        loss=nn.functional.cross_entropy,
        example=_in_layout(images[0][: shape[0] // plan.stages[0].replicas], arguments),
        batch_norm=arguments.batch_norm,
        timeout_s=arguments.timeout,
    )
    return pipeline, images


def _plan(model: nn.Module, batch: Tensor, arguments: argparse.Namespace) -> Plan:
    if arguments.plan:
        return agreed(lambda: read_plan(arguments.plan))
    return plan_for_ranks(
        model,
        batch,
        schedule=arguments.schedule,
        stages=arguments.stages,
        replicas=arguments.replicas,
        microbatches=arguments.microbatches,
        link=Link(gb_s=arguments.link_gb_s, latency_us=LINK.latency_us),
    )


def _in_layout(images: Tensor, arguments: argparse.Namespace) -> Tensor:
    return images.to(memory_format=torch.channels_last) if arguments.channels_last else images


# -- steps -----------------------------------------------------------------------------------------------------------


def _steps(pipeline: Pipeline, images: Tensor, arguments: argparse.Namespace, *, prints: bool) -> list[StepTimes]:
    classes = _classes(pipeline)
    torch.manual_seed(arguments.seed)
    targets = torch.randint(0, classes, images.shape[:2], device=images.device)
    parameters = list(pipeline.parameters())  # none, where the layers of this rank have none
    optimizer = torch.optim.SGD(parameters, lr=arguments.rate, momentum=0.9) if parameters else None
    times = []
    for step in range(arguments.steps):
        if arguments.timeline and step + 1 == arguments.steps:
            dist.barrier()  # the ranks begin it together
        x, target = (pipeline.share(each[step % _BATCHES]) for each in (images, targets))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if not prints else "default", DwconvWarning)
            loss = pipeline.step(_in_layout(x, arguments), target)
        if optimizer is not None:
            optimizer.step()
        assert pipeline.times is not None
        times.append(pipeline.times)
        if prints:
            print(f"step {step + 1:3}   loss {loss:.4f}   {1e3 * times[-1].step_s:9.1f} ms", flush=True)
    return times


def _classes(pipeline: Pipeline) -> int:
    shape = pipeline.output_shape
    if len(shape) != 2:
        raise NoPlan(
            f"the model gives a tensor of shape {tuple(shape)} for a microbatch; train needs one of (N, classes)"
        )
    return shape[1]


# -- what is printed -------------------------------------------------------------------------------------------------


def _told(plan: Plan) -> str:
    lines = [
        f"{plan.groups} × {plan.stages[0].replicas} ranks (pipeline × data), {plan.schedule}, "
        f"{plan.microbatches} microbatches a replica"
    ]
    for number, stage in enumerate(plan.stages):
        first = number % plan.groups * stage.replicas
        on = f"rank {first}" if stage.replicas == 1 else f"ranks {first} to {first + stage.replicas - 1}"
        names = [layer.name for layer in plan.layers[stage.first : stage.last]]
        lines.append(f"stage {number} on {on}: {names[0]}" + (f" to {names[-1]}" if len(names) > 1 else ""))
    return "\n".join(lines)


def _summary(times: Sequence[StepTimes], *, images: int) -> str:
    """Of this rank, without the first step."""
    step_s = statistics.median(each.step_s for each in times)
    gradients_s, exposed_s = (
        statistics.median(getattr(each, name) for each in times) for name in ("gradients_s", "exposed_s")
    )
    speed = f"median of {len(times)} steps: {1e3 * step_s:.1f} ms, {images / step_s:.1f} images a second"
    if not gradients_s:
        return speed
    return (
        f"{speed}\n"
        f"gradients of this rank's stages: {1e3 * gradients_s:.1f} ms between replicas, for which the step stalled "
        f"{1e3 * exposed_s:.1f}"
    )


# -- what every rank did in the last step ------------------------------------------------------------------------------


_WHAT: dict[str, What] = {
    "forward": "forward",
    "backward": "backward",
    "dgrad": "dgrad",
    "wgrad": "wgrad",
    "gradients": "communication",
}


def measured_events(pipeline: Pipeline) -> tuple[Event, ...]:
    """The last step of all ranks, which began it together; on every rank. Waiting for another stage is idle time:
    when a message is on its way, PyTorch's pipelining does not report."""
    times = pipeline.times
    mine = [_event(span, pipeline, since_s=times.started_s) for span in times.spans] if times else []
    everyone: list[list[Event]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, mine)
    return tuple(
        sorted((event for events in everyone for event in events), key=lambda each: (each.start_us, each.rank))
    )


def _event(span: Span, pipeline: Pipeline, *, since_s: float) -> Event:
    replicas, replica = pipeline.plan.stages[0].replicas, pipeline.mesh.get_local_rank("data")
    return Event(
        rank=dist.get_rank(),
        stage=span.stage,
        microbatch=None if span.microbatch is None else span.microbatch * replicas + replica,
        what=_WHAT[span.work],
        start_us=1e6 * (span.start_s - since_s),
        end_us=1e6 * (span.end_s - since_s),
        detail="gradients summed over replicas" if span.work == "gradients" else "",
    )


# -- the command line --------------------------------------------------------------------------------------------------


def parser_of_train() -> ArgumentParser:
    """The parser of the command."""
    parser = ParserOfRanks(
        prog="python -m dwconv.parallel train",
        description="Train a model on made-up images, its layers spread over pipeline stages and each stage over "
        "replicas: started by torchrun, or alone.",
        epilog="Without --plan the first rank times the layers and cuts them into stages.",
    )
    _add_model(parser)
    _add_plan(parser)
    training = parser.add_argument_group("training")
    training.add_argument("--steps", type=whole, default=10, metavar="N", help="default 10")
    training.add_argument("--rate", type=above_0, default=0.01, metavar="X", help="learning rate, default 0.01")
    training.add_argument("--seed", type=int, default=0, metavar="N", help="of parameters and images, default 0")
    training.add_argument(
        "--timeout",
        type=above_0,
        default=TIMEOUT_S,
        metavar="S",
        help=f"seconds to wait for another rank before all end, default {TIMEOUT_S:g}",
    )
    training.add_argument(
        "--timeline",
        type=Path,
        metavar="PREFIX",
        help="draw the last step, as measured: PREFIX.json for chrome://tracing or Perfetto, PREFIX.png",
    )
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model and images")
    model.add_argument(
        "--model",
        required=True,
        metavar="SPEC",
        help="timm:NAME, torchvision:NAME, transformers:NAME, or package.module:factory; random weights; from (N, C, "
        "H, W) to (N, classes)",
    )
    model.add_argument(
        "--input", required=True, metavar="N,C,H,W", help="shape of the whole batch of a step, of all ranks together"
    )
    model.add_argument("--channels-last", action="store_true", help="model and images are channels_last")
    model.add_argument(
        "--convert", action="store_true", help="convert depthwise layers first; run what is tuned or predicted for them"
    )
    model.add_argument(
        "--batch-norm",
        choices=get_args(BatchNorm),
        default="microbatch",
        help="statistics of each microbatch alone (the default), or of it on all replicas together",
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    plan = parser.add_argument_group("plan")
    plan.add_argument("--plan", type=Path, metavar="FILE", help="that python -m dwconv.parallel plan --json wrote")
    plan.add_argument("--stages", type=whole, metavar="N", help="default one for each rank of a pipeline")
    plan.add_argument("--replicas", type=whole, metavar="R", help="of each stage, default as many as ranks allow")
    plan.add_argument("--schedule", default="1f1b", metavar="|".join(SCHEDULES), help="default 1f1b")
    plan.add_argument(
        "--microbatches",
        type=whole,
        metavar="M",
        help=f"that the whole batch is cut into, default {MICROBATCHES_A_RANK} for each rank",
    )
    plan.add_argument(
        "--link-gb-s",
        type=above_0,
        default=LINK.gb_s,
        metavar="GB",
        help=f"10⁹ bytes a second from one rank to another, to cut by; default {LINK.gb_s:g}",
    )
