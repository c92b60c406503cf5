"""The loop: ask a strategy, measure, write it down, tell the strategy; until the budget is spent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from dwconv import settings
from dwconv.dispatch.knowledge import is_current
from dwconv.problems.target import Target
from dwconv.records.database import Database
from dwconv.records.log import RecordWriter, TuningLog
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config
from dwconv.tuner.choices import Search
from dwconv.tuner.search.analytic import Analytic
from dwconv.tuner.search.finalists import confirm
from dwconv.tuner.search.interrupts import ctrl_c_waits
from dwconv.tuner.search.runners import USUAL_RUNNER, RunnerChoice, make_runner
from dwconv.tuner.search.search_result import USUAL_BUDGET, Budget, Stop, TuningResult
from dwconv.tuner.search.search_state import SearchState, TellProgress
from dwconv.tuner.search.spaces import SpaceUnion
from dwconv.tuner.search.strategies import Strategy, make_strategy
from dwconv.tuner.search.warm_start import WarmStart, bests_of_other_versions
from dwconv.untuned.starts import starts

if TYPE_CHECKING:
    from dwconv.measure.runner import Runner
    from dwconv.problems.workload import Workload

BATCH = 8
"""Candidates asked for at a time: enough to keep the builders busy, few enough to learn often."""
_OVERTIME = 1.25
"""A batch may be finished within this many times the seconds of the budget: measuring what is built takes little."""
_WAIT_S = 3.0
"""After a batch with contended trials the machine may become quiet for this long, and no longer than ``_WAIT_SHARE`` of
the seconds that the search may take. Then those trials are timed again."""
_WAIT_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """Which configurations are tried, and where the search starts."""

    strategy: Search = "evolve"
    seed: int = settings.SEED
    resume: bool = True
    """Records of this workload in the log, and those of the team, count as tried, failures included, and are not
    measured again, if they were made with the versions of PyTorch, TVM and the template that are here."""
    refresh: bool = False
    """Only what was best with other versions is tried, whatever the strategy."""
    known: Database | None = None
    """What is known, of any device: evolve starts from the best of this workload and similar ones. Its first place is
    the log, which is read if this is None and it is a file; its own places are what counts as measured here."""


USUAL_PLAN = SearchPlan()


def tune_workload(
    workload: Workload,
    target: Target,
    *,
    log: RecordWriter,
    plan: SearchPlan = USUAL_PLAN,
    budget: Budget = USUAL_BUDGET,
    runner: RunnerChoice = USUAL_RUNNER,
    progress: TellProgress | None = None,
) -> TuningResult:
    """Search the fastest configuration of one workload; every record is in ``log`` as soon as it is known.

    What was best for this workload with other versions is tried again first. Evolve starts from what is known to be
    good before anything is measured (``untuned.starts``). At the end the fastest few are verified and timed once more.
    Ctrl-C ends the search cleanly: the result then has ``stopped=Stop.INTERRUPTED``. ``progress`` is called with the
    result so far after every trial.

    Raises NoTemplate if nothing can run the workload on the target, LogError if the log cannot be written.
    """
    spaces = SpaceUnion.of(workload, target)
    known = plan.known or (Database.behind_log(log.path, alone=True) if isinstance(log, TuningLog) else Database.of([]))
    at_once = runner.at_once(target, strategy=plan.strategy)
    searching = None if plan.refresh else _strategy(workload, target, spaces, plan, known, at_once=at_once)
    again = bests_of_other_versions(workload, _comparable(workload, known, target), spaces)
    strategy = WarmStart(spaces, again, then=searching)
    analytic = searching if isinstance(searching, Analytic) else None
    state = SearchState(workload, target, budget=budget, spaces=spaces, progress=progress, analytic=analytic)
    if plan.resume:
        checks = runner.check and runner.predicts(target, strategy=plan.strategy)
        for record in filter(is_current, _comparable(workload, known.of_own_places, target)):
            if checks and record.status is Status.OK and record.verdict is None:
                continue  # its cost was computed, but it was never run: this time it is checked
            state.add(record, known=True)
            strategy.tell(record)
    with ExitStack() as stack:

        @cache
        def started() -> Runner:
            """Started only if there is something to measure."""
            state.starting = runner.starts_workers
            return stack.enter_context(make_runner(workload, target, choice=runner, strategy=plan.strategy))

        try:
            stopped = _search(state, strategy, log, started, at_once=at_once)
            if plan.refresh and stopped is Stop.EXHAUSTED:
                stopped = Stop.REFRESHED
            confirm(state, log, started)
        except KeyboardInterrupt:
            stopped = Stop.INTERRUPTED
        return state.report(stopped=stopped)


def _strategy(
    workload: Workload, target: Target, spaces: SpaceUnion, plan: SearchPlan, known: Database, *, at_once: int
) -> Strategy:
    found = []
    if plan.strategy == "evolve":
        found = [start.config for start in starts(workload, target, known.bests_of_kind(workload))]
    return make_strategy(
        plan.strategy, spaces=spaces, workload=workload, seed=plan.seed, target=target, starts=found, at_once=at_once
    )


def _search(
    state: SearchState, strategy: Strategy, log: RecordWriter, runner: Callable[[], Runner], *, at_once: int
) -> Stop:
    again: list[Config] = []
    while (stopped := state.spent()) is None:
        configs = [*again, *strategy.ask(state.room(max(BATCH, at_once), at_once=at_once))]
        if not configs:
            return Stop.EXHAUSTED
        contended: list[Config] = []
        for record in runner().measure(state.candidates(configs)):
            with log.locked(), ctrl_c_waits():
                log.append(record)
                strategy.tell(record)
                state.add(record)
            if record.contended and record.config not in again:
                contended.append(record.config)
            if (stopped := state.spent(overtime=_OVERTIME)) is not None:
                return stopped
        again = contended if contended and state.wait(at_most_s=_WAIT_S, share=_WAIT_SHARE) else []
    return stopped


def _comparable(workload: Workload, known: Database, target: Target) -> list[TuningRecord]:
    """The records of the workload on this device with the same arithmetic."""
    return [record for record in known.records(workload, target.device) if record.fast_math == target.fast_math]
