"""Program: one traced graph, forward or backward, and what runs it now: plain execution, or a schedule."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from torch import Tensor
from torch._dynamo.backends.debugging import boxed_nop
from torch.fx import GraphModule

from dwconv.concurrency.graph.gradient_pairs import split
from dwconv.concurrency.graph.tasks import CutGraph, cut
from dwconv.concurrency.running.engine import CpuEngine, Engine
from dwconv.concurrency.running.streams import StreamEngine
from dwconv.concurrency.scheduling.schedule import Schedule

Boxed = Callable[[list[Any]], list[Any]]


def plainly(module: GraphModule) -> Boxed:
    """Runs a graph as AOTAutograd hands it over, one operator after the other, as the backend aot_eager does. It takes
    its arguments in a list, and empties it."""
    boxed: Boxed = boxed_nop(module, [])
    return boxed


class PlainEngine:
    """Plain execution of one graph."""

    def __init__(self, module: GraphModule) -> None:
        self.run = plainly(module)


class Program:
    """A graph of PyTorch's operators as AOTAutograd hands it over. Runs plainly until it has another engine. Raises
    CannotBeCut, naming the operator."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module
        self._plain = PlainEngine(module)
        self.cut: CutGraph
        self.engine: Engine = self._plain
        self.kept_whole: tuple[int, ...] = ()
        self.split_all_but(())
        self.on_gpu = any(_is_on_gpu(example) for example in self.cut.examples.values())

    def split_all_but(self, kept_whole: Collection[int]) -> None:
        """Cut the graph anew, dgrad and wgrad of each convolution apart, except of some: ``kept_whole``, by their place
        among the convolutions. From now on it runs plainly."""
        self.kept_whole = tuple(sorted(kept_whole))
        self.cut = cut(split(self._module, kept_whole=self.kept_whole))
        self.run_plainly()

    def prepared(self, schedule: Schedule) -> Engine:
        """An engine for ``schedule``. Raises InvalidChoice if it does not fit."""
        return StreamEngine(self.cut, schedule) if self.on_gpu else CpuEngine(self.cut, schedule)

    def run_plainly(self) -> None:
        """Run the graph as it was handed over."""
        self.engine = self._plain

    def boxed(self) -> Boxed:
        """The function that AOTAutograd calls."""

        def call(inputs: list[Any]) -> list[Any]:
            return self.engine.run(inputs)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call


def _is_on_gpu(example: object) -> bool:
    return isinstance(example, Tensor) and example.device.type != "cpu"
