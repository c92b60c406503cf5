"""``python -m bench train``: training steps of well-known networks, converted and not, interleaved.

What is untuned is tuned first, with the caches as a training step finds them. Each network then runs in processes of
its own: once with memory kept between the steps (both sides, as the tuner measures), once with the allocator as glibc
has it, as users run without further ado. On a GPU (``--device cuda``) PyTorch's own allocator is the only one;
``--autocast`` trains in mixed precision, both sides. ``--compile`` races both under torch.compile as well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cpu import estimate, tuned
from bench.models import NETWORKS, Network
from bench.networks import add_device_arguments, add_network_arguments, image_for, network_from, workloads_of
from bench.paired_steps import WITH_BLOCKS, WITH_INDUCTOR, made_up, step_of
from bench.results import add_log_argument, add_out_argument, write_results
from bench.step_profile import table
from dwconv import settings
from dwconv.commands.command_line import ArgumentParser, from_0, run
from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.measure.clock.caches import Caches
from dwconv.problems.target import CpuTarget, Target, cpu_target, parse_target
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.records.record import TuningRecord

ALLOCATORS = {"memory kept": settings.ALLOCATOR_ENVIRONMENT, "glibc as it is": {}}
"""Ways in which a process may allocate, and the environment that sets each."""
GPU_ALLOCATOR = "PyTorch's"
RACE_START_S = 8.0
STEPS_BESIDE = 18
"""Steps of a race that are not timed: to warm up, to compare losses, and to measure the depthwise layers' share."""
COMPILED_BESIDE = 10
"""The same of what torch.compile adds."""
COMPILING_S = 60.0
"""What torch.compile takes for both models."""


def main(argv: Sequence[str]) -> int:
    return run(_train, list(argv))


