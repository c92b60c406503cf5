"""Worker: the side of a node. It tunes one workload after the other on its own device, as the driver sends them.

    start(setup) ─► facts       begin(task) ─► report(acknowledged) ─► report(acknowledged) ─► … ─► ended
                                     │                ▲
                                     └─► a search in a thread: each record waits here until the driver has it on disk

The reference kernel is PyTorch's own op on one layer, which every node times at the start and now and then. It is the
same code on the same data everywhere, so a node on which it takes longer than on others is slower, or busy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dwconv import settings
from dwconv.errors import DwconvError, NoTemplate, described_error
from dwconv.kernels.entry import message
from dwconv.measure.clock.contention import cores
from dwconv.measure.clock.device import clock_of
from dwconv.measure.clock.timing import RACE, time_in_turns
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.providers import laid_out, pytorch_call
from dwconv.measure.runner import Workers
from dwconv.problems.target import CpuTarget, CudaTarget, Target, parse_target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.line import decode, encode
from dwconv.records.record import Measurement, TuningRecord
from dwconv.system import versions
from dwconv.tuner.campaign import prepared_cpu, with_true_limits
from dwconv.tuner.cluster.node import Facts, Line, Report, Setup, Task
from dwconv.tuner.results_table import Outcome
from dwconv.tuner.search import loop
from dwconv.tuner.search.search_result import TuningResult

if TYPE_CHECKING:
    from dwconv.tuner.choices import Choices


message(Measurement)

WORKLOAD = Workload(
    pass_="fprop", batch=8, channels=144, input_size=(56, 56), kernel=(3, 3), padding=((1, 1), (1, 1)), layout="nhwc"
)


@message
@dataclass(frozen=True, kw_only=True)
class TimeReference:
    """Time the reference kernel now: about a tenth of a second."""


class ReferenceTimer:
    """Handler of the process that times it."""

    def __init__(self, target: Target) -> None:
        if isinstance(target, CpuTarget):
            torch.set_num_threads(target.threads)
        shapes = (WORKLOAD.input_shape, (WORKLOAD.channels, 1, *WORKLOAD.kernel))
        tensors = [torch.ones(shape, device=target.kind) for shape in shapes]
        self._call = pytorch_call(WORKLOAD, *laid_out(WORKLOAD, *tensors, layout=WORKLOAD.layout))
        self._clock = clock_of(target)

    def __call__(self, _: TimeReference) -> Measurement:
        with torch.inference_mode():
            return time_in_turns({"reference": self._call}, clock=self._clock, effort=RACE)["reference"]


class Reference:
    """The reference kernel on ``target``, which is here, in a process of its own. ``close`` ends it."""

    def __init__(self, target: Target) -> None:
        threads, vector_set = (target.threads, target.vector_set) if isinstance(target, CpuTarget) else (1, None)
        self._process = IsolatedProcess(
            "dwconv.tuner.cluster.worker:ReferenceTimer", target, threads=threads, vector_set=vector_set
        )

    def measure(self) -> Measurement:
        """How long it takes now. Raises WorkerError."""
        measured: Measurement = self._process.call(TimeReference(), timeout_s=settings.RUN_TIMEOUT_S)
        return measured

    def close(self) -> None:
        self._process.kill()


_REFERENCE_EVERY_S = 10.0
"""While a search goes on; and each time after finalists were measured."""
_TOGETHER_S = 0.5
"""Finalists that were measured together come within this time of each other, and no others."""


class Worker:
    """Tunes on the device that this process was given, a ``cpu`` or a ``cuda``. Its methods are called by the driver,
    one at a time."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._setup: Setup | None = None
        self._target: Target | None = None
        self._reference: Reference | None = None
        self._workers: Workers | None = None
        self._outbox = Outbox()

    def versions(self) -> dict[str, str]:
        """Of the packages on which times depend. The only call that another version of dwconv must understand."""
        return versions.installed()

    def start(self, setup: Setup) -> Facts:
        """Get ready. Raises a DwconvError if nothing can be measured here."""
        target = parse_target(self._kind if setup.target == "auto" else setup.target)
        if isinstance(target, CpuTarget):
            target = prepared_cpu(target, setup.choices)
        elif setup.fast_math:
            target = dataclasses.replace(target, fast_math=True)
        choices = dataclasses.replace(setup.choices, jobs=setup.jobs or cores())
        self._setup, self._target = dataclasses.replace(setup, choices=choices), target
        self._workers = choices.workers(target)
        self._reference = Reference(target)
        return Facts(target=target, place=place_of(target), reference=self._reference.measure())

    def time_reference(self) -> Measurement:
        """The time of the reference kernel now; called while nothing is tuned."""
        assert self._reference
        return self._reference.measure()

    def begin(self, task: Task) -> None:
        """Tune a workload from now on; ``report`` gives its state."""
        self._outbox = Outbox()
        threading.Thread(target=self._tune, args=(task, self._outbox), daemon=True).start()

    def report(self, acknowledged: int, wait_s: float) -> Report:
        """How the task stands. The driver has ``acknowledged`` so many of its records; unless there are others, or it
        has ended, the answer comes after ``wait_s``."""
        return self._outbox.report(acknowledged, wait_s=wait_s)

    def _tune(self, task: Task, outbox: Outbox) -> None:
        assert self._setup and self._target and self._reference and self._workers
        try:
            log = SentLog(outbox, self._reference.measure)
            result = _search(task, self._target, self._setup.choices, log=log, workers=self._workers, outbox=outbox)
        except NoTemplate as error:
            outbox.end(Report(ended=True, reason=str(error)))
        except DwconvError as error:
            outbox.end(Report(ended=True, failure=str(error)))
        except Exception as error:  # noqa: BLE001  it would be lost
            outbox.end(Report(ended=True, failure=described_error(error)))
        else:
            if isinstance(self._target, CpuTarget):
                (outcome,) = with_true_limits([Outcome(workload=task.workload, result=result)], self._target)
                result = outcome.result or result
            outbox.end(Report(ended=True, state=result))


