"""``torchrun … -m dwconv.parallel train``: trains a model on made-up images, on the ranks of a plan."""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dwconv import convert
from dwconv.commands.command_line import integers
from dwconv.errors import DwconvWarning, NoPlan
from dwconv.model.by_name import load_model
from dwconv.parallel.agreement import agreed, run_on_ranks
from dwconv.parallel.joining import Rank, ranks
from dwconv.parallel.pipeline.measured_events import measured_events
from dwconv.parallel.pipeline.pipeline import BatchNorm, Pipeline, StepTimes
from dwconv.parallel.pipeline.ranks_plan import LINK, check_batch, plan_for_ranks
from dwconv.parallel.planning.events import Event
from dwconv.parallel.planning.plan import Link, Plan
from dwconv.parallel.planning.plan_files import read_plan
from dwconv.parallel.planning.timeline import draw_timeline, timeline_files, write_chrome_trace
from dwconv.parallel.train_arguments import parser_of_train

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
        times = _steps(pipeline, images, arguments, tells=rank.is_first)
        if rank.is_first and len(times) > 1:
            print(_summary(times[1:], images=images.shape[1]), flush=True)
        if timeline:
            events = measured_events(pipeline)
            if rank.is_first:
                _draw(events, *timeline, plan=pipeline.plan)
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
    plan = _plan(model, _lying(images[0], arguments), arguments)
    check_batch(images[0], microbatches=plan.microbatches * plan.stages[0].replicas)
    pipeline = Pipeline(
        model,
        plan,
        loss=nn.functional.cross_entropy,
        example=_lying(images[0][: shape[0] // plan.stages[0].replicas], arguments),
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


def _lying(images: Tensor, arguments: argparse.Namespace) -> Tensor:
    return images.to(memory_format=torch.channels_last) if arguments.channels_last else images


# -- steps -----------------------------------------------------------------------------------------------------------


def _steps(pipeline: Pipeline, images: Tensor, arguments: argparse.Namespace, *, tells: bool) -> list[StepTimes]:
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
            warnings.simplefilter("ignore" if not tells else "default", DwconvWarning)
            loss = pipeline.step(_lying(x, arguments), target)
        if optimizer is not None:
            optimizer.step()
        assert pipeline.times is not None
        times.append(pipeline.times)
        if tells:
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
        f"gradients of this rank's stages: {1e3 * gradients_s:.1f} ms between replicas, of which the step stood still "
        f"for {1e3 * exposed_s:.1f}"
    )


def _draw(events: Sequence[Event], trace: Path, picture: Path, *, plan: Plan) -> None:
    write_chrome_trace(events, trace)
    print(f"timeline: {trace}")
    draw_timeline(
        events, picture, title=f"One step of {len(plan.stages)} stages × {plan.stages[0].replicas}, as measured"
    )
    print(f"timeline: {picture}")
