"""The command line of ``python -m dwconv.tune``: its options, and the workloads that they name."""

from __future__ import annotations

import argparse
import math
import os
from collections import Counter
from pathlib import Path

from dwconv import settings
from dwconv.arguments import ArgumentParser, add_workload_arguments, checked_pass, workload_from
from dwconv.tuner.choices import RUNNER_KINDS, SEARCHES
from dwconv.workload import PASSES, Workload

_CACHES = ("warm", "training")
_GIVEN_BY_A_LAYERS_FILE = ("kernel", "stride", "padding", "dilation", "multiplier")


def parser_of_tune() -> ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(
        prog="python -m dwconv.tune",
        description="Find the fastest configuration of each pass of a depthwise convolution on a device, and write "
        "every measurement to a log that dwconv.conv2d and dwconv.convert read.",
        epilog=f"Without --trials and --seconds, a pass ends after {settings.TRIALS} trials or {settings.SECONDS:g} s; "
        "with one of them, the other has no end. An exhaustive search tries the whole space unless told otherwise. "
        "Of a network, the layers that take longest come first.",
    )
    add_workload_arguments(parser, shape_required=False)
    _add_network(parser)
    search = parser.add_argument_group("search")
    _add_search(search)
    _add_limits(search)
    search.add_argument(
        "--refresh",
        action="store_true",
        help="race again what was measured with other versions of PyTorch, TVM or a template: of each pass with no "
        "confirmed record of the versions installed, the best few configurations, and nothing else",
    )
    _add_measuring(search)
    _add_output(parser)
    return parser


def _add_network(parser: ArgumentParser) -> None:
    network = parser.add_argument_group("or all depthwise layers of a network")
    network.add_argument("--layers", type=Path, metavar="FILE", help="JSON: a list of layers by the network's name")
    network.add_argument("--network", metavar="NAME", action="append", help="a network in FILE; may be repeated")
    network.add_argument("--batch", type=_whole, metavar="N", help="batch size")


def _add_search(search: argparse._ArgumentGroup) -> None:
    search.add_argument("--passes", default=",".join(PASSES), metavar="PASS,…", help=f"default {','.join(PASSES)}")
    search.add_argument(
        "--search",
        choices=SEARCHES,
        help="default evolve; analytic, the configuration of least computed cost on a GPU, nothing measured, where the "
        "GPU is not here",
    )
    search.add_argument(
        "--runner",
        choices=RUNNER_KINDS,
        default="auto",
        help="who finds out what candidates are worth: local measures them here; predict, for a GPU that need not be "
        "here, computes costs and runs the source on the CPU, in the simulator, to verify it; default auto: local, or "
        "else predict",
    )
    search.add_argument("--no-check", action="store_true", help="compute costs only, leave out the simulator")


def _add_limits(search: argparse._ArgumentGroup) -> None:
    search.add_argument("--trials", type=_whole, metavar="N", help="candidates a pass, known ones included")
    search.add_argument("--seconds", type=_positive, metavar="S", help="seconds a pass")
    search.add_argument(
        "--minutes",
        type=_positive,
        metavar="M",
        help="for all passes: what the log has confirmed is left out, and each of the others gets an even share of the "
        f"time, S seconds at most, default {settings.SECONDS:g}",
    )
    search.add_argument(
        "--patience",
        type=_whole,
        metavar="N",
        help=f"stop after N trials without improvement, default {settings.PATIENCE}",
    )


def _add_measuring(search: argparse._ArgumentGroup) -> None:
    search.add_argument("--seed", type=int, default=settings.SEED, metavar="N", help=f"default {settings.SEED}")
    search.add_argument(
        "--jobs", type=_whole, default=_cores(), metavar="N", help="builds at a time, default all cores"
    )
    search.add_argument(
        "--caches",
        choices=_CACHES,
        default="warm",
        help="time candidates on the same tensors again and again (warm), or with the caches as a training step "
        "finds them; keep the two in logs of their own; default warm",
    )


def _add_output(parser: ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "--log",
        type=Path,
        metavar="PATH",
        help="log to read and extend, default your own: <device>.jsonl in your data folder",
    )
    output.add_argument("--no-resume", action="store_true", help="measure again what the log knows")
    output.add_argument("--json", action="store_true", help="one JSON object on stdout")


def check_refresh(parser: ArgumentParser, args: argparse.Namespace) -> None:
    """Ends with an error if ``--refresh`` comes with options of a search that it does not make."""
    for name in ("search", "trials", "patience", "no_resume"):
        if args.refresh and getattr(args, name) != parser.get_default(name):
            option = name.replace("_", "-")
            parser.error(f"--refresh tries the best known configurations and no others; leave out --{option}")
    if args.refresh and args.runner == "predict":
        parser.error("--refresh measures, --runner predict computes; leave one out")


def workloads_from(parser: ArgumentParser, args: argparse.Namespace) -> Counter[Workload]:
    """The workloads to tune, and how often each occurs. Raises InvalidWorkload."""
    passes = [checked_pass(name) for name in dict.fromkeys(args.passes.split(","))]
    if args.layers is None:
        for name in ("network", "batch"):
            if getattr(args, name) is not None:
                parser.error(f"--{name} goes with --layers")
        if args.shape is None or args.kernel is None:
            parser.error("give --shape N,C,H,W and --kernel K, or --layers FILE --network NAME --batch N")
        return Counter(workload_from(args, pass_) for pass_ in passes)
    if args.shape is not None:
        parser.error("give --shape or --layers, not both")
    for name in _GIVEN_BY_A_LAYERS_FILE:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name} goes with --shape; FILE gives it for every layer")
    if args.network is None or args.batch is None:
        parser.error("--layers needs --network NAME and --batch N")

    from dwconv.layers import read_layers

    counts: Counter[Workload] = Counter()
    for network in dict.fromkeys(args.network):
        for layer in read_layers(args.layers, network=network):
            for pass_ in passes:
                workload = layer.workload(pass_, batch=args.batch, dtype=args.dtype, layout=args.layout, bias=args.bias)
                counts[workload] += layer.count
    return counts


def _whole(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return number


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return number


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
