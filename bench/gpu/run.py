"""What every stage of ``bench cuda`` is given, and what it ends with."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from bench.gpu.budget import Pace
from bench.gpu.state import State
from dwconv.records.log import TuningLog
from dwconv.target import Target
from dwconv.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Run:
    """One stage's part of a run. The target is a GPU; nothing here asks for more than its kind."""

    target: Target
    state: State
    pace: Pace
    workloads: list[Workload]
    """To tune, race and rank, the most important first."""
    odd: list[Workload]
    """To verify on."""
    one_process: bool = False
    """Kernels run in this process."""
    jobs: int = field(default_factory=lambda: max(1, min(12, (os.cpu_count() or 2) - 2)))

    @property
    def out(self) -> Path:
        return self.state.path.parent

    @property
    def log(self) -> TuningLog:
        return TuningLog(self.out / f"{self.target.device}.jsonl")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One line of what a stage showed; ``failed`` if it makes the whole run fail."""

    line: str
    failed: bool = False


def say(stage: str, text: str) -> None:
    """A line of progress."""
    print(f"[{stage}] {text}", flush=True)


def of_all(done: int, count: int) -> str:
    """How many are left, as the end of a line; empty if none are."""
    return f"; time is up, {count - done} of {count} left" if done < count else ""
