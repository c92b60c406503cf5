"""A schedule, as plain data: which worker runs which task, in which order and with how many threads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One task on one worker, with the times that the schedule expects, in microseconds since the step began."""

    task: int
    worker: int
    threads: int
    start_us: float
    end_us: float


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Every task of a graph, placed. A worker runs its tasks by their start, each as soon as its needs are met."""

    strategies: tuple[str, ...]
    """Names of the strategies that made it, such as ``("S1", "S3")``; none for one task at a time on all cores."""
    cores: int
    placements: tuple[Placement, ...]

    @property
    def makespan_us(self) -> float:
        """When the last task ends."""
        return max((placement.end_us for placement in self.placements), default=0.0)