def _train(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench train", description=(__doc__ or "").partition("\n")[0])
    add_network_arguments(parser)
    parser.add_argument(
        "--dims", choices=("1", "2", "3"), default="2", help="networks of so many dimensions, default 2"
    )
    add_device_arguments(parser)
    parser.add_argument("--steps", type=int, default=20, help="steps whose time counts, default 20")
    parser.add_argument("--seconds", type=from_0, default=20, help="to tune an untuned pass, default 20; 0: none")
    add_log_argument(parser)
    parser.add_argument("--profile", action="store_true", help="say where the time of a step goes, too")
    parser.add_argument("--compile", action="store_true", help="race both models under torch.compile as well")
    parser.add_argument("--blocks", action="store_true", help="race a converted model with its blocks as one as well")
    parser.add_argument("--dry-run", action="store_true", help="only say what is untuned, and how long all would take")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    target = parse_target("cuda") if arguments.device == "cuda" else cpu_target()

    rows: list[dict[str, Any]] = []
    networks = [network_from(arguments)] if arguments.model else of_dims(int(arguments.dims))
    head, line = (_COMPILED_HEAD, _compiled_line) if arguments.compile else (_HEAD, _line)
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
            print(line(rows[-1]) if len(rows) > 1 else f"{head}\n{line(rows[-1])}", flush=True)
            if arguments.blocks:
                print(_lines_of_blocks(rows[-1]), flush=True)
            if arguments.profile:
                print(table(figures["profile_ms"]), flush=True)
    if arguments.dry_run:
        return 0
    print(_where(rows))
    write_results(results_name(arguments), target=target, rows=rows, folder=arguments.out)
    return 0


def of_dims(dims: int) -> Sequence[Network]:
    """The networks of so many dimensions."""
    return [network for network in NETWORKS if network.dims == dims]


def results_name(arguments: argparse.Namespace) -> str:
    """What the results are called: what was trained and how, so that no run overwrites those of another kind."""
    words = ["train"]
    if arguments.model:
        words.append(re.sub(r"[^a-z0-9]+", "-", arguments.model.lower()))
    elif arguments.dims != "2":
        words.append(f"{arguments.dims}d")
    words += ["compile"] * arguments.compile + ["blocks"] * arguments.blocks
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
    race_s = RACE_START_S + (STEPS_BESIDE + 2 * arguments.steps) * step_s
    if arguments.compile:
        race_s += COMPILING_S + (COMPILED_BESIDE + 2 * arguments.steps) * step_s
    races_s = len(allocators(arguments.device)) * race_s
    workloads = workloads_of(
        network, contiguous=arguments.contiguous, autocast=arguments.autocast, blocks=arguments.blocks
    )
    known = Database.usual(arguments.log)
    return estimate(workloads, target, known=known, seconds=arguments.seconds, measuring_s=races_s)


def _tune_what_is_untuned(network: Network, target: Target, arguments: argparse.Namespace) -> None:
    """Every pass of every depthwise layer that is in no log."""
    from dwconv.measure.limits.limits import with_limits
    from dwconv.measure.runner import Workers

    known = Database.usual(arguments.log)
    workloads = workloads_of(
        network, contiguous=arguments.contiguous, autocast=arguments.autocast, blocks=arguments.blocks
    )
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


def _praise(best: TuningRecord | None) -> str:
    if best is None or best.measurement is None or best.speedup is None:
        return "no candidate worked in the time given"
    return f"{best.measurement.median_us:.0f} µs, {best.speedup:.2f}× PyTorch's better layout"


def options_of(arguments: argparse.Namespace) -> list[str]:
    """The options of this command that a race gets too."""
    options = [
        option for option in ("--contiguous", "--profile", "--compile", "--blocks") if getattr(arguments, option[2:])
    ]
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
        command += ["--batch", str(network.batch), "--steps", str(steps)]
        if network.dims > 1:
            command += ["--image", str(network.sample[-1])]
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


_COMPILED_HEAD = (
    f"{'network':20} {'allocator':14} {'plain ms':>9} {'converted':>10} {'+ inductor':>10} {'both':>9} "
    f"{'converted ×':>12} {'+ inductor ×':>12} {'both ×':>7} {'both, over inductor ×':>22} {'middle half':>14} "
    f"{'at most':>8}"
)


def _compiled_line(row: dict[str, Any]) -> str:
    median_ms, compiled, over_inductor = row["median_ms"], row["compiled"], row["inductor"]
    low, high = over_inductor["quartiles"]
    inductor, both = WITH_INDUCTOR["plain"], WITH_INDUCTOR["converted"]
    return (
        f"{row['network']:20} {row['allocator']:14} {median_ms['plain']:9.1f} {median_ms['converted']:10.1f} "
        f"{median_ms[inductor]:10.1f} {median_ms[both]:9.1f} {row['ratio']['median']:12.2f} "
        f"{compiled[inductor]['median']:12.2f} {compiled[both]['median']:7.2f} {over_inductor['median']:22.2f} "
        f"{low:6.2f} to {high:.2f} {row['ratio']['at_most']:8.2f}"
    )


def _lines_of_blocks(row: dict[str, Any]) -> str:
    lines = []
    for key, name in (("blocks", WITH_BLOCKS), ("compiled_blocks", WITH_INDUCTOR[WITH_BLOCKS])):
        if key in row:
            over = ", ".join(f"{ratio['median']:.2f} × {other}" for other, ratio in row[key].items())
            lines.append(f"{'':20} {name} {row['median_ms'][name]:9.1f} ms: {over}")
    kept = row["kept_bytes"]
    return "\n".join(lines) + (
        f"; keeps {kept[WITH_BLOCKS] / 2**20:.0f} of {kept['plain'] / 2**20:.0f} MiB for the backward pass"
    )


def _where(rows: Sequence[dict[str, Any]]) -> str:
    """Where the depthwise layers ran, and whether the losses agree."""
    lines = ["", "at most: if the depthwise convolutions of the plain step cost nothing"]
    for row in {row["network"]: row for row in rows}.values():
        layers = ", ".join(f"{count} {name}" for name, count in row["layers"].items())
        apart = row["loss_difference"]
        lines.append(f"{row['network']}: {layers}")
        compiled = "".join(f"{name} {apart[name]:.1e}, " for name in WITH_INDUCTOR.values() if name in apart)
        lines.append(
            f"  largest difference from the plain loss: converted {apart['converted']:.1e}, {compiled}"
            f"by one rounding alone {apart['rounded']:.1e}"
        )
    return "\n".join(lines)
