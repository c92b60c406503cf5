"""The command line of ``python -m dwconv.parallel plan``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from dwconv.commands.command_line import ArgumentParser, above_0, from_0, integers, whole, writable_file
from dwconv.errors import NoPlan
from dwconv.parallel.planning.orders import SCHEDULES
from dwconv.parallel.planning.partition import Cluster, Shape, check_shape
from dwconv.parallel.planning.plan import Link

_MICROBATCHES_A_RANK = 2
_INTERLEAVED_STAGES_A_RANK = 2
_DEVICES = ("auto", "cpu", "cuda")
DEFAULT_LATENCY_US = 10.0
DEFAULT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """A command line, read."""

    model: str
    input_shape: tuple[int, ...]
    """The shape of the whole batch of a step."""
    channels_last: bool
    device: str
    cluster: Cluster
    shape: Shape
    threads: int | None
    seconds: float
    json: Path | None
    timeline: Path | None

    @property
    def microbatch_shape(self) -> tuple[int, ...]:
        """The shape of one microbatch."""
        return (self.input_shape[0] // self.shape.microbatches, *self.input_shape[1:])

    @property
    def share_shape(self) -> tuple[int, ...] | None:
        """The shape of a rank's share of the batch in plain data parallelism; None if shares would be unequal."""
        share, left = divmod(self.input_shape[0], self.cluster.world)
        return None if left or not share else (share, *self.input_shape[1:])


def parser_of_plan() -> ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(
        prog="python -m dwconv.parallel plan",
        description="Measure the layers of a model here, and cut them into pipeline stages with replicas for other "
        "ranks: predicted step, bubble, exposed communication and memory of each plan, against plain data parallelism.",
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        required=True,
        metavar="SPEC",
        help="timm:NAME, torchvision:NAME, transformers:NAME, or package.module:factory; random weights",
    )
    model.add_argument(
        "--input", required=True, metavar="N,C,H,W", help="shape of the whole batch of a step, of all ranks together"
    )
    model.add_argument("--channels-last", action="store_true", help="model and input lie channels_last")
    model.add_argument(
        "--device",
        choices=_DEVICES,
        default="auto",
        help="where layers are timed, default auto: the GPU if there is one",
    )
    _add_ranks(parser.add_argument_group("ranks"))
    _add_pipeline(parser.add_argument_group("pipeline"))
    measuring = parser.add_argument_group("measuring")
    measuring.add_argument("--threads", type=whole, metavar="N", help="threads of a rank, default PyTorch's number")
    measuring.add_argument(
        "--seconds", type=above_0, default=DEFAULT_SECONDS, metavar="S", help=f"default {DEFAULT_SECONDS:g}"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", type=writable_file, metavar="FILE", help="write the best plan that can be run")
    output.add_argument(
        "--timeline",
        type=Path,
        metavar="PREFIX",
        help="draw one step of the recommended plan: PREFIX.json for chrome://tracing or Perfetto, PREFIX.png",
    )
    return parser


def _add_ranks(ranks: argparse._ArgumentGroup) -> None:
    ranks.add_argument("--world", type=whole, required=True, metavar="N", help="ranks, one for each device")
    ranks.add_argument(
        "--link-gb-s", type=above_0, required=True, metavar="GB", help="10⁹ bytes a second from one rank to another"
    )
    ranks.add_argument(
        "--link-latency-us",
        type=from_0,
        default=DEFAULT_LATENCY_US,
        metavar="US",
        help=f"before the first byte comes, default {DEFAULT_LATENCY_US:g}",
    )
    ranks.add_argument("--memory-gb", type=above_0, metavar="GB", help="memory of a rank, default without limit")


def _add_pipeline(pipeline: argparse._ArgumentGroup) -> None:
    pipeline.add_argument(
        "--microbatches",
        type=whole,
        metavar="M",
        help=f"that the whole batch is cut into, default {_MICROBATCHES_A_RANK} for each rank",
    )
    pipeline.add_argument(
        "--schedule", default="1f1b", metavar="|".join(SCHEDULES), help="order of the passes, default 1f1b"
    )
    pipeline.add_argument("--stages", type=whole, metavar="N", help="of the pipelines, default every number")


def request_from(args: argparse.Namespace) -> PlanRequest:
    """The request that the arguments make. Raises NoPlan or InvalidWorkload for one that cannot be met."""
    shape = integers("input", args.input)
    if min(shape) < 1:
        raise NoPlan(f"input={args.input} has a size below 1")
    microbatches = args.microbatches or _MICROBATCHES_A_RANK * args.world
    if shape[0] % microbatches:
        raise NoPlan(
            f"input={args.input}: its batch of {shape[0]} is not divisible by microbatches={microbatches}; change one "
            "of them"
        )
    if args.channels_last and len(shape) != 4:
        raise NoPlan(f"input={args.input} has {len(shape)} sizes; --channels-last needs 4 (N,C,H,W)")
    request = PlanRequest(
        model=args.model,
        input_shape=shape,
        channels_last=args.channels_last,
        device=args.device,
        cluster=Cluster(
            world=args.world,
            link=Link(gb_s=args.link_gb_s, latency_us=args.link_latency_us),
            memory_bytes=None if args.memory_gb is None else round(args.memory_gb * 1e9),
        ),
        shape=Shape(
            microbatches=microbatches,
            schedule=args.schedule,
            stages=args.stages,
            stages_per_rank=_INTERLEAVED_STAGES_A_RANK if args.schedule == "interleaved" else 1,
        ),
        threads=args.threads,
        seconds=args.seconds,
        json=args.json,
        timeline=args.timeline,
    )
    check_shape(request.cluster, request.shape)
    return request
