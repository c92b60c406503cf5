"""``python -m bench train``: training steps of four networks, converted and not, interleaved.

What is untuned is tuned first, with the caches as a training step finds them. Each network then runs in processes of
its own: once with memory kept between the steps (both sides, as the tuner measures), once with the allocator as glibc
has it, as users run without further ado.
"""

from __future__ import annotations

import argparse
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
from bench.networks import add_network_arguments, explain_layers, image_for, network_from
from bench.race import made_up, step_of
from bench.results import add_log_argument, add_out_argument, write_results
from bench.step_profile import table
from dwconv import settings
from dwconv.arguments import ArgumentParser, run
from dwconv.errors import DwconvWarning, WorkerDied
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.records.record import TuningRecord
from dwconv.target import CpuTarget, cpu_target
from dwconv.workload import PASSES, Workload

ALLOCATORS = {"memory kept": settings.ALLOCATOR_ENVIRONMENT, "glibc as it is": {}}
"""How a process allocates, and the environment that makes it so."""
RACE_START_S = 8.0
STEPS_BESIDE = 18
"""Steps of a race that are not timed: to warm up, to compare losses, and to see what the depthwise layers take."""


def main(argv: Sequence[str]) -> int:
    return run(_train, list(argv))


def _train(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench train", description=(__doc__ or "").partition("\n")[0])
    add_network_arguments(parser)
    parser.add_argument("--steps", type=int, default=20, help="steps whose time counts, default 20")
    parser.add_argument("--seconds", type=float, default=20, help="to tune a pass that is untuned, default 20; 0: none")
    add_log_argument(parser)
    parser.add_argument("--profile", action="store_true", help="say where the time of a step goes, too")
    parser.add_argument("--dry-run", action="store_true", help="only say what is untuned, and how long all would take")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    target = cpu_target()

    rows: list[dict[str, Any]] = []
    networks = [network_from(arguments)] if arguments.model else NETWORKS
    for network in networks:
        if arguments.dry_run:
            print(f"{network.name}: {_estimate(network, target, arguments)}", flush=True)
            continue
        if arguments.seconds:
            _tune_what_is_untuned(network, target, arguments)
        for allocator in ALLOCATORS:
            figures = _race(network, arguments, allocator=allocator)
            rows.append({"network": network.name, "goal": network.goal, "allocator": allocator, **figures})
            print(_line(rows[-1]) if len(rows) > 1 else f"{_HEAD}\n{_line(rows[-1])}", flush=True)
            if arguments.profile:
                print(table(figures["profile_ms"]), flush=True)
    if arguments.dry_run:
        return 0
    print(_where(rows))
    layout = "nchw" if arguments.contiguous else "nhwc"
    write_results(f"train-{layout}", target=target, rows=rows, folder=arguments.out)
    return 0


def _estimate(network: Network, target: CpuTarget, arguments: argparse.Namespace) -> str:
    """What there is to tune, and how long it takes with the races, by the time that one plain step takes."""
    image = image_for(network, contiguous=arguments.contiguous)
    step = step_of(network.make().train())
    for _ in range(2):
        started = time.perf_counter()
        step(*made_up(image))
    races_s = len(ALLOCATORS) * (RACE_START_S + (STEPS_BESIDE + 2 * arguments.steps) * (time.perf_counter() - started))
    workloads = _workloads(network, contiguous=arguments.contiguous)
    known = Database.usual(arguments.log)
    return estimate(workloads, target, known=known, seconds=arguments.seconds, measuring_s=races_s)


def _tune_what_is_untuned(network: Network, target: CpuTarget, arguments: argparse.Namespace) -> None:
    """Every pass of every depthwise layer that no log knows."""
    from dwconv.measure.limits import with_limits
    from dwconv.measure.runner import Workers

    known = Database.usual(arguments.log)
    untuned = [workload for workload in _workloads(network, contiguous=arguments.contiguous)
               if not known.records(workload, target.device)]  # fmt: skip
    if not untuned:
        return
    target = with_limits(target)
    log = TuningLog(arguments.log or log_path(target))
    with Workers(target, jobs=os.cpu_count() or 1, caches="training") as workers:
        for workload in untuned:
            best = tuned(workload, target, log=log, known=known, workers=workers, seconds=arguments.seconds)
            print(f"tuned {workload.key}: {_praise(best)}", flush=True)


def _workloads(network: Network, *, contiguous: bool) -> list[Workload]:
    """The passes of a network's depthwise layers, each once."""
    image = image_for(network, contiguous=contiguous)
    model = network.make()
    dwconv.convert(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DwconvWarning)  # of what is untuned
        explained = explain_layers(model, image)
    return list(dict.fromkeys(layer.problem.workload(pass_) for layer in explained for pass_ in PASSES))


def _praise(best: TuningRecord | None) -> str:
    if best is None or best.measurement is None or best.speedup is None:
        return "no candidate worked in the time given"
    return f"{best.measurement.median_us:.0f} µs, {best.speedup:.2f}× PyTorch's better layout"


def _race(network: Network, arguments: argparse.Namespace, *, allocator: str) -> dict[str, Any]:
    """The figures of one race, run in a process of its own. Raises WorkerDied."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "bench.race", "--model", network.name, "--out", str(out)]
        command += ["--batch", str(network.batch), "--image", str(network.image), "--steps", str(arguments.steps)]
        command += [option for option in ("--contiguous", "--profile") if getattr(arguments, option[2:])]
        ended = subprocess.run(command, env=_environment(allocator, arguments.log), check=False)
        if ended.returncode:
            raise WorkerDied(f"training {network.name}: the process ended with code {ended.returncode}")
        figures: dict[str, Any] = json.loads(out.read_text())
        return figures


def _environment(allocator: str, log: Path | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in settings.ALLOCATOR_ENVIRONMENT}
    inherited = {**settings.PROFILER_ENVIRONMENT, **inherited}
    return {**inherited, **ALLOCATORS[allocator], **({"DWCONV_TUNING_LOGS": str(log)} if log else {})}


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
