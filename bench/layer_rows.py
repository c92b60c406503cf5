"""The rows of ``bench cpu``: from what everyone took to ratios with their intervals, as a table, and as means.

``ratio`` is over PyTorch's op in its better layout, ``over_best_other`` over the fastest of all who raced; the verdict
is on the latter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

from bench.evidence import Control, ratio_of
from bench.layer_race import OURS, WIDE_TYPE, LayerRace, LayerTimes
from bench.limits import percent_of_limit
from bench.providers import is_eager
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import LAYOUTS

Row = dict[str, Any]


def row_of(race: LayerRace, times: LayerTimes, target: CpuTarget, *, name: str, control: Control) -> Row:
    """Figures of a race; ``failed`` if PyTorch's op did not run. Raises BeyondLimit, which says ``name``, for a time
    that this device does not allow."""
    workload, ours = race.candidate.workload, times.measurements[OURS]
    others = {who: took for who, took in times.measurements.items() if who not in (OURS, WIDE_TYPE)}
    eager = {who: took for who, took in others.items() if is_eager(who)}
    same_layout = [who for who in eager if who.endswith(workload.layout)]
    if not same_layout:
        return {"failed": "; ".join(f"{who}: {why}" for who, why in times.refused.items())}
    rounds = times.rounds_us
    ratio = ratio_of(*(rounds[who] for who in eager), over=rounds[OURS])
    over_best = ratio_of(*(rounds[who] for who in others), over=rounds[OURS])
    fastest = min(eager.values(), key=lambda took: took.median_us)
    off = math.hypot(fastest.spread_us / fastest.median_us, ours.spread_us / ours.median_us)
    row = {
        **({} if workload.epilogue == "none" else {"epilogue": workload.epilogue}),
        "dwconv_us": ours.median_us,
        "spread_us": ours.spread_us,
        "pytorch_us": {who: took.median_us for who, took in eager.items()},
        "pytorch_spread_us": {who: took.spread_us for who, took in eager.items()},
        "others_us": {who: took.median_us for who, took in others.items() if who not in eager},
        "refused": times.refused,
        **ratio.as_row("ratio"),
        "ratio_spread": ratio.value * off,
        **ratio_of(*(rounds[who] for who in same_layout), over=rounds[OURS]).as_row("ratio_same_layout"),
        "best_other": min(others, key=lambda who: others[who].median_us),
        **over_best.as_row("over_best_other"),
        "verdict": control.verdict(over_best.interval),
        "percent_of_limit": percent_of_limit(
            name, ours.median_us, bytes_moved=workload.bytes, flops=workload.flops, target=target, caches=race.caches
        ),
        "contention": max(took.contention for took in times.measurements.values()),
        "in_cache": workload.bytes <= target.cache_bytes,
        "config": race.candidate.config.to_dict(),
    }
    if WIDE_TYPE in rounds:
        row["float32_us"] = times.measurements[WIDE_TYPE].median_us
        row |= ratio_of(rounds[WIDE_TYPE], over=rounds[OURS]).as_row("ratio_float32")
    return row


HEAD = (
    f"{'layer':40} {'pass':6} {'caches':8} {'PyTorch nchw':>13} {'nhwc':>9} {'dwconv':>9} {'±':>6} {'×':>6} "
    f"{'95 % of ×':>14} {'% limit':>8}  over the best other"
)


def line_of(row: Row) -> str:
    """A row of the table, or why there is none."""
    about = f"{row['layer']:40} {row['pass']:6} {row['caches']:8}"
    if "failed" in row:
        return f"{about} failed: {row['failed']}"
    nchw, nhwc = (
        min((us for name, us in row["pytorch_us"].items() if name.endswith(layout)), default=math.nan)
        for layout in LAYOUTS
    )
    low, high = row["ratio_interval"]
    return (
        f"{about} {nchw:13.1f} {nhwc:9.1f} {row['dwconv_us']:9.1f} {row['spread_us']:6.1f} {row['ratio']:6.2f} "
        f"{low:6.2f} to {high:<5.2f} {row['percent_of_limit']:7.0f}  {row['verdict']}, {row['over_best_other']:.2f} × "
        f"{row['best_other']}" + (f"; {row['ratio_float32']:.2f} × our float32" if "ratio_float32" in row else "")
    )


def means_of(rows: Sequence[Row]) -> str:
    """Geometric means of the ratios by pass; for wgrad also of small and large kernels separately. Then who did not
    race, and why."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if "ratio" in row:
            name = row.get("epilogue", row["pass"])
            states = "" if row["caches"] == "warm" else f", {row['caches']}"
            groups[f"{name}{states}"].append(row)
            if row["pass"] == "wgrad":
                size = "≤ 3" if row["kernel"] <= 3 else "= 4" if row["kernel"] == 4 else "≥ 5"
                groups[f"wgrad, k {size}{states}"].append(row)
    head = f"{'geometric mean':22} {'× best other':>13} {'× better layout':>16} {'× same layout':>14}"
    lines = ["", f"{head} {'least':>6} {'layers':>7}"]
    for name, members in groups.items():
        names = ("over_best_other", "ratio", "ratio_same_layout")
        best, better, same = (geometric_mean([row[key] for row in members]) for key in names)
        least = min(row["over_best_other"] for row in members)
        lines.append(f"{name:22} {best:13.2f} {better:16.2f} {same:14.2f} {least:6.2f} {len(members):7}")
        wide = [row["ratio_float32"] for row in members if "ratio_float32" in row]
        if wide:
            lines[-1] += f"   {geometric_mean(wide):5.2f} × our float32, least {min(wide):.2f}"
    return "\n".join([*lines, *_refused(rows)])


def _refused(rows: Sequence[Row]) -> list[str]:
    reasons: dict[str, int] = defaultdict(int)
    for row in rows:
        for who, why in row.get("refused", {}).items():
            reasons[f"{who}: {why}"] += 1
    return [f"did not race in {count} of {len(rows)} rows: {reason}" for reason, count in reasons.items()]
