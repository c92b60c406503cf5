"""Choices: how a user chose to tune, and whether anything can be tuned that way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dwconv import settings
from dwconv.errors import InvalidChoice, NoDevice, NoTemplate, UnknownTarget
from dwconv.measure.runner import Workers
from dwconv.problems.target import CpuTarget, Target, check_present
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.schedules.template import templates_for
from dwconv.tuner.expected_gain import Until
from dwconv.tuner.search.loop import SearchPlan
from dwconv.tuner.search.search_result import ENDS_BY_ITSELF, Budget, RunnerKind, Search

_LEAST_MINUTES_TO_COMPILE = 5.0
"""Compiling takes half a minute, and beside other work more than one."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How to tune. None leaves a choice to the tuner."""

    search: Search | None = None
    """Evolve by default; analytic where nothing can be measured, so that computed costs decide."""
    runner: RunnerKind = "auto"
    check: bool = True
    """Run candidates whose cost is computed in the simulator too."""
    trials: int | None = None
    """Of each workload, those known from the log included."""
    seconds: float | None = None
    """For each workload."""
    minutes: float | None = None
    """For all of them together. What was searched before is left out then."""
    patience: int | None = None
    """Trials without improvement."""
    until: float | None = None
    """Share of the device's limit from which on a pass is fast enough; or where further trials are expected to gain
    less than 1 % of a step, and less than the rest of the pass."""
    seed: int = settings.SEED
    jobs: int = 1
    """Builds at a time."""
    caches: Literal["warm", "training"] = "warm"
    both_gradients: bool = True
    """Where both gradients are tuned, tune the kernel that gives both, too, as ``with_both_gradients`` says."""
    log: Path | None = None
    """To read and extend; by default the user's own."""
    resume: bool = True
    """Measure nothing that the log has."""
    refresh: bool = False
    """Race again what was measured with other versions, and search nothing."""

    def __post_init__(self) -> None:
        """Raises InvalidChoice."""
        for name in ("trials", "seconds", "minutes", "patience", "jobs"):
            limit = getattr(self, name)
            if limit is not None and not 0 < limit < math.inf:
                raise InvalidChoice(f"{name}={limit} must be above 0 and finite; leave it out for the default")
        if self.until is not None and not 0 < self.until <= 1:
            raise InvalidChoice(f"until={self.until} is not a share of a limit; use one above 0, up to 1")

    def search_on(self, target: Target) -> Search:
        """The search; the usual one for ``target`` if none was chosen."""
        return self.search or ("evolve" if target.present else "analytic")

    @property
    def compiles_calls(self) -> bool:
        """True if there is time to wait until what lets calls bypass Python is compiled, once. Otherwise kernels are
        timed through Python, as in a race."""
        return self.minutes is None or self.minutes >= _LEAST_MINUTES_TO_COMPILE

    def workers(self, target: Target) -> Workers:
        """The processes that build and measure."""
        return Workers(target, jobs=self.jobs, caches=self.caches, compiles_calls=self.compiles_calls)

    def plan_on(self, target: Target, known: Database, *, workers: Workers) -> SearchPlan:
        """How each workload is searched on ``target``, by ``workers``."""
        return SearchPlan(
            strategy=self.search_on(target), seed=self.seed, resume=self.resume, refresh=self.refresh, known=known,
            runner=self.runner, jobs=self.jobs, check=self.check, workers=workers,
        )  # fmt: skip

    def budget(self, *, search: Search, seconds: float | None, until: Until | None = None) -> Budget:
        """The budget of a workload that may take so many seconds, and is over where ``until`` says."""
        chosen = (self.trials, self.seconds, self.minutes) != (None, None, None) or search == "exhaustive"
        ends_by_itself = self.refresh or search in ENDS_BY_ITSELF
        return Budget(
            trials=self.trials if chosen or self.refresh else settings.TRIALS,
            seconds=seconds,
            patience=self.patience or (None if ends_by_itself else settings.PATIENCE),
            until=until,
        )


def check_choices(choices: Choices, target: Target, workloads: Sequence[Workload]) -> None:
    """Raises a DwconvError if none of the workloads can be tuned on ``target`` as it was chosen."""
    if isinstance(target, CpuTarget):
        check_present(target)
    _check_search(choices, target)
    _check_templates(workloads, target)


def _check_search(choices: Choices, target: Target) -> None:
    """Raises a DwconvError if the chosen search or runner cannot work."""
    if choices.search_on(target) == "analytic" and target.kind != "cuda":
        raise UnknownTarget(
            f"--search analytic computes what a kernel costs a GPU, the target is {target}; use --target cuda:sm_90, "
            "or --search evolve"
        )
    if choices.runner == "predict" and target.kind != "cuda":
        raise UnknownTarget(f"--runner predict is for GPUs, the target is {target}; use --target cuda:sm_90")
    if choices.runner == "local" and not target.present:
        raise NoDevice(f"--runner local measures, and {target} is not in this machine; use --runner predict")
    if choices.refresh and not target.present:
        raise NoDevice(f"--refresh measures, and {target} is not in this machine; leave it out")


def _check_templates(workloads: Sequence[Workload], target: Target) -> None:
    """Raises NoTemplate if none of the workloads can be tuned."""
    reasons: list[NoTemplate] = []
    for workload in workloads:
        try:
            templates_for(workload, target)
        except NoTemplate as error:
            reasons.append(error)
        else:
            return
    raise reasons[0]
