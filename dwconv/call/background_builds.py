"""Kernels are predicted and built in the background, those that save most first.

    a plan ──► build: kernels ──► a queue, by what they save ──► a thread, with a process (maker) ──► the cache folder
       │  └──► ask: to predict ──►                                  │
       └── wait ──────────────────────────────────────────────────◄─┘ checked and loaded: the plan's next call has them

A build beside training that uses all cores slows its steps several times over: threads wait for each other after each
op. So calls wait for kernels that are worth it, and all cores build: for ``WAIT_S`` in the whole process, and for as
long again as kernels have saved since. Else one process builds, where training leaves a core free; where it leaves
none, a tenth of the time. The threads mostly wait.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch

from dwconv import settings
from dwconv.call import loaded
from dwconv.call.maker import HANDLER, LIMIT_S, MOST_PROCESSES, Maker, imports
from dwconv.dispatch import legality, packed
from dwconv.dispatch.knowledge import database
from dwconv.errors import WorkerError
from dwconv.kernels.load import can_load_libraries
from dwconv.system import forks
from dwconv.system.versions import can_build

if TYPE_CHECKING:
    from dwconv.problems.target import Target
    from dwconv.problems.workload import Workload
    from dwconv.records.database import Database
    from dwconv.schedules.template import Candidate

WAIT_S = 3.0
"""How long the calls of a process wait for kernels, all together."""
BUILD_S = 0.3
"""What a kernel takes of a core, about: what it saves is held against that."""
_IDLE_S = 10.0
"""How long a thread and its process stay without work: the next size may come soon."""
_REST = 9
"""Times as long as a task, where it slows training: a pause before the next one."""
_LOOK_S, _LONG_S = 0.25, 3.0
_FEW = 3
"""Kernels that one process builds while another starts."""

_log = logging.getLogger(__name__)
Work = Callable[[Maker], None]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A kernel to build."""

    candidate: Candidate
    target: Target
    device: torch.device
    threads: int
    """PyTorch's threads where it will run."""
    saves_us: float
    """Of a call."""
    is_known: bool
    """True if it was confirmed on this device: then no process of its own has to run it first."""
    built: Candidate
    """What is built: the candidate, or the kernel for every layer that is the candidate at one of its sizes."""


@dataclass(order=True)
class _Task:
    """Work that waits, and what is done when it has ended."""

    rank: tuple[float, int]
    work: Work = field(compare=False)
    key: object = field(compare=False)
    is_free: bool = field(compare=False)
    """True if training leaves a core free."""
    then: list[Callable[[str], None]] = field(compare=False)


def ask(work: Work, *, device: torch.device, saves_us: float = 0.0) -> None:
    """Let a thread do ``work`` soon, for calls on ``device``; what saves most of a call comes first. Without a thread
    it is not done."""
    _add(work, key=object(), device=device, saves_us=saves_us, then=lambda reason: None)


def build(wanted: Sequence[Wanted], then: Callable[[str], None]) -> None:
    """Have kernels built, checked and loaded; then call ``then``, with an empty string if each of them works or never
    will, else with what the machine is short of. An error of a build, or of a kernel, is reported at its first use."""
    left, reasons, counting = len(wanted), [""], threading.Lock()

    def ended(reason: str) -> None:
        nonlocal left
        with counting:
            left -= 1
            reasons.append(reason)
            is_last = left == 0
        if is_last:
            then(max(reasons))

    for each in wanted:
        key = each.built, each.device
        _add(partial(_make, each), key=key, device=each.device, saves_us=each.saves_us, then=ended)
    if not wanted:
        then("")


def wait(ended: threading.Event) -> None:
    """Wait until ``ended``, for as long as calls of this process may still wait; all cores build meanwhile."""
    left_s = WAIT_S + saved_s() - _Threads.waited_s
    if left_s <= 0 or imports.abandoned or ended.is_set():
        return
    with _changed:
        _Threads.waiting += 1
        _start_threads()
    began_s = time.monotonic()
    try:
        ended.wait(left_s)
    finally:
        with _changed:
            _Threads.waiting -= 1
            _Threads.waited_s += time.monotonic() - began_s


