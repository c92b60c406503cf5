"""The loop: ask a strategy, measure, write it down, tell the strategy; until the budget is spent."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from dwconv import settings
from dwconv.measure.contention import Quiet
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.target import CpuTarget, CudaTarget, Target
from dwconv.tuner.history import History
from dwconv.tuner.result import Budget, Stop, TuningResult
from dwconv.tuner.similar import bests_of_similar
from dwconv.tuner.spaces import SpaceUnion
from dwconv.tuner.strategies import Analytic, Strategy, make_strategy

if TYPE_CHECKING:
    from dwconv.measure.runner import Runner, Workers
    from dwconv.records.log import TuningLog
    from dwconv.workload import Workload

BATCH = 8
"""Candidates asked for at a time: enough to keep the builders busy, few enough to learn often."""
FIRST_BATCH = 4
"""The same for the first batch under a time limit, when nothing is known about the pace yet."""
STARTS = 4
"""Configurations to start from that were the best for similar workloads."""
FINALISTS = 4
_OVERTIME = 1.25
"""Share of the time budget that finishing a batch may take: what was built is soon measured."""
_MOST_GROUPS = 4
"""Of finalists, where none passes."""
_CONFIRM_S = 30.0
"""After this, or the seconds that the search may take, no other group of finalists begins."""
_ATTEMPTS = 3
_TRIAL_WAIT_S = 3.0
"""After a batch with contended trials the machine may become quiet for so long, and no longer than a tenth of what the
search may take: then they are timed again."""
_FINAL_WAIT_S = 30.0
"""The same before contended finalists are timed again, and no longer than the search may take."""
_IMPROVEMENT = 0.99
"""A candidate is an improvement if it takes at most this share of the best time so far: less is noise."""

Progress = Callable[[TuningResult], None]


def predicts(target: Target, *, search: str, kind: str) -> bool:
    """True if costs are computed, nothing is measured: the target is a GPU that is not here, or the search is analytic;
    another ``kind`` of runner than auto decides: local or predict."""
    if target.kind != "cuda" or kind == "local":
        return False
    return kind == "predict" or search == "analytic" or not target.present


def make_runner(
    workload: Workload,
    target: Target,
    *,
    jobs: int,
    workers: Workers | None = None,
    search: str = "",
    kind: str = "auto",
    check: bool = True,
) -> Runner:
    """Measures on this machine, in ``workers`` if they are lent, or computes costs where ``predicts`` says so; then
    ``check`` asks for candidates to be run in the simulator too."""
    if isinstance(target, CudaTarget) and predicts(target, search=search, kind=kind):
        from dwconv.tuner.predict import PredictRunner

        return PredictRunner(workload, target, check=check, jobs=jobs)
    from dwconv.measure.runner import LocalRunner

    return LocalRunner(workload, target, jobs=jobs, workers=workers)


def tune_workload(
    workload: Workload,
    target: Target,
    *,
    log: TuningLog,
    search: str = "evolve",
    trials: int | None = settings.TRIALS,
    seconds: float | None = settings.SECONDS,
    patience: int | None = settings.PATIENCE,
    seed: int = settings.SEED,
    jobs: int = 1,
    resume: bool = True,
    progress: Progress | None = None,
    runner: Runner | None = None,
    runner_kind: str = "auto",
    check: bool = True,
    workers: Workers | None = None,
    elsewhere: Iterable[TuningRecord] = (),
) -> TuningResult:
    """Search the fastest configuration of one workload; every record is in ``log`` as soon as it is known.

    ``trials``, ``seconds`` (not counting the start of workers) and ``patience`` (trials without improvement) end the
    search; None is without end. With ``resume``, what the log knows of this workload on this device counts as tried,
    failures included, and is not measured again. What the log knows of similar workloads, and what is known
    ``elsewhere`` of those and of this one, is where evolve starts. At the end the fastest few are verified and timed
    once more. Ctrl-C ends the search cleanly: the result then has ``stopped=Stop.INTERRUPTED``. ``check`` asks for what
    is only computed to be run in the simulator; what the log knows unchecked is then looked at again. A ``runner`` that
    is passed in stays open; ``workers`` are processes to borrow, from whoever tunes several workloads.

    Raises NoTemplate if nothing can run the workload on the target, LogError if the log cannot be written.
    """
    spaces = SpaceUnion.of(workload, target)
    records = _comparable(log.load().records, target)
    starts = bests_of_similar(workload, [*records, *_comparable(elsewhere, target)], count=STARTS)
    strategy = make_strategy(search, spaces=spaces, workload=workload, seed=seed, target=target, starts=starts)
    budget = Budget(trials=trials, seconds=seconds, patience=patience)
    state = _State(workload, target, budget=budget, spaces=spaces, progress=progress)
    if isinstance(strategy, Analytic):
        state.analytic = strategy
    checks = check and predicts(target, search=search, kind=runner_kind)
    if resume:
        for record in (record for record in records if record.workload == workload):
            if checks and record.status is Status.OK and record.verdict is None:
                continue  # computed, and never run
            state.add(record, known=True)
            strategy.tell(record)
    with ExitStack() as stack:

        def measuring() -> Runner:  # started only if there is something to measure
            nonlocal runner
            if runner is None:
                state.starting = workers is None or not workers.measurer.running
                runner = make_runner(
                    workload, target, jobs=jobs, workers=workers, search=search, kind=runner_kind, check=check
                )
                stack.callback(runner.close)
            return runner

        try:
            stopped = _search(state, strategy, log, measuring)
            _confirm(state, log, measuring)
        except KeyboardInterrupt:
            stopped = Stop.INTERRUPTED
        return state.report(stopped=stopped)


def _search(state: _State, strategy: Strategy, log: TuningLog, measuring: Callable[[], Runner]) -> Stop:
    again: list[Config] = []
    while (stopped := state.spent()) is None:
        configs = [*again, *strategy.ask(state.room(BATCH))]
        if not configs:
            return Stop.EXHAUSTED
        contended: list[Config] = []
        for record in measuring().measure(state.candidates(configs)):
            with log.locked(), _ctrl_c_waits():
                log.append(record)
                strategy.tell(record)
                state.add(record)
            if record.contended and record.config not in again:
                contended.append(record.config)
            if (stopped := state.spent(overtime=_OVERTIME)) is not None:
                return stopped
        again = contended if contended and state.wait(at_most_s=_TRIAL_WAIT_S, share=0.1) else []
    return stopped


def _confirm(state: _State, log: TuningLog, measuring: Callable[[], Runner]) -> None:
    """Verify and time the finalists once more, side by side; where none of them passes, the next best.

    Where many are wrong in a row, or have taken as long as the search might, the rest is for the next run. What an
    earlier run confirmed is not confirmed again, unless something new was measured since. A machine that was busy with
    something else while it confirmed is given another chance when it is quiet. If it stays busy, nothing is confirmed:
    the next run does that.
    """
    if state.nothing_new and state.has_confirmed:
        return
    ranking = state.ranking[: _MOST_GROUPS * FINALISTS]
    until_s = time.monotonic() + max(_CONFIRM_S, state.budget_s)
    for start in range(0, len(ranking), FINALISTS):
        if start and time.monotonic() > until_s:
            return
        records = _confirm_together(ranking[start : start + FINALISTS], state, log, measuring)
        if not records or any(record.confirmed for record in records):
            return
        if any(record.contended for record in records):
            state.too_busy = True
            return


def _confirm_together(
    finalists: Sequence[Config], state: _State, log: TuningLog, measuring: Callable[[], Runner]
) -> list[TuningRecord]:
    """The records of the last attempt."""
    for attempt in range(1, _ATTEMPTS + 1):
        records = []
        for measured in measuring().confirm(state.candidates(finalists)):
            record = state.history.judged(measured, busy=state.busy_now)
            with log.locked(), _ctrl_c_waits():
                log.append(record)
                state.add(record, confirming=True)
            records.append(record)
        if attempt == _ATTEMPTS or not state.history.disturbed(records):
            break
        if not state.wait(at_most_s=_FINAL_WAIT_S / (_ATTEMPTS - 1)):
            break
    return records


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Ctrl-C in the block is raised after it: what the log has and what the result counts stay the same."""
    if threading.current_thread() is not threading.main_thread():  # there ctrl-C is not raised
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    usual = signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if usual is None else usual)
    if waiting and callable(usual):
        usual(*waiting[0])


