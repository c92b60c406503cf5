"""``python -m dwconv.parallel plan``: stages and replicas for a model, by the times of its layers on this machine."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from dwconv.commands.command_line import ArgumentParser, above_0, from_0, integers, run, whole, writable_file
from dwconv.errors import DwconvWarning, NoDevice, NoPlan, say
from dwconv.model.by_name import load_model
from dwconv.parallel.planning.compare import Candidate, Proposal, propose, report
from dwconv.parallel.planning.costs import layer_costs
from dwconv.parallel.planning.partition import MICROBATCHES_A_RANK, Shape
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.plan import SCHEDULES, LayerCost, Link, write_plan
from dwconv.parallel.planning.timeline import write_timeline
from dwconv.system.threads import on_threads


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 2 for bad input, 130 after ctrl-C."""
    return run(_plan, argv)


def _plan(argv: list[str] | None) -> int:
    arguments = parser_of_plan().parse_args(argv)
    batch, shape = _batch_and_shape(arguments)
    with on_threads(arguments.threads or torch.get_num_threads()):
        proposal = _measured(arguments, batch, shape)
    print(report(proposal))
    chosen = _chosen(proposal, stages=shape.stages)
    if arguments.json:
        write_plan(chosen.plan, arguments.json)
        print(f"plan: {chosen.name}: {arguments.json}")
    if arguments.timeline:
        write_timeline({"simulated": chosen.step.events}, arguments.timeline)
        print(f"timeline: {arguments.timeline}")
    return 0


def _batch_and_shape(arguments: argparse.Namespace) -> tuple[tuple[int, ...], Shape]:
    """The sizes of the batch, and the form of the plan. Raises NoPlan or InvalidWorkload for what cannot be."""
    batch = integers("input", arguments.input)
    if min(batch) < 1:
        raise NoPlan(f"input={arguments.input} has a size below 1")
    if arguments.channels_last and len(batch) != 4:
        raise NoPlan(f"input={arguments.input} has {len(batch)} sizes; --channels-last needs 4 (N,C,H,W)")
    shape = Shape(
        world=arguments.world,
        link=Link(gb_s=arguments.link_gb_s, latency_us=arguments.link_latency_us),
        microbatches=arguments.microbatches or MICROBATCHES_A_RANK * arguments.world,
        schedule=arguments.schedule,
        stages=arguments.stages,
        memory_bytes=None if arguments.memory_gb is None else round(arguments.memory_gb * 1e9),
    )
    if batch[0] % shape.microbatches:
        raise NoPlan(
            f"input={arguments.input}: its batch of {batch[0]} is not divisible by microbatches={shape.microbatches}; "
            "change one of them"
        )
    shape.check()
    return batch, shape


def _measured(arguments: argparse.Namespace, batch: tuple[int, ...], shape: Shape) -> Proposal:
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise NoDevice("device=cuda: PyTorch finds no GPU here; use --device cpu, or run it where there is one")
    device = torch.device("cuda" if torch.cuda.is_available() and arguments.device != "cpu" else "cpu")
    form = torch.channels_last if arguments.channels_last else torch.preserve_format
    model = load_model(arguments.model).train().to(device=device, memory_format=form)  # type: ignore[call-overload]

    def made_up(count: int) -> Tensor:
        return torch.randn((count, *batch[1:]), device=device).to(memory_format=form)

    counts = [batch[0] // shape.microbatches]
    if batch[0] % shape.world == 0:  # a rank's share in plain data parallelism
        counts.append(batch[0] // shape.world)
    cut = pieces(model, made_up(counts[0]))
    seconds = arguments.seconds / len(set(counts))
    costs = {count: _costs(cut, made_up(count), seconds=seconds) for count in dict.fromkeys(counts)}
    return propose(costs[counts[0]], shape, on_whole_share=costs[counts[1]] if len(counts) > 1 else None)


def _costs(cut: nn.Sequential, images: Tensor, *, seconds: float) -> tuple[LayerCost, ...]:
    sizes = "×".join(map(str, images.shape))
    say(f"note: timing {len(cut)} layers on {sizes}, on {images.device.type}, for {seconds:g} s")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", DwconvWarning)
        costs = layer_costs(cut, images, seconds=seconds)
    for each in said:
        say(f"note: {each.message}")
    return costs


def _chosen(proposal: Proposal, *, stages: int | None) -> Candidate:
    """The best of the given number of stages; else the best of all."""
    return proposal.best_of(stages) or proposal.best


# -- the command line --------------------------------------------------------------------------------------------------


def parser_of_plan() -> ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(
        prog="python -m dwconv.parallel plan",
        description="Measure the layers of a model here, and cut them into pipeline stages with replicas for other "
        "ranks: predicted step, bubble, exposed communication and memory of each plan, against plain data parallelism.",
    )
    add_model(parser)
    add_pipeline(parser)
    for name, kind, default, meta, told in (
        ("world", whole, None, "N", "ranks, one for each device"),
        ("link-gb-s", above_0, None, "GB", "10⁹ bytes a second from one rank to another"),
        ("link-latency-us", from_0, 10.0, "US", "before the first byte comes, default 10"),
        ("memory-gb", above_0, None, "GB", "memory of a rank, default without limit"),
        ("threads", whole, None, "N", "threads of a rank, default PyTorch's number"),
        ("seconds", above_0, 5.0, "S", "to time layers, default 5"),
        ("json", writable_file, None, "FILE", "write the recommended plan; with --stages, the best pipeline"),
        (
            "timeline",
            trace_file,
            None,
            "PREFIX",
            "write one step of that plan to PREFIX.json, for Perfetto",
        ),
    ):
        required = name in ("world", "link-gb-s")
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=meta, help=told, required=required)
    devices = ("auto", "cpu", "cuda")
    parser.add_argument(
        "--device", choices=devices, default="auto", help="where layers are timed, by default the GPU if there is one"
    )
    return parser


def trace_file(prefix: str) -> Path:
    return writable_file(f"{prefix}.json")


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model, and the batch of a step."""
    parser.add_argument(
        "--model", required=True, metavar="SPEC",
        help="timm:NAME, torchvision:NAME, transformers:NAME, or package.module:factory; random weights",
    )  # fmt: skip
    parser.add_argument(
        "--input", required=True, metavar="N,C,H,W", help="shape of the whole batch of a step, of all ranks together"
    )
    parser.add_argument("--channels-last", action="store_true", help="model and images are channels_last")


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """The form of a plan."""
    parser.add_argument("--stages", type=whole, metavar="N", help="of the pipeline")
    parser.add_argument(
        "--schedule", default="1f1b", metavar="|".join(SCHEDULES), help="order of the passes, default 1f1b"
    )
    parser.add_argument(
        "--microbatches", type=whole, metavar="M",
        help=f"that the whole batch is cut into, default {MICROBATCHES_A_RANK} for each rank",
    )  # fmt: skip
