"""Program: one traced graph, forward or backward, and what runs it now: plain execution, or a schedule.

On a CUDA device each worker is a stream, the first one the caller's own. The calling thread issues all tasks, in the
order of their starts, and the GPU runs those of different streams side by side. This has not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.backends.debugging import boxed_nop
from torch.fx import GraphModule

from dwconv.concurrency.compiled_graph import in_order
from dwconv.concurrency.engine import Engine
from dwconv.concurrency.lanes import Signal
from dwconv.concurrency.split_gradients import split
from dwconv.concurrency.task_graph import Schedule
from dwconv.concurrency.tasks import CutGraph, cut, whole


class StreamEngine(Engine):
    """Runs the lanes of a schedule on streams. ``device_api``: ``torch.cuda``, or what behaves like it."""

    def __init__(self, cut: CutGraph, schedule: Schedule, *, device_api: Any = torch.cuda) -> None:
        super().__init__(cut, schedule)
        self._api = device_api
        self._lane_of = {step.task: number for number, lane in enumerate(self._lanes.steps) for step in lane}
        self._others: list[Any] = []

    def run(self, inputs: list[Any]) -> list[Any]:
        """The graph's results, as the caller's stream will have them. Empties ``inputs``."""
        values = self._cut.values(inputs)
        inputs.clear()
        self._others = self._others or [self._api.Stream() for _ in self._lanes.steps[1:]]
        streams = [self._api.current_stream(), *self._others]
        for stream in self._others:
            stream.wait_stream(streams[0])
        events: dict[Signal, Any] = {}
        unread = dict(self._lanes.readers)
        with torch.no_grad():
            for step in self._lanes.in_order:
                stream = streams[self._lane_of[step.task]]
                for signal in step.waits:
                    stream.wait_event(events.pop(signal))
                self._record((values[place] for place in self._cut.reads[step.task]), stream)
                with self._api.stream(stream):
                    step.function(values)
                if step.signals:
                    events |= dict.fromkeys(step.signals, stream.record_event())
                for place in step.shared:
                    unread[place] -= 1
                    if not unread[place]:
                        values[place] = None
        results = self._cut.results(values)
        for stream in self._others:
            streams[0].wait_stream(stream)
        self._record(results, streams[0])
        return results

    def _record(self, values: Iterable[Any], stream: Any) -> None:
        """Memory of ``values`` is not given away while ``stream`` may read it."""
        for value in values if self._others else ():
            if isinstance(value, Tensor) and value.is_cuda:
                value.record_stream(stream)


Boxed = Callable[[list[Any]], list[Any]]


def plainly(module: GraphModule) -> Boxed:
    """Runs a graph as AOTAutograd hands it over, one operator after the other, as the backend aot_eager does. It takes
    its arguments in a list, and empties it."""
    return boxed_nop(module, [])


class Program:
    """A graph of PyTorch's operators as AOTAutograd hands it over. Runs plainly until it has another engine. Raises
    CannotBeCut, naming the operator."""

    def __init__(self, module: GraphModule) -> None:
        self._in_python = plainly(module)
        self.cut = cut(split(module))
        examples = self.cut.examples.values()
        self.on_gpu = any(isinstance(each, Tensor) and each.device.type == "cuda" for each in examples)
        self._in_order = in_order(None if self.on_gpu else whole(module))
        self.engine: Engine | None = None
        """None: plain execution."""

    def prepared(self, schedule: Schedule) -> Engine:
        """An engine for ``schedule``. Raises InvalidChoice if it does not fit."""
        return (StreamEngine if self.on_gpu else Engine)(self.cut, schedule)

    def run_plainly(self) -> None:
        """Run the graph as it was handed over."""
        self.engine = None

    def _plain(self, inputs: list[Any]) -> list[Any]:
        """One operator after the other, as they were handed over."""
        found = self._in_order.run(inputs)
        return self._in_python(inputs) if found is None else found

    def boxed(self) -> Boxed:
        """The function that AOTAutograd calls."""

        def call(inputs: list[Any]) -> list[Any]:
            return self.engine.run(inputs) if self.engine else self._plain(inputs)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call
