"""What a tuning run prints: its progress, then its results, as a table for people and as plain data for programs.

Progress is a live line a pass on a terminal, plain lines every few seconds elsewhere. All of it goes to stderr.
"""

from __future__ import annotations

import dataclasses
import textwrap
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dwconv.problems.as_written import resolve_padding, short_sizes
from dwconv.problems.target import CudaTarget, Limits, Target
from dwconv.problems.workload import Workload, by
from dwconv.schedules.template import Candidate
from dwconv.tuner.gpu_cost import cost_data, cost_lines, resource_words
from dwconv.tuner.search.search_result import Stop, TuningResult

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text
    from typing_extensions import Self

    from dwconv.tuner.gpu_cost import Cost


PLAIN_LINE_EVERY_S = 5.0

STOPS = {
    Stop.TRIALS: "all trials done",
    Stop.SECONDS: "time is up",
    Stop.PATIENCE: "no improvement any more",
    Stop.EXHAUSTED: "the whole space was tried",
    Stop.REFRESHED: "the best known were raced again",
    Stop.LIMIT: "near the limit",
    Stop.GAIN: "little is left to gain",
    Stop.INTERRUPTED: "interrupted",
}


class LiveView(ABC):
    """A context manager that shows ``_now`` on stderr, a few times a second, if that is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        """None where there is no terminal, or before it begins."""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, get_renderable=self._now, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    @abstractmethod
    def _now(self) -> RenderableType:
        """What is shown at the moment."""


class Progress(LiveView):
    """Shows how the search stands. Call ``begin``, then the object itself with every result, then ``finish``."""

    def __init__(self, *, workloads: int) -> None:
        super().__init__()
        self._workloads = workloads
        self._position = 0
        self._heading = ""
        self._line = ""
        self._result: TuningResult | None = None
        self._shown_s = 0.0
        self.to_gain = ""
        """What tuning may still gain of a step, to be shown beside each line; empty if there are no steps."""

    def begin(self, workload: Workload) -> None:
        self._position += 1
        self._result = None
        count = f"[{self._position}/{self._workloads}] " if self._workloads > 1 else ""
        if self._live is None:
            self._line = f"{count}{workload.pass_} {label(workload)}"
            self._print(f"{self._line}: {self._told('starting')}")
        else:  # the live line has to fit on one line, so what the passes have in common is printed above it
            if label(workload) != self._heading:
                self._heading = label(workload)
                self._print(f"{count}{self._heading}")
            self._line = f"  {workload.pass_}"
        self._shown_s = time.monotonic()

    def __call__(self, result: TuningResult) -> None:
        self._result = result
        now = time.monotonic()
        if self._live is None and (result.waiting or now - self._shown_s >= PLAIN_LINE_EVERY_S):
            self._shown_s = now
            self._print(f"{self._line}: {self._told(state(result))}")

    def finish(self, result: TuningResult) -> None:
        self._end(state(result))

    def skip(self, reason: str) -> None:
        """The workload that began cannot be tuned."""
        self._end(reason)

    def _end(self, words: str) -> None:
        line, self._line = self._line, ""
        self._print(f"{line}: {self._told(words)}")

    def _now(self) -> Text:
        from rich.text import Text

        now = state(self._result) if self._result else "starting"
        return Text(f"{self._line}: {self._told(now)}" if self._line else "", no_wrap=True, overflow="ellipsis")

    def _told(self, words: str) -> str:
        return f"{words}; still to gain: {self.to_gain}" if self.to_gain else words

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False)


def label(workload: Workload) -> str:
    """A short name of a workload, for people: ``8,144,56,56 k3 s2 float32 nhwc``. Default values are left out."""
    words = [",".join(map(str, workload.input_shape)), *(f"+{by(size)}" for size in workload.also_at)]
    words.append(f"k{short_sizes(workload.kernel)}")
    if set(workload.stride) != {1}:
        words.append(f"s{short_sizes(workload.stride)}")
    sizes = {"kernel": workload.kernel, "stride": workload.stride, "dilation": workload.dilation}
    if workload.padding != resolve_padding(None, **sizes):
        words.append("p" + ",".join(str(a) if a == b else f"{a}:{b}" for a, b in workload.padding))
    if set(workload.dilation) != {1}:
        words.append(f"d{short_sizes(workload.dilation)}")
    if workload.multiplier != 1:
        words.append(f"m{workload.multiplier}")
    if workload.bias:
        words.append("bias")
    return " ".join([*words, workload.dtype, workload.layout, *["any size"] * workload.any_size])


def state(result: TuningResult) -> str:
    """One line on how a search stands: ``24 trials, 12 s left, best 123.4 µs, 1.52× onednn-nhwc, 71 % of limit``."""
    words = [f"{result.trials} trials"]
    if result.stopped is not None:
        words.append(f"{STOPS[result.stopped]} after {result.elapsed_s:.0f} s")
        if result.too_busy:
            words.append("not confirmed: the machine was busy")
    elif result.waiting:
        words.append("the machine is busy: waiting")
    elif result.confirming:
        words.append("confirming")
    elif result.time_left_s is not None:
        words.append(f"{result.time_left_s:.0f} s left")
    if result.median_us is None:
        words.append("none worked" if result.stopped else "none worked yet")
    else:
        doubt = " (computed)" if result.computed else " (contended)" if result.best and result.best.contended else ""
        words.append(f"best {microseconds(result.median_us)} µs{doubt}")
    if result.best and result.best.speedup and result.best.baseline:
        words.append(f"{result.best.speedup:.2f}× {result.best.baseline[0]}")
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
        """The same, compared with other limits of the device."""
        if self.result is None:
            return self
        limit_us = limits.limit_us(bytes_moved=self.workload.bytes, flops=self.workload.flops)
        return dataclasses.replace(self, result=dataclasses.replace(self.result, limit_us=limit_us))


def as_data(outcome: Outcome, *, target: Target | None = None) -> dict[str, Any]:
    """One entry of ``results`` in the JSON output; times in microseconds, null if unknown. With the target it has the
    computed cost too, if the best was only computed."""
    workload, result = outcome.workload, outcome.result
    best = result.best if result else None
    baseline = best.baseline if best else None
    speedup = best.speedup if best else None
    data: dict[str, Any] = {
        "workload": workload.key,
        "pass": workload.pass_,
        "config": best.config.to_dict() if best else None,
        "median_us": result.median_us if result else None,
        "spread_us": best.measurement.spread_us if best and best.measurement else None,
        "baseline_us": baseline[1].median_us if baseline else None,
        "baseline": baseline[0] if baseline else None,
        "speedup": speedup,
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
    if result and result.ranked:
        data |= {"ranked": result.ranked, "checked": result.checked}
    if target is not None and (cost := _cost(outcome, target)) is not None:
        data["cost"] = cost_data(cost)
    if outcome.reason:
        data["reason"] = outcome.reason
    elif result and best is None:
        data["reason"] = result.failure_detail
    return data


def print_table(outcomes: Sequence[Outcome], *, console: Console) -> None:
    """A line per pass under the workload's name, with its configuration below."""
    rows = [_cells(outcome) for outcome in outcomes]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    console.print(_aligned(_HEADINGS, widths), style="bold", markup=False, soft_wrap=True)
    group = ""
    for outcome, cells in zip(outcomes, rows, strict=True):
        if (name := label(outcome.workload)) != group:
            group = name
            console.print(name, style="cyan", markup=False, soft_wrap=True)
        console.print(_aligned(cells, widths), style=_style(outcome), markup=False, soft_wrap=True)
        for text in _beneath(outcome):
            for line in textwrap.wrap(text, width=max(40, console.width - 4), break_on_hyphens=False):
                console.print(f"    {line}", style="dim", markup=False, soft_wrap=True)


