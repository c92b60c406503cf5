"""The state of the machine around a benchmark: a result says what it was measured on, and how quiet that was."""

from __future__ import annotations

import os
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import psutil

from dwconv.measure.clock.contention import Quiet, cores


class MachineWatch:
    """Looks at the machine now, which takes some tenths of a second, and when it is asked for ``facts``. Make one
    before the first time is taken."""

    def __init__(self, *, threads: int) -> None:
        self._threads = threads
        quiet = Quiet(threads=threads)
        self._was_quiet, self._busy = quiet.look(), quiet.busy
        self._load, self._clock_mhz = _load_average(), clock_mhz()

    def facts(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Threads and cores; load averages of 1, 5 and 15 minutes and the clock before and after, None where the system
        does not tell; the share of the cores that other work had before; the share of the time that other work took
        from the rows."""
        contention = [row["contention"] for row in rows if "contention" in row]
        return {
            "threads": self._threads,
            "cores": cores(),
            "quiet_before": self._was_quiet,
            "busy_before": round(self._busy, 3),
            "load_average_before": self._load,
            "load_average_after": _load_average(),
            "clock_mhz_before": self._clock_mhz,
            "clock_mhz_after": clock_mhz(),
            "contention": {"mean": round(fmean(contention), 3), "most": max(contention)} if contention else None,
        }


def clock_mhz() -> float | None:
    """The mean clock of the cores now; None where the system does not tell."""
    try:
        frequency = psutil.cpu_freq()
    except (AttributeError, OSError, RuntimeError, NotImplementedError):  # as systems differ
        return None
    return round(frequency.current, 1) if frequency and frequency.current else None


def _load_average() -> list[float] | None:
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except (AttributeError, OSError):
        return None
