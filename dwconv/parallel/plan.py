"""``python -m dwconv.parallel plan``: stages and replicas for a model, by the times of its layers on this machine."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from dwconv import settings
from dwconv.commands.command_line import ArgumentParser, above_0, from_0, integers, whole, writable_file
from dwconv.errors import DwconvWarning, InvalidChoice, NoDevice, NoPlan, say
from dwconv.model.by_name import load_model
from dwconv.parallel.joining import ParserOfRanks, ranks, run_on_ranks
from dwconv.parallel.planning import break_even
from dwconv.parallel.planning.compare import Proposal, SimulatedPlan, propose, report
from dwconv.parallel.planning.cost_of_layers import layer_costs
from dwconv.parallel.planning.measured_link import measured_link
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.pipeline_plan import SCHEDULES, LayerCost, Link, write_plan
from dwconv.parallel.planning.shape import MICROBATCHES_A_RANK, Shape
from dwconv.parallel.planning.split_backward import can_split
from dwconv.parallel.planning.trace_events import write_timeline
from dwconv.system.threads import on_threads

_LATENCY_US = 10.0


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 2 for bad input, 130 after ctrl-C."""
    return run_on_ranks(_plan, argv)


def _plan(argv: list[str] | None) -> int:
    arguments = parser_of_plan().parse_args(argv)
    if arguments.link is not None:
        _measure_link(arguments)
    elif arguments.link_gb_s is None or arguments.world is None:
        missing = "--link-gb-s" if arguments.world is not None else "--world"
        raise InvalidChoice(f"{missing} is missing; give it, or --link measured on ranks that torchrun starts")
    if not settings.is_first_rank():
        return 0  # the first plans for all
    batch, shape = _batch_and_shape(arguments)
    device = _device(arguments)
    model = load_model(arguments.model).train()
    shape = replace(shape, splits=can_split(model))
    with on_threads(arguments.threads or torch.get_num_threads()):
        costs, on_whole_share = _measured(model, arguments, batch=batch, shape=shape, device=device)
    proposal = propose(costs, shape, on_whole_share=on_whole_share)
    print(report(proposal))
    if arguments.break_even:
        print("", break_even.report(break_even.break_even(costs, shape, on_whole_share=on_whole_share)), sep="\n")
    chosen = _chosen(proposal, stages=shape.stages)
    if arguments.json:
        write_plan(chosen.plan, arguments.json)
        print(f"plan: {chosen.name}: {arguments.json}")
    if arguments.timeline:
        write_timeline({"simulated": chosen.step.events}, arguments.timeline)
        print(f"timeline: {arguments.timeline}")
    return 0


def _measure_link(arguments: argparse.Namespace) -> None:
    """Measure the link between the ranks that run, and count them. Raises InvalidChoice where there is one."""
    for name in ("link-gb-s", "link-latency-us"):
        if getattr(arguments, name.replace("-", "_")) is not None:
            raise InvalidChoice(f"--link measured measures what --{name} states; leave one of them out")
    with ranks(device=None if arguments.device == "auto" else arguments.device) as rank:
        arguments.link = measured_link(device=rank.device)
        arguments.world = arguments.world or rank.world


def _batch_and_shape(arguments: argparse.Namespace) -> tuple[tuple[int, ...], Shape]:
    """The sizes of the batch, and the form of the plan. Raises NoPlan or InvalidWorkload for what cannot be."""
    batch = integers("input", arguments.input)
    if min(batch) < 1:
        raise NoPlan(f"input={arguments.input} has a size below 1")
    if arguments.channels_last and len(batch) != 4:
        raise NoPlan(f"input={arguments.input} has {len(batch)} sizes; --channels-last needs 4 (N,C,H,W)")
    shape = Shape(
        world=arguments.world,
        link=arguments.link or Link(gb_s=arguments.link_gb_s, latency_us=_or_default(arguments.link_latency_us)),
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


def _device(arguments: argparse.Namespace) -> torch.device:
    """Where layers are timed. Raises NoDevice."""
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise NoDevice("device=cuda: PyTorch finds no GPU here; use --device cpu, or run it where there is one")
    return torch.device("cuda" if torch.cuda.is_available() and arguments.device != "cpu" else "cpu")


def _measured(
    model: nn.Module, arguments: argparse.Namespace, *, batch: tuple[int, ...], shape: Shape, device: torch.device
) -> tuple[tuple[LayerCost, ...], tuple[LayerCost, ...] | None]:
    """The costs of the layers, for a microbatch, and for a rank's share in plain data parallelism."""
    form = torch.channels_last if arguments.channels_last else torch.preserve_format
    model = model.to(device=device, memory_format=form)  # type: ignore[call-overload]

    def made_up(count: int) -> Tensor:
        return torch.randn((count, *batch[1:]), device=device).to(memory_format=form)

    counts = [batch[0] // shape.microbatches]
    if batch[0] % shape.world == 0:  # a rank's share in plain data parallelism
        counts.append(batch[0] // shape.world)
    cut = pieces(model, made_up(counts[0]))
    seconds = arguments.seconds / len(set(counts))
    costs = {count: _costs(cut, made_up(count), seconds=seconds) for count in dict.fromkeys(counts)}
    return costs[counts[0]], costs[counts[1]] if len(counts) > 1 else None


def _costs(cut: nn.Sequential, images: Tensor, *, seconds: float) -> tuple[LayerCost, ...]:
    sizes = "×".join(map(str, images.shape))
    say(f"note: timing {len(cut)} layers on {sizes}, on {images.device.type}, for {seconds:g} s")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", DwconvWarning)
        costs = layer_costs(cut, images, seconds=seconds)
    for each in said:
        say(f"note: {each.message}")
    return costs


def _or_default(latency_us: float | None) -> float:
    return _LATENCY_US if latency_us is None else latency_us


def _chosen(proposal: Proposal, *, stages: int | None) -> SimulatedPlan:
    """The best of the given number of stages; else the best of all."""
    return proposal.best_of(stages) or proposal.best


# -- the command line --------------------------------------------------------------------------------------------------


def parser_of_plan() -> ArgumentParser:
    """The parser of the command."""
    parser = ParserOfRanks(
        prog="python -m dwconv.parallel plan",
        description="Measure the layers of a model here, and cut them into pipeline stages with replicas for other "
        "ranks: predicted step, bubble, exposed communication and memory of each plan, against plain data parallelism.",
    )
    add_model(parser)
    add_pipeline(parser)
    for name, kind, default, meta, told in (
        ("world", whole, None, "N", "ranks, one for each device; with a measured link by default those that run"),
        ("link-gb-s", above_0, None, "GB", "10⁹ bytes a second from one rank to another"),
        ("link-latency-us", from_0, None, "US", f"before the first byte comes, default {_LATENCY_US:g}"),
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
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=meta, help=told)
    parser.add_argument(
        "--link", choices=("measured",), help="measure the link between the ranks that torchrun started"
    )
    parser.add_argument(
        "--break-even", action="store_true",
        help="show the best pipeline over links of 0.1 to 100 Gbit/s, and below which bandwidth one pays",
    )  # fmt: skip
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
        "--schedule", metavar="|".join(SCHEDULES),
        help="order of the passes, default the one with the shortest simulated step",
    )  # fmt: skip
    parser.add_argument(
        "--microbatches", type=whole, metavar="M",
        help=f"that the whole batch is cut into, default {MICROBATCHES_A_RANK} for each rank",
    )  # fmt: skip
