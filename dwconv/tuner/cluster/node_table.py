"""NodeTable: how the nodes of a cluster stand; one live table on a terminal, plain lines elsewhere. All of it goes to
stderr."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dwconv.problems.workload import Workload
from dwconv.tuner.cluster.device_work import DeviceWork
from dwconv.tuner.cluster.messages import Report
from dwconv.tuner.cluster.node import Node
from dwconv.tuner.progress import PLAIN_LINE_EVERY_S, label, state

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table


def task_label(workload: Workload) -> str:
    """A short name of a workload with its pass."""
    return f"{workload.pass_} {label(workload)}"


class NodeTable:
    """Shows ``nodes``, and how far the work on ``devices`` is. What comes and goes is looked up when it is shown."""

    def __init__(self, nodes: Sequence[Node], devices: Mapping[str, DeviceWork]) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._nodes = nodes
        self._devices = devices
        self._shown_s: dict[Node, float] = {}
        self._live: Live | None = None

    def __enter__(self) -> NodeTable:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, get_renderable=self._now, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, node: Node) -> None:
        """``node`` was given a workload."""
        assert node.workload is not None
        if self._live is None:
            self._say(node, f"{task_label(node.workload)}: starting")

    def tell(self, node: Node) -> None:
        """``node`` has told how it stands."""
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
