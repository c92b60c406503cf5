"""Engine: runs a graph that was cut into tasks, by a schedule.

The calling thread is the first worker. Values go from task to task through one list. Where a task fails, the others
stop before their next task, and its error reaches the caller as it is.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch

from dwconv.concurrency.compiled_graph import SeenTask, by_schedule, end_threads, forget_threads
from dwconv.concurrency.lanes import Lanes, PlacedTask, lanes
from dwconv.concurrency.second_threads import pinned, processor_of, warn_of_refusals
from dwconv.concurrency.task_graph import Schedule
from dwconv.concurrency.tasks import CutGraph
from dwconv.system import forks

Job = Callable[[], None]


class Worker:
    """One thread, which runs jobs in the order they come. A job must not raise. Between jobs it waits in the operating
    system, not in a loop: a loop in Python would keep the interpreter, and the cores, from those that work."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def start(self, job: Job) -> None:
        """Have ``job`` run, and go on."""
        self._jobs.put(job)

    def end(self) -> None:
        """End the thread once its jobs are done, and wait for that."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        torch.set_grad_enabled(False)
        while (job := self._jobs.get()) is not None:
            job()
            del job


class Workers:
    """The workers of this process. One run at a time has them."""

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._workers: list[Worker] = []

    @contextmanager
    def lent(self, count: int) -> Iterator[list[Worker] | None]:
        """``count`` workers for one run; None if another run has them, or this one is inside it."""
        if not self._lock.acquire(blocking=False):
            yield None
            return
        try:
            while len(self._workers) < count:
                self._workers.append(Worker(f"dwconv-worker-{len(self._workers) + 1}"))
            yield self._workers[:count]
        finally:
            self._lock.release()

    def end(self) -> None:
        """End the threads; the next run starts others."""
        with self._lock:
            ended, self._workers = self._workers, []
        for worker in ended:
            worker.end()
        end_threads()

    def forget(self) -> None:
        """For a process that was forked: the threads have stayed in its parent."""
        self._workers = []
        forget_threads()


workers = Workers()
atexit.register(workers.end)
forks.in_child(workers.forget)


# -- the engine --------------------------------------------------------------------------------------------------------


_LEAST = 5e-324
"""A denormal number, which a thread that flushes them takes for 0."""


@dataclass(kw_only=True)
class _Run:
    """One run, as all its lanes see it."""

    values: list[Any]
    tokens: dict[int, list[None]]
    """By place that several tasks read, a token for every reader but the last."""
    inference: bool
    flushes: bool
    """Whether the caller's thread takes denormal numbers for 0 (``torch.set_flush_denormal``)."""
    failure: BaseException | None = None
    counts_changed: bool = False


class Engine:
    """Runs the lanes of a schedule on threads, each with the number of intra-op threads that its tasks are placed
    with: in compiled code, or in Python, which does the same."""

    def __init__(self, cut: CutGraph, schedule: Schedule) -> None:
        self.schedule = schedule
        self._cut = cut
        self._lanes: Lanes = lanes(cut, schedule)
        self._processors = [
            processor_of(worker, cores=schedule.cores) if all(step.threads == 1 for step in steps) else None
            for worker, steps in zip(self._lanes.workers[1:], self._lanes.steps[1:], strict=True)
        ]
        self._compiled = by_schedule(cut, schedule)

    def run(self, inputs: list[Any]) -> list[Any]:
        """The graph's results. Empties ``inputs``: only the tasks hold on to them. Where the workers are busy with
        another run, or a mode watches the operators of this thread, everything runs on this thread."""
        if (found := self._compiled.run(inputs)) is not None:
            return found
        run = _Run(
            values=self._cut.values(inputs),
            tokens={place: [None] * (count - 1) for place, count in self._lanes.readers.items()},
            inference=torch.is_inference_mode_enabled(),
            flushes=_LEAST == 0.0,
        )
        inputs.clear()
        others = self._lanes.steps[1:]
        usual = torch.get_num_threads()
        try:
            with torch.no_grad():
                is_watched = torch._C._len_torch_dispatch_stack() > 0  # a dispatch mode has to see every operator
                if others and not is_watched:
                    with workers.lent(len(others)) as lent:
                        if lent is not None:
                            self._side_by_side(run, lent)
                            warn_of_refusals()
                            return self._cut.results(run.values)
                self._alone(run, usual)
        finally:
            if run.counts_changed or torch.get_num_threads() != usual:
                torch.set_num_threads(usual)  # threads that start later inherit the count that was set last
        return self._cut.results(run.values)

    @property
    def seen(self) -> list[SeenTask]:
        """By task, when it ran in the last run, and what it takes; empty where Python ran it."""
        return self._compiled.seen

    def _alone(self, run: _Run, usual: int) -> None:
        """All tasks on this thread: a single lane in its own order and with its own counts."""
        single = len(self._lanes.steps) == 1
        current = usual
        for step in self._lanes.in_order:
            if single and step.threads != current:
                current = step.threads
                torch.set_num_threads(current)
            step.function(run.values)
            _free(run, step)

    def _side_by_side(self, run: _Run, lent: Sequence[Any]) -> None:
        first, *others = self._lanes.steps
        done = threading.Semaphore(0)
        started = 0
        try:
            for worker, steps, processor in zip(lent, others, self._processors, strict=True):
                started += 1
                worker.start(partial(self._lane_of_a_worker, run, steps, done, processor))
            self._lane(run, first)
        except BaseException as error:  # noqa: BLE001  # ctrl-C at any moment: the workers end before the caller goes on
            self._fail(run, error)
        for _ in range(started):
            self._wait_for(run, done)
        if run.failure is not None:
            self._lanes = lanes(self._cut, self.schedule)  # with new signals: some of the old ones are left over
            failure, run.failure = run.failure, None
            run.values.clear()
            raise failure

    def _wait_for(self, run: _Run, done: threading.Semaphore) -> None:
        """Wait until a worker is done, Ctrl-C or not: it uses the values of this run."""
        while True:
            try:
                done.acquire()
                return
            except KeyboardInterrupt as interrupt:
                self._fail(run, interrupt)

    def _lane_of_a_worker(
        self, run: _Run, steps: Sequence[PlacedTask], done: threading.Semaphore, processor: int | None
    ) -> None:
        try:
            if run.flushes != (_LEAST == 0.0):
                torch.set_flush_denormal(run.flushes)
            with pinned(processor), torch.inference_mode() if run.inference else nullcontext():
                self._lane(run, steps)
        finally:
            done.release()

    def _lane(self, run: _Run, steps: Sequence[PlacedTask]) -> None:
        """Run the steps of one lane; an error ends the run."""
        current = torch.get_num_threads()
        try:
            for step in steps:
                for signal in step.waits:
                    if not signal.get():
                        return
                if run.failure is not None:
                    return
                if step.threads != current:
                    current = step.threads
                    run.counts_changed = True
                    torch.set_num_threads(current)
                step.function(run.values)
                for signal in step.signals:
                    signal.put(True)
                _free(run, step)
        except BaseException as error:  # noqa: BLE001  # whatever a task raises belongs to the caller
            self._fail(run, error)

    def _fail(self, run: _Run, error: BaseException) -> None:
        """Let the other lanes end: those that wait, and those that run a task."""
        if run.failure is None:
            run.failure = error
        for signal in self._lanes.signals:
            signal.put(False)


def _free(run: _Run, step: PlacedTask) -> None:
    for place in step.shared:
        try:
            run.tokens[place].pop()
        except IndexError:
            run.values[place] = None
