"""The loop: take proposals of a strategy, measure, log, give the results back; until the budget is spent.

A runner finds out what a candidate is worth: one measures here, another computes costs for another GPU. At the end the
fastest few, the finalists, are verified further and timed side by side before one of them is confirmed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

from dwconv import settings
from dwconv.dispatch.knowledge import is_current
from dwconv.measure.runner import LocalRunner, Runner, WorkerProcesses
from dwconv.problems.target import CudaTarget, Target, check_present
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.log import RecordWriter, TuningLog
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.tuner.compute_runner import ComputeRunner
from dwconv.tuner.search.search_result import USUAL_BUDGET, Budget, Search, Stop, TuningResult, ctrl_c_waits
from dwconv.tuner.search.search_state import SearchState, TellProgress
from dwconv.tuner.search.search_strategies import WarmStart, bests_of_other_versions, make_strategy
from dwconv.tuner.search.space_union import SpaceUnion
from dwconv.untuned.starts import starts

FINALISTS = 4
_MOST_GROUPS = 4
"""Groups of finalists to try if none of a group passes."""
_CONFIRM_S = 30.0
"""No further group begins after this time, or after the seconds that the search may take."""
_ATTEMPTS = 3
_QUIET_WAIT_S = 30.0
"""The machine may become quiet for this long, and no longer than the search may take, before contended finalists are
timed again."""


def confirm(state: SearchState, log: RecordWriter, runner: Callable[[], Runner]) -> None:
    """Verify and time the finalists once more, side by side; if none of them passes, the next best.

    It gives up, and leaves the rest to the next run, if many are wrong in a row, or if they have taken long: the first
    group is always tried, and nothing else begins some seconds after those that the search may take. An earlier run's
    confirmation stands unless something new was measured since. If other work disturbs the timing, the finalists get
    another chance when the machine is quiet. If it stays busy, nothing is confirmed, and the next run tries again.
    """
    if state.nothing_new and state.has_confirmed:
        return
    ranking = state.ranking[: _MOST_GROUPS * FINALISTS]
    until_s = time.monotonic() + _CONFIRM_S
    for start in range(0, len(ranking), FINALISTS):
        if start and (time.monotonic() > until_s or not state.confirming_left_s):
            return
        records = _confirm_together(ranking[start : start + FINALISTS], state, log, runner)
        if not records or any(record.confirmed for record in records):
            return
        if any(record.inconclusive for record in records):
            state.too_busy = True
            return


def _confirm_together(
    finalists: Sequence[Config], state: SearchState, log: RecordWriter, runner: Callable[[], Runner]
) -> list[TuningRecord]:
    """The records of the last attempt."""
    for attempt in range(1, _ATTEMPTS + 1):
        records = []
        for measured in runner().confirm(state.candidates(finalists)):
            record = state.history.judged(measured, busy=state.busy_now)
            with log.locked(), ctrl_c_waits():
                log.append(record)
                state.add(record, confirming=True)
            records.append(record)
        if attempt == _ATTEMPTS or not state.confirming_left_s or not state.history.contended(records):
            break
        if not state.wait(at_most_s=_QUIET_WAIT_S / (_ATTEMPTS - 1)):
            break
    return records


BATCH = 8
"""Candidates of a turn: enough to keep the builders busy, few enough to learn often."""
_OVERTIME = 1.25
"""A batch may be finished within this many times the seconds of the budget: measuring what is built takes little."""
_WAIT_S = 3.0
"""After a batch with contended trials the machine may become quiet for this long, and no longer than ``_WAIT_SHARE`` of
the seconds that the search may take. Then those trials are timed again."""
_WAIT_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """Which configurations are tried, where the search starts, and what measures."""

    strategy: Search = "evolve"
    seed: int = settings.SEED
    resume: bool = True
    """Records of this workload in the log, and those of the team, count as tried, failures included, and are not
    measured again, if they were made with the versions of PyTorch, TVM and the template that are here."""
    known: Database | None = None
    """What is known, of any device: evolve starts from the best of this workload and similar ones. Its first place is
    the log, which is read if this is None and it is a file; its own places are what counts as measured here."""
    jobs: int = 1
    """Builds at a time, unless ``workers`` are lent."""
    workers: WorkerProcesses | None = None
    """Processes to borrow, from a caller that tunes several workloads."""

    def predicts(self, target: Target) -> bool:
        """True if costs are computed and nothing is measured: the target is a GPU that is not here, or the strategy is
        analytic."""
        return target.kind == "cuda" and (self.strategy == "analytic" or not target.present)

    def at_once(self, target: Target) -> int:
        """Candidates that take hardly longer than one: on a GPU builders need not wait for the clock."""
        if target.kind == "cpu" or self.predicts(target):
            return 1
        return self.workers.jobs if self.workers is not None else self.jobs


USUAL_PLAN = SearchPlan()


def make_runner(workload: Workload, target: Target, *, plan: SearchPlan) -> Runner:
    """The runner of ``plan``. The caller closes it. Raises NoDevice if it should measure on a device that is not
    here."""
    if isinstance(target, CudaTarget) and plan.predicts(target):
        return ComputeRunner(target, jobs=plan.jobs)
    check_present(target)
    return LocalRunner(workload, target, jobs=plan.jobs, workers=plan.workers)


def tune_workload(
    workload: Workload,
    target: Target,
    *,
    log: RecordWriter,
    plan: SearchPlan = USUAL_PLAN,
    budget: Budget = USUAL_BUDGET,
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
    at_once, found = plan.at_once(target), []
    if plan.strategy == "evolve":
        found = [start.config for start in starts(workload, target, known.bests_of_kind(workload))]
    if progress and plan.predicts(target):
        doing = f"estimating the cost of configurations of {len(spaces.by_template)} templates"
        progress(TuningResult(workload=workload, device=target.device, budget=budget, doing=doing))
    searching = make_strategy(
        plan.strategy, spaces=spaces, workload=workload, seed=plan.seed, target=target, starts=found, at_once=at_once
    )
    again = bests_of_other_versions(workload, _comparable(workload, known, target), spaces)
    strategy = WarmStart(spaces, again, then=searching)
    state = SearchState(workload, target, budget=budget, spaces=spaces, progress=progress)
    if plan.resume:
        for record in filter(is_current, _comparable(workload, known.of_own_places, target)):
            state.add(record, known=True)
            strategy.tell(record)
    with ExitStack() as stack:

        @cache
        def started() -> Runner:
            """Started only if there is something to measure."""
            state.starting = plan.workers is None or not plan.workers.measurer.running
            return stack.enter_context(make_runner(workload, target, plan=plan))

        try:
            stopped = _search(state, strategy, log, started, at_once=at_once, builds_alone=plan.predicts(target))
            confirm(state, log, started)
        except KeyboardInterrupt:
            stopped = Stop.INTERRUPTED
        return state.report(stopped=stopped)


def _search(
    state: SearchState,
    strategy: WarmStart,
    log: RecordWriter,
    runner: Callable[[], Runner],
    *,
    at_once: int,
    builds_alone: bool,
) -> Stop:
    again: list[Config] = []
    while (stopped := state.spent()) is None:
        configs = [*again, *strategy.ask(state.room(max(BATCH, at_once), at_once=at_once))]
        if not configs:
            return strategy.stop
        if builds_alone:
            state.does(f"building {len(configs)} candidates and running them in the simulator")
        contended: list[Config] = []
        for record in runner().measure(state.candidates(configs)):
            with log.locked(), ctrl_c_waits():
                log.append(record)
                strategy.tell(record)
                state.add(record)
            if record.inconclusive and record.config not in again:
                contended.append(record.config)
            if (stopped := state.spent(overtime=_OVERTIME)) is not None:
                return stopped
        again = contended if contended and state.wait(at_most_s=_WAIT_S, share=_WAIT_SHARE) else []
    return stopped


def _comparable(workload: Workload, known: Database, target: Target) -> list[TuningRecord]:
    """The records of the workload on this device with the same arithmetic."""
    return [record for record in known.records(workload, target.device) if record.fast_math == target.fast_math]
