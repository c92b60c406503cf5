"""Choice: what runs a graph, and all that was measured to choose it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dwconv.concurrency.choosing.options import PLAIN
from dwconv.concurrency.scheduling.schedule import Schedule
from dwconv.records.record import Measurement


@dataclass(frozen=True, kw_only=True)
class GradientTimes:
    """The two gradients of one convolution, in microseconds: one after the other, and at once."""

    name: str
    serial_us: float
    at_once_us: float


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What runs a graph. It is data alone, so that it can be kept in a log."""

    graph: str
    """The digest of the graph, forward and backward together."""
    device: str
    cores: int
    """Threads that PyTorch had."""
    asked: str
    """The options that decide what may be chosen."""
    winner: str
    """``plain``, or the name of the schedule."""
    reason: str
    schedules: tuple[Schedule, ...] = ()
    """Of the forward graph, and of the backward graph if there is one; none for plain execution."""
    kept_whole: tuple[int, ...] = ()
    """Convolutions of the backward graph whose two gradients stay one operator, by their place."""
    steps: Mapping[str, Measurement] = field(default_factory=dict)
    """A step, forward and backward: plain, and with each schedule that was measured."""
    peaks: Mapping[str, int] = field(default_factory=dict)
    """By schedule, and ``plain`` for plain order: bytes that the results of tasks take at most."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """By schedule, what was changed in it for the sake of memory."""
    gradients: tuple[GradientTimes, ...] = ()
    handover_us: float = 0.0
    change_us: float = 0.0
    trusted: bool = True
    """False if other work disturbed the times, or nothing was measured: it is not kept."""
    versions: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    """The time, ISO 8601, UTC."""

    @property
    def is_plain(self) -> bool:
        return self.winner == PLAIN
