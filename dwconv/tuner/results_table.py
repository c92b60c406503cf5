"""What a tuning run prints: its progress, then its results, as a table for people and as plain data for programs.

Progress goes to stderr: a live line a pass on a terminal, plain lines every few seconds elsewhere.
"""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dwconv.errors import say
from dwconv.problems.as_written import workload_options
from dwconv.problems.target import Limits
from dwconv.problems.workload import Workload, by
from dwconv.records.record import TuningRecord
from dwconv.tuner.cost_report import resource_words
from dwconv.tuner.search.search_result import Stop, TuningResult
from dwconv.tuner.step_time import ToGain

if TYPE_CHECKING:
    from typing_extensions import Self

PLAIN_LINE_EVERY_S = 5.0
_SPINNER_COLUMNS = 2
_MOST_COLUMNS = 100
"""Lines of configurations are broken there, or where the terminal ends."""

STOPS = {
    Stop.TRIALS: "all trials done",
    Stop.SECONDS: "time is up",
    Stop.PATIENCE: "no improvement any more",
    Stop.LIMIT: "near the limit",
    Stop.GAIN: "little is left to gain",
    Stop.EXHAUSTED: "the whole space was tried",
    Stop.BOUND: "nothing left can cost less",
    Stop.INTERRUPTED: "interrupted",
}


class Progress:
    """A context manager that shows how the search stands. Call ``begin``, then the object itself with every result,
    then ``finish``. ``to_gain``: what tuning may still gain of a step, to be shown beside each line."""

    def __init__(self, *, workloads: int) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.status("") if self._console.is_terminal else None
        self._workloads = workloads
        self._position = 0
        self._name = self._short = self._gain = ""
        self._shown_s = 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def begin(self, workload: Workload, *, to_gain: ToGain | None = None) -> None:
        self._position += 1
        count = f"[{self._position}/{self._workloads}] " if self._workloads > 1 else ""
        self._name, self._short = f"{count}{task_label(workload)}", f"{count}{workload.pass_}"
        self._show("starting", to_gain)

    def __call__(self, result: TuningResult) -> None:
        if self._live or result.waiting or time.monotonic() - self._shown_s >= PLAIN_LINE_EVERY_S:
            self._show(state(result))

    def finish(self, words: str, *, to_gain: ToGain | None = None) -> None:
        self._show(words, to_gain, stays=True)

    def _show(self, words: str, to_gain: ToGain | None = None, *, stays: bool = False) -> None:
        from rich.text import Text

        self._shown_s = time.monotonic()
        self._gain = f"; still to gain: {to_gain}" if to_gain else self._gain
        line = f"{self._name}: {words}{self._gain}"
        if self._live is None:
            say(line)
        elif stays:
            self._console.print(line, soft_wrap=True, markup=False)
        else:
            short = Text(f"{self._short}: {words}{self._gain}")
            short.truncate(self._console.width - _SPINNER_COLUMNS, overflow="ellipsis")  # a status wraps what is longer
            self._live.update(short)


def label(workload: Workload) -> str:
    """The options that name a workload, for people: ``--shape 8,144,56,56 --kernel 3 --layout nhwc``."""
    sizes = ",".join(map(by, workload.also_at)).replace("×", "x")
    return workload_options(workload) + (f" --sizes {sizes}" if sizes else "")


def task_label(workload: Workload) -> str:
    """The pass, and the options that name the workload."""
    return f"{workload.pass_} {label(workload)}"


def state(result: TuningResult) -> str:
    """One line on how a search stands: ``24 trials, 12 s left, best 123.4 µs, 1.52× onednn-nhwc, 71 % of limit``."""
    words = [f"{result.trials} trials"]
    if result.stopped is not None:
        words.append(f"{STOPS[result.stopped]} after {result.elapsed_s:.0f} s")
        if result.too_busy:
            words.append("not confirmed: the machine was busy")
    elif result.doing:
        words.append(result.doing)
    elif result.waiting:
        words.append("the machine is busy: waiting")
    elif result.confirming:
        words.append("confirming")
    elif result.time_left_s is not None:
        words.append(f"{result.time_left_s:.0f} s left" if result.time_left_s >= 1 else "about to confirm the best")
    best = result.best
    if best is None or result.median_us is None:
        words.append("none worked" if result.stopped else "none worked yet")
    else:
        doubt = " (computed)" if result.computed else " (contended)" if best.inconclusive else ""
        words.append(f"best {microseconds(result.median_us)} µs{doubt}")
        if best.speedup and best.baseline and not best.inconclusive:  # what was timed beside other work has no ratio
            words.append(f"{best.speedup:.2f}× {best.baseline[0]}")
    if result.percent_of_limit is not None:
        words.append(f"{result.percent_of_limit:.0f} % of limit")
    return ", ".join(words + [f"{count} {status}" for status, count in sorted(result.failures.items())])


