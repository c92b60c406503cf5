"""The driver: hands workloads to the nodes of a cluster, and writes what they measure to the logs of this machine.

node        driver                                         log of the device's name
 │ ◄─ task ── those with most to win first
 │ ─ record ─► judged by the reference kernel of the node ──► on disk
 │ ◄─ acknowledged: only now does the node forget it
 ✗ lost ────► its workload goes to another node with a device of the same name

NodeTable shows how the nodes stand: one live table on a terminal, plain lines elsewhere. All of it goes to stderr.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dwconv import settings
from dwconv.errors import LogError, NoCluster, NodeLost, NoTemplate, one_line
from dwconv.problems.workload import Workload
from dwconv.records.record import Measurement
from dwconv.system import versions
from dwconv.tuner.campaign import shared
from dwconv.tuner.cluster.node import Cluster, DeviceWork, Facts, Link, Node, Report, Setup, judge
from dwconv.tuner.results_table import PLAIN_LINE_EVERY_S, LiveView, label, state
from dwconv.tuner.search.search_result import ctrl_c_waits
from dwconv.tuner.tuned import TunedDevices

if TYPE_CHECKING:
    from rich.table import Table

PATIENCE_S = {
    "versions": settings.WORKER_START_TIMEOUT_S,
    "start": 2 * settings.WORKER_START_TIMEOUT_S,
    "time_reference": settings.WORKER_START_TIMEOUT_S,
    "begin": 60.0,
    "report": 60.0,
}
"""A node that does not answer for so long is lost."""
_REPORT_S = 1.0
"""A node with nothing new says so after this time."""
_LOOK_S = 0.5
_TIME_AGAIN_S = 20.0
"""A node that rests times the reference kernel again after this time."""


def tune_on(cluster: Cluster, counts: Mapping[Workload, int], setup: Setup, *, network: bool) -> TunedDevices:
    """Tune every workload once for each name of a device in the cluster; ``counts`` says how often a step runs it.
    ``network``: those with most to win come first.

    Ctrl-C ends the campaign, and what was found until then is in the result. Raises NoCluster if no node can tune,
    LogError if records cannot be written."""
    return _Driver(cluster, counts, setup, network=network).run()


class _Driver:
    def __init__(self, cluster: Cluster, counts: Mapping[Workload, int], setup: Setup, *, network: bool) -> None:
        self._cluster = cluster
        self._counts = counts
        self._setup = setup
        self._network = network
        self._nodes: dict[Link, Node] = {link: Node(link=link) for link in cluster.links}
        self._devices: dict[str, DeviceWork] = {}
        self._sharing = contextlib.ExitStack()
        self._share_if_due: list[Callable[[], None]] = []
        """Of each log, its records with the team."""
        self._failed_writes = 0
        self._lost = False
        self._last_words = "it has no nodes"
        self._table = NodeTable(list(self._nodes.values()), self._devices)

    def run(self) -> TunedDevices:
        interrupted = False
        try:
            with self._sharing, self._table:
                self._tune()
        except KeyboardInterrupt:
            interrupted = True
            for device in self._devices.values():
                device.interrupt()
        if not self._devices and not interrupted:
            raise NoCluster(f"no node can tune: {self._last_words}")
        return TunedDevices(
            devices=tuple(device.campaign.tuned(interrupted=interrupted) for device in self._devices.values()),
            left=sum(device.campaign.left for device in self._devices.values()),
            lost=self._lost,
            interrupted=interrupted,
        )

    def _tune(self) -> None:
        for node in self._nodes.values():
            self._ask(node, "versions")
        while any(node.asked for node in self._nodes.values()):
            for link, answer in self._cluster.answers(timeout_s=_LOOK_S):
                node = self._nodes[link]
                if node.alive:
                    self._take(node, answer)
            self._look()
            self._hand_out()
            for share in self._share_if_due:
                share()

    # -- questions and answers -----------------------------------------------------------------------------------

    def _ask(self, node: Node, method: str, *arguments: object) -> None:
        node.asked, node.asked_s = method, time.monotonic()
        node.link.ask(method, *arguments)

    def _take(self, node: Node, answer: object) -> None:
        requested, node.asked = node.asked, ""
        take: Callable[[Node, object], None] = {
            "versions": self._take_versions,
            "start": self._take_facts,
            "time_reference": self._take_reference,
            "begin": self._take_beginning,
            "report": self._take_report,
        }[requested]
        try:
            if isinstance(answer, NodeLost):
                raise answer
            take(node, answer)
        except NodeLost as error:
            self._lose(node, str(error))

    def _take_versions(self, node: Node, there: object) -> None:
        here = versions.installed()
        assert isinstance(there, dict)
        differ = [name for name in here if there.get(name) != here[name]]
        if differ:
            has = ", ".join(f"{name} {one_line(str(there.get(name, 'is missing')))}" for name in differ)
            wanted = ", ".join(f"{name} {here[name]}" for name in differ)
            raise NodeLost(f"there {has}, here {wanted}; install the same versions")
        self._ask(node, "start", self._setup)

    def _take_facts(self, node: Node, facts: object) -> None:
        assert isinstance(facts, Facts)
        there = next((each for each in self._nodes.values() if each.alive and each.place == facts.place), None)
        if there is not None:
            raise NodeLost(f"it is in the same place as {there.name}, and only one may measure there")
        name = facts.target.device
        if name not in self._devices:
            choices = self._setup.choices
            try:
                work = self._devices[name] = DeviceWork(self._counts, facts.target, choices, network=self._network)
            except NoTemplate as error:
                raise NodeLost(str(error)) from None
            sharing = shared(work.campaign.log, facts.target, wanted=choices.log is None)
            self._share_if_due.append(self._sharing.enter_context(sharing))
        node.device, node.place = name, facts.place
        self._devices[name].join(node)
        self._judge(node, facts.reference)

    def _take_reference(self, node: Node, measured: object) -> None:
        assert isinstance(measured, Measurement)
        self._judge(node, measured)

    def _take_beginning(self, node: Node, _: object) -> None:
        self._ask(node, "report", 0, _REPORT_S)

    def _take_report(self, node: Node, report: object) -> None:
        assert isinstance(report, Report)
        device = self._devices[node.device]
        node.state = report.state or node.state
        for line in report.lines:
            self._judge(node, line.reference)
            try:
                with ctrl_c_waits():
                    device.keep(line, node)
                    node.acknowledged += 1
            except LogError as error:
                self._wait_for_the_disk(error)
                break
            self._failed_writes = 0
        else:
            if report.failure:
                raise NodeLost(report.failure)
            if report.ended:
                workload = node.workload
                assert workload is not None
                self._table.finish(node, report, workload, device.end(node, report))
                return
        self._table.tell(node)
        self._ask(node, "report", node.acknowledged, _REPORT_S)

    def _wait_for_the_disk(self, error: LogError) -> None:
        """The node still has the record that could not be written, and sends it again. Raises ``error`` if that has
        failed too often."""
        if self._failed_writes == len(settings.RETRY_PAUSES_S):
            raise error
        pause_s = settings.RETRY_PAUSES_S[self._failed_writes]
        self._failed_writes += 1
        print(f"note: {error}; trying again in {pause_s:g} s", file=sys.stderr)
        time.sleep(pause_s)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _judge(self, node: Node, measured: Measurement) -> None:
        node.timed_s = time.monotonic()
        if measured == node.reference:  # as most lines say: it was timed a while ago
            return
        was_busy, node.reference = node.busy, measured
        if node.busy and not was_busy:
            busy = f"{node.name} is busy: other work takes {node.busy:.0%} of the time of the reference kernel"
            print(f"note: {busy}", file=sys.stderr)
        for note in judge(self._devices[node.device].nodes):
            print(f"note: {note}", file=sys.stderr)

    def _look(self) -> None:
        """Give up nodes that do not answer."""
        now_s = time.monotonic()
        for node in self._nodes.values():
            if node.asked and now_s - node.asked_s > PATIENCE_S[node.asked]:
                self._lose(node, _silent(node))

    def _hand_out(self) -> None:
        for device in self._devices.values():
            for node in device.alive:
                if node.asked:
                    continue
                task = device.task_for(node)
                if task is not None:
                    self._table.begin(node)
                    self._ask(node, "begin", task)
                elif device.rests(node) and time.monotonic() - node.timed_s > _TIME_AGAIN_S:
                    self._ask(node, "time_reference")

    def _lose(self, node: Node, why: str) -> None:
        node.alive, node.asked = False, ""
        node.link.end()
        self._last_words = f"{node.name}: {why}"
        device = self._devices.get(node.device)
        if device is None:
            print(f"note: {node.name} is left out: {why}", file=sys.stderr)
            return
        task = f"; {task_label(node.workload)} goes to another node" if node.workload and device.alive else ""
        device.lose(node)
        print(f"note: {node.name} is lost: {why}{task}", file=sys.stderr)
        campaign = device.campaign
        if campaign.left and not device.alive:
            self._lost = True
            passes = f"{campaign.left} of {campaign.total} passes are not tuned"
            print(
                f"note: no node with {node.device} is left: {passes}; run the same command again to continue",
                file=sys.stderr,
            )


def _silent(node: Node) -> str:
    patience = f"{PATIENCE_S[node.asked]:.0f} s"
    if node.asked == "versions":
        return f"it started nothing within {patience}; other work of the cluster may hold its cores or GPUs"
    return f"no answer for {patience}"


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
        done = f"[{len(device.campaign.outcomes)}/{device.campaign.total}]"
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
            table.add_row(
                Text(name, style="bold"),
                f"{len(device.campaign.outcomes)} of {device.campaign.total} passes",
            )
            for node in device.alive:
                doing = task_label(node.workload) if node.workload else node.doing
                table.add_row(f"  {node.name}", doing, state(node.state) if node.workload and node.state else "")
        for node in self._nodes:
            if node.alive and not node.device:
                table.add_row(f"  {node.name}", node.doing)
        return table
