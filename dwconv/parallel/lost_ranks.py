"""A lost rank: the others end in bounded time, each with one line.

    rank 1   ──────✗ it is killed
    rank 0   ──── a collective fails ─► RankLost ─► the groups are kept ─► its line ─► the process ends, exit code 2

A group of gloo that ends waits for its threads, and these need Python's lock, to drop the Python objects that
collectives hold. PyTorch gives the lock up for that wait, but not where a DistributedDataParallel has the group last.
There both would wait for ever as soon as the garbage collector finds it. So where communication may be going on, no
group ends: all are kept until the process ends, which closes their connections. So are those that a model still has as
the job is left.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar
from weakref import ref

import torch
import torch.distributed as dist

from dwconv.commands import command_line
from dwconv.errors import DwconvError, RankLost, one_line
from dwconv.system.process_end import end_within

ENDS_WITHIN_S = 60.0
"""From the line of an error to the end of the process, whatever runs at exit."""
_LOST = r"Connection (?:closed|reset) by peer|Timed out waiting|Application timeout caused pair closure|Broken pipe"
_OF_COMMUNICATION = re.compile(rf"{_LOST}|gloo/|NCCL")
"""In messages of PyTorch's RuntimeErrors: gloo has no class of errors, and DistributedDataParallel makes others of
them."""
_LONGEST_REASON = 160
_SLOWER_BY_S = 10.0
"""By which gloo's own timeout may come later."""


@contextmanager
def lost_ranks_told(here: Callable[[], str]) -> Iterator[None]:
    """Makes one line of what PyTorch raises where communication fails. ``here``: names this rank."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        if not (isinstance(error, dist.DistError) or _OF_COMMUNICATION.search(str(error))):
            raise
        keep_groups()
        reason = one_line(_told_by_gloo(str(error)), most=_LONGEST_REASON)
        raise RankLost(
            f"{here()} lost the connection to the others ({reason}): another rank has ended, or does not answer; "
            "look at what that one printed, then start all ranks again"
        ) from error


def _told_by_gloo(message: str) -> str:
    """The first sentence, without the place in gloo's source, and without what was wrapped around it."""
    found = re.search(rf"((?:{_LOST})[^\n]*?)(?: to Tensor)?$", message, re.M)
    return found[1].partition(". ")[0] if found else message


# -- groups that are not made ------------------------------------------------------------------------------------------


_Made = TypeVar("_Made")


def made_in_time(make: Callable[[], _Made], *, timeout_s: float) -> _Made:
    """What ``make`` gives, which makes groups of ranks. Raises DistNetworkError where that takes longer than
    ``timeout_s`` and what a slow machine may add: gloo waits without end for a rank that is lost while both connect."""
    made: Future[_Made] = Future()
    gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]

    def run() -> None:
        try:
            if gpu is not None:  # each thread has one of its own
                torch.cuda.set_device(gpu)
            made.set_result(make())
        except BaseException as error:  # noqa: BLE001  raised again
            made.set_exception(error)

    threading.Thread(target=run, name="dwconv-connects", daemon=True).start()
    if not wait([made], timeout=timeout_s + _SLOWER_BY_S).done:
        raise dist.DistNetworkError(f"Timed out waiting {timeout_s:g} s for another rank to connect")
    return made.result()


# -- groups that do not end --------------------------------------------------------------------------------------------


_kept: list[dist.ProcessGroup] = []


def keep_groups() -> None:
    """Keep all groups of several ranks of this process, and so their threads, until the process ends."""
    for group in dist.distributed_c10d._world.pg_map:
        _keep(group)


def leave() -> None:
    """Ends the groups of this process, but for those that a model still has."""
    groups = [ref(group) for group in dist.distributed_c10d._world.pg_map]
    dist.destroy_process_group()
    for each in groups:
        if (group := each()) is not None:
            _keep(group)


def _keep(group: dist.ProcessGroup) -> None:
    if group.size() > 1 and group not in _kept:
        _kept.append(group)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))  # as Python shuts down it clears the list


# -- the end of a process ----------------------------------------------------------------------------------------------


def run_command(command: Callable[[list[str] | None], int], argv: list[str] | None = None) -> int:
    """``command_line.run`` for a command that joins the ranks. Where one of several is lost, or fails, the process ends
    here, with the exit code.

    Python is not shut down then: a thread of gloo that takes its lock meanwhile aborts the process. What runs at exit
    has ``ENDS_WITHIN_S``."""
    ends_here = False

    def watched(given: list[str] | None) -> int:
        nonlocal ends_here
        try:
            return command(given)
        except (DwconvError, KeyboardInterrupt) as error:
            if _kept or isinstance(error, RankLost):
                ends_here = True
                end_within(ENDS_WITHIN_S, getattr(error, "exit_code", command_line.INTERRUPTED_EXIT_CODE))
            raise

    exit_code = command_line.run(watched, argv)
    if ends_here:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
    return exit_code
