"""Spending: what builds have taken of the time of training, and what they may still take.

    waits of calls + cores' time of work beside calls + plans and checks in calls  ≤  MOST_S + SURE · what kernels saved

So the time of training, summed from the start, stays within 3 s of plain training's. Where training leaves a core free,
work beside it counts nothing. As long as no kernel has run, a share of the time is added: on a machine that is busy the
first ones may take longer than ``MOST_S``, and would never come.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MOST_S = 2.5
"""What may be spent before kernels have saved anything: some work takes longer than expected."""
WAIT_S = 2.2
"""By waits alone: what is left is for what they leave half done."""
SURE = 0.15
"""Of what kernels save as they were measured, what a step saves at least. They were measured one by one on warm caches:
in a step of MobileNetV2 without fused blocks a seventh of that was seen."""
SHARE, MOST_SHARE_S = 0.01, 0.4
"""Of the time since the first call; at most so much once a kernel has run."""
_LEAST_WAIT_S = 0.25
_USUAL_S = 1.0
"""So many seconds of work say as much of how long work takes here as what was expected before."""


class WorkBeside:
    """Work beside calls, from its begin. ``cpu_s``: what it, and others, have taken of a core so far."""

    def __init__(self, cpu_s: Callable[[], float], *, expected_s: float, is_free: bool) -> None:
        self.expected_s = expected_s
        self._cpu_s, self._is_free = cpu_s, is_free
        self._began_s = self._since_s = cpu_s()
        self._beside_s = 0.0
        self._is_beside = True

    @property
    def beside_s(self) -> float:
        """What it has taken of calls."""
        return self._beside_s + (self._cpu_s() - self._since_s if self._is_beside and not self._is_free else 0.0)

    @property
    def took_s(self) -> float:
        """What it has taken of a core."""
        return self._cpu_s() - self._began_s

    def alone(self) -> None:
        """Calls wait: from now on it takes nothing of them."""
        self._beside_s, self._is_beside = self.beside_s, False

    def beside(self) -> None:
        """Calls go on."""
        self._since_s, self._is_beside = self._cpu_s(), True

    def forget(self) -> None:
        """What it has taken so far does not count."""
        self._since_s, self._beside_s = self._cpu_s(), 0.0


saved_s: Callable[[], float] = float
"""What kernels have saved in the calls of this process so far: ``call_plan`` knows it."""


class Spending:
    """``saved_s``: what kernels have saved in calls so far, as they were measured. ``now``: a clock, in seconds. A lock
    is held where its methods are called, but for ``spend``."""

    def __init__(self, saved_s: Callable[[], float], *, now: Callable[[], float] = time.monotonic) -> None:
        self._saved_s, self._now = saved_s, now
        self.waiting = 0
        """Calls that wait now."""
        self._began_s: float | None = None
        self._waits_s = self._spent_s = self._waits_from_s = 0.0
        """Of calls that have waited; besides; when those that wait now began."""
        self._running: list[WorkBeside] = []
        self._expected_s = self._took_s = _USUAL_S
        """Of all work that has ended."""

    def forget(self) -> None:
        """Nothing was spent, and calls are still to come; what runs goes on."""
        self._began_s = None
        self._waits_s = self._spent_s = 0.0
        self._expected_s = self._took_s = _USUAL_S
        self._waits_from_s = self._now()
        self._forget_running()

    def leave(self) -> None:
        """In a forked child nothing runs, and nothing waits."""
        self.waiting = 0
        self._running.clear()

    def begin(self) -> None:
        """Calls run from now on: before that nothing takes any of their time."""
        if self._began_s is None:
            self._began_s = self._now()
            self._forget_running()

    @property
    def left_s(self) -> float:
        """What may still be spent."""
        saved_s = self._saved_s()
        share_s = SHARE * (self._now() - self._began_s) if self._began_s is not None else 0.0
        may_s = MOST_S + SURE * saved_s + (min(share_s, MOST_SHARE_S) if saved_s else share_s)
        waits_s = self._waits_s + (self._now() - self._waits_from_s if self.waiting else 0.0)
        return may_s - waits_s - self._spent_s - sum(each.beside_s for each in self._running)

    @property
    def wait_s(self) -> float:
        """How long a call may wait now; 0 where that is too short for a build."""
        left_s = self.left_s - (MOST_S - WAIT_S)
        return left_s if left_s >= _LEAST_WAIT_S else 0.0

    def allows(self, takes_s: float) -> bool:
        """Whether work may begin that is expected to take so long, or as many times longer as other work did."""
        return self._began_s is None or self.left_s >= takes_s * max(1.0, self._took_s / self._expected_s)

    def wait_begins(self) -> None:
        """A call waits, perhaps beside others."""
        if not self.waiting:
            self._waits_from_s = self._now()
            for work in self._running:
                work.alone()
        self.waiting += 1

    def wait_ends(self) -> None:
        """It goes on."""
        self.waiting -= 1
        if not self.waiting:
            self._waits_s += self._now() - self._waits_from_s
            for work in self._running:
                work.beside()

    def work_begins(self, cpu_s: Callable[[], float], *, expected_s: float, is_free: bool) -> WorkBeside:
        """``cpu_s``: what the one that does it has taken of a core so far. ``is_free``: it takes nothing of calls."""
        work = WorkBeside(cpu_s, expected_s=expected_s, is_free=is_free)
        if self.waiting:
            work.alone()
        self._running.append(work)
        return work

    def work_ends(self, work: WorkBeside) -> None:
        """What it took of calls is spent."""
        if work in self._running:
            self._running.remove(work)
        if self._began_s is not None:
            self._spent_s += work.beside_s
        self._expected_s += work.expected_s
        self._took_s += work.took_s

    def spend(self, seconds: float) -> None:
        """A call took so much longer than PyTorch's."""
        if self._began_s is not None:
            self._spent_s += seconds

    def _forget_running(self) -> None:
        for work in self._running:
            work.forget()


of_process = Spending(lambda: saved_s())
"""Tests replace it."""
