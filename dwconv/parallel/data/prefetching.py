"""Prefetching: the next batches are loaded, and copied to the GPU, while the step computes.

    loader's processes     load and transform (DataLoader's num_workers)
    a thread ahead         takes batches from the loader, pins them, and copies them on a stream of its own
    the step               needs the copy of its batch alone

At most ``depth`` batches are ahead of the step.
"""

from __future__ import annotations

import copy
import queue
import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch

from dwconv.errors import InvalidArgument, InvalidChoice, NoDevice
from dwconv.parallel.data.callers_state import CallersState
from dwconv.parallel.data.copies import Copies
from dwconv.system import given

Batch = TypeVar("Batch")


def prefetch(loader: Iterable[Batch], device: torch.device | str | None = None, *, depth: int = 2) -> Prefetched[Batch]:
    """What ``loader`` gives, loaded ahead: a DataLoader or any other iterable, for as many epochs as it has.

    ``device``: where the tensors in the batches go, in containers of the usual kinds, too, which stay of their class;
    on a GPU through pinned memory. None leaves them where they are. ``depth``: the most batches ahead; 0 loads nothing
    ahead, and reports the time that steps spend on data then.

    All batches of an epoch are made in the state in which its first one is requested: gradients, ``inference_mode``,
    autocast, default device, modes, the current GPU with its stream, and a copy of the contextvars.

    An error of the loader is raised where its batch would have come, with the traceback that it had. The thread ends
    with its epoch, with ``break``, and when the iterator is closed or dropped; the end of an epoch waits for the batch
    that is being loaded."""
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        raise InvalidArgument(
            f"loader={given.shown(loader)} gives no batches; give a DataLoader, or what a for loop takes"
        )
    way_out = "use 0 to load nothing ahead, or 2"
    if isinstance(depth, int) and depth < 0:
        raise InvalidChoice(f"depth={depth} is negative; {way_out}")
    depth = given.whole("depth", depth, least=0, way_out=way_out)
    try:
        chosen = None if device is None else torch.device(device)
    except (RuntimeError, TypeError):
        raise InvalidChoice(f"device={given.shown(device)} is unknown; use cpu, cuda or cuda:N") from None
    if chosen is not None and chosen.type == "cuda" and not torch.cuda.is_available():
        raise NoDevice(f"device={chosen}: PyTorch finds no GPU here; use device='cpu'")
    return Prefetched(loader, copies=Copies(chosen), depth=depth)


class Prefetched(Generic[Batch]):
    """An iterable like its loader. ``report()`` has the time that steps waited."""

    def __init__(self, loader: Iterable[Batch], *, copies: Copies, depth: int) -> None:
        self.loader = loader
        """As it was given, so that the epoch of its sampler can be set."""
        self._copies = copies
        self._waiting = WaitingReport(depth=depth)

    def __len__(self) -> int:
        if not isinstance(self.loader, Sized):
            raise TypeError(f"the loader, of type {type(self.loader).__name__}, has no len()")
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        # The loader's iterator is made here and now: a DataLoader draws the seed of its workers there.
        began_s = time.perf_counter()
        loading = [_Loading(iter(self.loader), self._copies)]
        return self._epoch(loading, took_s=time.perf_counter() - began_s)

    def _epoch(self, loading: list[_Loading], *, took_s: float) -> Iterator[Batch]:
        """``loading``: one, which is taken out of the list: the thread ends with the only reference to the loader's
        iterator, and so closes it. ``took_s``: seconds that beginning the epoch took."""
        # The step waits for the first batch, at which samplers draw the seed of an epoch from PyTorch's generator: the
        # seed does not depend on what the step draws meanwhile.
        began_s, is_first = time.perf_counter() - took_s, True
        depth = self._waiting.depth
        source = _Ahead(loading, depth=depth) if depth else loading.pop()
        loaded: _LoadedBatch | None = None
        try:
            while (loaded := source.next()).error is None:
                yield self._handed_out(loaded, began_s=began_s, is_first=is_first)
                began_s, is_first = time.perf_counter(), False
            if not isinstance(loaded.error, StopIteration):
                raise loaded.error
        finally:
            del loaded  # an error holds this frame, through its traceback
            if isinstance(source, _Ahead):
                source.end()

    def _handed_out(self, loaded: _LoadedBatch, *, began_s: float, is_first: bool) -> Batch:
        batch: Batch = self._copies.finish(loaded.take())
        waited_s = time.perf_counter() - began_s
        if is_first:
            self._waiting.first_us.append(waited_s * 1e6)
        else:
            self._waiting.waited_us.append(waited_s * 1e6)
            self._waiting.loading_us.append(loaded.seconds * 1e6)
        return batch

    def report(self) -> WaitingReport:
        """How long steps waited for data in all epochs so far, and how long loading took."""
        return copy.deepcopy(self._waiting)


