"""``python -m bench search``: the default search of a few trials against the best of many random ones.

Both write a log of their own and go on from there, so that an interrupted run loses nothing. At the end the winners of
the two are verified and timed once more, side by side.

``--target`` names a GPU that need not be here: then searches by computed cost run, and what they take and find is
written.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cases import CPU_LAYERS, BenchLayer
from bench.results import MachineWatch, add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0, whole, whole_from_0
from dwconv.errors import InvalidChoice, say
from dwconv.measure.limits import with_limits
from dwconv.measure.runner import LocalRunner, WorkerProcesses
from dwconv.problems.target import CpuTarget, CudaTarget, cpu_target, parse_target
from dwconv.problems.workload import LAYOUTS, Workload
from dwconv.records.log import TuningLog
from dwconv.schedules.template import Candidate
from dwconv.tuner.search.search_loop import SearchPlan, tune_workload
from dwconv.tuner.search.search_result import SEARCHES, Budget, Search, Stop, TuningResult

GOAL = 1.1
"""The search may be this many times as slow."""


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench search", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument("--layout", choices=LAYOUTS, default="nhwc", help="default nhwc")
    parser.add_argument("--search", choices=SEARCHES, default="evolve", help="that is compared, default evolve")
    parser.add_argument("--trials", type=whole, default=64, help="of the search, default 64")
    parser.add_argument("--random", type=whole, default=600, metavar="N", help="random trials, default 600")
    parser.add_argument("--seed", type=whole_from_0, default=0, help="of the search; the random ones have the next")
    parser.add_argument("--first", type=whole, metavar="N", help="only the first N layers")
    parser.add_argument("--only", default="", metavar="TEXT", help="only layers and passes whose line has this")
    parser.add_argument("--minutes", type=from_0, default=math.inf, help="then no more is tried, default: without end")
    parser.add_argument(
        "--logs", type=Path, default=Path("bench/logs"), help="folder for the two logs, default bench/logs"
    )
    parser.add_argument(
        "--target", metavar="TARGET",
        help="a GPU as cuda:sm_90: searches by computed cost, of 8 times the batch; --layout, --trials, --first and "
        "--only choose, too",
    )  # fmt: skip
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    if arguments.target is not None:
        return _by_computed_cost(arguments)
    ends_s = time.monotonic() + 60 * arguments.minutes
    target = with_limits(cpu_target())
    machine = MachineWatch(threads=target.threads)
    chosen = _chosen(arguments)
    rows: list[dict[str, Any]] = []
    print(_HEAD, flush=True)
    with WorkerProcesses(target, jobs=os.cpu_count() or 1) as workers:
        for layer, workload in chosen:
            row = _compared(layer, workload, target, arguments, workers, ends_s=ends_s)
            if row is None:
                break
            rows.append(row)
            print(_line(row), flush=True)
    if left := len(chosen) - len(rows):
        print(f"\ntime is up, {left} passes are left: run the same command to continue")
    near = [row for row in rows if row["ratio"] is not None and row["ratio"] <= GOAL]
    print(f"\nwithin {GOAL - 1:.0%} of the best random one: {len(near)} of {len(rows)}")
    facts = {"search": arguments.search, "machine": machine.facts(rows)}
    write_results(f"search-{arguments.layout}", target=target, rows=rows, folder=arguments.out, **facts)
    return 0


def _chosen(arguments: argparse.Namespace) -> list[tuple[BenchLayer, Workload]]:
    return [
        (layer, workload)
        for layer in CPU_LAYERS[: arguments.first]
        for workload in layer.workloads(dtype="float32", layout=arguments.layout)
        if arguments.only in f"{layer} {workload.pass_}"
    ]


def _compared(
    layer: BenchLayer,
    workload: Workload,
    target: CpuTarget,
    arguments: argparse.Namespace,
    workers: WorkerProcesses,
    *,
    ends_s: float,
) -> dict[str, Any] | None:
    """None if the time was up before both searches ended. Raises KeyboardInterrupt."""
    found: list[TuningResult] = []
    compared: tuple[tuple[Search, int, int], ...] = (
        (arguments.search, arguments.trials, arguments.seed),
        ("random", arguments.random, arguments.seed + 1),
    )
    for strategy, trials, seed in compared:
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            return None
        log = TuningLog(arguments.logs / f"{target.device}-{strategy}-{seed}.jsonl")
        budget = Budget(trials=trials, seconds=None if math.isinf(left_s) else left_s, patience=None)
        plan = SearchPlan(strategy=strategy, seed=seed, workers=workers)
        found.append(tune_workload(workload, target, log=log, plan=plan, budget=budget))
        if found[-1].stopped is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        if found[-1].stopped is Stop.SECONDS:
            return None
    tried = {"trials": [result.trials for result in found], "failures": [result.failures for result in found]}
    row: dict[str, Any] = {"layer": str(layer), "pass": workload.pass_, "ratio": None, **tried}
    known = [result.best for result in found if result.best is not None]
    if len(known) < len(found):
        return row
    configs = [best.config for best in known]
    with LocalRunner(workload, target, workers=workers) as runner:
        confirmed = list(runner.confirm([Candidate(workload, config) for config in dict.fromkeys(configs)]))
    times = {record.config: record.measurement for record in confirmed}
    ours, theirs = (times.get(config) for config in configs)
    row["configs"] = [config.to_dict() for config in configs]
    if ours is not None and theirs is not None:
        row["us"] = [ours.median_us, theirs.median_us]
        row |= {"ratio": ours.median_us / theirs.median_us, "contention": max(ours.contention, theirs.contention)}
    return row


# -- for a GPU, by computed cost ------------------------------------------------------------------------------------

BATCHES = 8
"""A GPU's batch over that of the layers here."""


