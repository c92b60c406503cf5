"""Kernels are predicted and built in the background, those first that save most for a second of work.

    a plan ──► build: kernels ──► a queue, by what they save ──► a thread, with a process ──► the cache folder
       │  └──► predict ──►                                          │
       └── wait ──────────────────────────────────────────────────◄─┘ checked and loaded: the plan's next call has them

A build beside training that uses all cores nearly stops its steps: threads wait for each other after each op. So calls
wait for kernels that are worth it, and all cores build. ``spending`` says for how long. Where training leaves a core
free, one process builds there at once. The threads mostly wait.
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
from dwconv.call import process_kernels, spending
from dwconv.call.background_process import HANDLER, LIMIT_S, MOST_PROCESSES, BackgroundProcess, imports
from dwconv.call.spending import WorkBeside
from dwconv.dispatch import loaded_packs
from dwconv.dispatch.knowledge import database
from dwconv.errors import WorkerError
from dwconv.kernels.load_cpu import can_load_libraries
from dwconv.system import cpu_facts, forks
from dwconv.system.versions import can_build

if TYPE_CHECKING:
    from dwconv.problems.target import Target
    from dwconv.problems.workload import Workload
    from dwconv.records.database import Database
    from dwconv.schedules.template import Candidate

BUILD_S = {"one size": 0.5, "any size": 1.0, "every layer": 1.5}
"""What a kernel takes of a core, about: what it saves is held against that."""
PREDICTION_S = 0.3
"""What it takes to predict the kernels of a layer."""
_IDLE_S = 10.0
"""How long a thread and its process stay without work: the next size may come soon."""
_LOOK_S = 0.25
"""Time goes on, and kernels save: so long until what may be spent is looked at again."""
_FEW = 3
"""Kernels that one process builds while another starts."""
_AT_ONCE = 2
"""Builds that shorten a wait together; of more only some have work for all of it."""

_log = logging.getLogger(__name__)
Work = Callable[[BackgroundProcess], None]


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

    @property
    def takes_s(self) -> float:
        """What its build takes of a core, about."""
        workload = self.built.workload
        return BUILD_S["every layer" if workload.any_channels else "any size" if workload.any_size else "one size"]


@dataclass(order=True)
class _Task:
    """Work that waits, and what is done when it has ended."""

    rank: tuple[float, int]
    work: Work = field(compare=False)
    key: object = field(compare=False)
    takes_s: float = field(compare=False)
    is_free: bool = field(compare=False)
    """True if training leaves a core free."""
    then: list[Callable[[str], None]] = field(compare=False)


def predict(work: Work, *, device: torch.device, saves_us: float = 0.0, builds: int = 0) -> None:
    """Let a thread do ``work`` soon, for calls on ``device``; what saves most comes first. Without a thread it is not
    done. ``builds``: so many follow before anything is saved."""
    saves_per_s = saves_us / (PREDICTION_S + builds * BUILD_S["one size"])
    _add(work, key=object(), device=device, saves_per_s=saves_per_s, takes_s=PREDICTION_S, then=lambda reason: None)


def build(
    wanted: Sequence[Wanted], then: Callable[[str], None], *, there: Callable[[Wanted], None] = lambda one: None
) -> None:
    """Have kernels built, checked and loaded, those of a layer one after the other. Call ``there`` after each but the
    last; then ``then``, with an empty string if each of them works or never will, else with what the machine is short
    of. An error of a build, or of a kernel, is reported at its first use."""
    saves_per_s = sum(each.saves_us for each in wanted) / max(sum(each.takes_s for each in wanted), 1e-9)
    left, reasons, counting = len(wanted), [""], threading.Lock()

    def ended(one: Wanted, reason: str) -> None:
        nonlocal left
        with counting:
            left -= 1
            reasons.append(reason)
            is_last = left == 0
            if not (is_last or reason):
                there(one)
        if is_last:
            then(max(reasons))

    for each in wanted:
        key = each.built, each.device
        make = partial(_make, each)
        then_one = partial(ended, each)
        _add(make, key=key, device=each.device, saves_per_s=saves_per_s, takes_s=each.takes_s, then=then_one)
    if not wanted:
        then("")


def wait(ended: threading.Event) -> None:
    """Wait until ``ended``, for as long as calls of this process may still wait; all cores build meanwhile."""
    if imports.abandoned or ended.is_set():
        return
    with _changed:
        if not (wait_s := spending.of_process.wait_s):
            return
        spending.of_process.wait_begins()
        _start_threads()
        try:
            _changed.wait_for(lambda: ended.is_set() or not (_Threads.busy or _may_begin()), wait_s)
        finally:
            spending.of_process.wait_ends()


def begin() -> None:
    """Calls run from now on: builds are no longer alone."""
    with _changed:
        spending.of_process.begin()


def finish(*, timeout_s: float) -> bool:
    """Wait until nothing is left to predict or to build, while all cores build. False if ``timeout_s`` came first."""
    with _changed:
        _Threads.finishing += 1
        _start_threads()
        try:
            return _changed.wait_for(lambda: not _tasks and not _Threads.busy, timeout_s)
        finally:
            _Threads.finishing -= 1


def build_fastest(
    workloads: Iterable[Workload], target: Target, *, threads: int, known: Database | None = None
) -> None:
    """Build and check the kernels that measured fastest, at these sizes and at others, in parallel, so that they are
    ready from the first call. The first use of a kernel that cannot be built gives the warning. ``known``: the records,
    those of this process by default."""
    if settings.untuned() != "predict" or target.kind != "cpu" or not can_build() or settings.local_rank():
        return  # of several ranks on a machine one does it
    from dwconv.call.background_worker import BuildRequest
    from dwconv.dispatch.at_any_size import fastest_of_any_size
    from dwconv.dispatch.decide import decide_on
    from dwconv.measure.processes.pool import Pool
    from dwconv.schedules.template import Candidate

    known = database() if known is None else known
    wanted = dict[BuildRequest, None]()
    for workload in workloads:
        made = decide_on(target, workload, known=known, predicts=False)
        found = []
        if made.provider == "dwconv" and made.workload and made.config and made.target:
            found.append((Candidate(made.workload, made.config), made.target))
        if general := fastest_of_any_size(workload, target, known=known):
            found.append(general)
        for candidate, built_for in found:
            built = process_kernels.lacks(candidate, built_for, threads=threads)
            if built is not None:
                wanted[BuildRequest(candidate=built, target=built_for, threads=threads, checks=True, links=True)] = None
    if not wanted or not can_load_libraries():
        return
    pool = Pool(HANDLER, None, size=max(1, min(cpu_facts.cores(), len(wanted) // _FEW)))
    try:
        for _ in pool.map(list(wanted), timeout_s=LIMIT_S):
            pass
        if any(each.candidate.workload.any_channels for each in wanted):
            loaded_packs.note_built()
    except WorkerError as error:
        _log.info("kernels are made when they are first used: %s", error)
    finally:
        pool.kill()


def forget() -> None:
    """Drop the work that has not begun; calls may wait again."""
    with _changed:
        _tasks.clear()
        _by_key.clear()
        spending.of_process.forget()


# -- the queue, and the threads that empty it -------------------------------------------------------------------------


def _add(
    work: Work, *, key: object, device: torch.device, saves_per_s: float, takes_s: float, then: Callable[[str], None]
) -> None:
    if imports.abandoned:  # this process was forked in the middle of an import
        return

    is_free = cpu_facts.cores() > (torch.get_num_threads() if device.type == "cpu" else 1)
    with _changed:
        if (same := _by_key.get(key)) is not None:  # another layer, or the start of the model, requested it
            same.then.append(then)
            same.rank = same.rank[0] - saves_per_s, same.rank[1]
            heapq.heapify(_tasks)
            return
        rank = -saves_per_s, next(_numbers)
        task = _Task(rank=rank, work=work, key=key, takes_s=takes_s, is_free=is_free, then=[then])
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

    if not (spending.of_process.waiting or _Threads.finishing) or settings.rank_is_given():
        return 1
    return max(1, min(MOST_PROCESSES, cpu_facts.cores()))


def _may_begin() -> bool:
    """Whether a task begins now. The lock is held."""
    if not _tasks or _Threads.busy >= _most_threads():
        return False
    task = _tasks[0]
    takes_s = task.takes_s / min(_most_threads(), _AT_ONCE)
    return task.is_free or _Threads.finishing > 0 or spending.of_process.allows(takes_s)


def _run() -> None:
    """In a thread."""
    maker = make_maker()
    try:
        while (begun := _next(maker)) is not None:
            task, reason = begun[0], "the work failed"
            try:
                with imports:
                    _, reason = process_kernels.attempt(task.work, maker)
            finally:
                _end(*begun, reason)
    except BaseException:
        with _changed:
            _Threads.count -= 1
        raise
    finally:
        maker.end()


def _next(maker: BackgroundProcess) -> tuple[_Task, WorkBeside] | None:
    """What is done next, which begins now; None if there was no work for some time: the thread then ends."""
    with _changed:
        ends_s = time.monotonic() + _IDLE_S
        while not _may_begin():
            now_s = time.monotonic()
            if not _tasks and now_s >= ends_s:
                _Threads.count -= 1
                return None
            _changed.wait(_LOOK_S if _tasks else ends_s - now_s)
        _Threads.busy += 1
        task = heapq.heappop(_tasks)
        is_free = task.is_free or _Threads.finishing > 0
        return task, spending.of_process.work_begins(maker.cpu_s, expected_s=task.takes_s, is_free=is_free)


def _end(task: _Task, beside: WorkBeside, reason: str) -> None:
    with _changed:
        spending.of_process.work_ends(beside)
        if _by_key.get(task.key) is task:
            del _by_key[task.key]
    for then in task.then:
        then(reason)
    with _changed:
        _Threads.busy -= 1
        _changed.notify_all()


def _make(wanted: Wanted, maker: BackgroundProcess) -> None:
    """Raises WorkerError for what the machine is short of."""
    candidate, target, device = wanted.candidate, wanted.target, wanted.device
    fault = ""
    if not process_kernels.is_ready(candidate, target, device):
        fault = maker.make(wanted.built, target, threads=wanted.threads, checks=not wanted.is_known)
    if wanted.built != candidate and not fault:
        loaded_packs.note_built()
    if fault:
        process_kernels.unbuilt[candidate, device] = fault
        return
    if target.kind == "cpu":  # a GPU's is loaded by the thread that runs it
        kernel, _ = process_kernels.attempt(process_kernels.load, candidate, target, device)
        if kernel is not None:
            process_kernels.attempt(process_kernels.fault_of, kernel, target, device)
            process_kernels.kernels.setdefault((candidate, device), kernel)


# -- what this process has --------------------------------------------------------------------------------------------


class _Threads:
    count = busy = 0
    finishing = 0
    """Calls that wait until nothing is left."""


make_maker: Callable[[], BackgroundProcess] = BackgroundProcess
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
    _Threads.count = _Threads.busy = _Threads.finishing = 0
    spending.of_process.leave()
    _tasks.clear()
    _by_key.clear()


forks.in_child(_in_child)
