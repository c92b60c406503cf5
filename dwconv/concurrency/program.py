"""Program: one traced graph, forward or backward, and what runs it now: plain execution, or a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._dynamo.backends.debugging import boxed_nop
from torch.fx import GraphModule

from dwconv.concurrency.engine import Engine
from dwconv.concurrency.schedule import Schedule
from dwconv.concurrency.split_gradients import split
from dwconv.concurrency.tasks import cut

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

    def prepared(self, schedule: Schedule) -> Engine:
        """An engine for ``schedule``. Raises InvalidChoice if it does not fit."""
        return Engine(self.cut, schedule)

    def run_plainly(self) -> None:
        """Run the graph as it was handed over."""
        self.engine = None

    def boxed(self) -> Boxed:
        """The function that AOTAutograd calls."""

        def call(inputs: list[Any]) -> list[Any]:
            return self.engine.run(inputs) if self.engine else self._plain(inputs)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call
