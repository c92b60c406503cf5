"""The driver: hands workloads to the nodes of a cluster, and writes what they measure to the logs of this machine.

node        driver                                         log of the device's name
 │ ◄─ task ── those with most to win first
 │ ─ records ──────────────────────────────────────────────► on disk
 ✗ lost ────► its workload goes to another node with a device of the same name

How the nodes stand goes to stderr, a line now and then.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dwconv import settings
from dwconv.errors import LogError, NodeLost, NoDevice, NoTemplate, one_line, say
from dwconv.problems.workload import Workload
from dwconv.system import versions
from dwconv.tuner.campaign import shared
from dwconv.tuner.campaign_result import TunedDevices
from dwconv.tuner.cluster.node import DeviceWork, Node, NodeFacts, NodeLink, NodeReport, Setup
from dwconv.tuner.results_table import PLAIN_LINE_EVERY_S, state, task_label
from dwconv.tuner.search.search_result import ctrl_c_waits

if TYPE_CHECKING:
    from dwconv.tuner.cluster.on_ray import RayCluster

PATIENCE_S = {
    "versions": settings.WORKER_START_TIMEOUT_S,
    "start": 2 * settings.WORKER_START_TIMEOUT_S,
    "begin": 60.0,
    "report": 60.0,
}
"""A node that does not answer for so long is lost."""
_REPORT_S = 1.0
"""A node with nothing new says so after this time."""
_LOOK_S = 0.5


def tune_on(cluster: RayCluster, counts: Mapping[Workload, int], setup: Setup, *, network: bool) -> TunedDevices:
    """Tune every workload once for each name of a device in the cluster; ``counts`` says how often a step runs it.
    ``network``: those with most to win come first.

    Ctrl-C ends the campaign, and what was found until then is in the result. Raises NoDevice if no node can tune,
    LogError if records cannot be written."""
    return _Driver(cluster, counts, setup, network=network).run()


class _Driver:
    def __init__(self, cluster: RayCluster, counts: Mapping[Workload, int], setup: Setup, *, network: bool) -> None:
        self._cluster = cluster
        self._counts = counts
        self._setup = setup
        self._network = network
        self._nodes: dict[NodeLink, Node] = {link: Node(link=link) for link in cluster.links}
        self._devices: dict[str, DeviceWork] = {}
        self._sharing = contextlib.ExitStack()
        self._share_if_due: list[Callable[[], None]] = []
        """Of each log, its records with the team."""
        self._lost = False
        self._last_words = "it has no nodes"
        self._said_s: dict[Node, float] = {}

    def run(self) -> TunedDevices:
        interrupted = False
        try:
            with self._sharing:
                self._tune()
        except KeyboardInterrupt:
            interrupted = True
            for device in self._devices.values():
                device.interrupt()
        if not self._devices and not interrupted:
            raise NoDevice(f"no node can tune: {self._last_words}")
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
            self._give_up_the_silent()
            self._hand_out()
            for share in self._share_if_due:
                share()

    # -- questions and answers -----------------------------------------------------------------------------------

    def _ask(self, node: Node, method: str, *arguments: object) -> None:
        node.asked, node.asked_s = method, time.monotonic()
        node.link.ask(method, *arguments)

    def _take(self, node: Node, answer: object) -> None:
        requested, node.asked = node.asked, ""
        try:
            if isinstance(answer, NodeLost):
                raise answer
            if requested == "versions":
                _check_versions(answer)
                self._ask(node, "start", self._setup)
            elif requested == "start":
                self._take_facts(node, answer)
            elif requested == "begin":
                self._ask(node, "report", _REPORT_S)
            else:
                self._take_report(node, answer)
        except NodeLost as error:
            self._lose(node, str(error))

    def _take_facts(self, node: Node, facts: object) -> None:
        assert isinstance(facts, NodeFacts)
        there = next((each for each in self._nodes.values() if each.alive and each.place == facts.place), None)
        if there is not None:
            raise NodeLost(f"it is in the same place as {there.name}, and only one may measure there")
        name, choices = facts.target.device, self._setup.choices
        if name not in self._devices:
            try:
                work = self._devices[name] = DeviceWork(self._counts, facts.target, choices, network=self._network)
            except NoTemplate as error:
                raise NodeLost(str(error)) from None
            sharing = shared(work.campaign.log, facts.target, wanted=choices.log is None)
            self._share_if_due.append(self._sharing.enter_context(sharing))
        node.device, node.place = name, facts.place
        self._devices[name].join(node)

    def _take_report(self, node: Node, report: object) -> None:
        assert isinstance(report, NodeReport)
        device = self._devices[node.device]
        node.state = report.state or node.state
        for line in report.lines:
            self._keep(device, line, node)
        if report.failure:
            raise NodeLost(report.failure)
        if not report.ended:
            if node.state and time.monotonic() - self._said_s[node] >= PLAIN_LINE_EVERY_S:
                self._say(node, state(node.state))
            self._ask(node, "report", _REPORT_S)
            return
        campaign = device.campaign
        task = node.workload
        device.end(node, report)
        done = f"[{len(campaign.outcomes)}/{campaign.total}] "
        gain = f"; still to gain: {campaign.to_gain}" if campaign.to_gain else ""
        self._say(node, f"{state(report.state) if report.state else report.reason}{gain}", task, done=done)

    def _keep(self, device: DeviceWork, line: bytes, node: Node) -> None:
        """On a full disk it tries again, and raises LogError if that fails too often."""
        for pause_s in (*settings.RETRY_PAUSES_S, None):
            try:
                with ctrl_c_waits():
                    device.keep(line, node)
                return
            except LogError as error:
                if pause_s is None:
                    raise
                _note(f"{error}; trying again in {pause_s:g} s")
                time.sleep(pause_s)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _say(self, node: Node, words: str, workload: Workload | None = None, *, done: str = "") -> None:
        self._said_s[node] = time.monotonic()
        task = workload or node.workload
        assert task is not None
        say(f"{node.name}: {done}{task_label(task)}: {words}")

    def _give_up_the_silent(self) -> None:
        now_s = time.monotonic()
        for node in self._nodes.values():
            if node.asked and now_s - node.asked_s > PATIENCE_S[node.asked]:
                patience = f"{PATIENCE_S[node.asked]:.0f} s"
                started = f"it started nothing within {patience}; other work of the cluster may hold its cores or GPUs"
                self._lose(node, started if node.asked == "versions" else f"no answer for {patience}")

    def _hand_out(self) -> None:
        for device in self._devices.values():
            for node in device.alive:
                if not node.asked and (task := device.task_for(node)) is not None:
                    self._say(node, "starting")
                    self._ask(node, "begin", task)

    def _lose(self, node: Node, why: str) -> None:
        node.alive, node.asked = False, ""
        node.link.end()
        self._last_words = f"{node.name}: {why}"
        device = self._devices.get(node.device)
        if device is None:
            _note(f"{node.name} is left out: {why}")
            return
        task = f"; {task_label(node.workload)} goes to another node" if node.workload and device.alive else ""
        device.lose(node)
        _note(f"{node.name} is lost: {why}{task}")
        campaign = device.campaign
        if campaign.left and not device.alive:
            self._lost = True
            passes = f"{campaign.left} of {campaign.total} passes are not tuned"
            _note(f"no node with {node.device} is left: {passes}; run the same command again to continue")


def _check_versions(there: object) -> None:
    """Raises NodeLost if a node has other versions than this machine."""
    here = versions.installed()
    assert isinstance(there, dict)
    differ = [name for name in here if there.get(name) != here[name]]
    if differ:
        has = ", ".join(f"{name} {one_line(str(there.get(name, 'is missing')))}" for name in differ)
        wanted = ", ".join(f"{name} {here[name]}" for name in differ)
        raise NodeLost(f"there {has}, here {wanted}; install the same versions")


def _note(what: str) -> None:
    say(f"note: {what}")
