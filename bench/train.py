"""``python -m bench train``: training steps of four networks, converted and not, interleaved.

What is untuned is tuned first, with the caches as a training step finds them. Each network then runs in processes of
its own: once with memory kept between the steps (both sides, as the tuner measures), once with the allocator as glibc
has it, as users run without further ado. On a GPU (``--device cuda``) PyTorch's own allocator is the only one;
``--autocast`` trains in mixed precision, both sides.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dwconv
from bench.cpu import estimate, tuned
from bench.models import NETWORKS, Network
from bench.networks import add_device_arguments, add_network_arguments, explain_layers, image_for, network_from
from bench.paired_steps import made_up, step_of
from bench.results import add_log_argument, add_out_argument, write_results
from bench.step_profile import table
from dwconv import settings
from dwconv.commands.command_line import ArgumentParser, from_0, run
from dwconv.errors import DwconvWarning, WorkerDied, WorkerTimeout
from dwconv.measure.clock.caches import Caches
from dwconv.problems.target import CpuTarget, Target, cpu_target, parse_target
from dwconv.problems.workload import PASSES, Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.records.record import TuningRecord

ALLOCATORS = {"memory kept": settings.ALLOCATOR_ENVIRONMENT, "glibc as it is": {}}
"""Ways in which a process may allocate, and the environment that sets each."""
GPU_ALLOCATOR = "PyTorch's"
RACE_START_S = 8.0
_FEW_IMAGES = 2
STEPS_BESIDE = 18
"""Steps of a race that are not timed: to warm up, to compare losses, and to measure the depthwise layers' share."""


def main(argv: Sequence[str]) -> int:
    return run(_train, list(argv))


