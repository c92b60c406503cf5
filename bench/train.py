"""``python -m bench train``: training steps of well-known networks, converted and not, in turns.

Untuned passes are tuned first, with the caches as a training step finds them. Each network then runs twice: all models
in one process, with memory kept between the steps (both sides, as the tuner measures), and each in a process of its
own, with glibc's allocator as it is by default. On a GPU (``--device cuda``) PyTorch's own allocator is the only one;
``--autocast`` trains both sides in mixed precision. These take turns: the plain model in both layouts, and once more as
a control, the converted one, that with its blocks as one, and the same under torch.compile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cpu import estimate, opened, tune
from bench.evidence import Control, Ratio, summary_of, timed_again
from bench.models import NETWORKS, Network
from bench.networks import add_device_arguments, add_network_arguments, image_for, network_from, workloads_of
from bench.paired_steps import made_up, step_of
from bench.results import MachineWatch, add_log_argument, add_out_argument, name_part, write_results
from bench.step_rows import losses_of, table, table_of
from dwconv import settings
from dwconv.commands.command_line import ArgumentParser, from_0
from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.measure.clock.timing import Caches
from dwconv.measure.limits import with_limits
from dwconv.problems.target import CpuTarget, Target, cpu_target, parse_target
from dwconv.records.database import Database

APART = "each alone, glibc as it is"
ALLOCATORS = {"memory kept": settings.ALLOCATOR_ENVIRONMENT, APART: {}}
"""Ways in which a process may allocate, and the environment that sets each."""
GPU_ALLOCATOR = "PyTorch's"
RACE_START_S = 8.0
STEPS_BESIDE = 18
"""Steps of a race that are not timed: to warm up, to compare losses, and to measure the depthwise layers' share."""
COMPILED_BESIDE = 10
"""The same of what torch.compile adds."""
COMPILING_S = 120.0
"""What torch.compile takes for all models."""
MODELS = 4
"""That take turns: plain in both layouts, plain once more, converted."""


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench train", description=(__doc__ or "").partition("\n")[0])
    add_network_arguments(parser)
    parser.add_argument(
        "--dims", choices=("1", "2", "3"), default="2", help="networks of so many dimensions, default 2"
    )
    add_device_arguments(parser)
    parser.add_argument("--steps", type=int, default=20, help="steps whose time counts, default 20")
    parser.add_argument("--seconds", type=from_0, default=20, help="to tune an untuned pass, default 20; 0: none")
    add_log_argument(parser)
    for name, does in _PARTS.items():
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=True, help=does)
    parser.add_argument(
        "--dry-run", action="store_true", help="only print what is untuned, and how long all would take"
    )
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    target = parse_target("cuda") if arguments.device == "cuda" else cpu_target()

    networks = [network_from(arguments)] if arguments.model else of_dims(int(arguments.dims))
    if arguments.dry_run:
        for network in networks:
            print(f"{network.name}: {_estimate(network, target, arguments)}", flush=True)
        return 0
    threads = target.threads if isinstance(target, CpuTarget) else 1
    machine = MachineWatch(threads=threads)
    options = [*options_of(arguments), "--both-layouts", "--control"]
    for network in networks if arguments.seconds else ():
        _tune_what_is_untuned(network, target, arguments)
    races = [(network, allocator) for network in networks for allocator in allocators(arguments.device)]

    def row(number: int) -> dict[str, Any]:
        network, allocator = races[number]
        about = {"network": network.name, "goal": network.goal, "allocator": allocator}
        environment = _environment(allocator, arguments.log)
        try:
            apart = ["--apart"] if allocator == APART else []
            figures = raced(network, [*options, *apart], steps=arguments.steps, environment=environment)
        except WorkerDied as error:
            return {**about, "failed": str(error)}  # the other rows are not lost
        if misnamed := figures.get("misnamed"):
            return {**about, "failed": void(misnamed)}
        print(table_of({**about, **figures}), flush=True)
        if arguments.profile:
            print(table(figures["profile_ms"]), flush=True)
        return {**about, **figures}

    rows = timed_again([row(number) for number in range(len(races))], row, threads=threads)
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


_PARTS = {
    "profile": "also print where the time of a step goes",
    "compile": "race the models under torch.compile as well, which takes minutes",
    "blocks": "race a converted model with its blocks as one as well",
    "graphs": "on a GPU, race the models as CUDA graphs as well",
}
"""Parts of a race that may be left out."""


