"""DeviceCampaign: what is tuned on the devices of one name, in which order, with their log and what is known.

Notes go to stderr.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dwconv import settings
from dwconv.errors import InvalidChoice, NoDevice, NoTemplate, UnknownTarget
from dwconv.measure.boards.board_runner import BoardWorkers
from dwconv.measure.boards.session import Board
from dwconv.measure.runner import Workers
from dwconv.problems.target import CpuTarget, Target, check_present
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.schedules.template import templates_for
from dwconv.tuner.agenda import Agenda, without_searched
from dwconv.tuner.expected_gain import (
    StepTime,
    ToGain,
    Until,
    expected_gains_us,
    most_to_win_first,
    with_both_gradients,
)
from dwconv.tuner.results_table import Outcome
from dwconv.tuner.search.loop import RunnerChoice, SearchPlan
from dwconv.tuner.search.search_result import ENDS_BY_ITSELF, Budget, RunnerKind, Search
from dwconv.tuner.search.strategies import to_race_again
from dwconv.tuner.tuned import Gain, Tuned

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
    """Measure nothing that the log knows."""
    refresh: bool = False
    """Race again what was measured with other versions, and search nothing."""
    board: Board | None = None
    """To measure there instead of on this machine."""

    def __post_init__(self) -> None:
        """Raises InvalidChoice."""
        for name in ("trials", "seconds", "minutes", "patience", "jobs"):
            limit = getattr(self, name)
            if limit is not None and not 0 < limit < math.inf:
                raise InvalidChoice(f"{name}={limit} must be above 0 and finite; leave it out for the default")
        if self.until is not None and not 0 < self.until <= 1:
            raise InvalidChoice(f"until={self.until} is no share of a limit; use one above 0, up to 1")

    def search_on(self, target: Target) -> Search:
        """The search; the usual one for ``target`` if none was chosen."""
        return self.search or ("evolve" if self.measures(target) else "analytic")

    def measures(self, target: Target) -> bool:
        """True if kernels for ``target`` can be run, here or on a board."""
        return target.present or self.board is not None

    @property
    def compiles_calls(self) -> bool:
        """True if there is time to wait until what lets calls bypass Python is compiled, once. Otherwise kernels are
        timed through Python, as in a race."""
        return self.minutes is None or self.minutes >= _LEAST_MINUTES_TO_COMPILE

    def workers(self, target: Target) -> Workers:
        """The processes that build and measure. Raises BoardLost for a board that does not answer."""
        if self.board is None or not isinstance(target, CpuTarget):
            return Workers(target, jobs=self.jobs, caches=self.caches, compiles_calls=self.compiles_calls)
        workers = BoardWorkers(self.board, target, jobs=self.jobs)
        workers.check()
        return workers

    def plan_on(self, target: Target, known: Database) -> SearchPlan:
        """Which configurations are tried on ``target``, and where the search starts."""
        return SearchPlan(
            strategy=self.search_on(target), seed=self.seed, resume=self.resume, refresh=self.refresh, known=known
        )

    @property
    def runner_choice(self) -> RunnerChoice:
        return RunnerChoice(kind=self.runner, jobs=self.jobs, check=self.check)

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


@dataclass(frozen=True, kw_only=True)
class DeviceCampaign:
    """The workloads of one device's name, as a user chose to tune them."""

    target: Target
    choices: Choices
    log: TuningLog
    """What is appended to it counts as known at once."""
    known: Database
    agenda: Agenda
    step: StepTime | None
    """Of a network; None if there are no steps."""
    before: ToGain | None
    """What tuning could gain of a step before it began."""

    @classmethod
    def of(
        cls,
        counts: Mapping[Workload, int],
        target: Target,
        choices: Choices,
        *,
        log: TuningLog,
        known: Database,
        network: bool,
    ) -> DeviceCampaign:
        """``counts`` says how often a step runs each workload. ``network``: those with most to win come first. ``log``
        and ``known`` are those of ``opened_log``. Says what is left out."""
        counts = with_both_gradients(counts, target) if choices.both_gradients else counts
        step = StepTime(counts, target, known) if network or choices.until else None
        return cls(
            target=target,
            choices=choices,
            log=log,
            known=known,
            agenda=_agenda(counts, choices, target, known=known, log=log, network=network),
            step=step,
            before=step.to_gain if step else None,
        )

    def tuned(self, outcomes: Sequence[Outcome], *, interrupted: bool) -> Tuned:
        """What was found, if it ends with these outcomes."""
        return Tuned(
            outcomes=tuple(outcomes),
            target=self.target,
            log=self.log.path,
            is_own_log=self.choices.log is None,
            left=len(self.agenda.workloads) - len(outcomes),
            interrupted=interrupted,
            gain=Gain(before=self.before, after=self.step.to_gain) if self.step and self.before else None,
            tuning_left=self.step.tuning_left() if self.step and self.choices.until else None,
        )

    def until(self, workload: Workload) -> Until | None:
        """When the search of a workload that begins now ends; None without ``--until``."""
        if self.choices.until is None or self.step is None:
            return None
        calls, step_us = self.step.calls(workload), self.step.to_gain.depthwise_us
        return Until(share=self.choices.until, calls=calls, step_us=step_us)


