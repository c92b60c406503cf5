"""``python -m bench train``: training steps of well-known networks, converted and not, in turns.

Untuned passes are tuned first, with the caches as a training step finds them. Each network then runs twice: all models
in one process, with memory kept between the steps (both sides, as the tuner measures), and each in a process of its
own, with glibc's allocator as it is by default. ``--autocast`` trains both sides in mixed precision. These take turns:
the plain model in both layouts, and once more as a control, the converted one, that with its blocks as one, and the
same under torch.compile. ``bench cuda train`` does the same on a GPU.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cpu import opened, tune
from bench.evidence import Control, Ratio, summary_of, timed_again
from bench.models import NETWORKS, Network
from bench.networks import OURS, add_size_arguments, network_of, workloads_of
from bench.paired_steps import race
from bench.process import in_a_process
from bench.results import MachineWatch, add_log_argument, add_out_argument, name_part, write_results
from bench.step_rows import losses_of, table_of
from dwconv import settings
from dwconv.commands.command_line import ArgumentParser, from_0, whole
from dwconv.errors import WorkerDied
from dwconv.measure.limits import with_limits
from dwconv.problems.target import CpuTarget, cpu_target

APART = "each alone, glibc as it is"
ALLOCATORS = {"memory kept": settings.ALLOCATOR_ENVIRONMENT, APART: {}}
"""Ways in which a process may allocate, and the environment that sets each."""
_PARTS = {
    "profile": "also measure where the time of a step goes",
    "compile": "race the models under torch.compile as well, which takes minutes",
    "blocks": "race a converted model with its blocks as one as well",
}
"""Parts of a race that may be left out."""


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench train", description=(__doc__ or "").partition("\n")[0])
    names = ", ".join(OURS)
    parser.add_argument(
        "--model",
        metavar="NAME|timm:NAME|MODULE:CLASS",
        help=f"{names}, timm:NAME, torchvision:NAME, or a class, made without arguments, or a Network of bench.models",
    )
    add_size_arguments(parser)
    parser.add_argument(
        "--contiguous", action="store_true", help="NCHW in memory instead of channels_last; sequences stay as they are"
    )
    parser.add_argument(
        "--dims", choices=("1", "2", "3"), default="2", help="networks of so many dimensions, default 2"
    )
    parser.add_argument(
        "--dilated", action="store_true", help="networks of dilated, large and decomposed kernels, of any dimensions"
    )
    parser.add_argument("--autocast", choices=("float16", "bfloat16"), help="train in mixed precision")
    parser.add_argument("--steps", type=whole, default=20, help="steps whose time counts, default 20")
    parser.add_argument("--seconds", type=from_0, default=20, help="to tune an untuned pass, default 20; 0: none")
    add_log_argument(parser)
    for name, does in _PARTS.items():
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=True, help=does)
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    named = {"batch": arguments.batch, "image": arguments.image}
    if arguments.model:
        networks: Sequence[Network] = [network_of(arguments.model, **named)]
    else:
        networks = dilated() if arguments.dilated else of_dims(int(arguments.dims))
    target = cpu_target()
    machine = MachineWatch(threads=target.threads)
    for network in networks if arguments.seconds else ():
        _tune_what_is_untuned(network, target, arguments)
    races = [(network, allocator) for network in networks for allocator in ALLOCATORS]

    def row(number: int) -> dict[str, Any]:
        network, allocator = races[number]
        about = {"network": network.name, "allocator": allocator}
        how = {name: getattr(arguments, name) for name in ("contiguous", "autocast", "steps", *_PARTS)}
        how |= {"both_layouts": True, "control": True, "apart": allocator == APART}
        try:
            figures = raced(network, how, environment=_environment(allocator, arguments.log))
        except WorkerDied as error:
            return {**about, "failed": str(error)}  # the other rows are not lost
        if why := figures.get("out_of_memory") or void(figures.get("misnamed", {})):
            return {**about, "failed": why}
        print(table_of({**about, **figures}), flush=True)
        return {**about, **figures}

    rows = timed_again([row(number) for number in range(len(races))], row, threads=target.threads)
    controls = [each["control"] for each in rows if "failed" not in each]
    if not controls:
        raise WorkerDied(rows[0]["failed"])
    control = Control.over([Ratio(value=each["ratio"], interval=tuple(each["interval"])) for each in controls])
    print(summary_of(rows, control))
    print(losses_of(rows))
    facts = {"control": control.as_row(), "machine": machine.facts(rows)}
    write_results(results_name(arguments), target=target, rows=rows, folder=arguments.out, **facts)
    return 0


def void(misnamed: Mapping[str, str]) -> str:
    """Why a race does not count: the models that ran other kernels than their rows name, and what they ran."""
    return "; ".join(f"{model}: {why}" for model, why in misnamed.items())


def of_dims(dims: int) -> Sequence[Network]:
    """The networks of so many dimensions, but for those of dilated kernels."""
    return [network for network in NETWORKS if network.dims == dims and not network.is_dilated]


def dilated() -> Sequence[Network]:
    """Those of dilated, large and decomposed kernels."""
    return [network for network in NETWORKS if network.is_dilated]


def results_name(arguments: argparse.Namespace) -> str:
    """What the results are called: what was trained and how, so that no run overwrites those of another kind."""
    words = ["train"]
    if arguments.model:
        words.append(name_part(arguments.model))
    elif arguments.dilated:
        words.append("dilated")
    elif arguments.dims != "2":
        words.append(f"{arguments.dims}d")
    words += ["compile"] * arguments.compile + ["blocks"] * arguments.blocks
    words += [arguments.autocast] * bool(arguments.autocast)
    return "-".join([*words, "nchw" if arguments.contiguous else "nhwc"])


def _tune_what_is_untuned(network: Network, target: CpuTarget, arguments: argparse.Namespace) -> None:
    """Every pass of every depthwise layer that is in no log."""
    log, known = opened(arguments.log, target)
    how = {name: getattr(arguments, name) for name in ("contiguous", "autocast", "blocks")}
    untuned = [each for each in workloads_of(network, **how) if not known.records(each, target.device)]
    if untuned:
        tune(untuned, with_limits(target), log=log, known=known, seconds=arguments.seconds, caches="training")


def raced(
    network: Network, how: Mapping[str, Any], *, environment: Mapping[str, str], timeout_s: float | None = None
) -> dict[str, Any]:
    """The figures of one race, run in a process of its own. Raises WorkerDied, WorkerTimeout."""
    image = network.sample[-1] if network.dims > 1 else None
    given = {"model": network.name, "batch": network.batch, "image": image, **how}
    figures: dict[str, Any] = in_a_process(race, given, environment=environment, timeout_s=timeout_s)
    return figures


def _environment(allocator: str, log: Path | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in settings.ALLOCATOR_ENVIRONMENT}
    inherited = {**settings.PROFILER_ENVIRONMENT, **inherited}
    return {**inherited, **ALLOCATORS[allocator], **({"DWCONV_TUNING_LOGS": str(log)} if log else {})}
