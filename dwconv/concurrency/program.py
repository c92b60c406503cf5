"""Program: one traced graph, forward or backward, and what runs it now: plain execution, or a schedule.

On the streams of a CUDA device, one for each worker, the calling thread issues all tasks, in the order of their starts;
the GPU runs those of different streams side by side. Where a task needs another stream's result, its stream waits for
an event. The first worker's stream is the caller's own, so what comes before and after the graph needs nothing else.
It has not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.backends.debugging import boxed_nop
from torch.fx import GraphModule

from dwconv.concurrency.engine import CpuEngine
from dwconv.concurrency.lanes import lanes
from dwconv.concurrency.schedule import Schedule
from dwconv.concurrency.split_gradients import split
from dwconv.concurrency.tasks import CutGraph, Place, cut


class StreamEngine:
    """Runs the lanes of a schedule on streams. ``device_api``: ``torch.cuda``, or what behaves like it."""

    def __init__(self, cut: CutGraph, schedule: Schedule, *, device_api: Any = torch.cuda) -> None:
        self.schedule = schedule
        self._cut = cut
        self._api = device_api
        lanes(cut, schedule)  # refuses what does not fit the graph, or could not end
        workers = {each.worker for each in schedule.placements} | {0}
        self._stream_of = {each.task: sorted(workers).index(each.worker) for each in schedule.placements}
        self._order = [each.task for each in schedule.in_order]
        self._others: list[Any] = [None] * (len(workers) - 1)
        readers = cut.graph.readers()
        self._frees = _last_reads(cut, self._order)
        self._handed = {
            task: any(self._stream_of[reader] != self._stream_of[task] for reader in readers[task])
            for task in self._order
        }

    def run(self, inputs: list[Any]) -> list[Any]:
        """The graph's results, as the caller's stream will have them. Empties ``inputs``."""
        values = self._cut.values(inputs)
        inputs.clear()
        streams = self._streams()
        events: dict[int, Any] = {}
        for stream in streams[1:]:
            stream.wait_stream(streams[0])
        with torch.no_grad():
            for task in self._order:
                self._issue(task, values, streams, events)
        results = self._cut.results(values)
        for stream in streams[1:]:
            streams[0].wait_stream(stream)
        for result in results:
            if isinstance(result, Tensor) and len(streams) > 1:
                result.record_stream(streams[0])
        return results

    def _issue(self, task: int, values: list[Any], streams: Sequence[Any], events: dict[int, Any]) -> None:
        stream = streams[self._stream_of[task]]
        for needed in self._cut.graph.tasks[task].needs:
            if self._stream_of[needed] != self._stream_of[task]:
                stream.wait_event(events[needed])
        for place in self._cut.reads[task]:
            value = values[place]
            if isinstance(value, Tensor) and len(streams) > 1:
                value.record_stream(stream)  # its memory is not given away while this stream may read it
        with self._api.stream(stream):
            self._cut.functions[task](values)
        if self._handed[task]:
            events[task] = stream.record_event()
        for place in self._frees.get(task, ()):
            values[place] = None

    def _streams(self) -> list[Any]:
        """The caller's stream, and one for each other worker, which stay."""
        make: Callable[[], Any] = self._api.Stream
        self._others = [make() if stream is None else stream for stream in self._others]
        return [self._api.current_stream(), *self._others]


def _last_reads(cut: CutGraph, order: Sequence[int]) -> dict[int, list[int]]:
    """By task, the places that nothing reads after it."""
    returned = {each.index for each in cut.outputs if isinstance(each, Place)}
    last = {place: task for task in order for place in cut.reads[task] if place not in returned}
    frees: dict[int, list[int]] = {}
    for place, task in last.items():
        frees.setdefault(task, []).append(place)
    return frees


Engine = CpuEngine | StreamEngine
Boxed = Callable[[list[Any]], list[Any]]


def plainly(module: GraphModule) -> Boxed:
    """Runs a graph as AOTAutograd hands it over, one operator after the other, as the backend aot_eager does. It takes
    its arguments in a list, and empties it."""
    return boxed_nop(module, [])


class Program:
    """A graph of PyTorch's operators as AOTAutograd hands it over. Runs plainly until it has another engine. Raises
    CannotBeCut, naming the operator."""

    def __init__(self, module: GraphModule) -> None:
        self._plain = plainly(module)
        self.cut = cut(split(module))
        self.engine: Engine | None = None
        """None: plain execution."""
        self.on_gpu = any(_is_on_gpu(example) for example in self.cut.examples.values())

    def prepared(self, schedule: Schedule) -> Engine:
        """An engine for ``schedule``. Raises InvalidChoice if it does not fit."""
        return StreamEngine(self.cut, schedule) if self.on_gpu else CpuEngine(self.cut, schedule)

    def run_plainly(self) -> None:
        """Run the graph as it was handed over."""
        self.engine = None

    def boxed(self) -> Boxed:
        """The function that AOTAutograd calls."""

        def call(inputs: list[Any]) -> list[Any]:
            return self.engine.run(inputs) if self.engine else self._plain(inputs)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call


def _is_on_gpu(example: object) -> bool:
    return isinstance(example, Tensor) and example.device.type != "cpu"
