"""WaitingReport: how long steps waited for data, and how long they would have without anything loaded ahead."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WaitingReport:
    """Of all batches so far. Prints as two lines."""

    depth: int
    first_us: tuple[float, ...]
    """Of the first batch of each epoch, the time from beginning the epoch to having it: nothing can hide that."""
    waited_us: tuple[float, ...]
    """Of each other batch, the time from asking for it to having it."""
    loading_us: tuple[float, ...]
    """Of each of these, the time that the loader took, with its copy to pinned memory: what a step waits where nothing
    is loaded ahead."""

    @property
    def batches(self) -> int:
        """How many were handed out."""
        return len(self.first_us) + len(self.waited_us)

    @property
    def hidden(self) -> float:
        """The share of the loading time that no step waited for, 0 to 1."""
        loading_us = sum(self.loading_us)
        return max(0.0, 1 - sum(self.waited_us) / loading_us) if loading_us else 0.0

    def __str__(self) -> str:
        if not self.batches:
            return "no batch was loaded yet"
        ahead = f"{self.depth} loaded ahead" if self.depth else "nothing loaded ahead"
        begun = f"for the first of an epoch a step waited {statistics.mean(self.first_us) / 1e3:.2f} ms"
        lines = [f"{self.batches} batches, {ahead}: {begun}"]
        if self.waited_us:
            lines[0] += f", for the others {_told(self.waited_us)}"
        if self.depth and self.waited_us:
            lines.append(
                f"loading took {_told(self.loading_us)}, which a step waits without prefetch; {self.hidden:.0%} hidden"
            )
        return "\n".join(lines)


class WaitingTimes:
    """What a report is made of; grows while batches come."""

    def __init__(self) -> None:
        self._first_us: list[float] = []
        self._waited_us: list[float] = []
        self._loading_us: list[float] = []

    def add_first(self, *, waited_s: float) -> None:
        """The first batch of an epoch, handed out."""
        self._first_us.append(waited_s * 1e6)

    def add(self, *, waited_s: float, loading_s: float) -> None:
        """Another batch, handed out."""
        self._waited_us.append(waited_s * 1e6)
        self._loading_us.append(loading_s * 1e6)

    def report(self, *, depth: int) -> WaitingReport:
        """The batches so far."""
        return WaitingReport(
            depth=depth,
            first_us=tuple(self._first_us),
            waited_us=tuple(self._waited_us),
            loading_us=tuple(self._loading_us),
        )


def _told(times_us: tuple[float, ...]) -> str:
    return f"{statistics.mean(times_us) / 1e3:.2f} ms on average, {statistics.median(times_us) / 1e3:.2f} in the median"