def begin() -> None:
    """Calls run from now on: builds are no longer alone."""
    _Threads.has_begun = True


def finish(*, timeout_s: float) -> bool:
    """Wait until nothing is left to predict or to build, while all cores build. False if ``timeout_s`` came first."""
    with _changed:
        _Threads.waiting += 1
        _start_threads()
        try:
            return _changed.wait_for(lambda: not _tasks and not _Threads.busy, timeout_s)
        finally:
            _Threads.waiting -= 1


def make_ready(workloads: Iterable[Workload], target: Target, *, threads: int, known: Database | None = None) -> None:
    """Build the kernels that measured fastest, at these sizes and at others, in parallel, so that they are ready from
    the first call. The first use of a kernel that cannot be built gives the warning. ``known``: the records, those of
    this process by default."""
    if settings.untuned() != "predict" or target.kind != "cpu" or not can_build() or settings.local_rank():
        return  # of several ranks on a machine one does it
    from dwconv.call.background_worker import Make
    from dwconv.dispatch.any_size import fastest_of_any_size
    from dwconv.dispatch.decide import decide_on
    from dwconv.kernels.cache import ready
    from dwconv.measure.clock.contention import cores
    from dwconv.measure.processes.pool import Pool
    from dwconv.schedules.template import Candidate

    known = database() if known is None else known
    wanted = dict[Make, None]()
    for workload in workloads:
        made = decide_on(target, workload, known=known, predicts=False)
        found = []
        if made.provider == "dwconv" and made.workload and made.config and made.target:
            found.append((Candidate(made.workload, made.config), made.target))
        if general := fastest_of_any_size(workload, target, known=known):
            found.append(general)
        for candidate, built_for in found:
            if packed.artifact_of(candidate, built_for) is None and ready(candidate, built_for) is None:
                built = legality.built_for(candidate, built_for)
                wanted[Make(candidate=built, target=built_for, threads=threads, checks=True, links=True)] = None
    if not wanted or not can_load_libraries():
        return
    pool = Pool(HANDLER, None, size=max(1, min(cores(), len(wanted) // _FEW)))
    try:
        for _ in pool.map(list(wanted), timeout_s=LIMIT_S):
            pass
        if any(each.candidate.workload.any_channels for each in wanted):
            packed.note_built()
    except WorkerError as error:
        _log.info("kernels are made when they are first used: %s", error)
    finally:
        pool.kill()


def forget() -> None:
    """Drop the work that has not begun; calls may wait again."""
    with _changed:
        _tasks.clear()
        _by_key.clear()
        _Threads.waited_s, _Threads.rests_until_s, _Threads.has_begun = 0.0, 0.0, False


# -- the queue, and the threads that empty it -------------------------------------------------------------------------


def _add(work: Work, *, key: object, device: torch.device, saves_us: float, then: Callable[[str], None]) -> None:
    if imports.abandoned:  # this process was forked in the middle of an import
        return
    from dwconv.measure.clock.contention import cores

    is_free = cores() > (torch.get_num_threads() if device.type == "cpu" else 1)
    with _changed:
        if (same := _by_key.get(key)) is not None:  # another layer, or the start of the model, has asked for it
            same.then.append(then)
            return
        task = _Task(rank=(-saves_us, next(_numbers)), work=work, key=key, is_free=is_free, then=[then])
        heapq.heappush(_tasks, task)
        _by_key[key] = task
        _start_threads()


def _start_threads() -> None:
    """As many as there is work for, and cores. The lock is held."""
    _changed.notify_all()
    while _Threads.count < min(_Threads.busy + len(_tasks), _most_threads()):
        _Threads.count += 1
        try:
            threading.Thread(target=_run, name="dwconv-builds", daemon=True).start()
        except RuntimeError as error:  # no more threads, or the interpreter ends
            _Threads.count -= 1
            _log.info("nothing is built in the background: %s", error)
            return


def _most_threads() -> int:
    """All cores where a call waits; else one, and one for each of several ranks."""
    from dwconv.measure.clock.contention import cores

    if not _Threads.waiting or settings.rank_is_given():
        return 1
    return max(1, min(MOST_PROCESSES, cores()))


def _may_begin() -> bool:
    """Whether a task begins now. The lock is held."""
    if not _tasks or _Threads.busy >= _most_threads():
        return False
    is_alone = _Threads.waiting or not _Threads.has_begun or _tasks[0].is_free
    return bool(is_alone) or time.monotonic() >= _Threads.rests_until_s


def _run() -> None:
    """In a thread."""
    maker = make_maker()
    try:
        while (task := _next()) is not None:
            reason, began_s = "the work failed", time.monotonic()
            try:
                with imports:
                    _, reason = loaded.attempt(partial(task.work, maker))
            finally:
                _end(task, reason, took_s=time.monotonic() - began_s)
    except BaseException:
        with _changed:
            _Threads.count -= 1
        raise
    finally:
        maker.end()


def _next() -> _Task | None:
    """None if there was no work for some time: the thread then ends."""
    with _changed:
        ends_s = time.monotonic() + _IDLE_S
        while not _may_begin():
            now_s = time.monotonic()
            if not _tasks and now_s >= ends_s:
                _Threads.count -= 1
                return None
            pause_s = (_Threads.rests_until_s if _tasks else ends_s) - now_s
            _changed.wait(pause_s if pause_s > 0 else _LOOK_S)  # others are busy, and say when they are not
        _Threads.busy += 1
        return heapq.heappop(_tasks)


def _end(task: _Task, reason: str, *, took_s: float) -> None:
    with _changed:
        if _by_key.get(task.key) is task:
            del _by_key[task.key]
    for then in task.then:
        then(reason)
    with _changed:
        _Threads.busy -= 1
        _Threads.rests_until_s = time.monotonic() + _REST * min(took_s, _LONG_S)
        _changed.notify_all()


def _make(wanted: Wanted, maker: Maker) -> None:
    """Raises WorkerError for what the machine is short of."""
    candidate, target, device = wanted.candidate, wanted.target, wanted.device
    fault = ""
    if not loaded.is_ready(candidate, target, device):
        fault = maker.make(wanted.built, target, threads=wanted.threads, checks=not wanted.is_known)
    if wanted.built != candidate and not fault:
        packed.note_built()
    if fault:
        loaded.unbuilt[candidate, device] = fault
        return
    if target.kind == "cpu":  # a GPU's is loaded by the thread that runs it
        kernel, _ = loaded.attempt(lambda: loaded.load(candidate, target, device))
        if kernel is not None:
            loaded.attempt(lambda: loaded.fault_of(kernel, target, device))
            loaded.kernels.setdefault((candidate, device), kernel)


# -- what this process has --------------------------------------------------------------------------------------------


class _Threads:
    count = busy = waiting = 0
    waited_s = rests_until_s = 0.0
    has_begun = False
    """True once a call has come."""


saved_s: Callable[[], float] = float
"""What kernels have saved in the calls of this process so far: ``call_plan`` knows it."""
make_maker: Callable[[], Maker] = Maker
"""Tests replace it."""
_changed = threading.Condition()
_tasks: list[_Task] = []
"""A heap."""
_by_key: dict[object, _Task] = {}
"""Those that wait, and those that run."""
_numbers = itertools.count()


def _in_child() -> None:
    """A child has no threads."""
    global _changed
    _changed = threading.Condition()
    _Threads.count = _Threads.busy = _Threads.waiting = 0
    _tasks.clear()
    _by_key.clear()


forks.in_child(_in_child)
