"""The command line of ``python -m dwconv.tune``: its options, and the workloads that they name."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dwconv import settings
from dwconv.commands.command_line import ArgumentParser, above_0, integers, is_whole, named_path, whole, whole_from_0
from dwconv.commands.workload_arguments import add_workload_arguments, checked_pass, workload_from
from dwconv.errors import InvalidWorkload
from dwconv.problems.target import FORCED_VECTOR_SETS
from dwconv.problems.workload import ALL_PASSES, BLOCK_PASSES, DTYPES, EVAL_PASSES, PASSES, Pass, Workload
from dwconv.tuner.search.search_result import SEARCHES

_GIVEN_BY_A_NETWORK = ("kernel", "stride", "padding", "dilation", "multiplier", "transposed", "output_padding")
_GIVEN_BY_A_MODEL = (*_GIVEN_BY_A_NETWORK, "layout", "bias")
_GIVEN_WITH_A_MODEL = ("input", "input_dtype", "channels_last", "blocks", "infer")


def parser_of_tune() -> ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(
        prog="python -m dwconv.tune",
        description="Find the fastest configuration of each pass of a depthwise convolution on a device, and write "
        "every measurement to a log that dwconv.conv2d and dwconv.convert read.",
        epilog=f"Without --trials and --seconds, a pass ends after {settings.TRIALS} trials or {settings.SECONDS:g} s; "
        "with one of them, the other has no limit. An exhaustive search tries the whole space by default. "
        "In a network, the layers with the largest expected gain come first.",
    )
    add_what_to_tune(parser)
    parser.add_argument(
        "--sizes",
        metavar="S,…",
        help="of the shape, or of the model's input, further sizes to tune for at once: 256 or 256x320, of a row its "
        "length; one kernel of any size is searched for all of them, and runs the sizes between them, too",
    )
    search = parser.add_argument_group("search")
    add_passes(search)
    usual = "default evolve; for a GPU of another machine analytic: the configuration of least computed cost"
    search.add_argument("--search", choices=SEARCHES, help=usual)
    search.add_argument("--trials", type=whole, metavar="N", help="candidates a pass, those in the log included")
    search.add_argument(
        "--seconds",
        type=above_0,
        metavar="S",
        help="about so many seconds a pass",
    )
    search.add_argument(
        "--minutes",
        type=above_0,
        metavar="M",
        help="for all passes: those confirmed in the log are left out, and the others share the time by their expected "
        f"gain, S seconds at most, default {settings.SECONDS:g}",
    )
    usual = f"stop after N trials without improvement, default {settings.PATIENCE}"
    search.add_argument("--patience", type=whole, metavar="N", help=usual)
    search.add_argument(
        "--until",
        type=_share,
        metavar="95%",
        help="ends a pass at this share of the device's limit, or where further trials are expected to gain less than "
        "1%% of a step and than the rest of the pass, here 5%%; prints what is left",
    )
    search.add_argument(
        "--seed", type=whole_from_0, default=settings.SEED, metavar="N", help=f"default {settings.SEED}"
    )
    search.add_argument("--jobs", type=whole, default=cores(), metavar="N", help="builds at a time, default all cores")
    search.add_argument(
        "--caches",
        choices=("warm", "training"),
        default="warm",
        help="time candidates on the same tensors again and again (warm), or with the caches as in a training "
        "step; keep the two in separate logs; default warm",
    )
    parser.add_argument_group("cluster").add_argument(
        "--ray",
        metavar="ADDRESS",
        nargs="?",
        const="",
        help="on every device of a Ray cluster; without ADDRESS, of the one that this machine belongs to, or of this "
        "machine alone. --target cpu or cuda chooses among them, default the GPUs of a node that has some",
    )
    output = parser.add_argument_group("output")
    usual = "log to read and extend, default your own: <device>.jsonl in your data folder"
    output.add_argument("--log", type=named_path, metavar="PATH", help=usual)
    output.add_argument("--no-resume", action="store_true", help="measure again what the log has")
    output.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def add_what_to_tune(parser: ArgumentParser) -> None:
    """Add the options that name workloads: one by its shape, or those of networks, or of a model. ``--passes`` goes
    with them."""
    add_workload_arguments(parser, shape_required=False)
    network = parser.add_argument_group("or all depthwise layers of a network")
    network.add_argument(
        "--network",
        metavar="NAME",
        action="append",
        help="a network that dwconv lists, or FILE; may be repeated; list prints all names",
    )
    network.add_argument("--batch", type=whole, metavar="N", help="batch size, for layers that name none")
    network.add_argument(
        "--layers",
        type=named_path,
        metavar="FILE",
        help="JSON: a list of layers by the network's name, such as dwconv.layers(model, x).save(FILE) writes; all its "
        "networks without --network",
    )
    model = parser.add_argument_group("or all depthwise layers that a model runs")
    model.add_argument(
        "--model",
        metavar="SPEC",
        help="timm:NAME, torchvision:NAME, transformers:NAME, or package.module:factory; random weights; --dtype "
        "other than float32 is mixed precision",
    )
    model.add_argument("--input", metavar="N,C,H,W", help="shape of the model's input: any number of sizes")
    model.add_argument("--input-dtype", choices=("float32", "int64"), help="default float32; int64 for tokens")
    model.add_argument("--channels-last", action="store_true", help="model and input are channels_last")
    model.add_argument("--blocks", action="store_true", help="its blocks, too, as convert(…, blocks=True) runs them")
    model.add_argument("--infer", action="store_true", help="the forward pass alone; default a training step")


def add_passes(parser: argparse._ActionsContainer) -> None:
    usual = (
        f"default {','.join(PASSES)}; on a GPU backward, both gradients in one kernel, goes with dgrad,wgrad; default "
        f"of blocks {','.join(BLOCK_PASSES)}; in evaluation {','.join(EVAL_PASSES)}"
    )
    parser.add_argument("--passes", metavar="PASS,…", help=usual)


def _share(text: str) -> float:
    """The type of an option that takes ``95%`` or ``0.95``."""
    return above_0(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def check_together(parser: ArgumentParser, args: argparse.Namespace) -> None:
    """Ends with an error for options of a cluster, or of several sizes, that do not go with others."""
    if args.sizes is not None and (args.network or args.layers):
        parser.error('--sizes goes with --shape or --model; files of layers list "sizes" of a layer')
    if args.ray is not None:
        targets = ("auto", "cpu", "cuda", *(f"cpu:{vector_set}" for vector_set in FORCED_VECTOR_SETS))
        if args.search == "analytic":
            parser.error("--ray measures on the nodes of a cluster; leave out --search analytic")
        if args.target not in targets:
            parser.error(f"--ray measures on devices that are there, not on {args.target}; use {', '.join(targets)}")
        if args.fast_math and args.target != "cuda":
            parser.error("--fast-math is for CUDA; with --ray it goes with --target cuda")


def input_shapes(shape: Sequence[int], sizes: str | None) -> list[tuple[int, ...]]:
    """The shape, then the same with each of ``--sizes``. Raises InvalidWorkload."""
    found = [tuple(shape)]
    for text in sizes.split(",") if sizes is not None else ():
        numbers = [int(each) if is_whole(each) else 0 for each in text.split("x")]
        axes = max(1, len(shape) - 2)
        is_row = axes > 1 and all(size == 1 for size in shape[2:-1])
        if len(numbers) == 1:
            numbers = [1] * (axes - 1) + numbers if is_row else numbers * axes
        if len(numbers) != axes or min(numbers) < 1:
            raise InvalidWorkload(f"sizes={sizes}: {text} is not a size of {axes} axes; give it as 256 or 256x320")
        found.append((*shape[: len(shape) - axes], *numbers))
    return list(dict.fromkeys(found))


def at_any_size(counts: Sequence[Mapping[Workload, int]]) -> Counter[Workload]:
    """Workloads that are the same layer at several sizes as one of any size, with the sizes that it is tuned for; and
    how often each occurs where it occurs most. ``counts``: as they are at one size of the shape after another."""
    layers: dict[tuple[str, int, bool], list[Workload]] = {}
    found: Counter[Workload] = Counter()
    for workload in (workload for each in counts for workload in each):
        layers.setdefault((workload.layer, workload.batch, workload.is_row), []).append(workload)
    for same in layers.values():
        sizes = dict.fromkeys(workload.input_size for workload in same)
        also_at = tuple(size for size in sizes if size != same[0].input_size)
        one = dataclasses.replace(same[0], any_size=True, also_at=also_at)
        found[one] = max(sum(each.get(workload, 0) for workload in {*same}) for each in counts)
    return found


def workloads_from(parser: ArgumentParser, args: argparse.Namespace) -> Counter[Workload]:
    """The workloads to tune, and how often each occurs. Raises InvalidWorkload."""
    _check_goes_with(parser, args, "--model", _GIVEN_WITH_A_MODEL)
    if args.network is not None or args.layers is not None:
        return _listed_workloads(parser, args)
    _check_goes_with(parser, args, "--network", ("batch",))
    if args.shape is not None and args.kernel is None:
        parser.error("--shape needs --kernel K")
    if args.shape is None and args.kernel is not None:
        parser.error("--kernel needs --shape N,C,H,W")
    if args.shape is None:
        parser.error(
            "give --shape N,C,H,W and --kernel K, or --network NAME --batch N, or --model SPEC --input N,C,H,W"
        )
    usual, known = (PASSES, (*PASSES, "backward")) if args.block is None else (BLOCK_PASSES, BLOCK_PASSES + EVAL_PASSES)
    passes = [pass_ for pass_ in _named_passes(args) or usual if pass_ in known]
    if not passes:
        raise InvalidWorkload(f"passes={args.passes}: this workload has {', '.join(known)}")
    sizes = getattr(args, "sizes", None)  # which tune alone has
    if sizes is None:
        return Counter(workload_from(args, pass_) for pass_ in passes)
    counts = []
    for shape in input_shapes(integers("shape", args.shape), sizes):
        at_size = argparse.Namespace(**{**vars(args), "shape": ",".join(map(str, shape))})
        counts.append(Counter(workload_from(at_size, pass_) for pass_ in passes))
    return at_any_size(counts)


def _listed_workloads(parser: ArgumentParser, args: argparse.Namespace) -> Counter[Workload]:
    """Those of ``--network`` and ``--layers``; ``--network list`` ends here. Raises InvalidWorkload."""
    from dwconv.problems.layer_files import LIST, networks_in, read_layers, shipped_layers

    path = args.layers or shipped_layers()
    if args.network == [LIST] and LIST not in (names := networks_in(path)):
        print(*names, sep="\n")
        parser.exit()
    if args.shape is not None:
        parser.error(f"give --shape or --{'layers' if args.network is None else 'network'}, not both")
    _check_goes_with(parser, args, "--shape", _GIVEN_BY_A_NETWORK, because="; the network gives it for every layer")
    if args.batch is None and args.layers is None:
        parser.error("--network needs --batch N")

    counts: Counter[Workload] = Counter()
    for network in dict.fromkeys(args.network or networks_in(path)):
        for layer in read_layers(path, network=network):
            for pass_ in (pass_ for pass_ in passes_that_run(args) if pass_ in layer.passes):
                workload = layer.workload(pass_, batch=args.batch, dtype=args.dtype, layout=args.layout, bias=args.bias)
                counts[workload] += layer.count
    if not counts:
        raise InvalidWorkload(f"passes={args.passes}: no layer of {path} runs them")
    return counts


def model_input(parser: ArgumentParser, args: argparse.Namespace) -> tuple[int, ...] | None:
    """The shape of the model's input; None without ``--model``. Raises InvalidWorkload."""
    if args.model is None:
        return None
    for name in ("shape", "network", "layers"):
        if getattr(args, name) is not None:
            parser.error(f"give --{name} or --model, not both")
    _check_goes_with(parser, args, "--network", ("batch",))
    _check_goes_with(parser, args, "--shape", _GIVEN_BY_A_MODEL, because="; the model has it")
    if args.input is None:
        parser.error("--model needs --input N,C,H,W, the shape of its input")
    if args.dtype not in DTYPES:
        raise InvalidWorkload(f"dtype={args.dtype} is unknown; use one of {', '.join(DTYPES)}")
    shape = integers("input", args.input)
    if min(shape) < 1:
        raise InvalidWorkload(f"input={args.input} has a size below 1")
    if args.channels_last and len(shape) not in (4, 5):
        raise InvalidWorkload(
            f"input={args.input} has {len(shape)} sizes; --channels-last needs 4 (N,C,H,W) or 5 (N,C,D,H,W)"
        )
    return shape


def passes_that_run(args: argparse.Namespace) -> tuple[Pass, ...]:
    """Those of a model or of layers that name theirs; all of them, if none is named."""
    return _named_passes(args) or ALL_PASSES


def asks_for_both_gradients(args: argparse.Namespace) -> bool:
    """Whether the passes have both: then a GPU may have a kernel that gives the two."""
    return {"dgrad", "wgrad"} <= {*passes_that_run(args)}


def _named_passes(args: argparse.Namespace) -> tuple[Pass, ...]:
    named = args.passes.split(",") if args.passes is not None else ()
    return tuple(checked_pass(name) for name in dict.fromkeys(named))


def _check_goes_with(
    parser: ArgumentParser, args: argparse.Namespace, other: str, names: Iterable[str], *, because: str = ""
) -> None:
    """Ends with an error if one of the options ``names`` is given, which means something with ``other`` only."""
    for name in names:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} goes with {other}{because}")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
