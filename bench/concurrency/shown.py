"""What ``bench concurrency`` prints of its rows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.concurrency.steps import BACKEND, EAGER, HILL_CLIMBING, INDUCTOR, RECOMMENDED, REGRESSION
from bench.evidence import Row
from dwconv.records.record import CONTENDED


def lines(row: Row) -> list[str]:
    """A line for each way to run a step, then what else was found."""
    shown = [
        f"\n{row['network']:16} {'ms a step':>10} {'spread':>7} {'× recommended':>14} {'95 % of them':>14}  same as"
    ]
    for name, same in row["same_as"].items():
        low, high = row["faster_interval"][same]
        said = "" if same == name else same
        shown.append(
            f"{name:16} {row['median_ms'][same]:10.1f} {row['spread_ms'][same]:7.1f} {row['faster'][same]:14.2f} "
            f"{f'{low:.2f} to {high:.2f}':>14}  {said}".rstrip()
        )
    best = best_manual(row)
    shown.append(f"best manual setting: {best}, {faster(row, best):.2f} times as fast as recommended")
    shown.append(f"the backend runs {row['backend']}")
    shown += [f"{name} does not run: {why}" for name, why in row["refused"].items()]
    shown.append(_losses(row))
    if row["simulated"]:
        apart = [abs(found["expected_ms"] / found["seen_ms"] - 1) for found in row["simulated"].values()]
        shown.append(f"simulated graphs are {statistics.mean(apart):.0%} off on average, {max(apart):.0%} at most")
    shown += model_lines(row)
    if row["contention"] > CONTENDED:
        shown.append(f"other work took {row['contention']:.0%} of the time: measure again when the machine is quiet")
    return shown


def _losses(row: Row) -> str:
    if row["void"]:
        return f"VOID: the losses of {', '.join(row['void'])} differ from the eager ones by more than rounding"
    most = max(row["loss_difference"].values())
    return f"all losses are the eager ones within rounding: off by {most:.1e} at most, {row['permitted']:.1e} permitted"


def model_lines(row: Row) -> list[str]:
    """A line for each model of times, and what it uses."""
    shown = [] if row["accuracy"] else ["models of times: there was no time to sweep any task; give more --seconds"]
    for model, found in row["accuracy"].items():
        shown.append(
            f"{model}: {found['error']:.1%} mean error against a sweep of {found['tasks']} tasks, chosen counts "
            f"{found['slower_than_best']:.1%} slower than the best; {found['timed']} times measured"
        )
        shown += [f"  {found['uses']}"] if found["uses"] else []
    if row["estimated"]:
        shown.append(f"time was up: {row['estimated']} task times are estimates")
    return shown


def faster(row: Row, name: str) -> float:
    """How many times as fast as recommended."""
    return float(row["faster"][row["same_as"][name]])


def best_manual(row: Row) -> str:
    """The fastest setting made by hand; the recommended one is one of them."""
    by_hand: list[str] = [name for name in row["same_as"] if name.startswith("manual") or name == RECOMMENDED]
    return max(by_hand, key=lambda name: faster(row, name))


def summary(rows: Sequence[Row]) -> list[str]:
    """A line a network: what each way of choosing wins over the recommended setting. Void rows count nothing."""
    names = [HILL_CLIMBING, REGRESSION, BACKEND, EAGER, INDUCTOR]
    shown = [f"\n{'× recommended':16} {'best manual':>13}" + "".join(f"{name:>15}" for name in names)]
    kept: dict[str, list[float]] = {}
    for row in rows:
        if row["void"]:
            shown.append(f"{row['network']:16} {'void':>13}")
            continue
        found = {"best manual": faster(row, best_manual(row))}
        found |= {name: faster(row, name) for name in names if name in row["same_as"]}
        for name, value in found.items():
            kept.setdefault(name, []).append(value)
        shown.append(_summed(row["network"], found, names))
    if len(rows) > 1 and kept:
        means = {name: statistics.geometric_mean(values) for name, values in kept.items()}
        shown.append(_summed("geometric mean", means, names))
    return shown


def _summed(first: str, found: dict[str, float], names: Sequence[str]) -> str:
    cells = "".join(f"{found[name]:15.2f}" if name in found else f"{'–':>15}" for name in names)
    return f"{first:16} {found['best manual']:13.2f}{cells}"