def _search(
    task: Task, target: Target, choices: Choices, *, log: SentLog, workers: Workers, outbox: Outbox
) -> TuningResult:
    known = Database.of(map(decode, task.others)).behind(map(decode, task.records), [])
    return loop.tune_workload(
        task.workload,
        target,
        log=log,
        plan=choices.plan_on(target, known, workers=workers),
        budget=choices.budget(search=choices.search_on(target), seconds=task.seconds, until=task.until),
        progress=outbox.tell,
    )


class Outbox:
    """What the thread of a search leaves for the driver."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._lines: list[Line] = []
        self._acknowledged = 0
        self._now = Report()

    def add(self, line: Line) -> None:
        with self._news:
            self._lines.append(line)
            self._news.notify_all()

    def tell(self, state: TuningResult) -> None:
        with self._news:
            self._now = Report(state=state)

    def end(self, report: Report) -> None:
        with self._news:
            self._now = report
            self._news.notify_all()

    def report(self, acknowledged: int, *, wait_s: float) -> Report:
        """Forgets what is acknowledged."""
        with self._news:
            del self._lines[: max(0, acknowledged - self._acknowledged)]
            self._acknowledged = max(acknowledged, self._acknowledged)
            self._news.wait_for(lambda: self._lines or self._now.ended, timeout=wait_s)
            return dataclasses.replace(self._now, lines=tuple(self._lines))


class SentLog:
    """A log whose records go to the driver, each with how long the reference kernel took last."""

    def __init__(self, outbox: Outbox, measure: Callable[[], Measurement]) -> None:
        self._outbox = outbox
        self._measure = measure
        self._reference = measure()
        self._measured_s = time.monotonic()
        self._last_confirmed = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """No other process writes here."""
        yield

    def append(self, record: TuningRecord) -> None:
        """Hand it on. Nothing else is measured meanwhile, so this is when the reference kernel is timed."""
        since_s = time.monotonic() - self._measured_s
        measured_together = self._last_confirmed and since_s < _TOGETHER_S
        if since_s > _REFERENCE_EVERY_S or (record.confirmed and not measured_together):
            self._reference = self._measure()
            self._measured_s = time.monotonic()
        self._last_confirmed = record.confirmed
        self._outbox.add(Line(record=encode(record), reference=self._reference))


def place_of(target: Target) -> str:
    """The machine that this is, as long as it runs; of a GPU, also which one."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    machine = boot.read_text().strip() if boot.exists() else platform.node()
    if not isinstance(target, CudaTarget):
        return machine
    return f"{machine} {torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
