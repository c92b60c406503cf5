"""Prefetching: the next batches are loaded, and copied to the GPU, while the step computes.

    loader's processes     load and transform (DataLoader's num_workers)
    a thread ahead         takes batches from the loader, pins them, and copies them on a stream of its own
    the step               needs the copy of its batch alone

At most ``depth`` batches are ahead of the step.
"""

from __future__ import annotations

import copy
import dataclasses
import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from dwconv.discovery.step import tensors_in
from dwconv.errors import InvalidChoice, NoDevice

Batch = TypeVar("Batch")


def prefetch(loader: Iterable[Batch], device: torch.device | str | None = None, *, depth: int = 2) -> Prefetched[Batch]:
    """What ``loader`` gives, loaded ahead: a DataLoader or any other iterable, for as many epochs as it has.

    ``device``: where the tensors in the batches go, in containers of the usual kinds, too; on a GPU through pinned
    memory. None leaves them where they are. ``depth``: the most batches ahead; 0 loads nothing ahead, and reports the
    time that steps spend on data then.

    An error of the loader is raised where its batch would have come, with the traceback that it had. The thread ends
    with its epoch, with ``break``, and when the iterator is closed or dropped; the end of an epoch waits for the batch
    that is being loaded."""
    if depth < 0:
        raise InvalidChoice(f"depth={depth} is negative; use 0 to load nothing ahead, or 2")
    chosen = None if device is None else torch.device(device)
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
        began_s, is_first = time.perf_counter(), True
        loading = _Loading(iter(self.loader), self._copies)
        # The first batch is loaded here: samplers draw the seed of an epoch from PyTorch's generator at their first
        # batch, and the seed must not depend on what the step draws meanwhile.
        loaded = loading.next()
        depth = self._waiting.depth
        ahead = _Ahead(loading, depth=depth) if depth and loaded.error is None else None
        try:
            while loaded.error is None:
                yield self._handed_out(loaded, began_s=began_s, is_first=is_first)
                began_s, is_first = time.perf_counter(), False
                loaded = ahead.next() if ahead else loading.next()
            if not isinstance(loaded.error, StopIteration):
                raise loaded.error
        finally:
            del loaded  # an error holds this frame, through its traceback
            if ahead:
                ahead.end()

    def _handed_out(self, loaded: _Loaded, *, began_s: float, is_first: bool) -> Batch:
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


class _Loaded:
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

    def next(self) -> _Loaded:
        started = time.perf_counter()
        try:
            begun = self._copies.begin(next(self._source))
        except BaseException as error:  # noqa: BLE001  raised again, in the thread of the step
            return _Loaded(error=error)
        return _Loaded(begun, seconds=time.perf_counter() - started)


class _Ahead:
    """A thread that loads. It has no reference to its iterator: when that is dropped, the thread ends."""

    def __init__(self, loading: _Loading, *, depth: int) -> None:
        self._room = threading.Semaphore(depth)
        self._ready: queue.SimpleQueue[_Loaded] = queue.SimpleQueue()
        self._over = threading.Event()
        # A daemon: an epoch that is never finished must not keep the process from ending.
        self._thread = threading.Thread(
            target=_load, args=(loading, self._room, self._ready, self._over), name="dwconv-prefetch", daemon=True
        )
        self._thread.start()

    def next(self) -> _Loaded:
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


def _load(
    loading: _Loading, room: threading.Semaphore, ready: queue.SimpleQueue[_Loaded], over: threading.Event
) -> None:
    while True:
        room.acquire()
        if over.is_set():
            return
        loaded = loading.next()
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


# -- how a batch gets to the device of the step ------------------------------------------------------------------------


class Copies:
    """The loading thread calls ``begin``, the step ``finish``, with what ``begin`` gave. To a GPU batches go from
    pinned memory, on a stream beside the step's. That has not run on a GPU yet."""

    def __init__(self, device: torch.device | None) -> None:
        """``device``: None leaves batches where they are."""
        self._device = device
        to_gpu = device is not None and device.type == "cuda"
        self._stream: Any = torch.cuda.Stream(device) if to_gpu else None  # type: ignore[no-untyped-call]

    def begin(self, batch: Any) -> Any:
        """The batch on the device, once the event beside it, if there is one, has happened."""
        if self._device is None:
            return batch, None
        if self._stream is None:
            return with_tensors(batch, lambda tensor: tensor.to(self._device)), None
        if any(tensor.is_cuda for tensor in tensors_in(batch)):  # the stream that makes it may not be done
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        pinned = with_tensors(batch, _pinned)
        with torch.cuda.stream(self._stream):
            moved = with_tensors(pinned, lambda tensor: tensor.to(self._device, non_blocking=True))
        return moved, self._stream.record_event()

    def finish(self, begun: Any) -> Any:
        """The batch. On a GPU the stream of the step waits, not its thread, and the memory is not given to other
        tensors before that stream is done with it, although another stream allocated it."""
        moved, copied = begun
        if copied is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(copied)
            for tensor in tensors_in(moved):
                tensor.record_stream(current)
        return moved


def _pinned(tensor: Tensor) -> Tensor:
    """Pinned memory is what a copy can leave while the CPU goes on."""
    if tensor.device.type != "cpu" or tensor.is_pinned() or tensor.layout is not torch.strided:
        return tensor
    return tensor.pin_memory()


def with_tensors(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``batch`` with ``change`` of each of its tensors, in containers of the same kinds: mappings, named and other
    tuples, lists, dataclasses and packed sequences, however deep. Everything else stays as it is."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, PackedSequence):  # its sizes have to stay on the CPU
        orders = (batch.sorted_indices, batch.unsorted_indices)
        changed = [None if order is None else change(order) for order in orders]
        return batch._replace(data=change(batch.data), sorted_indices=changed[0], unsorted_indices=changed[1])
    if isinstance(batch, Mapping):
        # A copy keeps what the kind has besides, such as the factory of a defaultdict.
        copied: Any = copy.copy(batch) if hasattr(batch, "update") else {}
        for key, value in batch.items():
            copied[key] = with_tensors(value, change)
        return copied
    if isinstance(batch, tuple):
        values = [with_tensors(value, change) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    if isinstance(batch, list):
        copied = copy.copy(batch)
        copied[:] = [with_tensors(value, change) for value in batch]
        return copied
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        copied = copy.copy(batch)
        for field in dataclasses.fields(batch):
            object.__setattr__(copied, field.name, with_tensors(getattr(batch, field.name), change))
        return copied
    return batch
