"""What the driver and a node say to each other: data, never code. Records pass as lines of a log."""

from __future__ import annotations

from dataclasses import dataclass

from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.record import Measurement
from dwconv.tuner.device_campaign import Choices
from dwconv.tuner.search.search_result import TuningResult

Lines = tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What each node is told before it begins."""

    target: str
    """As after ``--target``; ``auto`` is the kind of device that the node was given."""
    fast_math: bool
    choices: Choices
    jobs: int | None = None
    """Builds at a time on each node, whatever ``choices`` say; None for as many as it has cores."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a node is."""

    target: Target
    """With its limits."""
    place: str
    """The machine, and the GPU of it. Two that measure in one place would disturb each other."""
    reference: Measurement
    """How long the reference kernel takes."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A workload to tune, and what is known of it."""

    workload: Workload
    seconds: float | None
    """For its search."""
    records: Lines
    """Of the workload on this device, in the log that is written."""
    others: Lines
    """Further ones to start from."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A record that a node has made."""

    record: bytes
    reference: Measurement
    """How long the reference kernel took when it was last timed: for a confirmed record, after it was measured."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """How a node stands with its task."""

    lines: tuple[Line, ...] = ()
    """All records of the task that the driver has not acknowledged, the first one first."""
    state: TuningResult | None = None
    """None until something was measured."""
    ended: bool = False
    """True if the search is over, and ``state`` its result."""
    reason: str = ""
    """Why the workload cannot be tuned: no template fits."""
    failure: str = ""
    """Why the node cannot go on."""
