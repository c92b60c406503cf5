"""``python -m bench cpu``: tuned kernels against PyTorch's own op in both layouts, over layers of well-known networks.

Untuned passes are tuned first. Then the best configuration of each is verified and timed once more, in turns with
PyTorch's op on contiguous and on channels_last tensors: medians, their spread, and the share of the machine's limit.
A type of 16 bits is also held against our own float32 kernel of the same pass, verified and timed right after it.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

from bench.cases import CPU_LAYERS, ROW_NETWORKS, VOLUME_NETWORKS, Layer, ListedLayer, listed_layers
from bench.results import add_log_argument, add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0, run, whole
from dwconv.measure.limits.limits import with_limits
from dwconv.measure.runner import LocalRunner, Workers
from dwconv.problems.target import CpuTarget, Target, cpu_target
from dwconv.problems.workload import DTYPES, LAYOUTS, Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.tuner.search.loop import SearchPlan, tune_workload
from dwconv.tuner.search.runners import RunnerChoice
from dwconv.tuner.search.search_result import Budget

TUNING_OVERHEAD_S = 3.0
"""Tuning a pass takes this much longer than its search."""
MEASURING_S = 2.5
"""Time to build, verify and time the best candidate of a pass."""


def main(argv: Sequence[str]) -> int:
    return run(_cpu, list(argv))


def _cpu(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench cpu", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layout", choices=LAYOUTS, default="nhwc", help="default nhwc")
    parser.add_argument("--dims", choices=("1", "2", "3"), default="2", help="layers of so many dimensions, default 2")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="default float32")
    parser.add_argument("--seconds", type=from_0, default=20, help="to tune an untuned pass, default 20; 0: none")
    add_log_argument(parser)
    add_out_argument(parser)
    parser.add_argument("--first", type=whole, metavar="N", help="only the first N layers")
    parser.add_argument("--dry-run", action="store_true", help="only say what is untuned, and how long all would take")
    arguments = parser.parse_args(argv)

    target = cpu_target()
    log = TuningLog(arguments.log or log_path(target))
    known = Database.behind_log(log.path, alone=arguments.log is not None)
    log.followers.append(known.add)
    chosen = [
        (layer, workload)
        for layer in _layers(arguments.dims)[: arguments.first]
        for workload in layer.workloads(dtype=arguments.dtype, layout=arguments.layout)
    ]
    if arguments.dry_run:
        workloads = [workload for _, workload in chosen]
        measuring_s = MEASURING_S * len(workloads)
        print(estimate(workloads, target, known=known, seconds=arguments.seconds, measuring_s=measuring_s))
        return 0
    target = with_limits(target)
    rows = []
    print(_HEAD, flush=True)
    with Workers(target, jobs=os.cpu_count() or 1) as workers:
        for layer, workload in chosen:
            record = known.best(workload, target.device)
            if record is None and arguments.seconds:
                record = tuned(workload, target, log=log, known=known, workers=workers, seconds=arguments.seconds)
            if record is not None:
                record = confirmed(record, target, workers=workers)
            row = _row(layer, workload, record, target)
            wide = known.best(replace(workload, dtype="float32"), target.device)
            if arguments.dtype != "float32" and wide is not None and "failed" not in row:
                row |= _beside_float32(row, confirmed(wide, target, workers=workers))
            rows.append(row)
            print(_line(rows[-1]), flush=True)
    print(_means(rows))
    words = [f"{arguments.dims}d"] * (arguments.dims != "2") + [arguments.dtype] * (arguments.dtype != "float32")
    write_results("-".join(["cpu", *words, arguments.layout]), target=target, rows=rows, folder=arguments.out)
    return 0


def _layers(dims: str) -> Sequence[Layer | ListedLayer]:
    """The layers of so many dimensions."""
    return CPU_LAYERS if dims == "2" else listed_layers(ROW_NETWORKS if dims == "1" else VOLUME_NETWORKS)


def estimate(
    workloads: Sequence[Workload], target: Target, *, known: Database, seconds: float, measuring_s: float
) -> str:
    """One line: how many passes are untuned, and about how long tuning and measuring take."""
    untuned = sum(known.best(workload, target.device) is None for workload in workloads)
    tuning_s = untuned * (seconds + TUNING_OVERHEAD_S) if seconds else 0.0
    minutes = (tuning_s + measuring_s) / 60
    return f"{untuned} of {len(workloads)} passes are untuned; about {minutes:.1f} minutes in all"


def tuned(
    workload: Workload, target: Target, *, log: TuningLog, known: Database, workers: Workers, seconds: float
) -> TuningRecord | None:
    """The best candidate that some seconds of search find; None if none worked."""
    return tune_workload(
        workload,
        target,
        log=log,
        plan=SearchPlan(known=known),
        budget=Budget(trials=None, seconds=seconds, patience=None),
        runner=RunnerChoice(workers=workers),
    ).best


def confirmed(record: TuningRecord, target: CpuTarget, *, workers: Workers) -> TuningRecord:
    """The configuration of ``record``, verified and timed again now."""
    with LocalRunner(record.workload, target, workers=workers) as runner:
        (again,) = runner.confirm([Candidate(record.workload, record.config)])
    return again


def _row(
    layer: Layer | ListedLayer, workload: Workload, record: TuningRecord | None, target: CpuTarget
) -> dict[str, Any]:
    taken = record.measurement if record else None
    if record is None or taken is None or target.limits is None:
        why = record.detail if record else "untuned, or no candidate worked in the time given"
        return {"layer": str(layer), "pass": workload.pass_, "failed": why}
    limit_us = target.limits.limit_us(bytes_moved=workload.bytes, flops=workload.flops)
    pytorch = {name: measured.median_us for name, measured in record.providers.items()}
    fastest = min(record.providers.values(), key=lambda measured: measured.median_us)
    ratio = fastest.median_us / taken.median_us
    off = math.hypot(fastest.spread_us / fastest.median_us, taken.spread_us / taken.median_us)
    return {
        "layer": str(layer),
        "pass": workload.pass_,
        **({} if workload.epilogue == "none" else {"epilogue": workload.epilogue}),
        "kernel": layer.kernel,
        "dwconv_us": taken.median_us,
        "spread_us": taken.spread_us,
        "pytorch_us": pytorch,
        "pytorch_spread_us": {name: measured.spread_us for name, measured in record.providers.items()},
        "ratio": ratio,
        "ratio_spread": ratio * off,
        "ratio_same_layout": min(us for name, us in pytorch.items() if name.endswith(workload.layout))
        / taken.median_us,
        "percent_of_limit": 100 * limit_us / taken.median_us,
        "contention": record.contention,
        "in_cache": workload.bytes <= target.limits.cache_bytes,
        "config": record.config.to_dict(),
    }


def _beside_float32(row: dict[str, Any], wide: TuningRecord) -> dict[str, float]:
    """The time of our float32 kernel, and how many times as fast the row's is; nothing if it did not run."""
    if wide.measurement is None:
        return {}
    taken_us = wide.measurement.median_us
    return {"float32_us": taken_us, "ratio_float32": taken_us / row["dwconv_us"]}


