"""RaceProgress: how a race stands, on stderr: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dwconv.problems.workload import Workload
from dwconv.tuner.race.race_result import RaceResult

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

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
        total, told = done + len(result.left), f"dwconv: {stands(result)}"
        self._bar.update(self._task, completed=done, total=total, description=told, refresh=True)

    def _say_now_and_then(self, result: RaceResult) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= _SILENT_S:
            self._said_s = now_s
            done = result.raced
            told = f"dwconv: {done} of {done + len(result.left)} passes raced, {stands(result)}"
            self._console.print(told, markup=False, soft_wrap=True)

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
