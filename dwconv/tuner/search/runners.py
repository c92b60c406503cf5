"""Who finds out what a candidate is worth: a runner that measures here, or one that computes costs for another GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dwconv.problems.target import CudaTarget, Target
from dwconv.problems.workload import Workload
from dwconv.tuner.choices import RunnerKind, Search

if TYPE_CHECKING:
    from dwconv.measure.runner import Runner, Workers


@dataclass(frozen=True, kw_only=True)
class RunnerChoice:
    """Which runner to make for a workload, and what it may use."""

    kind: RunnerKind = "auto"
    """``local`` measures on this machine, ``predict`` computes costs; ``auto`` takes local where it can."""
    jobs: int = 1
    """Builds at a time, unless ``workers`` are lent."""
    check: bool = True
    """Run candidates whose cost is computed in the simulator too."""
    workers: Workers | None = None
    """Processes to borrow, from a caller that tunes several workloads; those of a board measure there."""

    def predicts(self, target: Target, *, strategy: Search) -> bool:
        """True if costs are computed and nothing is measured: the target is a GPU that is not here, or the strategy is
        analytic, or ``predict`` was asked for."""
        if target.kind != "cuda" or self.kind == "local":
            return False
        return self.kind == "predict" or strategy == "analytic" or not target.present

    def at_once(self, target: Target, *, strategy: Search) -> int:
        """Candidates that take hardly longer than one: on a GPU builders need not wait for the clock."""
        if target.kind == "cpu" or self.predicts(target, strategy=strategy):
            return 1
        return self.workers.jobs if self.workers is not None else self.jobs

    @property
    def starts_workers(self) -> bool:
        """True if the first candidate has to wait until worker processes have started."""
        return self.workers is None or not self.workers.measurer.running


USUAL_RUNNER = RunnerChoice()


def make_runner(workload: Workload, target: Target, *, choice: RunnerChoice, strategy: Search) -> Runner:
    """The runner that ``choice`` asks for. The caller closes it. Raises NoDevice if it should measure on a device that
    is not here."""
    if isinstance(target, CudaTarget) and choice.predicts(target, strategy=strategy):
        from dwconv.tuner.gpu_cost.compute_runner import ComputeRunner

        return ComputeRunner(target, check=choice.check, jobs=choice.jobs)
    from dwconv.measure.boards.board_runner import BoardRunner, BoardWorkers
    from dwconv.measure.runner import LocalRunner
    from dwconv.problems.target import check_present

    if isinstance(choice.workers, BoardWorkers):
        return BoardRunner(workload, target, workers=choice.workers)
    check_present(target)
    return LocalRunner(workload, target, jobs=choice.jobs, workers=choice.workers)
