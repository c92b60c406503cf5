"""DeviceWork: what is left to tune on the nodes with devices of one name, and what they have found.

NodeTable shows how the nodes stand: one live table on a terminal, plain lines elsewhere. All of it goes to stderr.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dwconv.errors import LogError, NodeLost
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.line import decode, encode
from dwconv.records.record import TuningRecord
from dwconv.tuner.agenda import Sharing
from dwconv.tuner.cluster.node import Line, Lines, Node, Report, Task
from dwconv.tuner.device_campaign import Choices, DeviceCampaign, check_choices, opened_log
from dwconv.tuner.results_table import PLAIN_LINE_EVERY_S, LiveView, Outcome, label, state
from dwconv.tuner.search.search_result import Stop, TuningResult

if TYPE_CHECKING:
    from rich.table import Table


class DeviceWork:
    """Each workload is tuned once, by one of the nodes. Raises NoTemplate if none can be, LogError if the log cannot be
    written."""

    def __init__(self, counts: Mapping[Workload, int], target: Target, choices: Choices, *, network: bool) -> None:
        check_choices(choices, target, list(counts))
        log, known = opened_log(choices, target)
        self.campaign = DeviceCampaign.of(counts, target, choices, log=log, known=known, network=network)
        self.outcomes: list[Outcome] = []
        self.nodes: list[Node] = []
        self._sharing = Sharing(self.campaign.agenda)
        self._again: set[Workload] = set()
        """Tuned once more, since a slow node had confirmed them."""

    @property
    def total(self) -> int:
        """Workloads, tuned or not."""
        return len(self.campaign.agenda.workloads)

    @property
    def left(self) -> int:
        """Workloads that are not tuned yet."""
        return self.total - len(self.outcomes)

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
            self.outcomes.append(Outcome(workload=workload, reason=report.reason))
            return ""
        if (
            node.doubted > 1
            and workload not in self._again
            and any(each.fit for each in self.alive if each is not node)
        ):
            self._again.add(workload)
            self._sharing.back(workload)
            return "a node that is not slow tunes it again"
        self.outcomes.append(Outcome(workload=workload, result=_doubted(report.state, node)))
        if self.campaign.step and report.state.best:
            self.campaign.step.update(workload)
        return ""

    def interrupt(self) -> None:
        """What was found so far of the workloads that are being tuned is their outcome."""
        for node in self.alive:
            if node.workload and node.state:
                found = dataclasses.replace(_doubted(node.state, node), stopped=Stop.INTERRUPTED)
                self.outcomes.append(Outcome(workload=node.workload, result=found))

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


def task_label(workload: Workload) -> str:
    """A short name of a workload with its pass."""
    return f"{workload.pass_} {label(workload)}"


class NodeTable(LiveView):
    """Shows ``nodes``, and how far the work on ``devices`` is. What comes and goes is looked up when it is shown."""

    def __init__(self, nodes: Sequence[Node], devices: Mapping[str, DeviceWork]) -> None:
        super().__init__()
        self._nodes = nodes
        self._devices = devices
        self._shown_s: dict[Node, float] = {}

    def begin(self, node: Node) -> None:
        """``node`` was given a workload."""
        assert node.workload is not None
        if self._live is None:
            self._say(node, f"{task_label(node.workload)}: starting")

    def tell(self, node: Node) -> None:
        """``node`` has sent its state."""
        quiet_s = time.monotonic() - self._shown_s.get(node, 0.0)
        if self._live is None and node.workload and node.state and quiet_s >= PLAIN_LINE_EVERY_S:
            self._say(node, f"{task_label(node.workload)}: {state(node.state)}")

    def finish(self, node: Node, report: Report, workload: Workload, note: str) -> None:
        """``node`` has ended the search of ``workload``."""
        words = state(report.state) if report.state else report.reason
        device = self._devices[node.device]
        done = f"[{device.total - device.left}/{device.total}]"
        gain = f"; still to gain: {device.campaign.step.to_gain}" if device.campaign.step else ""
        self._say(node, f"{done} {task_label(workload)}: {words}{f'; {note}' if note else ''}{gain}")

    def _say(self, node: Node, words: str) -> None:
        self._shown_s[node] = time.monotonic()
        self._console.print(f"{node.name}: {words}", soft_wrap=True, markup=False)

    def _now(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for name, device in list(self._devices.items()):  # this is another thread
            table.add_row(Text(name, style="bold"), f"{device.total - device.left} of {device.total} passes")
            for node in device.alive:
                doing = task_label(node.workload) if node.workload else node.doing
                table.add_row(f"  {node.name}", doing, state(node.state) if node.workload and node.state else "")
        for node in self._nodes:
            if node.alive and not node.device:
                table.add_row(f"  {node.name}", node.doing)
        return table
