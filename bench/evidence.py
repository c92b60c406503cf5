"""What times show: ratios with an interval, the same against itself as a control, and what may be claimed.

    rounds in turns ──► ratio of medians, and its bootstrap interval ──┐
    the same against itself, measured the same way ──► control ────────┴─► faster, slower, or a tie

A row claims no more than the control: its interval, widened by the control's, must exclude 1. Rows that other work
disturbed, or whose interval is wide, are timed once more, alone, when all others are done.

Then how near a time is to what the device allows, by the level of the caches that its tensors come from:

    fits the inner caches of the threads     the bandwidth of that level, of all threads together
    fits the last level                      its bandwidth
    larger                                   what the last level can hold of it comes from there, the rest from memory

A time below that is none: less was done, or more was counted. So it stops a benchmark, unless it was the limits that
other work had made too low; they are measured again first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Literal

import numpy as np

from dwconv.errors import DwconvError
from dwconv.measure.clock.contention import Quiet
from dwconv.measure.limits import EXCEEDED, doubt, with_limits
from dwconv.problems.target import CpuTarget, Limits
from dwconv.records import record

Verdict = Literal["faster", "slower", "tie"]
Row = dict[str, Any]

_SEED, _RESAMPLES = 0, 2000
_TAILS = (2.5, 97.5)
"""Percentiles that leave 95 % between them."""
WIDE = 1.1
"""An interval whose end is so many times its start is wide."""
WORST = 10
"""Rows that a summary names, at least."""
_WAIT_S = 10.0
"""To wait for a quiet machine before a row is timed again."""
_NAMES = ("network", "layer", "block", "pass", "epilogue", "allocator", "caches")
"""What distinguishes the rows of a benchmark."""


class BeyondLimit(DwconvError):
    """A time that is shorter than the device allows; the message names the row."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times as fast one is as another: the ratio of medians, and the interval in which 95 of 100 lie of those
    that are drawn from the same rounds again."""

    value: float
    interval: tuple[float, float]

    def as_row(self, name: str) -> Row:
        """``{name: …, name_interval: [low, high]}``"""
        return {name: self.value, f"{name}_interval": list(self.interval)}

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.2f} ({low:.2f} to {high:.2f})"


def ratio_of(*others: Sequence[float], over: Sequence[float]) -> Ratio:
    """The least median time of ``others`` over the median of ``over``, all of as many rounds, taken in turns. Rounds
    are drawn by turn, so that what slowed a turn slows all in it; and the fastest of the others is chosen again each
    time, so that the interval includes the choice. The draws are the same in every run."""
    times = np.array([over, *others], dtype=float)
    turns = np.random.default_rng(_SEED).integers(0, times.shape[1], size=(_RESAMPLES, times.shape[1]))
    drawn = np.median(times[:, turns], axis=2)
    low, high = np.percentile(drawn[1:].min(axis=0) / drawn[0], _TAILS)
    medians = np.median(times, axis=1)
    return Ratio(value=float(medians[1:].min() / medians[0]), interval=(float(low), float(high)))


@dataclass(frozen=True, kw_only=True)
class Control:
    """A call against itself, as a ratio: what is left of it is error."""

    ratio: float
    interval: tuple[float, float]

    @classmethod
    def over(cls, ratios: Sequence[Ratio]) -> Control:
        """Of several: their geometric mean, and the interval that holds all of theirs. Where there are none, nothing is
        widened."""
        if not ratios:
            return cls(ratio=1.0, interval=(1.0, 1.0))
        lows, highs = zip(*(ratio.interval for ratio in ratios), strict=True)
        return cls(ratio=geometric_mean([ratio.value for ratio in ratios]), interval=(min(lows), max(highs)))

    def verdict(self, interval: Sequence[float]) -> Verdict:
        """What a row may claim whose ratio has that interval. Which of the two came first in the control is chance, so
        it widens both ends by the end that is farther from 1."""
        low, high = interval
        apart = max(1.0, self.interval[1], 1 / self.interval[0])
        return "faster" if low / apart > 1 else "slower" if high * apart < 1 else "tie"

    def as_row(self) -> Row:
        return {"ratio": self.ratio, "interval": list(self.interval)}

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"control: the same against itself {self.ratio:.3f} ({low:.3f} to {high:.3f}); no farther from 1 is a tie"
        )


def name_of(row: Row) -> str:
    """What a row is about, as one line; rows of one file have different names."""
    return ", ".join(str(row[name]) for name in _NAMES if row.get(name))


# -- timed again -----------------------------------------------------------------------------------------------------


def is_suspicious(row: Row) -> bool:
    """True if other work took much of its time, or its interval is wide."""
    if "failed" in row:
        return False
    low, high = row["over_best_other_interval"]
    return bool(row["contention"] > record.CONTENDED or high / low > WIDE)


def timed_again(rows: list[Row], again: Callable[[int], Row], *, threads: int) -> list[Row]:
    """The rows, where those that are suspicious were timed once more with ``again``, from their number. Of the two, the
    one that other work disturbed less stands, or the one of the narrower interval: which ratio is larger does not
    count. What the other one said stays in the row, as ``other_timing``."""
    numbers = [number for number, row in enumerate(rows) if is_suspicious(row)]
    if not numbers:
        return rows
    quiet = Quiet(threads=threads).wait(timeout_s=_WAIT_S)
    print(f"\n{len(numbers)} of {len(rows)} rows again, alone{'' if quiet else '; the machine is busy'}", flush=True)
    judged = list(rows)
    for number in numbers:
        first, second = rows[number], again(number)
        if "failed" in second:
            continue
        stands, other = sorted((second, first), key=_doubt)
        kept = ("over_best_other", "over_best_other_interval", "contention")
        judged[number] = {**stands, "other_timing": {name: other[name] for name in kept}}
    return judged


def _doubt(row: Row) -> tuple[bool, float, float]:
    low, high = row["over_best_other_interval"]
    contended = row["contention"] > record.CONTENDED
    return contended, row["contention"] if contended else 0.0, high / low


# -- printed ---------------------------------------------------------------------------------------------------------


def summary_of(rows: Sequence[Row], control: Control) -> str:
    """How many rows won, lost and tied; then all that lost, and the others of the ten worst, the worst first."""
    ran = sorted((row for row in rows if "failed" not in row), key=lambda row: row["over_best_other"])
    count = {verdict: sum(row["verdict"] == verdict for row in ran) for verdict in ("slower", "tie", "faster")}
    text = f"slower than the best other: {count['slower']} of {len(rows)} rows"
    text += f"; ties {count['tie']}, faster {count['faster']}"
    failed = [row for row in rows if "failed" in row]
    lines = ["", text + (f", failed {len(failed)}" if failed else ""), str(control), "the worst rows:"]
    lines += [f"  {name_of(row)}: failed: {row['failed']}" for row in failed]
    shown = max(WORST, sum(row["verdict"] == "slower" for row in ran))
    lines += [_worst(row) for row in sorted(ran, key=lambda row: row["verdict"] != "slower")[:shown]]
    return "\n".join(lines)


def _worst(row: Row) -> str:
    value = Ratio(value=row["over_best_other"], interval=tuple(row["over_best_other_interval"]))
    busy = "; the machine was busy" if row["contention"] > record.CONTENDED else ""
    return f"  {row['verdict']:6} {value} × {row['best_other']}: {name_of(row)}{busy}"


_READ_ONLY = 1.5
"""Bytes that are read alone come so many times as fast as a copy moves them: a copy also reads what it overwrites."""


def percent_of_limit(name: str, us: float, *, bytes_moved: int, flops: int, target: CpuTarget) -> float:
    """The least time that ``target``, whose limits are known, needs for the traffic and the arithmetic, in per cent of
    ``us``, the microseconds that the row ``name`` took. Raises BeyondLimit, which names the row, if it is less than
    that, also by limits that were measured again."""

    def percent(limits: Limits) -> float:
        most_gb_per_s = bandwidth(limits, bytes_moved=bytes_moved, target=target)
        return max(bytes_moved / most_gb_per_s, flops / limits.peak_gflop_per_s) / 10 / us

    assert target.limits is not None
    found = percent(target.limits)
    if found <= 100 * EXCEEDED:
        return found
    doubt(target)
    limits = with_limits(dataclasses.replace(target, limits=None)).limits
    assert limits is not None
    if (again := percent(limits)) > 100 * EXCEEDED:
        raise BeyondLimit(
            f"{name}: {us:.1f} µs is {again:.0f} % of the speed that this device allows, so the time or what is "
            "counted in it is wrong; what was tuned is kept, no results are written"
        )
    return again


def bandwidth(limits: Limits, *, bytes_moved: int, target: CpuTarget) -> float:
    """GB/s that tensors of so many bytes in all may come with."""
    in_cache = min(1.0, (target.cache_bytes + target.others_cache_bytes) / bytes_moved)
    inner = [level.gb_per_s * target.threads for level in limits.levels if bytes_moved <= level.bytes * target.threads]
    cache_gb_per_s = max([limits.cache_gb_per_s, *inner])
    if in_cache == 1.0:
        return cache_gb_per_s
    return 1 / (in_cache / cache_gb_per_s + (1 - in_cache) / max(_READ_ONLY * limits.memory_gb_per_s, 1e-9))
