"""Budget: how long a graph may be measured. It bounds every part: whoever runs something to time it asks before."""

from __future__ import annotations

import time
from collections.abc import Callable

from dwconv.errors import OutOfTime
from dwconv.measure.clock.timing import Call

now_s: Callable[[], float] = time.perf_counter
"""The clock."""


class Budget:
    """So many seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self._ends_s = now_s() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_s - now_s())

    def part(self, share: float) -> Budget:
        """A budget of its own, of this share of what is left."""
        return Budget(share * self.left_s)

    def check(self) -> None:
        """Raises OutOfTime once the time is over."""
        if not self.left_s:
            raise OutOfTime("the time for measuring is over")

    def bounded(self, call: Call) -> Call:
        """``call``, which does not begin once the time is over."""

        def run() -> object:
            self.check()
            return call()

        return run