class _LoadedBatch:
    """What ``Copies.begin`` gave, and how long that took, with the loader's time; or the error that came instead:
    StopIteration at the end of the epoch."""

    def __init__(self, begun: Any = None, *, seconds: float = 0.0, error: BaseException | None = None) -> None:
        self._begun = [begun]
        self.seconds = seconds
        self.error = error

    def take(self) -> Any:
        """It is kept here no longer: its memory is free once the step drops it."""
        return self._begun.pop()


class _Loading:
    """Takes one batch after the other; in one thread at a time."""

    def __init__(self, source: Iterator[Any], copies: Copies) -> None:
        self._source = source
        self._copies = copies

    def next(self) -> _LoadedBatch:
        started = time.perf_counter()
        try:
            begun = self._copies.begin(next(self._source))
        except BaseException as error:  # noqa: BLE001  raised again, in the thread of the step
            return _LoadedBatch(error=error)
        return _LoadedBatch(begun, seconds=time.perf_counter() - started)


class _Ahead:
    """A thread that loads. It has no reference to its iterator: when that is dropped, the thread ends."""

    def __init__(self, loading: list[_Loading], *, depth: int) -> None:
        self._room = threading.Semaphore(depth)
        self._ready: queue.SimpleQueue[_LoadedBatch] = queue.SimpleQueue()
        self._over = threading.Event()
        arguments = (CallersState(), loading, self._room, self._ready, self._over)
        # A daemon: an epoch that is never finished must not keep the process from ending.
        self._thread = threading.Thread(target=_load_as_caller, args=arguments, name="dwconv-prefetch", daemon=True)
        self._thread.start()

    def next(self) -> _LoadedBatch:
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


def _load_as_caller(
    state: CallersState,
    loading: list[_Loading],
    room: threading.Semaphore,
    ready: queue.SimpleQueue[_LoadedBatch],
    over: threading.Event,
) -> None:
    try:
        state.run(_load, loading, room, ready, over)
    except BaseException as error:  # noqa: BLE001  the step would wait for ever
        ready.put(_LoadedBatch(error=error))


def _load(
    loading: list[_Loading], room: threading.Semaphore, ready: queue.SimpleQueue[_LoadedBatch], over: threading.Event
) -> None:
    own = loading.pop()  # the loader's iterator ends here, with this frame
    while True:
        room.acquire()
        if over.is_set():
            return
        loaded = own.next()
        ready.put(loaded)
        if loaded.error is not None:
            return
        del loaded


# -- how long steps waited ---------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class WaitingReport:
    """Of all batches so far. Prints as two lines."""

    depth: int
    first_us: list[float] = field(default_factory=list)
    """Of the first batch of each epoch, the time from beginning the epoch to having it: nothing can hide that."""
    waited_us: list[float] = field(default_factory=list)
    """Of each other batch, the time from its request to its arrival."""
    loading_us: list[float] = field(default_factory=list)
    """Of each of these, the time that the loader took, with its copy to pinned memory: what a step spends where nothing
    is loaded ahead."""

    @property
    def batches(self) -> int:
        """How many were handed out."""
        return len(self.first_us) + len(self.waited_us)

    @property
    def hidden(self) -> float:
        """The share of the loading time that no step waited for, 0 to 1."""
        loading_us = sum(self.loading_us)
        return max(0.0, 1 - sum(self.waited_us) / loading_us) if loading_us else 0.0

    def __str__(self) -> str:
        if not self.batches:
            return "no batch was loaded yet"
        ahead = f"{self.depth} loaded ahead" if self.depth else "nothing loaded ahead"
        begun = f"for the first of an epoch a step waited {statistics.mean(self.first_us) / 1e3:.2f} ms"
        lines = [f"{self.batches} batches, {ahead}: {begun}"]
        if self.waited_us:
            lines[0] += f", for the others {_told(self.waited_us)}"
        if self.depth and self.waited_us:
            lines.append(
                f"loading took {_told(self.loading_us)}, which a step waits without prefetch; {self.hidden:.0%} hidden"
            )
        return "\n".join(lines)


def _told(times_us: list[float]) -> str:
    return f"{statistics.mean(times_us) / 1e3:.2f} ms on average, {statistics.median(times_us) / 1e3:.2f} in the median"
