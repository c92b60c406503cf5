"""Node: one device of the cluster, as the driver sees it; and whether it measures as its siblings do.

What the driver and a node say to each other is data, never code. Records pass as lines of a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.record import CONTENDED, Measurement
from dwconv.tuner.device_campaign import Choices
from dwconv.tuner.expected_gain import Until
from dwconv.tuner.search.search_result import TuningResult

Lines = tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The input of each node, before it begins."""

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
    until: Until | None = None
    """When its search is over."""


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


SLOWER = 1.3
"""A node on which the reference kernel takes so many times as long as usual is slow: the clocks of devices of one name
differ by less."""


class Link(Protocol):
    """The way to the worker of a node."""

    @property
    def name(self) -> str:
        """Names the node for people."""
        ...

    def ask(self, method: str, *arguments: object) -> None:
        """Have a method of the worker called. The answer comes from ``Cluster.answers``."""
        ...

    def end(self) -> None:
        """End the worker, and whatever it started. Nothing comes from it any more."""
        ...


class Cluster(Protocol):
    """The nodes, and what they answer."""

    @property
    def links(self) -> Sequence[Link]: ...

    def answers(self, *, timeout_s: float) -> list[tuple[Link, object]]:
        """What has been answered to the last question of each node, as soon as there is something; nothing after
        ``timeout_s``. Where a node cannot answer, a NodeLost."""
        ...


@dataclass(kw_only=True, eq=False)
class Node:
    """A node and what it does."""

    link: Link
    device: str = ""
    """The name of its device; empty until it is known."""
    place: str = ""
    asked: str = ""
    """The request without an answer yet; empty if there is none."""
    asked_s: float = 0.0
    alive: bool = True
    reference: Measurement | None = None
    """How long the reference kernel took when it was last timed."""
    timed_s: float = 0.0
    """When that became known."""
    slower: float = 1.0
    """How many times as long as usual it took; 1 if that is within what devices differ by."""
    workload: Workload | None = None
    """What it tunes."""
    state: TuningResult | None = None
    """How that stands."""
    acknowledged: int = 0
    """Records of it that are on disk."""
    doubted: float = 1.0
    """The largest ``slower`` with which it confirmed a record of this workload."""

    @property
    def name(self) -> str:
        return self.link.name

    @property
    def busy(self) -> float:
        """The share of the time of the reference kernel that other work took; 0 if that is little."""
        lost = self.reference.contention if self.reference else 0.0
        return lost if lost > CONTENDED else 0.0

    @property
    def fit(self) -> bool:
        """True if what it measures now is to be trusted."""
        return self.slower == 1.0 and not self.busy

    @property
    def doing(self) -> str:
        """In words, where nothing is tuned."""
        if not self.device:
            return "starting"
        if not self.fit:
            return "rests: slow" if self.slower > 1 else "rests: busy with other work"
        return "free"


def judge(siblings: Iterable[Node]) -> list[str]:
    """Compare the nodes of one device's name with each other: set ``slower`` of each. A note on each that is slow now
    and was not before, or the other way round."""
    timed = [(node, node.reference.median_us) for node in siblings if node.alive and node.reference]
    usual_us = sorted(us for _, us in timed)[(len(timed) - 1) // 2] if timed else 0.0
    notes = []
    for node, us in timed:
        was, node.slower = node.slower, us / usual_us if us > SLOWER * usual_us else 1.0
        if node.slower > 1 and was == 1:
            notes.append(
                f"{node.name} is slow: the reference kernel takes {node.slower:.2f} times as long there as on other "
                f"nodes with {node.device}; it rests while others are free, and what it measures counts as contended"
            )
        elif node.slower == 1 and was > 1:
            notes.append(f"{node.name} is as fast as the other nodes with {node.device} again")
    return notes
