"""Campaign: many workloads tuned one after the other, as a user chose it. The command and ``dwconv.tune`` both run it.

Notes, and how the searches stand, go to stderr.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dwconv import native, settings
from dwconv.errors import BrokenInstallation, InvalidChoice, NoDevice, NoTemplate, UnknownTarget
from dwconv.measure.boards.address import Board
from dwconv.measure.boards.board_runner import BoardWorkers
from dwconv.measure.clock import contention
from dwconv.measure.limits import limits
from dwconv.measure.runner import Workers
from dwconv.measure.simulator.compile import check_compiler
from dwconv.problems.target import CpuTarget, Target, check_present
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.schedules.template import templates_for
from dwconv.tuner.agenda import Agenda, without_searched
from dwconv.tuner.choices import ENDS_BY_ITSELF, RunnerKind, Search
from dwconv.tuner.expected_gain import expected_gains_us, most_to_win_first
from dwconv.tuner.progress import Progress
from dwconv.tuner.results_table import Outcome
from dwconv.tuner.search import loop
from dwconv.tuner.search.runners import RunnerChoice
from dwconv.tuner.search.search_result import Budget, Stop
from dwconv.tuner.search.warm_start import to_race_again
from dwconv.tuner.sharing import shared
from dwconv.tuner.step_time import StepTime
from dwconv.tuner.tuned import Gain, Tuned


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
    seed: int = settings.SEED
    jobs: int = 1
    """Builds at a time."""
    caches: Literal["warm", "training"] = "warm"
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

    def search_on(self, target: Target) -> Search:
        """The search; the usual one for ``target`` if none was chosen."""
        return self.search or ("evolve" if self.measures(target) else "analytic")

    def measures(self, target: Target) -> bool:
        """True if kernels for ``target`` can be run, here or on a board."""
        return target.present or self.board is not None

    def workers(self, target: Target) -> Workers:
        """The processes that build and measure. Raises BoardLost for a board that does not answer."""
        if self.board is None or not isinstance(target, CpuTarget):
            return Workers(target, jobs=self.jobs, caches=self.caches)
        workers = BoardWorkers(self.board, target, jobs=self.jobs)
        workers.check()
        return workers

    @property
    def runner_choice(self) -> RunnerChoice:
        return RunnerChoice(kind=self.runner, jobs=self.jobs, check=self.check)

    def budget(self, *, search: Search, seconds: float | None) -> Budget:
        """The budget of a workload that may take so many seconds."""
        chosen = (self.trials, self.seconds, self.minutes) != (None, None, None) or search == "exhaustive"
        ends_by_itself = self.refresh or search in ENDS_BY_ITSELF
        return Budget(
            trials=self.trials if chosen or self.refresh else settings.TRIALS,
            seconds=seconds,
            patience=self.patience or (None if ends_by_itself else settings.PATIENCE),
        )


def tune_all(counts: Mapping[Workload, int], target: Target, choices: Choices, *, network: bool) -> Tuned:
    """Tune every workload; ``counts`` says how often a step runs it. ``network``: those with most to win come first.

    Ctrl-C ends the campaign, and what was found until then is in the result. Raises a DwconvError if nothing can be
    tuned as it was chosen, or nothing can be written."""
    if isinstance(target, CpuTarget) and not choices.measures(target):
        check_present(target)
    choices = dataclasses.replace(choices, search=choices.search_on(target))
    _check_search(choices, target)
    _check_templates(list(counts), target)
    log = TuningLog(choices.log or log_path(target))
    log.check_writable()
    known = Database.behind_log(log.path, alone=choices.log is not None)
    log.followers.append(known.add)  # what one search finds, the next one knows
    for problem in known.problems:
        print(f"note: {problem}", file=sys.stderr)
    if isinstance(target, CpuTarget) and target.present:
        target = _prepared_cpu(target)
    agenda = _agenda(counts, choices, target, known=known, log=log, network=network)
    step = StepTime(counts, target, known) if network else None
    before = step.to_gain if step else None
    with shared(log, target, wanted=choices.log is None and choices.measures(target)) as share_if_due:
        outcomes, interrupted = _outcomes(
            agenda, choices, target, known=known, log=log, step=step, between=share_if_due
        )
    if isinstance(target, CpuTarget) and target.present:
        _check_limits(outcomes, target)
    return Tuned(
        outcomes=tuple(outcomes),
        target=target,
        log=log.path,
        is_own_log=choices.log is None,
        left=len(agenda.workloads) - len(outcomes),
        interrupted=interrupted,
        gain=Gain(before=before, after=step.to_gain) if step and before else None,
    )


# -- before it starts ------------------------------------------------------------------------------------------------


def _check_search(choices: Choices, target: Target) -> None:
    """Raises a DwconvError if the search or the runner that was asked for cannot work."""
    if choices.search == "analytic" and target.kind != "cuda":
        raise UnknownTarget(
            f"--search analytic computes what a kernel costs a GPU, the target is {target}; use --target cuda:sm_90, "
            "or --search evolve"
        )
    if choices.runner == "predict" and target.kind != "cuda":
        raise UnknownTarget(f"--runner predict is for GPUs, the target is {target}; use --target cuda:sm_90")
    if choices.runner == "local" and not choices.measures(target):
        raise NoDevice(f"--runner local measures, and {target} is not in this machine; use --runner predict")
    if choices.refresh and not choices.measures(target):
        raise NoDevice(f"--refresh measures, and {target} is not in this machine; leave it out")


def _check_templates(workloads: list[Workload], target: Target) -> None:
    """Raises NoTemplate if nothing of what was asked for can be tuned."""
    reasons: list[NoTemplate] = []
    for workload in workloads:
        try:
            templates_for(workload, target)
        except NoTemplate as error:
            reasons.append(error)
        else:
            return
    raise reasons[0]


def _prepared_cpu(target: CpuTarget) -> CpuTarget:
    """``target`` with its limits; tells the user what takes long, and what makes times doubtful."""
    if oversubscribed := contention.oversubscription(target.threads):
        print(f"note: {oversubscribed}: they wait for each other, which makes times longer", file=sys.stderr)
    if not limits.are_settled(target):
        print("note: measuring how fast this CPU copies and multiplies, as the first few runs do", file=sys.stderr)
    target = limits.with_limits(target)
    native.native()  # compiled here if need be: the user sees it, and no worker has to do it in its time
    return target


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
    endless = choices.trials is not None or choices.search in ENDS_BY_ITSELF
    return Agenda(workloads=workloads, seconds=choices.seconds or (None if endless else settings.SECONDS))


def _agenda_of_refresh(workloads: list[Workload], choices: Choices, target: Target, *, known: Database) -> Agenda:
    """The workloads to race again; says how many are left out."""
    left = to_race_again(workloads, known, target)
    if others := len(workloads) - len(left):
        print(
            f"note: {others} of {len(workloads)} passes have nothing to race again, and are left out", file=sys.stderr
        )
    return Agenda(workloads=left, seconds=choices.seconds, total_s=60 * choices.minutes if choices.minutes else None)


# -- while it runs ---------------------------------------------------------------------------------------------------


def _outcomes(
    agenda: Agenda,
    choices: Choices,
    target: Target,
    *,
    known: Database,
    log: TuningLog,
    step: StepTime | None,
    between: Callable[[], None],
) -> tuple[list[Outcome], bool]:
    """Tune one workload after the other. After ctrl-C, the outcomes so far, and True. ``step`` learns what is found;
    ``between`` is called after each workload, while nothing is timed."""
    search = choices.search_on(target)
    plan = loop.SearchPlan(
        strategy=search,
        seed=choices.seed,
        resume=choices.resume,
        refresh=choices.refresh,
        known=known,
    )
    runner = choices.runner_choice
    runner = dataclasses.replace(runner, check=runner.check and _can_check(runner, target, search=search))
    outcomes: list[Outcome] = []
    try:
        with (
            choices.workers(target) as workers,
            Progress(workloads=len(agenda.workloads)) as progress,
        ):
            runner = dataclasses.replace(runner, workers=workers)
            for workload, seconds in agenda:
                progress.to_gain = str(step.to_gain) if step else ""
                progress.begin(workload)
                budget = choices.budget(search=search, seconds=seconds)
                try:
                    result = loop.tune_workload(
                        workload, target, log=log, plan=plan, budget=budget, runner=runner, progress=progress
                    )
                except NoTemplate as error:
                    progress.skip(str(error))
                    outcomes.append(Outcome(workload=workload, reason=str(error)))
                    continue
                if step and result.best:
                    step.update(workload)
                    progress.to_gain = str(step.to_gain)
                progress.finish(result)
                outcomes.append(Outcome(workload=workload, result=result))
                between()
                if result.stopped is Stop.INTERRUPTED:
                    return outcomes, True
    except KeyboardInterrupt:  # between two workloads, or once more
        return outcomes, True
    return outcomes, False


def _can_check(runner: RunnerChoice, target: Target, *, search: Search) -> bool:
    """True if candidates are to be run in the simulator and a compiler for it is there; says so if it is missing."""
    if not runner.predicts(target, strategy=search):
        return False
    try:
        check_compiler()
    except BrokenInstallation as error:
        print(f"note: candidates are not checked: {error}", file=sys.stderr)
        return False
    return True


def _check_limits(outcomes: list[Outcome], target: CpuTarget) -> None:
    """A kernel faster than the limits allow shows that they were measured on a busy machine: measure them again."""
    percents = [outcome.result.percent_of_limit for outcome in outcomes if outcome.result]
    if any(percent is not None and percent > 100 * limits.EXCEEDED for percent in percents):
        limits.doubt(target)
        print("note: a kernel is faster than this CPU's limits, which the next run measures again", file=sys.stderr)
