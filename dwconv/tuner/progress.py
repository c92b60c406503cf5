"""Progress: a live line a pass on a terminal, plain lines every few seconds elsewhere. All of it goes to stderr."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dwconv.problems.tune_command import short_sizes
from dwconv.problems.workload import Workload, resolve_padding
from dwconv.tuner.search.search_result import Stop, TuningResult

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

PLAIN_LINE_EVERY_S = 5.0

STOPS = {
    Stop.TRIALS: "all trials done",
    Stop.SECONDS: "time is up",
    Stop.PATIENCE: "no improvement any more",
    Stop.EXHAUSTED: "the whole space was tried",
    Stop.REFRESHED: "the best known were raced again",
    Stop.INTERRUPTED: "interrupted",
}


class Progress:
    """Shows how the search stands. Call ``begin``, then the object itself with every result, then ``finish``."""

    def __init__(self, *, workloads: int) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._workloads = workloads
        self._position = 0
        self._heading = ""
        self._line = ""
        self._result: TuningResult | None = None
        self._shown_s = 0.0
        self._live: Live | None = None
        self.to_gain = ""
        """What tuning may still gain of a step, to be shown beside each line; empty if there are no steps."""

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, get_renderable=self._now, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

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
    words = [",".join(map(str, workload.input_shape)), f"k{short_sizes(workload.kernel)}"]
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
    return " ".join([*words, workload.dtype, workload.layout])


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