def opened_log(choices: Choices, target: Target) -> tuple[TuningLog, Database]:
    """The log to write, and what is known: what it holds, and behind that the usual places. What one search finds, the
    next one knows. Says which files are damaged. Raises LogError if it cannot be written."""
    log = TuningLog(choices.log or log_path(target))
    log.check_writable()
    known = Database.behind_log(log.path, alone=choices.log is not None)
    log.followers.append(known.add)
    for problem in known.problems:
        print(f"note: {problem}", file=sys.stderr)
    return log, known


def check_choices(choices: Choices, target: Target, workloads: Sequence[Workload]) -> None:
    """Raises a DwconvError if none of the workloads can be tuned on ``target`` as it was chosen."""
    if isinstance(target, CpuTarget) and not choices.measures(target):
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
    if choices.runner == "local" and not choices.measures(target):
        raise NoDevice(f"--runner local measures, and {target} is not in this machine; use --runner predict")
    if choices.until and target.limits is None and not target.present:
        raise InvalidChoice(
            f"until={choices.until:g} is a share of the device's limit, and those of {target} are "
            "unknown; use --trials or --seconds"
        )
    if choices.refresh and not choices.measures(target):
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


def _agenda(
    counts: Mapping[Workload, int],
    choices: Choices,
    target: Target,
    *,
    known: Database,
    log: TuningLog,
    network: bool,
) -> Agenda:
    """The workloads in the order in which they are tuned, and how long each may take; says what is left out."""
    workloads = most_to_win_first(counts, target, known) if network else list(counts)
    if choices.refresh:
        return _agenda_of_refresh(workloads, choices, target, known=known)
    if choices.minutes is not None:
        left = without_searched(workloads, known.of_own_places, target)
        if searched := len(workloads) - len(left):
            print(
                f"note: {searched} of {len(workloads)} passes were searched before, by {log.path}"
                f"{' or the team' * (known.own > 1)}, and are left out",
                file=sys.stderr,
            )
        return Agenda(
            workloads=left,
            seconds=choices.seconds or settings.SECONDS,
            total_s=60 * choices.minutes,
            expected_gains_us=expected_gains_us({each: counts[each] for each in left}, target, known),
        )
    endless = choices.trials is not None or choices.search_on(target) in ENDS_BY_ITSELF
    return Agenda(workloads=workloads, seconds=choices.seconds or (None if endless else settings.SECONDS))


def _agenda_of_refresh(workloads: list[Workload], choices: Choices, target: Target, *, known: Database) -> Agenda:
    """The workloads to race again; says how many are left out."""
    left = to_race_again(workloads, known, target)
    if others := len(workloads) - len(left):
        print(
            f"note: {others} of {len(workloads)} passes have nothing to race again, and are left out", file=sys.stderr
        )
    return Agenda(workloads=left, seconds=choices.seconds, total_s=60 * choices.minutes if choices.minutes else None)
