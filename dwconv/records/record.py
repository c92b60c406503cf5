"""What is known of a candidate: Status, Verdict, Measurement, and the TuningRecord that holds them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from dwconv.schedules.space import Config
from dwconv.workload import Workload


class Status(str, Enum):
    """How far a candidate got."""

    OK = "ok"
    WRONG = "wrong"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


CONTENDED = 0.05
"""A time is not to be trusted if other work on the machine took more than this share of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Right or wrong against the float64 reference, with the worst error seen and the error that was allowed there."""

    right: bool
    max_error: float
    allowed_error: float
    reason: str = ""
    """What was wrong: ``value``, ``guard band``, ``input changed``, ``not written``; empty if right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Timed runs, in microseconds a call. A predicted one was computed, never run."""

    median_us: float
    spread_us: float
    """Interquartile range of the timed rounds; 0 if predicted."""
    rounds: int
    predicted: bool = False
    contention: float = 0.0
    """The share of the time of these rounds that other work on the machine took, from 0 to 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningRecord:
    """One line of a tuning log. A failed candidate has no measurement, but is remembered too."""

    workload: Workload
    config: Config
    device: str
    status: Status
    measurement: Measurement | None = None
    confirmed: bool = False
    """Verified on other data and batch sizes too, and timed longer, side by side with the other finalists, on a machine
    that did nothing else."""
    verdict: Verdict | None = None
    providers: dict[str, Measurement] = field(default_factory=dict)
    """Whoever else was measured in the same run, interleaved: ``onednn-nhwc``, ``cudnn-nchw``, …"""
    resources: dict[str, int] = field(default_factory=dict)
    """What the compiler reported: ``registers``, ``shared_bytes``, ``spill_bytes``, …; ``counted_from_text`` where the
    machine code could not be followed through its loops."""
    detail: str = ""
    """The first line of what went wrong."""
    versions: dict[str, str] = field(default_factory=dict)
    created: str = ""
    """When, ISO 8601, UTC."""

    @property
    def measured(self) -> bool:
        """True if this was run and timed on its device."""
        return self.measurement is not None and not self.measurement.predicted

    @property
    def fast_math(self) -> bool:
        """True if the kernel was compiled to flush denormals and divide approximately."""
        return self.versions.get("math") == "fast"

    @property
    def contention(self) -> float:
        """The share of its time, or of a provider's, that other work took, whichever is larger."""
        taken = [self.measurement] if self.measurement else []
        return max((measured.contention for measured in (*taken, *self.providers.values())), default=0.0)

    @property
    def contended(self) -> bool:
        """True if other work had so much of the machine that the times say little."""
        return self.contention > CONTENDED

    def replaces(self, earlier: TuningRecord) -> bool:
        """True if this is what to know of a candidate, of which ``earlier`` was known before: the last word counts, but
        a time that other work disturbed is not heard after one that it did not."""
        return not (self.contended and earlier.status is Status.OK and not earlier.contended)

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """Orders candidates of one workload, the best first: the confirmed before the rest, which may have been lucky;
        those that were timed undisturbed; of those that were only computed, those whose time is not doubtful; then by
        ``cost``."""
        return (not self.confirmed, self.contended, not self.measured and self._doubtful, self.cost)

    @property
    def cost(self) -> float:
        """Time over the baseline's: both were measured in turns, so other work on the machine cancels out. Where there
        is no baseline, microseconds; infinite for what failed."""
        if self.status is not Status.OK or self.measurement is None:
            return math.inf
        return 1 / self.speedup if self.speedup else self.measurement.median_us

    @property
    def _doubtful(self) -> bool:
        """True if its registers, or arrays of its own, go to local memory, or if nobody knows how often its loops turn;
        a computed time knows too little of that."""
        return any(self.resources.get(name) for name in ("spill_bytes", "stack_bytes", "counted_from_text"))

    @property
    def baseline(self) -> tuple[str, Measurement] | None:
        """The fastest provider measured beside it."""
        return min(self.providers.items(), key=lambda item: item[1].median_us, default=None)

    @property
    def speedup(self) -> float | None:
        """Time of the fastest other provider over the candidate's own; None if one of them is unknown."""
        if self.measurement is None or self.baseline is None:
            return None
        return self.baseline[1].median_us / self.measurement.median_us
