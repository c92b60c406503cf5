"""UserChoices: how a user chose to tune, and whether anything can be tuned that way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dwconv import native, settings
from dwconv.errors import InvalidChoice, NoTemplate
from dwconv.measure.runner import WorkerProcesses
from dwconv.problems.target import CpuTarget, Target, check_present
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.schedules.space import MOST_LISTED
from dwconv.schedules.template import ScheduleTemplate, templates_for
from dwconv.system import given
from dwconv.tuner.search.search_loop import SearchPlan
from dwconv.tuner.search.search_result import ENDS_BY_ITSELF, Budget, Search

_UNTIL = "use one above 0, up to 1"
_LEAST_MINUTES_TO_COMPILE = 5.0
"""Compiling takes half a minute, and beside other work more than one."""
_MOST_S_TO_COMPILE = 45.0


@dataclass(frozen=True, kw_only=True)
class UserChoices:
    """How to tune. None leaves a choice to the tuner."""

    search: Search | None = None
    """Evolve by default; analytic where nothing can be measured, so that computed costs decide."""
    trials: int | None = None
    """Of each workload, those known from the log included."""
    seconds: float | None = None
    """For each workload."""
    minutes: float | None = None
    """For all of them together. What was searched before is left out then."""
    patience: int | None = None
    """Trials without improvement."""
    until: float | None = None
    """The share of the device's limit that is good enough."""
    seed: int = settings.SEED
    """Of what the search draws at random."""
    jobs: int = 1
    """Builds at a time."""
    caches: Literal["warm", "training"] = "warm"
    both_gradients: bool = True
    """Where both gradients are tuned, tune the kernel that gives both, too, as ``with_both_gradients`` says."""
    log: Path | None = None
    """To read and extend; by default the user's own."""
    resume: bool = True
    """Measure nothing that the log has."""

    def __post_init__(self) -> None:
        """Raises InvalidChoice."""
        way_out = "leave it out for the default"
        for name in ("trials", "seconds", "minutes", "patience", "jobs"):
            limit = getattr(self, name)
            if limit is None:
                continue
            is_time = name in ("seconds", "minutes") or isinstance(limit, float)  # nan and inf are floats
            if is_time and not isinstance(limit, float):
                limit = given.number(name, limit, way_out=way_out)
            if is_time and not 0 < limit < math.inf:
                raise InvalidChoice(f"{name}={getattr(self, name)} must be above 0 and finite; {way_out}")
            if name not in ("seconds", "minutes"):
                given.whole(name, limit, least=1, way_out=way_out)
        if self.until is not None:
            until = self.until if isinstance(self.until, float) else given.number("until", self.until, way_out=_UNTIL)
            if not 0 < until <= 1:
                raise InvalidChoice(f"until={until:g} is not a share of the device's limit; {_UNTIL}")

    def search_on(self, target: Target) -> Search:
        """The search; the usual one for ``target`` if none was chosen."""
        return self.search or ("evolve" if target.present else "analytic")

    def seconds_on(self, target: Target) -> float | None:
        """The most for the search of one workload; None is without end."""
        ends = self.trials is not None or self.search_on(target) in ENDS_BY_ITSELF
        return self.seconds or (None if ends and self.minutes is None else settings.SECONDS)

    @property
    def has_an_end(self) -> bool:
        """Whether a limit ends the search before it has tried the whole space."""
        return any(limit is not None for limit in (self.trials, self.seconds, self.minutes, self.patience, self.until))

    def compiles_for_s(self, *, passes: float = math.inf) -> float:
        """How long a run over so many passes waits until what lets calls bypass Python is compiled, once; 0 if the run
        is too short for that. Without it kernels are timed through Python, as in a race."""
        longest_s = min(60 * (self.minutes or math.inf), passes * (self.seconds or math.inf))
        return _MOST_S_TO_COMPILE if longest_s >= 60 * _LEAST_MINUTES_TO_COMPILE else 0.0

    def workers(self, target: Target) -> WorkerProcesses:
        """The processes that build and measure. They do not wait for what was not compiled here."""
        return WorkerProcesses(target, jobs=self.jobs, caches=self.caches, compiles_calls=native.module is not None)

    def plan_on(self, target: Target, known: Database, *, workers: WorkerProcesses) -> SearchPlan:
        """How each workload is searched on ``target``, by ``workers``."""
        strategy = self.search_on(target)
        return SearchPlan(
            strategy=strategy, seed=self.seed, resume=self.resume, known=known, jobs=self.jobs, workers=workers
        )

    def budget(self, target: Target, *, seconds: float | None) -> Budget:
        """The budget of a workload that may take so many seconds."""
        search = self.search_on(target)
        chosen = (self.trials, self.seconds, self.minutes) != (None, None, None) or search == "exhaustive"
        return Budget(
            trials=self.trials if chosen else settings.TRIALS,
            seconds=seconds,
            patience=self.patience or (None if search in ENDS_BY_ITSELF else settings.PATIENCE),
        )


def check_choices(choices: UserChoices, target: Target, workloads: Sequence[Workload]) -> None:
    """Raises a DwconvError if none of the workloads can be tuned on ``target`` as it was chosen."""
    if isinstance(target, CpuTarget):
        check_present(target)
    if choices.search_on(target) == "analytic" and target.kind != "cuda":
        raise InvalidChoice(
            f"--search analytic computes what a kernel costs a GPU, the target is {target}; use --target cuda:sm_90, "
            "or --search evolve"
        )
    lists_all = choices.search_on(target) == "exhaustive" and not choices.has_an_end
    found: dict[Workload, list[ScheduleTemplate[Any]]] = {}
    reasons: list[NoTemplate] = []
    for workload in workloads:
        try:
            found[workload] = templates_for(workload, target)
        except NoTemplate as error:
            reasons.append(error)
        if found and not lists_all:
            return
    if not found:
        raise reasons[0]
    for workload, templates in found.items():
        size = sum(template.space(workload, target).size for template in templates)
        if size > MOST_LISTED:
            raise InvalidChoice(
                f"--search exhaustive would look at {size} configurations of {workload.key}, at most {MOST_LISTED}; "
                f"set --trials, or use --search {'evolve' if target.present else 'analytic'}"
            )
