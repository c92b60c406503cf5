"""WaitingReport: how long steps waited for data, and how long they would have without anything loaded ahead."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WaitingReport:
    """Of all batches so far. Prints as two lines."""

    depth: int
    waited_us: tuple[float, ...]
    """Of each batch, the time from asking for it to having it."""
    loading_us: tuple[float, ...]
    """Of each batch, the time that the loader took, with its copy to pinned memory: what a step waits where nothing is
    loaded ahead."""

    @property
    def batches(self) -> int:
        """How many were handed out."""
        return len(self.waited_us)

    @property
    def hidden(self) -> float:
        """The share of the loading time that no step waited for, 0 to 1."""
        loading_us = sum(self.loading_us)
        return max(0.0, 1 - sum(self.waited_us) / loading_us) if loading_us else 0.0

    def __str__(self) -> str:
        if not self.batches:
            return "no batch was loaded yet"
        ahead = f"{self.depth} loaded ahead" if self.depth else "nothing loaded ahead"
        lines = [f"{self.batches} batches, {ahead}: a step waited {_told(self.waited_us)}"]
        if self.depth:
            lines.append(
                f"loading took {_told(self.loading_us)}, which a step waits without prefetch; {self.hidden:.0%} hidden"
            )
        return "\n".join(lines)


class WaitingTimes:
    """What a report is made of; grows while batches come."""

    def __init__(self) -> None:
        self._waited_us: list[float] = []
        self._loading_us: list[float] = []

    def add(self, *, waited_s: float, loading_s: float) -> None:
        """A batch that was handed out."""
        self._waited_us.append(waited_s * 1e6)
        self._loading_us.append(loading_s * 1e6)

    def report(self, *, depth: int) -> WaitingReport:
        """The batches so far."""
        return WaitingReport(depth=depth, waited_us=tuple(self._waited_us), loading_us=tuple(self._loading_us))


def _told(times_us: tuple[float, ...]) -> str:
    return f"{statistics.mean(times_us) / 1e3:.2f} ms on average, {statistics.median(times_us) / 1e3:.2f} in the median"
