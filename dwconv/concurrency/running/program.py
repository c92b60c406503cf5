"""Program: one traced graph, forward or backward, and the engine that runs it now."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from dwconv.concurrency.graph.gradient_pairs import split
from dwconv.concurrency.graph.tasks import CutGraph, cut
from dwconv.concurrency.running.engine import CpuEngine, Engine
from dwconv.concurrency.running.lanes import one_at_a_time
from dwconv.concurrency.running.streams import StreamEngine
from dwconv.concurrency.scheduling.schedule import Schedule

Boxed = Callable[[list[Any]], list[Any]]


class Program:
    """A graph of PyTorch's operators as AOTAutograd hands it over. Raises CannotBeCut, naming the operator."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module
        self.cut: CutGraph
        self.engine: Engine
        self.kept_whole: tuple[int, ...] = ()
        self.split_all_but(())
        self.on_gpu = any(_is_on_gpu(example) for example in self.cut.examples.values())

    def split_all_but(self, kept_whole: Collection[int]) -> None:
        """Cut the graph anew, dgrad and wgrad of each convolution apart, except of some: ``kept_whole``, by their place
        among the convolutions. From now on one task runs after the other."""
        self.kept_whole = tuple(sorted(kept_whole))
        self.cut = cut(split(self._module, kept_whole=self.kept_whole))
        self.run_one_at_a_time()

    def prepared(self, schedule: Schedule) -> Engine:
        """An engine for ``schedule``. Raises InvalidChoice if it does not fit."""
        return StreamEngine(self.cut, schedule) if self.on_gpu else CpuEngine(self.cut, schedule)

    def run_one_at_a_time(self) -> None:
        """Run one task after the other, on all threads."""
        self.engine = CpuEngine(self.cut, one_at_a_time(self.cut, threads=torch.get_num_threads()))

    def boxed(self) -> Boxed:
        """The function that AOTAutograd calls: it takes its arguments in a list, and empties it."""

        def call(inputs: list[Any]) -> list[Any]:
            return self.engine.run(inputs)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call


def _is_on_gpu(example: object) -> bool:
    return isinstance(example, Tensor) and example.device.type != "cpu"