def print_costs(outcomes: Sequence[Outcome], *, target: Target, console: Console) -> None:
    """Explain the computed cost of every best configuration whose time was computed."""
    for outcome in outcomes:
        cost = _cost(outcome, target)
        if cost is None or outcome.result is None:
            continue
        result = outcome.result
        console.print(
            f"\n{outcome.workload.pass_} {label(outcome.workload)}", style="cyan", markup=False, soft_wrap=True
        )
        if result.ranked:
            console.print(
                f"    {_ranked(result)}",
                markup=False,
                soft_wrap=True,
            )
        for line in cost_lines(cost):
            console.print(f"    {line}", style="dim", markup=False, soft_wrap=True)


def busy_note(outcomes: Sequence[Outcome]) -> str:
    """The note on passes that were not confirmed because of other work; empty if there are none."""
    results = [outcome.result for outcome in outcomes if outcome.result and outcome.result.too_busy]
    if not results:
        return ""
    busy = max(result.busy for result in results)
    share = f" ({busy:.0%} of its cores)" if busy else ""
    passes = "1 pass is" if len(results) == 1 else f"{len(results)} passes are"
    return (
        f"note: the machine was busy with other work{share}; {passes} not confirmed; "
        "run the same command again when it is quiet"
    )


def _ranked(result: TuningResult) -> str:
    """``7074 configurations ranked by an estimate; 64 built and computed, 64 of them checked in the simulator; …``"""
    words = [f"{result.ranked} configurations ranked by an estimate"]
    checked = f"{result.checked} of them checked in the simulator" if result.checked else "none of them checked"
    words.append(f"{result.trials} built and computed, {checked}")
    return "; ".join(words)


def _cost(outcome: Outcome, target: Target) -> Cost | None:
    """The computed cost of a best that was not measured. It is computed again, since the record has only the sum."""
    if not (outcome.result and outcome.result.computed and outcome.result.best and isinstance(target, CudaTarget)):
        return None
    from dwconv.kernels import build
    from dwconv.tuner.gpu_cost import computed_cost

    candidate = Candidate(outcome.workload, outcome.result.best.config)
    return computed_cost(build(candidate, target), outcome.workload, target)


_HEADINGS = ("  pass", "median µs", "baseline µs", "× baseline", "% of limit", "trials", "failed")


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
    time += " (contended)" if best.contended else ""
    baseline = f"{best.baseline[0]} {microseconds(best.baseline[1].median_us)}" if best.baseline else "–"
    speedup = f"{best.speedup:.2f}" if best.speedup else "–"
    percent = f"{result.percent_of_limit:.0f}" if result.percent_of_limit is not None else "–"
    return (name, time, baseline, speedup, percent, str(result.trials), failures)


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
        f"{by(each.workload.input_size)}: {microseconds(each.time_us)} µs, {each.speedup or 0:.2f}× the baseline"
        for each in result.best.at_each_size[1:]
    ]
    if result.best.resources:
        lines.append(resource_words(result.best.resources))
    if failures:
        lines.append(f"failed: {failures}; the last one: {detail}")
    return lines


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join([first, *others]).rstrip()


def _style(outcome: Outcome) -> str:
    if outcome.result is None or outcome.result.best is None:
        return "yellow"
    speedup = outcome.result.best.speedup
    return "" if speedup is None else "green" if speedup >= 1 else "yellow"