_HEAD = (
    f"{'layer':40} {'pass':6} {'PyTorch nchw':>13} {'nhwc':>9} {'dwconv':>9} {'±':>6} {'×':>6} {'±':>5} {'% limit':>8}"
)


def _line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['layer']:40} {row['pass']:6} failed: {row['failed']}"
    nchw, nhwc = (
        min((us for name, us in row["pytorch_us"].items() if name.endswith(layout)), default=math.nan)
        for layout in LAYOUTS
    )
    return (
        f"{row['layer']:40} {row['pass']:6} {nchw:13.1f} {nhwc:9.1f} {row['dwconv_us']:9.1f} {row['spread_us']:6.1f} "
        f"{row['ratio']:6.2f} {row['ratio_spread']:5.2f} {row['percent_of_limit']:8.0f}"
        + (f"   {row['ratio_float32']:5.2f} × our float32" if "ratio_float32" in row else "")
    )


def _means(rows: Sequence[dict[str, Any]]) -> str:
    """Geometric means of the ratios by pass; for wgrad also of small and large kernels separately."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if "ratio" in row:
            groups[row.get("epilogue", row["pass"])].append(row)
            if row["pass"] == "wgrad":
                size = "≤ 3" if row["kernel"] <= 3 else "= 4" if row["kernel"] == 4 else "≥ 5"
                groups[f"wgrad, k {size}"].append(row)
    lines = ["", f"{'geometric mean':16} {'× better layout':>16} {'× same layout':>14} {'least':>6} {'layers':>7}"]
    for name, members in groups.items():
        better, same = (geometric_mean([row[key] for row in members]) for key in ("ratio", "ratio_same_layout"))
        least = min(row["ratio"] for row in members)
        lines.append(f"{name:16} {better:16.2f} {same:14.2f} {least:6.2f} {len(members):7}")
        wide = [row["ratio_float32"] for row in members if "ratio_float32" in row]
        if wide:
            lines[-1] += f"   {geometric_mean(wide):5.2f} × our float32, least {min(wide):.2f}"
    return "\n".join(lines)