def _by_computed_cost(arguments: argparse.Namespace) -> int:
    target = parse_target(arguments.target)
    if not isinstance(target, CudaTarget):
        raise InvalidChoice(f"target={target} is no GPU; use cuda:sm_90, for example, or leave --target out")
    rows: list[dict[str, Any]] = []
    for layer, workload in _chosen(arguments):
        row = _computed(workload.with_batch(BATCHES * layer.batch), target, trials=arguments.trials)
        rows.append({"layer": str(layer), "pass": workload.pass_, **row})
        found = f"{row['us']:.1f} µs by {row['config']['template']}" if row["config"] else "nothing worked"
        say(f"{layer} {workload.pass_}: {row['cpu_s']:.1f} CPU s, {row['trials']} candidates; {found}")
        write_results(f"search-{arguments.layout}", target=target, rows=rows, folder=arguments.out, search="analytic")
    return 0


def _computed(workload: Workload, target: CudaTarget, *, trials: int) -> dict[str, Any]:
    """Of the search that ``python -m dwconv.tune`` runs without the GPU; CPU seconds of its processes, too."""
    began_s = _cpu_s()
    with tempfile.TemporaryDirectory(prefix="dwconv-search-") as folder:
        result = tune_workload(
            workload,
            target,
            log=TuningLog(Path(folder) / "log.jsonl"),
            plan=SearchPlan(strategy="analytic", resume=False, jobs=os.cpu_count() or 1),
            budget=Budget(trials=trials, seconds=None, patience=None),
        )
    if result.stopped is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return {
        "batch": workload.batch,
        "cpu_s": _cpu_s() - began_s,
        "trials": result.trials,
        "failures": result.failures,
        "stopped": result.stopped and result.stopped.value,
        "us": result.median_us,
        "config": result.best.config.to_dict() if result.best else None,
    }


def computed_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each search took, and the template that it found, a line for each layer, in Markdown."""
    lines = ["| layer | CPU s | candidates | computed µs | of |", "|---" * 5 + "|"]
    for row in rows:
        found = [f"{row['us']:.1f}", f"`{row['config']['template']}`"] if row["config"] else ["–", "–"]
        lines.append(f"| {row['layer']} | {row['cpu_s']:.0f} | {row['trials']} | {' | '.join(found)} |")
    return lines


def _cpu_s() -> float:
    """Of this process, and of those that it started and that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


_HEAD = f"{'layer':32} {'pass':6} {'search µs':>10} {'random µs':>10} {'search / random':>16}"


def _line(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return f"{row['layer']:32} {row['pass']:6} nothing to compare"
    ours, theirs = row["us"]
    return f"{row['layer']:32} {row['pass']:6} {ours:10.1f} {theirs:10.1f} {row['ratio']:16.2f}"
