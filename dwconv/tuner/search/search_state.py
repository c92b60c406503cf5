"""SearchState: the records of one search so far, the time it has taken, and how much of its budget is left.

History: how long the baseline of a workload usually takes, which shows if a machine was slow from start to end. Other
work does not always show while a kernel is timed: it may share a core's units, its caches or its clock, or the system
may not report it. The baseline is the same code every time, so its time shows it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence

from dwconv.measure.clock.contention import Quiet
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.tuner.search.search_result import Budget, Stop, TuningResult
from dwconv.tuner.search.space_union import SpaceUnion

_SLOWER = 1.3
"""The machine may have been busy if the baseline took this many times as long as usual."""
_FAR_SLOWER = 3.0
"""The machine was busy, whatever the other signs say."""


class History:
    """The baselines of one workload in trials that other work did not disturb."""

    def __init__(self) -> None:
        self._baselines_us: dict[str, list[float]] = {}
        """By the version of PyTorch, on which the speed of its op depends."""

    def add(self, record: TuningRecord) -> None:
        """Count the baseline of a record, unless other work disturbed it."""
        if record.baseline and not record.contended:
            self._baselines_us.setdefault(record.versions.get("torch", ""), []).append(record.baseline[1].median_us)

    def judged(self, record: TuningRecord, *, busy: Callable[[], float]) -> TuningRecord:
        """``record`` as it is to be logged. It is not confirmed if its baseline was far slower than usual, or slower
        while other work is running. ``busy`` gives the share of the cores that other work has; it takes a moment, so it
        is read only then."""
        if not record.confirmed or record.measurement is None:
            return record
        slower = self._slower(record)
        lost = 1 - 1 / slower if slower > _FAR_SLOWER else busy() if slower > _SLOWER else 0.0
        if not lost:
            return record
        measurement = dataclasses.replace(record.measurement, contention=round(lost, 3))
        judged = dataclasses.replace(record, measurement=measurement)
        return dataclasses.replace(judged, confirmed=not judged.contended)

    def contended(self, records: Sequence[TuningRecord]) -> bool:
        """True if other work disturbed the finalists, or may have, so that they should be timed again."""
        worked = [record for record in records if record.status is Status.OK]
        return any(record.contended or self._slower(record) > _SLOWER for record in worked)

    def _slower(self, record: TuningRecord) -> float:
        """How many times as long as usual the baseline took; 1 without a history."""
        known = sorted(self._baselines_us.get(record.versions.get("torch", ""), []))
        return record.baseline[1].median_us / known[len(known) // 4] if known and record.baseline else 1.0


FIRST_BATCH = 4
"""Size of the first batch under a time limit: the pace is not known yet."""
_CONFIRM_SHARE, _CONFIRM_USUAL_S = 0.25, 4.0
"""Of the seconds of a search this share, and this long at most, is kept for the finalists."""
_CONFIRM_OVER_S = 5.0
"""What finalists need beyond their share begins no later than so long after the seconds of the search."""
IMPROVEMENT = 0.99
"""A candidate is an improvement if it takes at most this share of the best time so far; less is noise."""

TellProgress = Callable[[TuningResult], None]


class SearchState:
    """How the search of one workload stands. Of several records of one candidate the latest counts."""

    def __init__(
        self,
        workload: Workload,
        target: Target,
        *,
        budget: Budget,
        spaces: SpaceUnion,
        progress: TellProgress | None,
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
        self.history = History()
        self._quiet = Quiet(threads=target.threads if isinstance(target, CpuTarget) else 1)
        self._waiting = False
        self._busy = 0.0
        self._bests_us: list[float] = []
        """The best time after each candidate, infinite before one has worked."""
        self._since_improvement = 0
        self._started_s = time.monotonic()
        self._confirming = False
        self._doing = ""
        self.too_busy = False
        """Other work kept the finalists from being confirmed."""
        self.starting = False
        """Workers are about to start. The clock then runs from the first record: a short budget would be spent on the
        start alone."""

    # -- records -------------------------------------------------------------------------------------------------

    def add(self, record: TuningRecord, *, known: bool = False, confirming: bool = False) -> None:
        """Count a record, unless its configuration is no longer in the space. ``known``: the log had it before."""
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
        best_us = self._bests_us[-1] if self._bests_us else math.inf
        if record.status is Status.OK and record.measurement:
            if record.measurement.median_us <= best_us * IMPROVEMENT:
                self._since_improvement = 0
            best_us = min(best_us, record.measurement.median_us)
        self._bests_us.append(best_us)

    @property
    def nothing_new(self) -> bool:
        """True if all records were in the log before this run."""
        return len(self._latest) == self._resumed

    @property
    def has_confirmed(self) -> bool:
        """True if a candidate is confirmed."""
        return any(record.confirmed for record in self._latest.values())

    @property
    def ranking(self) -> list[Config]:
        """Candidates that worked, the best first: the order in which dispatch would take them."""
        worked = [(record.rank, config) for config, record in self._latest.items() if record.status is Status.OK]
        return [config for _, config in sorted(worked, key=lambda item: item[0])]

    def candidates(self, configs: Sequence[Config]) -> list[Candidate]:
        """The workload with each of ``configs``."""
        return [Candidate(self._workload, config) for config in configs]

    # -- budget --------------------------------------------------------------------------------------------------

    @property
    def confirming_left_s(self) -> float:
        """Seconds in which finalists may still be tried again; infinite without a limit."""
        seconds = self._budget.seconds
        return math.inf if seconds is None else max(0.0, seconds + _CONFIRM_OVER_S - self._elapsed_s)

    @property
    def _search_s(self) -> float | None:
        """Seconds for all but the finalists."""
        seconds = self._budget.seconds
        return None if seconds is None else seconds - min(_CONFIRM_SHARE * seconds, _CONFIRM_USUAL_S)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def spent(self, *, overtime: float = 1.0) -> Stop | None:
        """The part of the budget that is used up, if one is, but for the time of the finalists; ``overtime`` times as
        many seconds are allowed, up to all of the budget's."""
        budget = self._budget
        if budget.trials is not None and len(self._latest) >= budget.trials:
            return Stop.TRIALS
        if self._search_s is not None and budget.seconds is not None and self._latest:
            over = self._elapsed_s >= min(overtime * self._search_s, budget.seconds)
            if over:
                return Stop.SECONDS
        if budget.patience is not None and self._since_improvement >= budget.patience:
            return Stop.PATIENCE
        if budget.until and self._bests_us and budget.until.is_near(self._bests_us[-1], self._limit_us):
            return Stop.LIMIT
        if budget.until and budget.until.is_little_left(self._bests_us, self._limit_us):
            return Stop.GAIN
        return None

    def room(self, most: int, *, at_once: int = 1) -> int:
        """How many candidates to try next: ``most``, or as many as the trials and, at the pace so far, the seconds
        leave room for; so many take hardly longer than one if they are tried ``at_once``."""
        budget, measured = self._budget, len(self._latest) - self._resumed
        if budget.trials is not None:
            most = min(most, budget.trials - len(self._latest))
        if budget.seconds is not None and not measured:
            most = min(most, max(FIRST_BATCH, at_once))
        elif self._search_s is not None:
            pace_s = max(self._elapsed_s / measured, 1e-6)
            in_time = round((self._search_s - self._elapsed_s) / pace_s)
            most = min(most, max(at_once, in_time))
        return most

    # -- other work on the machine -------------------------------------------------------------------------------

    def busy_now(self) -> float:
        """The share of the cores that other work has; 0 if enough cores are left."""
        return 0.0 if self._quiet.look() else self._quiet.busy

    def wait(self, *, at_most_s: float, share: float = 1.0) -> bool:
        """Wait until the machine is quiet; True if it is. Gives up after ``at_most_s``, or after ``share`` of the
        seconds that the search may take."""
        self._waiting = True
        self._tell()
        try:
            most_s = share * (self._budget.seconds or at_most_s / share)
            return self._quiet.wait(timeout_s=min(at_most_s, most_s, self.confirming_left_s))
        finally:
            self._waiting = False
            self._busy = max(self._busy, self._quiet.busy)
            self._tell()

    def does(self, what: str) -> None:
        """Say what takes the time from now on."""
        self._doing = what
        self._tell()

    # -- what to show --------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        if self._progress:
            self._progress(self.report())

    def report(self, *, stopped: Stop | None = None) -> TuningResult:
        """The result so far; the final one if ``stopped`` says why the search ended."""
        ranking = self.ranking
        failures = Counter(record.status.value for record in self._latest.values() if record.status is not Status.OK)
        return TuningResult(
            workload=self._workload,
            device=self._device,
            budget=self._budget,
            best=self._latest[ranking[0]] if ranking else None,
            trials=len(self._latest),
            resumed=self._resumed,
            failures=dict(failures),
            failure_detail=self._failure_detail,
            limit_us=self._limit_us,
            elapsed_s=self._elapsed_s,
            confirming=self._confirming,
            doing=self._doing,
            waiting=self._waiting,
            too_busy=self.too_busy,
            busy=self._busy,
            stopped=stopped,
        )
