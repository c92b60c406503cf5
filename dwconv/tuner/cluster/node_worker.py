"""NodeWorker: the side of a node. It tunes one workload after the other on its own device, as the driver sends them.

start(setup) ─► facts       begin(task) ─► report() ─► report() ─► … ─► ended
                                 │            ▲
                                 └─► a search in a thread: its records wait here for the next report
"""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dwconv.errors import DwconvError, NoTemplate, described_error
from dwconv.problems.target import CpuTarget, CudaTarget, Target, parse_target
from dwconv.records.database import Database
from dwconv.records.line import decode, encode
from dwconv.records.record import TuningRecord
from dwconv.system import versions
from dwconv.system.cpu_facts import cores
from dwconv.tuner.campaign import doubt_limits, prepared_cpu
from dwconv.tuner.cluster.node import NodeFacts, NodeReport, NodeTask, Setup
from dwconv.tuner.results_table import Outcome
from dwconv.tuner.search import search_loop
from dwconv.tuner.search.search_result import TuningResult

if TYPE_CHECKING:
    from dwconv.measure.runner import WorkerProcesses
    from dwconv.tuner.user_choices import UserChoices


class NodeWorker:
    """Tunes on the device that this process was given, a ``cpu`` or a ``cuda``. Its methods are called by the driver,
    one at a time."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._ready: tuple[UserChoices, Target, WorkerProcesses] | None = None
        self._outbox = Outbox()

    def versions(self) -> dict[str, str]:
        """Of the packages on which times depend. The only call that another version of dwconv must understand."""
        return versions.installed()

    def start(self, setup: Setup) -> NodeFacts:
        """Get ready. Raises a DwconvError if nothing can be measured here."""
        target = parse_target(self._kind if setup.target == "auto" else setup.target)
        if isinstance(target, CpuTarget):
            target = prepared_cpu(target, setup.choices)
        elif setup.fast_math:
            target = dataclasses.replace(target, fast_math=True)
        choices = dataclasses.replace(setup.choices, jobs=setup.jobs or cores())
        self._ready = choices, target, choices.workers(target)
        return NodeFacts(target=target, place=place_of(target))

    def begin(self, task: NodeTask) -> None:
        """Tune a workload from now on; ``report`` gives its state."""
        self._outbox = Outbox()
        threading.Thread(target=self._tune, args=(task, self._outbox), daemon=True).start()

    def report(self, wait_s: float) -> NodeReport:
        """How the task stands, with its new records. Where there are none, and it has not ended, the answer comes after
        ``wait_s``."""
        return self._outbox.report(wait_s)

    def _tune(self, task: NodeTask, outbox: Outbox) -> None:
        assert self._ready
        choices, target, workers = self._ready
        known = Database.of(map(decode, task.others)).behind(map(decode, task.records), [])
        try:
            result = search_loop.tune_workload(
                task.workload,
                target,
                log=outbox,
                plan=choices.plan_on(target, known, workers=workers),
                budget=task.budget,
                progress=outbox.tell,
            )
        except NoTemplate as error:
            outbox.end(NodeReport(ended=True, reason=str(error)))
        except DwconvError as error:
            outbox.end(NodeReport(ended=True, failure=str(error)))
        except Exception as error:  # noqa: BLE001  it would be lost
            outbox.end(NodeReport(ended=True, failure=described_error(error)))
        else:
            doubt_limits([Outcome(workload=task.workload, result=result)], target)
            outbox.end(NodeReport(ended=True, state=result))


class Outbox:
    """What the thread of a search leaves for the driver: a log whose records wait for the next report."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._lines: list[bytes] = []
        self._now = NodeReport()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """No other process writes here."""
        yield

    def append(self, record: TuningRecord) -> None:
        with self._news:
            self._lines.append(encode(record))
            self._news.notify_all()

    def tell(self, state: TuningResult) -> None:
        with self._news:
            self._now = NodeReport(state=state)

    def end(self, report: NodeReport) -> None:
        with self._news:
            self._now = report
            self._news.notify_all()

    def report(self, wait_s: float) -> NodeReport:
        """Forgets the records in it: the driver has them, or the node is lost."""
        with self._news:
            self._news.wait_for(lambda: self._lines or self._now.ended, timeout=wait_s)
            lines, self._lines = tuple(self._lines), []
            return dataclasses.replace(self._now, lines=lines)


def place_of(target: Target) -> str:
    """The machine that this is, as long as it runs; of a GPU, also which one."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    machine = boot.read_text(encoding="utf-8").strip() if boot.exists() else platform.node()
    if not isinstance(target, CudaTarget):
        return machine
    return f"{machine} {torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
