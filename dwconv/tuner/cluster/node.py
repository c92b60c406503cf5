"""Node: one device of the cluster, as the driver has it. DeviceWork: what is left to tune on the devices of one name,
and what was found.

What the driver and a node say to each other is data, never code. Records pass as lines of a log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from dwconv.errors import LogError, NodeLost
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.line import decode, encode
from dwconv.records.record import TuningRecord
from dwconv.tuner.campaign import Campaign
from dwconv.tuner.search.search_result import Budget, Stop, TuningResult
from dwconv.tuner.user_choices import UserChoices

Lines = tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The input of each node, before it begins."""

    target: str
    """As after ``--target``; ``auto`` is the kind of device that the node was given."""
    fast_math: bool
    choices: UserChoices
    jobs: int | None = None
    """Builds at a time on each node, whatever ``choices`` say; None for as many as it has cores."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What a node is."""

    target: Target
    """With its limits."""
    place: str
    """The machine, and the GPU of it. Two that measure in one place would disturb each other."""


@dataclass(frozen=True, kw_only=True)
class NodeTask:
    """A workload to tune, and what is known of it."""

    workload: Workload
    budget: Budget
    """Of its search."""
    records: Lines
    """Of the workload on this device, in the log that is written."""
    others: Lines
    """Further ones to start from."""


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """How a node stands with its task."""

    lines: Lines = ()
    """The records that it has made since its last report."""
    state: TuningResult | None = None
    """None until something was measured."""
    ended: bool = False
    """True if the search is over, and ``state`` its result."""
    reason: str = ""
    """Why the workload cannot be tuned: no template fits."""
    failure: str = ""
    """Why the node cannot go on."""


class NodeLink(Protocol):
    """The way to the worker of a node, such as an actor of Ray."""

    name: str
    """For people."""

    def ask(self, method: str, *arguments: object) -> None:
        """Have a method of the worker called. The answer comes from the cluster."""
        ...

    def end(self) -> None:
        """End the worker, and whatever it started. Nothing comes from it any more."""
        ...


@dataclass(kw_only=True, eq=False)
class Node:
    """A node and what it does."""

    link: NodeLink
    device: str = ""
    """The name of its device; empty until it is known."""
    place: str = ""
    asked: str = ""
    """The request without an answer yet; empty if there is none."""
    asked_s: float = 0.0
    alive: bool = True
    workload: Workload | None = None
    """What it tunes."""
    state: TuningResult | None = None
    """How that stands."""

    @property
    def name(self) -> str:
        return self.link.name


class DeviceWork:
    """What is left to tune on the nodes with devices of one name, and what they have found. Each workload is tuned
    once, by one of the nodes. Raises NoTemplate if none can be, LogError if the log cannot be written."""

    def __init__(self, counts: Mapping[Workload, int], target: Target, choices: UserChoices, *, network: bool) -> None:
        self.campaign = Campaign(counts, target, choices, network=network)
        self.nodes: list[Node] = []

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]

    def join(self, node: Node) -> None:
        self.nodes.append(node)
        self.campaign.agenda.join(node)

    def task_for(self, node: Node) -> NodeTask | None:
        """The next workload, with what is known of it now; None if there is nothing left, or no time."""
        given = self.campaign.agenda.next(node)
        if given is None:
            return None
        node.workload, seconds = given
        node.state = None
        known, device = self.campaign.known, self.campaign.target.device
        records = known.of_own_places.records(node.workload, device)
        others = [*known.records(node.workload, device), *known.bests_of_kind(node.workload)]
        unique = {id(each): each for each in others}.values()
        budget = self.campaign.budget(node.workload, seconds=seconds)
        return NodeTask(workload=node.workload, budget=budget, records=_lines(records), others=_lines(unique))

    def keep(self, line: bytes, node: Node) -> None:
        """Write a record that ``node`` has made; it is on disk when this returns. Raises LogError if it cannot be
        written, NodeLost if it is no such record."""
        try:
            record = decode(line)
        except LogError as error:
            raise NodeLost(f"what it sent is {error}") from None
        if (record.workload, record.device) != (node.workload, self.campaign.target.device):
            raise NodeLost("it sent a record of something else than its task")
        self.campaign.log.append(record)

    def end(self, node: Node, report: NodeReport) -> None:
        """The search of ``node`` is over."""
        assert node.workload is not None
        workload, node.workload = node.workload, None
        self.campaign.agenda.ended(node)
        self.campaign.add(workload, report.state, reason=report.reason)

    def interrupt(self) -> None:
        """What was found so far of the workloads that are being tuned is their outcome."""
        for node in self.alive:
            if node.workload and node.state:
                self.campaign.add(node.workload, dataclasses.replace(node.state, stopped=Stop.INTERRUPTED))

    def lose(self, node: Node) -> None:
        """``node`` takes part no more. Its workload goes to another one."""
        self.campaign.agenda.leave(node)
        if node.workload is not None:
            self.campaign.agenda.back(node.workload)
            node.workload = None


def _lines(records: Iterable[TuningRecord]) -> Lines:
    return tuple(encode(record) for record in records)