def microseconds(value: float) -> str:
    """At least four digits, and no more decimals than are significant."""
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 10_000 else f"{value:.0f}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one workload: a result, or why there is none."""

    workload: Workload
    result: TuningResult | None = None
    reason: str = ""
    """Why it could not be tuned: no template fits."""

    def beside(self, limits: Limits) -> Outcome:
        """The outcome, compared with other limits of the device."""
        if self.result is None:
            return self
        limit_us = limits.limit_us(bytes_moved=self.workload.bytes, flops=self.workload.flops)
        return dataclasses.replace(self, result=dataclasses.replace(self.result, limit_us=limit_us))

    @property
    def beyond_limit(self) -> bool:
        """True if the best is faster than the limits of the device allow."""
        return bool(self.result and self.result.beyond_limit)


def as_data(outcome: Outcome) -> dict[str, Any]:
    """One entry of ``results`` in the JSON output; times in microseconds, null if unknown."""
    workload, result = outcome.workload, outcome.result
    best = result.best if result else None
    baseline = best.baseline if best else None
    data: dict[str, Any] = {
        "workload": workload.key,
        "pass": workload.pass_,
        "config": best.config.to_dict() if best else None,
        "median_us": result.median_us if result else None,
        "spread_us": best.measurement.spread_us if best and best.measurement else None,
        "baseline_us": baseline[1].median_us if baseline else None,
        "baseline": baseline[0] if baseline else None,
        "speedup": best.speedup if best else None,
        "confirmed": bool(best and best.confirmed),
        "contention": best.contention if best else None,
        "too_busy": bool(result and result.too_busy),
        "busy": result.busy if result else 0.0,
        "percent_of_limit": result.percent_of_limit if result else None,
        "trials": result.trials if result else 0,
        "measured": result.measured if result else 0,
        "failures": result.failures if result else {},
        "stopped": result.stopped.value if result and result.stopped else None,
        "predicted": bool(result and result.computed),
        "workload_fields": workload.to_dict(),
    }
    if best and best.others:
        data["sizes"] = [
            {"input_size": each.workload.input_size, "median_us": each.time_us, "speedup": each.speedup}
            for each in best.at_each_size
        ]
    if best and best.resources:
        data["resources"] = best.resources
    if best is None:
        data["reason"] = outcome.reason or (result.failure_detail if result else "")
    return data


_HEADINGS = ("  pass", "median µs", "baseline µs", "× baseline", "% of limit", "trials", "failed")


def table_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line per pass under the workload's name, with its configuration below."""
    rows = [_HEADINGS, *map(_cells, outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    heading, *lines = ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows]
    yield heading
    columns = min(_MOST_COLUMNS, shutil.get_terminal_size().columns)
    group = ""
    for outcome, line in zip(outcomes, lines, strict=True):
        if (name := label(outcome.workload)) != group:
            yield (group := name)
        yield line
        for text in _beneath(outcome):
            yield from textwrap.wrap(
                text, columns, initial_indent=" " * 4, subsequent_indent=" " * 4, break_on_hyphens=False
            )


def _cells(outcome: Outcome) -> tuple[str, ...]:
    result = outcome.result
    name = f"  {outcome.workload.pass_}"
    if result is None:
        return (name, "no template", "–", "–", "–", "–", "–")
    failures = str(sum(result.failures.values()))
    best = result.best
    if best is None or best.measurement is None:
        return (name, "none", "–", "–", "–", str(result.trials), failures)
    time = microseconds(best.measurement.median_us)
    time = f"{time} computed" if result.computed else f"{time} ± {microseconds(best.measurement.spread_us)}"
    time += " (contended)" if best.inconclusive else ""
    baseline = f"{best.baseline[0]} {microseconds(best.baseline[1].median_us)}" if best.baseline else "–"
    speedup = f"{best.speedup:.2f}" if best.speedup and not best.inconclusive else "–"
    percent = f"{result.percent_of_limit:.0f}" if result.percent_of_limit is not None else "–"
    return (name, time, baseline, speedup, percent, str(result.trials), failures)


def _over_baseline(record: TuningRecord) -> str:
    return f", {record.speedup:.2f}× the baseline" if record.speedup and not record.inconclusive else " (contended)"


def _beneath(outcome: Outcome) -> list[str]:
    """The configuration, the resources that the compiler reported, and the failures."""
    result = outcome.result
    if result is None:
        return [outcome.reason]
    failures = ", ".join(f"{count} {status}" for status, count in sorted(result.failures.items()))
    detail = textwrap.shorten(result.failure_detail, width=160, placeholder=" …")
    if not result.trials:
        return ["interrupted before anything was measured"]
    if result.best is None:
        return [f"none of {result.trials} candidates worked: {failures}; the last one: {detail}"]
    lines = [f"{result.best.config.template} {result.best.config}"]
    lines += [
        f"{by(each.workload.input_size)}: {microseconds(each.time_us)} µs{_over_baseline(each)}"
        for each in result.best.at_each_size[1:]
    ]
    if result.best.resources:
        lines.append(resource_words(result.best.resources))
    if failures:
        lines.append(f"failed: {failures}; the last one: {detail}")
    return lines
