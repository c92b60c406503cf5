"""What ``bench concurrency`` prints."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.concurrency.settings import RECOMMENDED

BACKEND, EAGER = "backend", "eager"


def head(network: str) -> str:
    """Above the lines of a network."""
    return f"\n{network:16} {'ms a step':>10} {'spread':>7} {'× recommended':>14}  {'same as':16}"


def lines(row: dict[str, Any]) -> list[str]:
    """A line for each setting, then what else was found."""
    recommended = row["median_ms"][RECOMMENDED]
    shown = []
    for name, same in row["same_as"].items():
        median_ms, spread_ms = row["median_ms"][same], row["spread_ms"][same]
        said = "" if same == name else same
        shown.append(
            f"{name:16} {median_ms:10.1f} {spread_ms:7.1f} {recommended / median_ms:14.2f}  {said:16}".rstrip()
        )
    best = best_manual(row)
    shown.append(
        f"best manual setting: {best}, {recommended / row['median_ms'][row['same_as'][best]]:.2f} times as fast"
    )
    shown.append(f"the backend runs {row['backend']}")
    for model, found in row["accuracy"].items():
        shown.append(
            f"{model}: {found['error']:.1%} mean error against a sweep of {found['tasks']} tasks, chosen counts "
            f"{found['slower_than_best']:.1%} slower than the best; {row['timed'][model]} times measured"
        )
    shown.append(f"regression learnt by: {row['learner']}")
    shown.append(f"dgrad and wgrad at once: faster for {row['at_once']} of {row['pairs']} convolutions")
    apart = ", ".join(f"{which} {share:.1e}" for which, share in row["loss_difference"].items())
    shown.append(f"largest difference from the eager losses, as a share: {apart}")
    if row["hurried"]:
        shown.append(f"time was up: {row['hurried']} task times are of a single run")
    if row["contention"] > 0.05:
        shown.append(f"other work took {row['contention']:.0%} of the time: measure again when the machine is quiet")
    return shown


def best_manual(row: dict[str, Any]) -> str:
    """The fastest setting made by hand; the recommended one is one of them."""
    by_hand: list[str] = [name for name in row["same_as"] if name.startswith("manual") or name == RECOMMENDED]
    return min(by_hand, key=lambda name: float(row["median_ms"][row["same_as"][name]]))


def computed_table(row: dict[str, Any]) -> str:
    """Steps on more cores, and how far the simulator is off here."""
    errors = row["simulator_error"]
    if not errors:
        return ""
    off = ", ".join(f"{name} {error:+.0%}" for name, error in errors.items())
    shown = [
        f"simulator: {statistics.mean(map(abs, errors.values())):.0%} off on average on this machine ({off}), once all "
        f"times are taken {row['in_place']:.2f} times, as one thread alone says"
    ]
    for cores, steps in row["computed_ms"].items():
        recommended = steps[RECOMMENDED]
        figures = ", ".join(f"{name} {ms:.1f} ({recommended / ms:.2f}×)" for name, ms in steps.items())
        shown.append(f"computed, {cores:>2} cores, ms of both graphs: {figures}")
    return "\n".join(shown)


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """A line a network: what each way of choosing wins over the recommended setting."""
    shown = [
        "",
        f"{'× recommended':16} {'best manual':>12} {'hill climbing':>14} {'regression':>11} {'best of all':>24}",
    ]
    for row in rows:
        recommended = row["median_ms"][RECOMMENDED]
        ratio = {name: recommended / row["median_ms"][same] for name, same in row["same_as"].items()}
        best = max((name for name in ratio if name != EAGER), key=ratio.__getitem__)
        shown.append(
            f"{row['network']:16} {ratio[best_manual(row)]:12.2f} {ratio['hill climbing']:14.2f} "
            f"{ratio['regression']:11.2f} {f'{ratio[best]:.2f} by {best}':>24}"
        )
    if len(rows) > 1:
        means = [
            statistics.geometric_mean(
                row["median_ms"][RECOMMENDED] / row["median_ms"][row["same_as"][name(row)]] for row in rows
            )
            for name in (best_manual, lambda _: "hill climbing", lambda _: "regression")
        ]
        shown.append(f"{'geometric mean':16} {means[0]:12.2f} {means[1]:14.2f} {means[2]:11.2f}")
    return "\n".join(shown)
