"""``torchrun … -m dwconv.parallel train``: trains a model on made-up images, on the ranks of a plan."""

from __future__ import annotations

import argparse
import logging
import statistics
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dwconv.arguments import integers
from dwconv.errors import DwconvWarning, NoPlan
from dwconv.models import load_model
from dwconv.nn import convert
from dwconv.parallel.agreement import agreed, run_on_ranks
from dwconv.parallel.costs import layer_costs
from dwconv.parallel.joining import Rank, ranks
from dwconv.parallel.partition import Cluster, Shape, partition
from dwconv.parallel.pieces import pieces
from dwconv.parallel.pipeline import Pipeline, StepTimes
from dwconv.parallel.plan import Link, Plan
from dwconv.parallel.plan_files import read_plan
from dwconv.parallel.train_arguments import INTERLEAVED_STAGES, parser_of_train

_BATCHES = 4
"""Batches of made-up images, which are trained on in turns."""
_LINK_LATENCY_US = 50.0
_COSTS_S = 3.0
"""To time the layers."""
_OF_MESSAGES = "torch.distributed.pipelining.schedules"


def main(argv: Sequence[str]) -> int:
    return run_on_ranks(_train, list(argv))


def _train(argv: list[str] | None) -> int:
    arguments = parser_of_train().parse_args(argv)
    # PyTorch prints a whole schedule when a rank is lost in the middle of one.
    logging.getLogger(_OF_MESSAGES).setLevel(logging.CRITICAL)
    with ranks(timeout_s=arguments.timeout) as rank:
        pipeline, images = _prepared(arguments, rank)
        if rank.is_first:
            print(_told(pipeline.plan), flush=True)
        times = _steps(pipeline, images, arguments, tells=rank.is_first)
        if rank.is_first and len(times) > 1:
            print(_summary(times[1:], images=arguments.batch), flush=True)
    return 0


# -- what is trained -------------------------------------------------------------------------------------------------


def _prepared(arguments: argparse.Namespace, rank: Rank) -> tuple[Pipeline, Tensor]:
    """The pipeline, and the images of all batches."""
    torch.manual_seed(arguments.seed)
    images = torch.randn(_BATCHES, arguments.batch, *_shape_of_images(arguments.image), device=rank.device)
    model = load_model(arguments.model).to(rank.device).train()
    if arguments.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if arguments.convert:
        model = convert(model)
    plan = agreed(lambda: read_plan(arguments.plan) if arguments.plan else _cut(model, images[0], arguments, rank))
    replicas = plan.stages[0].replicas
    if arguments.batch % (replicas * plan.microbatches):
        raise NoPlan(
            f"batch={arguments.batch} is not divisible by {replicas} replicas × {plan.microbatches} microbatches; "
            f"give a multiple of {replicas * plan.microbatches}"
        )
    pipeline = Pipeline(
        model,
        plan,
        loss=nn.functional.cross_entropy,
        example=_lying(images[0][: arguments.batch // replicas], arguments),
        batch_norm=arguments.batch_norm,
        timeout_s=arguments.timeout,
    )
    return pipeline, images


def _shape_of_images(text: str) -> tuple[int, ...]:
    shape = integers("image", text)
    if len(shape) != 3 or min(shape) < 1:
        raise NoPlan(f"image={text} is not three sizes C,H,W from 1")
    return shape


def _lying(images: Tensor, arguments: argparse.Namespace) -> Tensor:
    return images.to(memory_format=torch.channels_last) if arguments.channels_last else images


def _cut(model: nn.Module, images: Tensor, arguments: argparse.Namespace, rank: Rank) -> Plan:
    """A plan for the ranks that run: layers timed, and cut where the slowest stage takes the least time."""
    stages = arguments.stages or rank.world // (arguments.replicas or 1) or 1
    replicas = arguments.replicas or rank.world // stages or 1
    if stages * replicas != rank.world:
        raise NoPlan(
            f"{stages} stages with {replicas} replicas need {stages * replicas} ranks, and {rank.world} run; start as "
            "many, or change --stages or --replicas"
        )
    microbatches = arguments.microbatches or 2 * stages
    size = arguments.batch // (replicas * microbatches)
    if not size:
        raise NoPlan(
            f"batch={arguments.batch} is too small for {replicas} replicas × {microbatches} microbatches; "
            f"give a multiple of {replicas * microbatches}"
        )
    each = INTERLEAVED_STAGES if arguments.schedule == "interleaved" and stages > 1 else 1
    microbatch = _lying(images[:size], arguments)
    return partition(
        layer_costs(pieces(model, microbatch), microbatch, seconds=_COSTS_S),
        Cluster(world=rank.world, link=Link(gb_s=arguments.link_gb_s, latency_us=_LINK_LATENCY_US)),
        Shape(
            microbatches=microbatches * replicas,
            schedule=arguments.schedule,
            stages=stages * each,
            is_even=True,
            stages_per_rank=each,
        ),
    )


# -- steps -----------------------------------------------------------------------------------------------------------


def _steps(pipeline: Pipeline, images: Tensor, arguments: argparse.Namespace, *, tells: bool) -> list[StepTimes]:
    classes = _classes(pipeline)
    torch.manual_seed(arguments.seed)
    targets = torch.randint(0, classes, images.shape[:2], device=images.device)
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=arguments.rate, momentum=0.9)
    times = []
    for step in range(arguments.steps):
        x, target = (pipeline.share(each[step % _BATCHES]) for each in (images, targets))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if not tells else "default", DwconvWarning)
            loss = pipeline.step(_lying(x, arguments), target)
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