def of_dims(dims: int) -> Sequence[Network]:
    """The networks of so many dimensions."""
    return [network for network in NETWORKS if network.dims == dims]


def results_name(arguments: argparse.Namespace) -> str:
    """What the results are called: what was trained and how, so that no run overwrites those of another kind."""
    words = ["train"]
    if arguments.model:
        words.append(name_part(arguments.model))
    elif arguments.dims != "2":
        words.append(f"{arguments.dims}d")
    words += ["compile"] * arguments.compile + ["blocks"] * arguments.blocks
    words += ["graphs"] * (arguments.graphs and arguments.device == "cuda")
    words += [arguments.autocast] * bool(arguments.autocast)
    return "-".join([*words, "nchw" if arguments.contiguous else "nhwc"])


def allocators(device: str) -> Sequence[str]:
    """The ways of allocating to compare on ``device``."""
    return (GPU_ALLOCATOR,) if device == "cuda" else tuple(ALLOCATORS)


def _estimate(network: Network, target: Target, arguments: argparse.Namespace) -> str:
    """One line: how many passes are untuned, and how long tuning and the races take, by the time of one plain step."""
    image = image_for(network, contiguous=arguments.contiguous, device=arguments.device)
    step = step_of(network.make().train().to(arguments.device), autocast=arguments.autocast)
    for _ in range(2):
        started = time.perf_counter()
        step(*made_up(image))
    step_s = time.perf_counter() - started
    eager = MODELS + arguments.blocks
    race_s = RACE_START_S + (STEPS_BESIDE + eager * arguments.steps) * step_s
    if arguments.compile:
        compiled = 2 + arguments.blocks
        race_s += COMPILING_S + (COMPILED_BESIDE + compiled * arguments.steps) * step_s
    races_s = sum(race_s + (allocator == APART) * (1 + arguments.compile) * eager * RACE_START_S
                  for allocator in allocators(arguments.device))  # fmt: skip
    workloads = workloads_of(
        network, contiguous=arguments.contiguous, autocast=arguments.autocast, blocks=arguments.blocks
    )
    known = Database.usual(arguments.log)
    return estimate(workloads, target, known=known, seconds=arguments.seconds, measuring_s=races_s)


def _tune_what_is_untuned(network: Network, target: Target, arguments: argparse.Namespace) -> None:
    """Every pass of every depthwise layer that is in no log."""
    log, known = opened(arguments.log, target)
    workloads = workloads_of(
        network, contiguous=arguments.contiguous, autocast=arguments.autocast, blocks=arguments.blocks
    )
    untuned = [workload for workload in workloads if not known.records(workload, target.device)]
    caches: Caches = "warm"
    if untuned and isinstance(target, CpuTarget):
        target, caches = with_limits(target), "training"
    tune(untuned, target, log=log, known=known, seconds=arguments.seconds, caches=caches)


def options_of(arguments: argparse.Namespace) -> list[str]:
    """The options of this command that a race gets too."""
    options = [
        option for option in ("--contiguous", "--profile", "--compile", "--blocks") if getattr(arguments, option[2:])
    ]
    if arguments.autocast:
        options += ["--autocast", arguments.autocast]
    if arguments.graphs and arguments.device == "cuda":
        options.append("--graphs")
    return [*options, "--device", arguments.device]


def raced(
    network: Network,
    options: Sequence[str],
    *,
    steps: int,
    environment: dict[str, str],
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """The figures of one race, run in a process of its own. Raises WorkerDied, WorkerTimeout."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "bench.paired_steps", "--model", network.name, "--out", str(out)]
        command += ["--batch", str(network.batch), "--steps", str(steps)]
        if network.dims > 1:
            command += ["--image", str(network.sample[-1])]
        try:
            ended = subprocess.run([*command, *options], env=environment, check=False, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise WorkerTimeout(f"training {network.name}: no end after {timeout_s:.0f} s") from error
        if ended.returncode:
            raise WorkerDied(f"training {network.name}: the process ended with code {ended.returncode}")
        return json.loads(out.read_text())


def _environment(allocator: str, log: Path | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in settings.ALLOCATOR_ENVIRONMENT}
    inherited = {**settings.PROFILER_ENVIRONMENT, **inherited}
    return {**inherited, **ALLOCATORS.get(allocator, {}), **({"DWCONV_TUNING_LOGS": str(log)} if log else {})}