def _train(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench train", description=(__doc__ or "").partition("\n")[0])
    add_network_arguments(parser)
    add_device_arguments(parser)
    parser.add_argument("--steps", type=int, default=20, help="steps whose time counts, default 20")
    parser.add_argument("--seconds", type=from_0, default=20, help="to tune an untuned pass, default 20; 0: none")
    add_log_argument(parser)
    parser.add_argument("--profile", action="store_true", help="say where the time of a step goes, too")
    parser.add_argument("--dry-run", action="store_true", help="only say what is untuned, and how long all would take")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    target = parse_target("cuda") if arguments.device == "cuda" else cpu_target()

    rows: list[dict[str, Any]] = []
    networks = [network_from(arguments)] if arguments.model else NETWORKS
    for network in networks:
        if arguments.dry_run:
            print(f"{network.name}: {_estimate(network, target, arguments)}", flush=True)
            continue
        if arguments.seconds:
            _tune_what_is_untuned(network, target, arguments)
        for allocator in allocators(arguments.device):
            figures = raced(
                network,
                options_of(arguments),
                steps=arguments.steps,
                environment=_environment(allocator, arguments.log),
            )
            rows.append({"network": network.name, "goal": network.goal, "allocator": allocator, **figures})
            print(_line(rows[-1]) if len(rows) > 1 else f"{_HEAD}\n{_line(rows[-1])}", flush=True)
            if arguments.profile:
                print(table(figures["profile_ms"]), flush=True)
    if arguments.dry_run:
        return 0
    print(_where(rows))
    layout = "nchw" if arguments.contiguous else "nhwc"
    precision = f"-{arguments.autocast}" if arguments.autocast else ""
    write_results(f"train-{layout}{precision}", target=target, rows=rows, folder=arguments.out)
    return 0


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
    races_s = len(allocators(arguments.device)) * (RACE_START_S + (STEPS_BESIDE + 2 * arguments.steps) * step_s)
    workloads = workloads_of(network, contiguous=arguments.contiguous, autocast=arguments.autocast)
    known = Database.usual(arguments.log)
    return estimate(workloads, target, known=known, seconds=arguments.seconds, measuring_s=races_s)


def _tune_what_is_untuned(network: Network, target: Target, arguments: argparse.Namespace) -> None:
    """Every pass of every depthwise layer that is in no log."""
    from dwconv.measure.limits.limits import with_limits
    from dwconv.measure.runner import Workers

    known = Database.usual(arguments.log)
    workloads = workloads_of(network, contiguous=arguments.contiguous, autocast=arguments.autocast)
    untuned = [workload for workload in workloads if not known.records(workload, target.device)]
    if not untuned:
        return
    caches: Caches = "warm"
    if isinstance(target, CpuTarget):
        target, caches = with_limits(target), "training"
    log = TuningLog(arguments.log or log_path(target))
    with Workers(target, jobs=os.cpu_count() or 1, caches=caches) as workers:
        for workload in untuned:
            best = tuned(workload, target, log=log, known=known, workers=workers, seconds=arguments.seconds)
            print(f"tuned {workload.key}: {_praise(best)}", flush=True)


def workloads_of(network: Network, *, contiguous: bool = False, autocast: str | None = None) -> list[Workload]:
    """The passes of a network's depthwise layers, each once. They are found with few images on the CPU, since the batch
    and the device change nothing else."""
    image = image_for(dataclasses.replace(network, batch=_FEW_IMAGES), contiguous=contiguous)
    model = network.make()
    dwconv.convert(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DwconvWarning)  # of what is untuned
        explained = explain_layers(model, image, autocast=autocast)
    workloads = dict.fromkeys(layer.problem.workload(pass_) for layer in explained for pass_ in PASSES)
    return [workload.with_batch(network.batch) for workload in workloads]


def _praise(best: TuningRecord | None) -> str:
    if best is None or best.measurement is None or best.speedup is None:
        return "no candidate worked in the time given"
    return f"{best.measurement.median_us:.0f} µs, {best.speedup:.2f}× PyTorch's better layout"


def options_of(arguments: argparse.Namespace) -> list[str]:
    """The options of this command that a race gets too."""
    options = [option for option in ("--contiguous", "--profile") if getattr(arguments, option[2:])]
    if arguments.autocast:
        options += ["--autocast", arguments.autocast]
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
        command += ["--batch", str(network.batch), "--image", str(network.image), "--steps", str(steps)]
        try:
            ended = subprocess.run([*command, *options], env=environment, check=False, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise WorkerTimeout(f"training {network.name}: no end after {timeout_s:.0f} s") from error
        if ended.returncode:
            raise WorkerDied(f"training {network.name}: the process ended with code {ended.returncode}")
        figures: dict[str, Any] = json.loads(out.read_text())
        return figures


def _environment(allocator: str, log: Path | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in settings.ALLOCATOR_ENVIRONMENT}
    inherited = {**settings.PROFILER_ENVIRONMENT, **inherited}
    return {**inherited, **ALLOCATORS.get(allocator, {}), **({"DWCONV_TUNING_LOGS": str(log)} if log else {})}


# -- what is printed -------------------------------------------------------------------------------------------------

_HEAD = (
    f"{'network':20} {'allocator':14} {'plain ms':>9} {'converted':>10} {'×':>6} {'middle half':>14} {'at most':>8} "
    f"{'goal':>6}"
)


def _line(row: dict[str, Any]) -> str:
    median_ms, ratio = row["median_ms"], row["ratio"]
    low, high = ratio["quartiles"]
    return (
        f"{row['network']:20} {row['allocator']:14} {median_ms['plain']:9.1f} {median_ms['converted']:10.1f} "
        f"{ratio['median']:6.2f} {low:6.2f} to {high:.2f} {ratio['at_most']:8.2f} {row['goal']:6.2f}"
    )


def _where(rows: Sequence[dict[str, Any]]) -> str:
    """Where the depthwise layers ran, and whether the losses agree."""
    lines = ["", "at most: if the depthwise convolutions of the plain step cost nothing"]
    for row in {row["network"]: row for row in rows}.values():
        layers = ", ".join(f"{count} {name}" for name, count in row["layers"].items())
        apart = row["loss_difference"]
        lines.append(f"{row['network']}: {layers}")
        lines.append(
            f"  largest difference from the plain loss: converted {apart['converted']:.1e}, "
            f"by one rounding alone {apart['rounded']:.1e}"
        )
    return "\n".join(lines)
