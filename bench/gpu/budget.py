"""How the seconds of ``bench cuda`` are spent: by what things are seen to take, not by a fixed share for each."""

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
    """The seconds of all stages together. A stage may take its share of what those before it have left."""

    def __init__(self, seconds: float, *, now: _Now = time.monotonic) -> None:
        self._now = now
        self._ends_s = now() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_s - self._now())

    def pace(self, stages: Sequence[str], *, weights: Mapping[str, float], first_s: float, most_s: float) -> Pace:
        """Of the first of ``stages``, which are still to come: ``first_s`` is what its first item is expected to take,
        ``most_s`` what it needs at most."""
        share = weights[stages[0]] / sum(weights[stage] for stage in stages)
        return Pace(min(most_s, share * self.left_s), first_s=first_s, now=self._now)


class Pace:
    """The time of one stage, and what its items take."""

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
        """What the next item takes, by those before it."""
        return statistics.mean(self._taken_s) if self._taken_s else self._first_s

    @property
    def fits(self) -> bool:
        """True if another item fits into what is left."""
        return self.left_s > 0 and self.left_s >= self.expected_s

    @contextmanager
    def item(self, *, granted_s: float = 0.0) -> Iterator[None]:
        """Times an item; ``granted_s`` of it were given to it to spend, the rest is what it takes beside."""
        started_s = self._now()
        try:
            yield
        finally:
            self._taken_s.append(self._now() - started_s)
            self._beside_s.append(max(0.0, self._taken_s[-1] - granted_s))

    def grant_s(self, *, items: int, least_s: float, most_s: float) -> float | None:
        """What the next of ``items`` that are left may spend, beside what an item takes anyway: its share of what is
        left, at least ``least_s``; None if not even that is left."""
        beside_s = statistics.mean(self._beside_s) if self._beside_s else max(0.0, self._first_s - least_s)
        if self.left_s <= 0 or self.left_s < least_s + beside_s:
            return None
        return min(most_s, max(least_s, self.left_s / max(1, items) - beside_s))


class Interrupted(Exception):
    """What ran took longer than it was given."""


@contextmanager
def interrupted_after(seconds: float) -> Iterator[threading.Event]:
    """The block is interrupted after ``seconds``, as by ctrl-C. Raises Interrupted if it does not end by itself then;
    the event tells whether the time was up."""
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
