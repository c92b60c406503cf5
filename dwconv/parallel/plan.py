"""``python -m dwconv.parallel plan``: stages and replicas for a model, by the times of its layers on this machine."""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn

from dwconv.commands.command_line import ArgumentParser, above_0, from_0, integers, run, whole, writable_file
from dwconv.errors import DwconvWarning, NoDevice, NoPlan
from dwconv.model.by_name import load_model
from dwconv.parallel.planning.compare import Candidate, Proposal, print_proposal, propose
from dwconv.parallel.planning.costs import layer_costs
from dwconv.parallel.planning.partition import (
    INTERLEAVED_STAGES_A_RANK,
    MICROBATCHES_A_RANK,
    Cluster,
    Shape,
    check_shape,
)
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.plan import SCHEDULES, LayerCost, Link, write_plan
from dwconv.parallel.planning.timeline import print_timeline, timeline_files
from dwconv.system.threads import on_threads

_WIDTH = 120
"""Columns without a terminal."""


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 2 for bad input, 130 after ctrl-C."""
    return run(_plan, argv)


def _plan(argv: list[str] | None) -> int:
    request = request_from(parser_of_plan().parse_args(argv))
    timeline = timeline_files(request.options.timeline) if request.options.timeline else None
    with on_threads(request.options.threads or torch.get_num_threads()):
        proposal = _measured(request)
    width = None if sys.stdout.isatty() else _WIDTH
    print_proposal(proposal, Console(highlight=False, width=width))
    if request.options.json:
        _write(proposal, request, request.options.json)
    if timeline:
        shown = _asked_for(proposal, request)
        print_timeline(shown.step.events, *timeline, title=f"One step of {shown.name}, simulated")
    return 0


def _measured(request: PlanRequest) -> Proposal:
    device = _device(request.options.device)
    model = load_model(request.options.model).train().to(device)
    if request.options.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    cut = pieces(model, _made_up(request, request.microbatch_shape, device))
    share_shape = request.share_shape
    shapes = dict.fromkeys(shape for shape in (request.microbatch_shape, share_shape) if shape is not None)
    costs = {shape: _costs(request, cut, shape, device, request.options.seconds / len(shapes)) for shape in shapes}
    return propose(
        costs[request.microbatch_shape],
        request.cluster,
        request.shape,
        on_whole_share=None if share_shape is None else costs[share_shape],
    )


def _costs(
    request: PlanRequest, cut: nn.Sequential, shape: tuple[int, ...], device: torch.device, seconds: float
) -> tuple[LayerCost, ...]:
    sizes = "×".join(map(str, shape))
    print(f"note: timing {len(cut)} layers on {sizes}, on {device.type}, for {seconds:g} s", file=sys.stderr)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", DwconvWarning)
        costs = layer_costs(cut, _made_up(request, shape, device), seconds=seconds)
    for each in said:
        print(f"note: {each.message}", file=sys.stderr)
    return costs


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise NoDevice("device=cuda: PyTorch finds no GPU here; use --device cpu, or run it where there is one")
    return torch.device("cuda" if torch.cuda.is_available() and name != "cpu" else "cpu")


def _made_up(request: PlanRequest, shape: tuple[int, ...], device: torch.device) -> Tensor:
    images = torch.randn(shape, device=device)
    return images.to(memory_format=torch.channels_last) if request.options.channels_last else images


def _write(proposal: Proposal, request: PlanRequest, path: Path) -> None:
    """Write the best plan that can be run: of the pipelines, if their stages were given."""
    can_run = [each for each in proposal.candidates if each.plan.is_even]
    if wanted := [each for each in can_run if request.shape.stages == len(each.plan.stages)]:
        can_run = wanted
    if not can_run:
        print(f"note: {path} is not written: no plan here can be run", file=sys.stderr)
        return
    write_plan(can_run[0].plan, path)
    print(f"plan: {can_run[0].name}: {path}")


def _asked_for(proposal: Proposal, request: PlanRequest) -> Candidate:
    """The best of the given number of stages; else the best of all."""
    wanted = [each for each in proposal.candidates if request.shape.stages == len(each.plan.stages)]
    return wanted[0] if wanted else proposal.best


# -- the command line --------------------------------------------------------------------------------------------------


_DEVICES = ("auto", "cpu", "cuda")
DEFAULT_LATENCY_US = 10.0
DEFAULT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """A command line, read."""

    options: argparse.Namespace
    input_shape: tuple[int, ...]
    """The shape of the whole batch of a step."""
    cluster: Cluster
    shape: Shape

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
    model.add_argument("--channels-last", action="store_true", help="model and input are channels_last")
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
        help=f"that the whole batch is cut into, default {MICROBATCHES_A_RANK} for each rank",
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
    microbatches = args.microbatches or MICROBATCHES_A_RANK * args.world
    if shape[0] % microbatches:
        raise NoPlan(
            f"input={args.input}: its batch of {shape[0]} is not divisible by microbatches={microbatches}; change one "
            "of them"
        )
    if args.channels_last and len(shape) != 4:
        raise NoPlan(f"input={args.input} has {len(shape)} sizes; --channels-last needs 4 (N,C,H,W)")
    request = PlanRequest(
        options=args,
        input_shape=shape,
        cluster=Cluster(
            world=args.world,
            link=Link(gb_s=args.link_gb_s, latency_us=args.link_latency_us),
            memory_bytes=None if args.memory_gb is None else round(args.memory_gb * 1e9),
        ),
        shape=Shape(
            microbatches=microbatches,
            schedule=args.schedule,
            stages=args.stages,
            stages_per_rank=INTERLEAVED_STAGES_A_RANK if args.schedule == "interleaved" else 1,
        ),
    )
    check_shape(request.cluster, request.shape)
    return request
