"""A graph of tasks, as plain data: chains of operators that run without a break, and which task waits for which.

It knows neither torch nor a clock, so that schedules can be computed, tested and simulated for any number of cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Task:
    """A chain of operators that one worker runs without handing over in between."""

    index: int
    """Its place in the graph; every task comes after those it needs."""
    name: str
    """For people: its costliest operator and where the graph has it, such as ``convolution_7``."""
    kind: str
    """The costliest operator without its overload, such as ``aten.convolution_backward``."""
    signature: str
    """Operators, shapes, types and strides: tasks of one signature share what was measured."""
    needs: tuple[int, ...]
    """Indexes of the tasks whose results it reads."""
    flops: float
    """Floating-point operations, a multiply-add counted as two; 0 where no formula is known."""
    bytes: int
    """Bytes read and written."""


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """Tasks in an order in which they could run one after the other."""

    tasks: tuple[Task, ...]

    def readers(self) -> dict[int, list[int]]:
        """By task, the tasks that wait for it."""
        readers: dict[int, list[int]] = {task.index: [] for task in self.tasks}
        for task in self.tasks:
            for needed in task.needs:
                readers[needed].append(task.index)
        return readers


@dataclass(frozen=True, kw_only=True)
class ScalingCurve:
    """How long a task takes by its number of intra-op threads, in microseconds."""

    median_us: Mapping[int, float]
    """By number of threads, from 1 up without a gap."""

    def best_threads(self) -> int:
        """The count of least time; of equals, the smallest."""
        return min(sorted(self.median_us), key=self.median_us.__getitem__)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Memory that several views may share."""

    bytes: int
    made_by: int | None
    """The task; None for what was kept for the backward pass and is there from the start."""
    read_by: tuple[int, ...]
    """Tasks. After the last one it is free."""
    returned: bool
    """True if it stays: the graph returns it, for the caller or the backward pass."""
