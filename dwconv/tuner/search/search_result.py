"""How the search of one workload is chosen, when it has to end (Budget), and how it stands, or ended (TuningResult)."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import FrameType
from typing import TYPE_CHECKING, Literal, get_args

from dwconv import settings
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord

if TYPE_CHECKING:
    from dwconv.tuner.step_time import Until

Search = Literal["evolve", "random", "exhaustive", "analytic"]
SEARCHES: tuple[Search, ...] = get_args(Search)
ENDS_BY_ITSELF: tuple[Search, ...] = ("exhaustive", "analytic")


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Raise ctrl-C after the block instead of inside it, so that the log and the result count the same records."""
    if threading.current_thread() is not threading.main_thread():  # Python raises ctrl-C in the main thread only
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


class Stop(str, Enum):
    """Why a search ended."""

    TRIALS = "trials"
    SECONDS = "seconds"
    PATIENCE = "patience"
    LIMIT = "limit"
    GAIN = "gain"
    EXHAUSTED = "exhausted"
    BOUND = "bound"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a search may spend on one workload; None is without end."""

    trials: int | None = settings.TRIALS
    """Candidates, including those known from the log."""
    seconds: float | None = settings.SECONDS
    """Finalists included, and within some seconds: what has begun is not cut off. Not counting the start of
    workers."""
    patience: int | None = settings.PATIENCE
    """Candidates in a row that bring no improvement."""
    until: Until | None = None
    """When the best is good enough."""


USUAL_BUDGET = Budget()


@dataclass(frozen=True, kw_only=True)
class TuningResult:
    """How the search of one workload stands, or ended."""

    workload: Workload
    device: str
    budget: Budget
    best: TuningRecord | None = None
    """The fastest candidate, confirmed when the search has ended; None if none worked."""
    trials: int = 0
    """Candidates tried, including those known from the log."""
    resumed: int = 0
    """How many of ``trials`` were in the log before."""
    failures: dict[str, int] = field(default_factory=dict)
    """How many candidates failed, by status."""
    failure_detail: str = ""
    """The error of the latest candidate that failed."""
    limit_us: float | None = None
    """The least time that the bandwidth and peak of the device allow; None if those are unknown."""
    elapsed_s: float = 0.0
    confirming: bool = False
    """The search is over, and the fastest are being verified and timed once more."""
    doing: str = ""
    """What takes the time now, where nothing is measured."""
    waiting: bool = False
    """The machine is busy with other work, and tuning pauses until it is quiet."""
    too_busy: bool = False
    """Other work kept the fastest from being confirmed; the next run tries again."""
    busy: float = 0.0
    """The largest share of the cores that other work was seen to have."""
    stopped: Stop | None = None
    """None while the search goes on."""

    @property
    def measured(self) -> int:
        """Candidates measured in this run."""
        return self.trials - self.resumed

    @property
    def median_us(self) -> float | None:
        return self.best.measurement.median_us if self.best and self.best.measurement else None

    @property
    def computed(self) -> bool:
        """True if the best was computed, never run."""
        return bool(self.best and self.best.measurement and self.best.measurement.computed)

    @property
    def percent_of_limit(self) -> float | None:
        """100 is as fast as the device allows. None if that is unknown, or ``beyond_limit``."""
        if not self.median_us or self.limit_us is None or self.beyond_limit:
            return None
        return 100 * self.limit_us / self.median_us

    @property
    def beyond_limit(self) -> bool:
        """True if the best is faster than the limit: then that was measured on a busy machine, and says nothing."""
        return self.limit_us is not None and not self.computed and (self.median_us or math.inf) < self.limit_us

    @property
    def time_left_s(self) -> float | None:
        """Time left in the budget, finalists included, at the pace so far; None if that is unknown."""
        left = [] if self.budget.seconds is None else [self.budget.seconds - self.elapsed_s]
        if self.budget.trials is not None and self.measured:
            left.append((self.budget.trials - self.trials) * self.elapsed_s / self.measured)
        return max(0.0, min(left)) if left else None
