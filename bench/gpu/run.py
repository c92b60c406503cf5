"""The input of every stage of ``bench cuda``, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bench.gpu.budget import Pace
from bench.gpu.state import State
from dwconv.commands.tune_arguments import cores
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.log import TuningLog


@dataclass(frozen=True, kw_only=True)
class Run:
    """One stage's part of a run. The target is a GPU; only its kind is used here."""

    target: Target
    state: State
    pace: Pace
    workloads: list[Workload]
    """Workloads to tune, race and rank, the most important first."""
    odd: list[Workload]
    """Workloads on which templates are verified."""
    one_process: bool = False
    """True if kernels run in this process."""
    jobs: int = field(default_factory=lambda: max(1, min(12, cores() - 2)))

    @property
    def out(self) -> Path:
        return self.state.path.parent

    @property
    def log(self) -> TuningLog:
        return TuningLog(self.out / f"{self.target.device}.jsonl")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The result of a stage in one line; ``failed`` if it makes the whole run fail."""

    line: str
    failed: bool = False


def say(stage: str, text: str) -> None:
    """Print a line of progress."""
    print(f"[{stage}] {text}", flush=True)


def of_all(done: int, count: int) -> str:
    """The end of a line that says how many are left; empty if none are."""
    return f"; time is up, {count - done} of {count} left" if done < count else ""