def _comparable(records: Iterable[TuningRecord], target: Target) -> list[TuningRecord]:
    """Those of this device, with the same arithmetic."""
    return [record for record in records if record.device == target.device and record.fast_math == target.fast_math]


class _State:
    """What is known of a workload so far. Of several records of one candidate the latest counts."""

    def __init__(
        self, workload: Workload, target: Target, *, budget: Budget, spaces: SpaceUnion, progress: Progress | None
    ) -> None:
        self._workload = workload
        self._device = target.device
        self._budget = budget
        self._spaces = spaces
        self._progress = progress
        limits = target.limits
        self._limit_us = limits.limit_us(bytes_moved=workload.bytes, flops=workload.flops) if limits else None
        self._latest: dict[Config, TuningRecord] = {}
        self._failure_detail = ""
        self._resumed = 0
        self.history = History(limit_us=self._limit_us)
        self._quiet = Quiet(threads=target.threads if isinstance(target, CpuTarget) else 1)
        self._waiting = False
        self._busy = 0.0
        self._best_us = float("inf")
        self._since_improvement = 0
        self._started_s = time.monotonic()
        self._confirming = False
        self.too_busy = False
        """Other work kept the finalists from being confirmed."""
        self.analytic: Analytic | None = None
        self.starting = False
        """Workers are about to start: the clock runs from the first record, or short budgets would see nothing else."""

    @property
    def budget_s(self) -> float:
        """Seconds that the search may take; 0 if nobody said."""
        return self._budget.seconds or 0.0

    @property
    def nothing_new(self) -> bool:
        return len(self._latest) == self._resumed

    @property
    def has_confirmed(self) -> bool:
        return any(record.confirmed for record in self._latest.values())

    def add(self, record: TuningRecord, *, known: bool = False, confirming: bool = False) -> None:
        """Count a record; one whose configuration is no longer in the space is passed over."""
        config = self._spaces.adopt(record.config)
        if config is None:
            return
        if self.starting and not known:
            self.starting, self._started_s = False, time.monotonic()
        self._confirming = confirming
        self.history.add(record)
        earlier = self._latest.get(config)
        if earlier is None:
            self._resumed += known
            self._count_improvement(record)
        if earlier is None or record.replaces(earlier):
            self._latest[config] = record
        if record.status is not Status.OK:
            self._failure_detail = record.detail
        if not known:
            self._tell()

    def _count_improvement(self, record: TuningRecord) -> None:
        self._since_improvement += 1
        if record.status is Status.OK and record.measurement:
            if record.measurement.median_us <= self._best_us * _IMPROVEMENT:
                self._since_improvement = 0
            self._best_us = min(self._best_us, record.measurement.median_us)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def spent(self, *, overtime: float = 1.0) -> Stop | None:
        """The budget that is used up, if one is; ``overtime`` times as many seconds are allowed."""
        budget = self._budget
        if budget.trials is not None and len(self._latest) >= budget.trials:
            return Stop.TRIALS
        if budget.seconds is not None and self._elapsed_s >= overtime * budget.seconds and self._latest:
            return Stop.SECONDS
        if budget.patience is not None and self._since_improvement >= budget.patience:
            return Stop.PATIENCE
        return None

    def room(self, most: int) -> int:
        """How many candidates may be tried next, so that trials and, at the pace so far, seconds suffice for them."""
        budget, measured = self._budget, len(self._latest) - self._resumed
        if budget.trials is not None:
            most = min(most, budget.trials - len(self._latest))
        if budget.seconds is not None and not measured:
            most = min(most, FIRST_BATCH)
        elif budget.seconds is not None:
            pace_s = max(self._elapsed_s / measured, 1e-6)
            most = max(1, min(most, round((budget.seconds - self._elapsed_s) / pace_s)))
        return most

    def candidates(self, configs: Sequence[Config]) -> list[Candidate]:
        return [Candidate(self._workload, config) for config in configs]

    @property
    def ranking(self) -> list[Config]:
        """Candidates that worked, the best first: the order in which dispatch would take them."""
        worked = [(record.rank, config) for config, record in self._latest.items() if record.status is Status.OK]
        return [config for _, config in sorted(worked, key=lambda item: item[0])]

    def busy_now(self) -> float:
        """The share of the cores that other work has, 0 if that leaves enough of them."""
        return 0.0 if self._quiet.look() else self._quiet.busy

    def wait(self, *, at_most_s: float, share: float = 1.0) -> bool:
        """Wait until the machine is quiet, at most ``share`` of what the search may take; tells whether it is."""
        self._waiting = True
        self._tell()
        try:
            return self._quiet.wait(timeout_s=min(at_most_s, share * (self._budget.seconds or at_most_s / share)))
        finally:
            self._waiting = False
            self._busy = max(self._busy, self._quiet.busy)
            self._tell()

    def _tell(self) -> None:
        if self._progress:
            self._progress(self.report())

    def report(self, *, stopped: Stop | None = None) -> TuningResult:
        ranking = self.ranking
        failures = Counter(record.status.value for record in self._latest.values() if record.status is not Status.OK)
        return TuningResult(
            workload=self._workload,
            device=self._device,
            budget=self._budget,
            best=self._latest[ranking[0]] if ranking else None,
            trials=len(self._latest),
            resumed=self._resumed,
            checked=sum(record.verdict is not None for record in self._latest.values()),
            ranked=self.analytic.ranked if self.analytic else 0,
            agreement=self.analytic.agreement if self.analytic and stopped else None,
            failures=dict(failures),
            failure_detail=self._failure_detail,
            limit_us=self._limit_us,
            elapsed_s=self._elapsed_s,
            confirming=self._confirming,
            waiting=self._waiting,
            too_busy=self.too_busy,
            busy=self._busy,
            stopped=stopped,
        )
