"""A clock on which every call takes as long."""

from __future__ import annotations

from dwconv.errors import BuildError
from dwconv.measure.clock.timing import Lap


class StillClock:
    """Every call takes ten microseconds. What ``ready`` refuses is in ``uncapturable``, by number."""

    def __init__(self, *, uncapturable: tuple[int, ...] = ()) -> None:
        self.ready_for: list[object] = []
        self.laps = 0
        self.uncapturable = uncapturable

    def ready(self, call):
        self.ready_for.append(call)
        if len(self.ready_for) - 1 in self.uncapturable:
            raise BuildError("it cannot be captured: it waits for the device")
        return call

    def lap(self, call, *, times):
        self.laps += 1
        call()
        return Lap(seconds=times * 1e-5)

    def enough(self, effort):
        return effort

    def overall(self):
        return lambda: 0.0
