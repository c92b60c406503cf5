"""Kernels are predicted and built in the background while the model trains on PyTorch's op.

    a plan with many calls ──► ask ──► a thread ──► Maker ──► a process (background_worker): expects, builds, checks
                                            │
    the plan's next call     ◄── arrived ───┘ loads what was made

Processes do the long work: a thread would hold the interpreter that training needs. The processes have low priority,
and end when there is no work. The threads mostly wait. They keep their priority: a thread of low priority could hold
the interpreter without getting a core.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dwconv import settings
from dwconv.dispatch.knowledge import database
from dwconv.errors import WorkerCannotStart, WorkerError
from dwconv.kernels.load import can_load_libraries
from dwconv.system import forks
from dwconv.system.versions import can_build
from dwconv.untuned import portfolio_file

if TYPE_CHECKING:
    from dwconv.call.background_worker import Expect
    from dwconv.measure.processes.process import IsolatedProcess
    from dwconv.problems.target import Target
    from dwconv.problems.workload import Workload
    from dwconv.schedules.template import Candidate
    from dwconv.untuned.gain import Expected

MOST_PROCESSES = 8
"""Each takes half a gigabyte of memory. There are at most half as many as cores; each of several ranks has one."""
_IDLE_S = 10.0
"""How long a thread and its process stay without work: the next size may come soon."""
_LIMIT_S = 120.0
"""For a build of some hundred milliseconds. Most of the time without a core does not count."""

_HANDLER = "dwconv.call.background_worker:KernelMaker"
_FEW = 8
"""Kernels that one process builds while another starts."""
_MEMORY_SHARE = 0.5 / MOST_PROCESSES
"""Of the available memory, for each process; training has the rest."""

_log = logging.getLogger(__name__)


class NotKept(Exception):
    """The prediction or the kernel does not exist yet."""


def has_kept() -> bool:
    """True if an earlier process has predicted something."""
    return _has_kept(settings.cache_folder())


@cache
def _has_kept(folder: Path) -> bool:
    return next((folder / "kernels").glob("*.expected"), None) is not None


def _expect(workload: Workload, target: Target) -> Expect:
    from dwconv.call.background_worker import Expect
    from dwconv.kernels.cache import expected_path

    formulas = sorted(portfolio_file.PATH.parent.glob("*.*"))
    path = expected_path(workload, target, evidence=(*database().logs, *formulas))
    return Expect(workload=workload, target=target, keep_at=str(path))


class Maker:
    """Makes predictions and kernels in a process that starts with the first request. Unless it ``starts`` it has those
    that earlier processes made, and raises NotKept for others."""

    def __init__(self, *, starts: bool = True) -> None:
        self._starts = starts
        self._process: IsolatedProcess | None = None

    def expect(self, workload: Workload, target: Target) -> Expected | None:
        """``untuned.gain.expected``. Raises WorkerError."""
        request = _expect(workload, target)
        if kept := request.kept():
            return kept["expected"]
        return self._answer(request)

    def make(self, candidate: Candidate, target: Target, *, threads: int) -> str:
        """Why the kernel cannot be built; empty if it can: ``kernels.cache.ready`` has it from now on. Raises
        WorkerError if that was perhaps because of the machine."""
        from dwconv.call.background_worker import Make

        try:
            self._answer(Make(candidate=candidate, target=target, threads=threads))
        except WorkerError as error:
            if error.may_be_the_machine or isinstance(error, WorkerCannotStart):
                raise
            return str(error)
        return ""

    def end(self) -> None:
        if self._process is not None:
            _processes.discard(self._process)
            self._process.kill()

    def _answer(self, request: object) -> Any:
        from dwconv.measure.processes.process import IsolatedProcess

        if not self._starts:
            raise NotKept
        if self._process is None:
            self._process = IsolatedProcess(_HANDLER, None, threads=1, memory_share=_MEMORY_SHARE, makes_way=True)
            _processes.add(self._process)
        imports.release()  # a fork need not wait for the process
        try:
            return self._process.call(request, timeout_s=_LIMIT_S)
        finally:
            imports.acquire()


Work = Callable[[Maker], None]


def ask(work: Work) -> None:
    """Let a thread do ``work`` soon. Without a thread it is not done."""
    if imports.abandoned:  # this process was forked in the middle of an import
        return
    with _changed:
        _asked.append(work)
        if _Threads.idle >= len(_asked) or _Threads.count >= _most_processes():
            _changed.notify()
            return
        _Threads.count += 1
    try:
        threading.Thread(target=_run, name="dwconv-builds", daemon=True).start()
    except RuntimeError as error:  # no more threads, or the interpreter ends
        with _changed:
            _Threads.count -= 1
        _log.info("nothing is built in the background: %s", error)


def make_ready(workloads: Iterable[Workload], target: Target, *, threads: int) -> None:
    """Build the kernels that measured fastest, at these sizes and at others, in parallel, so that they are ready from
    the first call. The first use of a kernel that cannot be built gives the warning."""
    if settings.untuned() != "predict" or target.kind != "cpu" or not can_build() or settings.local_rank():
        return  # of several ranks on a machine one does it
    from dwconv.call.background_worker import Make
    from dwconv.dispatch.any_size import fastest_of_any_size
    from dwconv.dispatch.decide import decide_on
    from dwconv.kernels.cache import ready
    from dwconv.measure.clock.contention import cores
    from dwconv.measure.processes.pool import Pool
    from dwconv.schedules.template import Candidate

    wanted = dict[Make, None]()
    for workload in workloads:
        made = decide_on(target, workload, predicts=False)
        found = []
        if made.provider == "dwconv" and made.workload and made.config and made.target:
            found.append((Candidate(made.workload, made.config), made.target))
        if general := fastest_of_any_size(workload, target, known=database()):
            found.append(general)
        for candidate, built_for in found:
            if ready(candidate, built_for) is None:
                wanted[Make(candidate=candidate, target=built_for, threads=threads)] = None
    if not wanted or not can_load_libraries():
        return
    pool = Pool(_HANDLER, None, size=max(1, min(cores(), len(wanted) // _FEW)))
    try:
        for _ in pool.map(list(wanted), timeout_s=_LIMIT_S):
            pass
    except WorkerError as error:
        _log.info("kernels are made when they are first used: %s", error)
    finally:
        pool.kill()


def forget() -> None:
    """Drop the work that has not begun."""
    with _changed:
        _asked.clear()


def _most_processes() -> int:
    from dwconv.measure.clock.contention import cores

    return 1 if settings.rank_is_given() else max(1, min(MOST_PROCESSES, cores() // 2))


def _run() -> None:
    """In a thread."""
    maker = make_maker()
    try:
        while (work := _next()) is not None:
            with imports:
                work(maker)
    except BaseException:
        with _changed:
            _Threads.count -= 1
        raise
    finally:
        maker.end()


def _next() -> Work | None:
    """None if there was no work for some time: the thread then ends."""
    with _changed:
        if not _asked:
            _Threads.idle += 1
            _changed.wait(_IDLE_S)
            _Threads.idle -= 1
        if _asked:
            return _asked.popleft()
        _Threads.count -= 1
        return None


# -- what this process has --------------------------------------------------------------------------------------------


class _Threads:
    count = idle = 0


make_maker: Callable[[], Maker] = Maker
"""Tests replace it."""
imports = forks.Lock(threading.RLock, holds_up_forks=True)
"""Held while a thread imports and loads: a child forked meanwhile could do neither. It is not the lock of plans, so
calls go on."""
_changed = threading.Condition()
_asked: deque[Work] = deque()
_processes: set[IsolatedProcess] = set()


def _in_child() -> None:
    """A child has no threads; the processes belong to its parent."""
    global _changed
    _changed = threading.Condition()
    _Threads.count = _Threads.idle = 0
    _asked.clear()
    for process in _processes:
        process.leave()


forks.in_child(_in_child)
