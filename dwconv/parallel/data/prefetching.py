"""Prefetching: the next batches are loaded, and copied to the GPU, while the step computes.

    loader's processes     load and transform (DataLoader's num_workers)
    a thread ahead         takes batches from the loader, pins them, and copies them on a stream of its own
    the step               waits for the copy of its batch alone

At most ``depth`` batches are ahead of the step.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from dwconv.errors import InvalidChoice
from dwconv.parallel.data.copies import Copies, copies_to
from dwconv.parallel.data.waiting import WaitingReport, WaitingTimes

Batch = TypeVar("Batch")


def prefetch(loader: Iterable[Batch], device: torch.device | str | None = None, *, depth: int = 2) -> Prefetched[Batch]:
    """What ``loader`` gives, loaded ahead: a DataLoader or any other iterable, for as many epochs as it has.

    ``device``: where the tensors in the batches go, in containers of the usual kinds, too; on a GPU through pinned
    memory. None leaves them where they are. ``depth``: batches to be ahead at most; 0 loads nothing ahead, and reports
    what the steps wait then.

    An error of the loader is raised where its batch would have come, with the traceback that it had. The thread ends
    with its epoch, with ``break``, and when the iterator is closed or forgotten; an epoch that is left waits for the
    batch that is being loaded."""
    if depth < 0:
        raise InvalidChoice(f"depth={depth} is negative; use 0 to load nothing ahead, or 2")
    return Prefetched(loader, copies=copies_to(device), depth=depth)


class Prefetched(Generic[Batch]):
    """An iterable like its loader. ``report()`` tells how long steps waited."""

    def __init__(self, loader: Iterable[Batch], *, copies: Copies, depth: int) -> None:
        self.loader = loader
        """As it was given, so that the epoch of its sampler can be set."""
        self._copies = copies
        self._depth = depth
        self._times = WaitingTimes()

    def __len__(self) -> int:
        if not isinstance(self.loader, Sized):
            raise TypeError(f"the loader, of type {type(self.loader).__name__}, has no len()")
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        asked, is_first = time.perf_counter(), True
        loading = _Loading(iter(self.loader), self._copies)
        # The first batch is loaded here: samplers draw the seed of an epoch from PyTorch's generator when they are
        # first asked, and what that gives must not depend on what the step draws meanwhile.
        loaded = loading.next()
        ahead = _Ahead(loading, depth=self._depth) if self._depth and isinstance(loaded, _Loaded) else None
        try:
            while isinstance(loaded, _Loaded):
                yield self._handed_out(loaded, asked=asked, is_first=is_first)
                asked, is_first = time.perf_counter(), False
                loaded = ahead.next() if ahead else loading.next()
            if isinstance(loaded, _Failed):
                raise loaded.error
        finally:
            del loaded  # an error holds this frame, through its traceback
            if ahead:
                ahead.end()

    def _handed_out(self, loaded: _Loaded, *, asked: float, is_first: bool) -> Batch:
        batch: Batch = self._copies.finish(loaded.take())
        waited_s = time.perf_counter() - asked
        if is_first:
            self._times.add_first(waited_s=waited_s)
        else:
            self._times.add(waited_s=waited_s, loading_s=loaded.seconds)
        return batch

    def report(self) -> WaitingReport:
        """How long steps waited for data in all epochs so far, and how long loading took."""
        return self._times.report(depth=self._depth)


class _Loaded:
    """What ``Copies.begin`` gave; and how long that took, from asking the loader."""

    def __init__(self, begun: Any, *, seconds: float) -> None:
        self._begun = [begun]
        self.seconds = seconds

    def take(self) -> Any:
        """It is kept here no longer: its memory is free once the step lets go of it."""
        return self._begun.pop()


@dataclass(frozen=True, kw_only=True)
class _Failed:
    """The loader's error, or that of a copy."""

    error: BaseException


class _Nothing:
    """The epoch is over."""


_Next = _Loaded | _Failed | _Nothing


class _Loading:
    """Takes one batch after the other; in one thread at a time."""

    def __init__(self, source: Iterator[Any], copies: Copies) -> None:
        self._source = source
        self._copies = copies

    def next(self) -> _Next:
        started = time.perf_counter()
        try:
            begun = self._copies.begin(next(self._source))
        except StopIteration:
            return _Nothing()
        except BaseException as error:  # noqa: BLE001  raised again, in the thread of the step
            return _Failed(error=error)
        return _Loaded(begun, seconds=time.perf_counter() - started)


class _Ahead:
    """A thread that loads. It knows nothing of the iterator that it serves: when that is forgotten, the thread ends."""

    def __init__(self, loading: _Loading, *, depth: int) -> None:
        self._room = threading.Semaphore(depth)
        self._ready: queue.SimpleQueue[_Next] = queue.SimpleQueue()
        self._over = threading.Event()
        # A daemon: an epoch that is never finished must not keep the process from ending.
        self._thread = threading.Thread(
            target=_load, args=(loading, self._room, self._ready, self._over), name="dwconv-prefetch", daemon=True
        )
        self._thread.start()

    def next(self) -> _Next:
        """Waits for the next batch."""
        loaded = self._ready.get()
        self._room.release()
        return loaded

    def end(self) -> None:
        """Waits for the thread to end, so that the loader is free for another epoch."""
        self._over.set()
        self._room.release()
        if threading.current_thread() is not self._thread:  # the garbage collector runs in any thread
            self._thread.join()


def _load(loading: _Loading, room: threading.Semaphore, ready: queue.SimpleQueue[_Next], over: threading.Event) -> None:
    while True:
        room.acquire()
        if over.is_set():
            return
        loaded = loading.next()
        ready.put(loaded)
        if not isinstance(loaded, _Loaded):
            return
        del loaded
