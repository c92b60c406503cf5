"""Workers: persistent threads, one for each task that may run beside the caller's.

A worker waits in the operating system, not in a loop: a loop in Python would keep the interpreter, and the cores, from
those that work.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import torch

from dwconv.system import forks

Job = Callable[[], None]


class Worker:
    """One thread, which runs jobs in the order they come. A job must not raise."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def start(self, job: Job) -> None:
        """Have ``job`` run, and go on."""
        self._jobs.put(job)

    def end(self) -> None:
        """Let the thread end once it has nothing to do, and wait for that."""
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

    def forget(self) -> None:
        """For a process that was forked: the threads have stayed in its parent."""
        self._workers = []


workers = Workers()
atexit.register(workers.end)
forks.in_child(workers.forget)
