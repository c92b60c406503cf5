"""How the seconds of ``bench cuda`` are spent: by how long items have taken so far, not by fixed shares."""

from __future__ import annotations

import _thread
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

_REMEMBERED = 5
_Now = Callable[[], float]


class Budget:
    """The seconds of all stages together. A stage may take its share of what earlier stages have left."""

    def __init__(self, seconds: float, *, now: _Now = time.monotonic) -> None:
        self._now = now
        self._ends_s = now() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_s - self._now())

    def pace(self, stages: Sequence[str], *, weights: Mapping[str, float], first_s: float, most_s: float) -> Pace:
        """The pace of the first of ``stages``, which are still to come. ``first_s``: the expected time of its first
        item; ``most_s``: the most that the stage needs."""
        share = weights[stages[0]] / sum(weights[stage] for stage in stages)
        return Pace(min(most_s, share * self.left_s), first_s=first_s, now=self._now)


class Pace:
    """The time of one stage, and how long its items take."""

    def __init__(self, seconds: float, *, first_s: float, now: _Now = time.monotonic) -> None:
        self._now = now
        self._ends_s = now() + seconds
        self._first_s = first_s
        self._taken_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._beside_s: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_s - self._now())

    @property
    def expected_s(self) -> float:
        """The expected time of the next item, from the items before it."""
        return statistics.mean(self._taken_s) if self._taken_s else self._first_s

    @property
    def fits(self) -> bool:
        """True if another item fits into the time that is left."""
        return self.left_s > 0 and self.left_s >= self.expected_s

    @contextmanager
    def item(self, *, granted_s: float = 0.0) -> Iterator[None]:
        """Time an item. ``granted_s`` of it were granted to spend; the rest is the item's overhead."""
        started_s = self._now()
        try:
            yield
        finally:
            self._taken_s.append(self._now() - started_s)
            self._beside_s.append(max(0.0, self._taken_s[-1] - granted_s))

    def grant_s(self, *, items: int, least_s: float, most_s: float) -> float | None:
        """The seconds that the next of ``items`` may spend, without the usual overhead of an item: its share of the
        time that is left, at least ``least_s``; None if there is not enough left for that."""
        beside_s = statistics.mean(self._beside_s) if self._beside_s else max(0.0, self._first_s - least_s)
        if self.left_s <= 0 or self.left_s < least_s + beside_s:
            return None
        return min(most_s, max(least_s, self.left_s / max(1, items) - beside_s))


class Interrupted(Exception):
    """A block ran longer than its time limit."""


@contextmanager
def interrupted_after(seconds: float) -> Iterator[threading.Event]:
    """Interrupt the block after ``seconds``, as ctrl-C would. Raises Interrupted if the block lets that through; the
    event tells whether the time was up."""
    up, over = threading.Event(), threading.Event()
    lock = threading.Lock()

    def interrupt() -> None:
        with lock:
            if not over.is_set():
                up.set()
                _thread.interrupt_main()

    timer = threading.Timer(max(0.0, seconds), interrupt)
    timer.daemon = True
    timer.start()
    try:
        try:
            yield up
        finally:
            with lock:
                over.set()
            timer.cancel()
            timer.join()
    except KeyboardInterrupt:
        if not up.is_set():
            raise
        raise Interrupted(f"no end after {seconds:.0f} s") from None
