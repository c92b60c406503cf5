"""How far training is, on stderr: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from dwconv.errors import say

if TYPE_CHECKING:
    from rich.progress import Progress
    from typing_extensions import Self

_SILENT_S = 30.0


class StepsDone:
    """Call the object after every step. Without ``shows``, as on other ranks than the first, it prints nothing."""

    def __init__(self, total: int, *, shows: bool) -> None:
        self._total, self._shows, self._said_s = total, shows, time.monotonic()
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, step: int, loss: float) -> None:
        if not self._shows:
            return
        if self._is_terminal:
            self._bar = self._bar or self._started()
            self._bar.update(self._bar.task_ids[0], completed=step, description=f"loss {loss:.4f}")
        elif (now_s := time.monotonic()) - self._said_s >= _SILENT_S:
            self._said_s = now_s
            say(f"note: step {step} of {self._total}, loss {loss:.4f}")

    def _started(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        )  # fmt: skip
        bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
        bar.add_task("", total=self._total)
        bar.start()
        return bar
