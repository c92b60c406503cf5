"""RaceResult: how a race stands, or ended.

RaceProgress shows it on stderr: a bar on a terminal, elsewhere a line now and then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@dataclass(frozen=True, kw_only=True)
class RaceResult:
    """How a race stands, or ended: what became of each workload. Prints as a line."""

    won: tuple[Workload, ...] = ()
    """Raced: a kernel is the fastest, and confirmed."""
    lost: tuple[Workload, ...] = ()
    """Raced: PyTorch's op is the fastest."""
    failed: tuple[Workload, ...] = ()
    """Raced: no kernel worked."""
    inconclusive: tuple[Workload, ...] = ()
    """Raced, but other work took so much of the machine that the times do not count."""
    known: tuple[Workload, ...] = ()
    """Measured on this device before."""
    without_kernels: tuple[Workload, ...] = ()
    """No template fits them."""
    left: tuple[Workload, ...] = ()
    """Not raced: the time was up, or something ended the race."""
    left_us: float = 0.0
    """What those may win of a step."""
    running: tuple[Workload, ...] = ()
    """Of those that are left: raced now, or built ahead."""
    problem: str = ""
    """Why the race ended before its time, in one line."""
    records: tuple[TuningRecord, ...] = ()
    """What was measured, as it stands in the log."""
    elapsed_s: float = 0.0
    ends_in_s: float = 0.0
    """After this time no further workload is begun."""

    @property
    def raced(self) -> int:
        """How many workloads were raced."""
        return len(self.won) + len(self.lost) + len(self.failed) + len(self.inconclusive)

    def __str__(self) -> str:
        parts = {
            "won": self.won,
            "lost to PyTorch's op": self.lost,
            "without a kernel that worked": self.failed,
            "inconclusive (machine busy)": self.inconclusive,
        }
        text = [f"{len(workloads)} {what}" for what, workloads in parts.items() if workloads]
        line = f"{self.raced} passes raced in {self.elapsed_s:.1f} s" + (f": {', '.join(text)}" if text else "")
        others = {
            "known before": self.known,
            "without templates": self.without_kernels,
            "left for the next time": self.left,
        }
        rest = [f"{len(workloads)} {what}" for what, workloads in others.items() if workloads]
        if self.left and self.left_us:
            rest[-1] += f", which may win {self.left_us / 1e3:.2f} ms of a step"
        return "; ".join([line, *rest])


_SILENT_S = 5.0
"""A line comes after so long, and again after so long: what takes less needs no words."""


class RaceProgress:
    """Shows how a race stands. Call the object with every result."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said_s = time.monotonic()

    def __enter__(self) -> RaceProgress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, result: RaceResult) -> None:
        if not self._console.is_terminal:
            self._say_now_and_then(result)
            return
        if self._bar is None:
            self._bar = self._started()
        if self._task is None:
            self._task = self._bar.add_task("dwconv", total=None)
        done = result.raced
        total, text = done + len(result.left), f"dwconv: {stands(result)}"
        self._bar.update(self._task, completed=done, total=total, description=text, refresh=True)

    def _say_now_and_then(self, result: RaceResult) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= _SILENT_S:
            self._said_s = now_s
            done = result.raced
            text = f"dwconv: {done} of {done + len(result.left)} passes raced, {stands(result)}"
            self._console.print(text, markup=False, soft_wrap=True)

    def _started(self) -> Progress:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        bar = Progress(*columns, console=self._console, transient=True)
        bar.start()
        return bar


def stands(result: RaceResult) -> str:
    """What a race does now, and for how long at most: ``fprop 8×96×28×28 k3, at most 41 s more``."""
    words = []
    if result.running:
        words.append(_named(result.running[0]))
    elif not result.raced:
        words.append("the processes that build and measure start")
    if result.inconclusive:
        words.append(f"slower since the machine is busy ({len(result.inconclusive)} inconclusive)")
    words.append(f"at most {result.ends_in_s:.0f} s more")
    return ", ".join(words)


def _named(workload: Workload) -> str:
    size = "×".join(map(str, workload.input_shape))
    return f"{workload.pass_} {size} k{workload.kernel[-1]} {workload.layout}"
