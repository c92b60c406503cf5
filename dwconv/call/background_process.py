"""BackgroundProcess: predicts and builds in a process of its own, for one thread of ``background_builds``.

A process and not the thread does the long work, since a thread would hold the interpreter that training needs. The
process imports TVM alone: PyTorch only when a kernel is checked there that was never measured.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from dwconv.dispatch.knowledge import database
from dwconv.errors import WorkerCannotStart, WorkerError
from dwconv.kernels.load_cpu import can_load_libraries
from dwconv.system import forks
from dwconv.untuned import portfolio_file

if TYPE_CHECKING:
    from dwconv.call.background_worker import ExpectRequest
    from dwconv.measure.processes.process import IsolatedProcess
    from dwconv.problems.target import Target
    from dwconv.problems.workload import Workload
    from dwconv.schedules.template import Candidate
    from dwconv.untuned.gain import Expected

HANDLER = "dwconv.call.background_worker:BackgroundHandler"
MOST_PROCESSES = 8
"""Each takes a quarter of a gigabyte of memory, and half a one where it checks kernels."""
LIMIT_S = 120.0
"""For a build of some hundred milliseconds. Most of the time without a core does not count."""
_MEMORY_SHARE = 0.5 / MOST_PROCESSES
"""Of the available memory, for each process; training has the rest."""


class BackgroundProcess:
    """Makes predictions and kernels. Its process starts with ``start``, or with the first request."""

    def __init__(self) -> None:
        self._process: IsolatedProcess | None = None

    def cpu_s(self) -> float:
        """What its process, with what that has started, has taken of a core so far."""
        return 0.0 if self._process is None else self._process.cpu_s

    def expect(self, workload: Workload, target: Target) -> Expected | None:
        """``untuned.gain.expected``, kept from an earlier time or made. Raises WorkerError."""
        request = _expect(workload, target)
        if kept := request.kept():
            return kept["expected"]
        return self._answer(request)

    def make(self, candidate: Candidate, target: Target, *, threads: int, checks: bool) -> str:
        """Why the kernel cannot be built; empty if it can: ``kernels.cache.kept_linked`` has it from now on.
        ``checks``: the process runs it on as many ``threads``, and keeps whether it is right. Raises WorkerError if it
        failed perhaps because of the machine."""
        from dwconv.call.background_worker import BuildRequest

        is_linked = can_load_libraries()
        try:
            self._answer(
                BuildRequest(candidate=candidate, target=target, threads=threads, checks=checks, links=is_linked)
            )
        except WorkerError as error:
            if error.may_be_the_machine or isinstance(error, WorkerCannotStart):
                raise
            return str(error)
        return ""

    def end(self) -> None:
        if self._process is not None:
            _processes.discard(self._process)
            self._process.kill()

    def _started(self) -> IsolatedProcess:
        from dwconv.measure.processes.process import IsolatedProcess

        if self._process is None:
            self._process = IsolatedProcess(HANDLER, None, threads=1, memory_share=_MEMORY_SHARE)
            _processes.add(self._process)
        return self._process

    def _answer(self, request: object) -> Any:
        process = self._started()
        imports.release()  # a fork need not wait for the process
        try:
            return process.call(request, timeout_s=LIMIT_S)
        finally:
            imports.acquire()


def _expect(workload: Workload, target: Target) -> ExpectRequest:
    from dwconv.call.background_worker import ExpectRequest
    from dwconv.kernels.cache import expected_path

    formulas = sorted(portfolio_file.PATH.parent.glob("*.*"))
    path = expected_path(workload, target, evidence=(*database().logs, *formulas))
    return ExpectRequest(workload=workload, target=target, keep_at=str(path))


# -- what this process has --------------------------------------------------------------------------------------------

imports = forks.Lock(threading.RLock, holds_up_forks=True)
"""Held while a thread imports and loads: a child forked meanwhile could do neither. It is not the lock of plans, so
calls go on."""
_processes: set[IsolatedProcess] = set()


def _in_child() -> None:
    """The processes belong to the parent."""
    for process in _processes:
        process.leave()


forks.in_child(_in_child)
