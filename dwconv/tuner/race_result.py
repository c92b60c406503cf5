"""RaceResult: how a race stands, or ended. RaceProgress shows that on stderr: a bar on a terminal, else a line now and
then."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dwconv.errors import say
from dwconv.problems.workload import Workload, by
from dwconv.records.record import TuningRecord

if TYPE_CHECKING:
    from rich.progress import Progress
    from typing_extensions import Self


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
    not_needed: tuple[Workload, ...] = ()
    """Gradients that no step calls: their block runs as one, however fast they are."""
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
            "in blocks alone": self.not_needed,
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
        self._said_s = time.monotonic()
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, result: RaceResult) -> None:
        total = result.raced + len(result.left)
        if self._is_terminal:
            if self._bar is None:
                self._bar = self._started()
            self._bar.update(
                self._bar.task_ids[0], completed=result.raced, total=total, description=f"dwconv: {stands(result)}"
            )
        elif (now_s := time.monotonic()) - self._said_s >= _SILENT_S:
            self._said_s = now_s
            say(f"dwconv: {result.raced} of {total} passes raced, {stands(result)}")

    def _started(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
        bar.add_task("dwconv", total=None)
        bar.start()
        return bar


def stands(result: RaceResult) -> str:
    """What a race does now, and for how long at most: ``fprop 8×96×28×28 k3 nhwc, at most 41 s more``."""
    words = []
    if result.running:
        workload = result.running[0]
        words.append(f"{workload.pass_} {by(workload.input_shape)} k{workload.kernel[-1]} {workload.layout}")
    if result.inconclusive:
        words.append(f"slower since the machine is busy ({len(result.inconclusive)} inconclusive)")
    return ", ".join([*words, f"at most {result.ends_in_s:.0f} s more"])
