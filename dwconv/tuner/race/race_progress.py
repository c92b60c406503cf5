"""RaceProgress: a bar with the time left, on a terminal only; elsewhere nothing is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.tuner.race.race_result import RaceResult

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class RaceProgress:
    """Shows how a race stands, on stderr. Call the object with every result."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> RaceProgress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, result: RaceResult) -> None:
        if not self._console.is_terminal:
            return
        if self._bar is None:
            self._bar = self._started()
        if self._task is None:
            self._task = self._bar.add_task("dwconv: finding the fastest kernels", total=None)
        done = result.raced
        self._bar.update(self._task, completed=done, total=done + len(result.left))

    def _started(self) -> Progress:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        bar = Progress(*columns, console=self._console, transient=True)
        bar.start()
        return bar
