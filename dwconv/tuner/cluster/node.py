"""Node: one device of the cluster, as the driver has it; and whether it measures as its siblings do. DeviceWork: what
is left to tune on the devices of one name, and what was found.

What the driver and a node say to each other is data, never code. Records pass as lines of a log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dwconv.errors import LogError, NodeLost
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.line import decode, encode
from dwconv.records.record import CONTENDED, Measurement, TuningRecord
from dwconv.tuner.agenda import Sharing
from dwconv.tuner.campaign import Campaign
from dwconv.tuner.choices import Choices
from dwconv.tuner.expected_gain import Until
from dwconv.tuner.search.search_result import Stop, TuningResult

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
                f"nodes with {node.device}; it is used while no other is free, and its measurements count as contended"
            )
        elif node.slower == 1 and was > 1:
            notes.append(f"{node.name} is as fast as the other nodes with {node.device} again")
    return notes


class DeviceWork:
    """What is left to tune on the nodes with devices of one name, and what they have found. Each workload is tuned
    once, by one of the nodes. Raises NoTemplate if none can be, LogError if the log cannot be written."""

    def __init__(self, counts: Mapping[Workload, int], target: Target, choices: Choices, *, network: bool) -> None:
        self.campaign = Campaign(counts, target, choices, network=network)
        self.nodes: list[Node] = []
        self._sharing = Sharing(self.campaign.agenda)
        self._again: set[Workload] = set()
        """Tuned once more, since a slow node had confirmed them."""

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]

    def join(self, node: Node) -> None:
        self.nodes.append(node)
        self._sharing.join(node)

    def rests(self, node: Node) -> bool:
        """True if ``node`` is not fit, another one is, and there is something to tune once it is fit again."""
        return not node.fit and self._sharing.left > 0 and any(other.fit for other in self.alive)

    def task_for(self, node: Node) -> Task | None:
        """The next workload, with what is known of it now; None if there is nothing left, or no time. A node that is
        not fit gets none while another one is."""
        if self.rests(node):
            return None
        given = self._sharing.next(node)
        if given is None:
            return None
        workload, seconds = given
        node.workload, node.state, node.acknowledged, node.doubted = workload, None, 0, 1.0
        known, device = self.campaign.known, self.campaign.target.device
        records = known.of_own_places.records(workload, device)
        others = {id(each): each for each in (*known.records(workload, device), *known.bests_of_kind(workload))}
        return Task(
            workload=workload, seconds=seconds, records=_lines(records), others=_lines(others.values()),
            until=self.campaign.until(workload),
        )  # fmt: skip

    def keep(self, line: Line, node: Node) -> None:
        """Write a record that ``node`` has made; it is on disk when this returns. What a slow node has measured counts
        as contended, and as not confirmed. Raises LogError if it cannot be written, NodeLost if it is no such
        record."""
        try:
            record = decode(line.record)
        except LogError as error:
            raise NodeLost(f"what it sent is {error}") from None
        if (record.workload, record.device) != (node.workload, self.campaign.target.device):
            raise NodeLost("it sent a record of something else than its task")
        if record.confirmed:
            node.doubted = max(node.doubted, node.slower)
        self.campaign.log.append(slowed(record, slower=node.slower))

    def end(self, node: Node, report: Report) -> str:
        """The search of ``node`` is over. Returns a note; empty if there is nothing to say."""
        assert node.workload is not None
        workload, node.workload = node.workload, None
        self._sharing.ended(node)
        if report.state is None:
            self.campaign.add(workload, None, reason=report.reason)
            return ""
        if (
            node.doubted > 1
            and workload not in self._again
            and any(each.fit for each in self.alive if each is not node)
        ):
            self._again.add(workload)
            self._sharing.back(workload)
            return "a node that is not slow tunes it again"
        self.campaign.add(workload, _doubted(report.state, node))
        return ""

    def interrupt(self) -> None:
        """What was found so far of the workloads that are being tuned is their outcome."""
        for node in self.alive:
            if node.workload and node.state:
                found = dataclasses.replace(_doubted(node.state, node), stopped=Stop.INTERRUPTED)
                self.campaign.add(node.workload, found)

    def lose(self, node: Node) -> None:
        """``node`` takes part no more. Its workload goes to another one."""
        self._sharing.leave(node)
        if node.workload is not None:
            self._sharing.back(node.workload)
            node.workload = None


def slowed(record: TuningRecord, *, slower: float) -> TuningRecord:
    """``record`` as it counts if the node took so many times as long as it should."""
    if slower == 1.0 or record.measurement is None:
        return record
    lost = round(1 - 1 / slower, 3)
    measurement = dataclasses.replace(record.measurement, contention=max(lost, record.measurement.contention))
    return dataclasses.replace(record, measurement=measurement, confirmed=False)


def _doubted(result: TuningResult, node: Node) -> TuningResult:
    """``result`` as the log has it."""
    if node.doubted == 1 or result.best is None:
        return result
    return dataclasses.replace(result, best=slowed(result.best, slower=node.doubted), too_busy=True)


def _lines(records: Iterable[TuningRecord]) -> Lines:
    return tuple(encode(record) for record in records)
