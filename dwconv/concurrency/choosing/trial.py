"""Trial: a step of one graph, forward and backward, that changes nothing: neither parameters and their gradients, nor
buffers and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Graph = Callable[..., Any]


class Trial:
    """Steps on what a graph was called with. ``written``: places of the arguments that the graph writes to."""

    def __init__(self, args: Sequence[Any], *, written: Collection[int]) -> None:
        self._trains = torch.is_grad_enabled()
        self._args = [_apart(arg, copied=place in written) for place, arg in enumerate(args)]
        self._wanted = [arg for arg in self._args if isinstance(arg, Tensor) and self._trains and arg.requires_grad]
        self._gradients: dict[int, Tensor] = {}
        self._is_on_gpu = any(isinstance(arg, Tensor) and arg.is_cuda for arg in self._args)

    def step(self, graph: Graph) -> Callable[[], object]:
        """A call that runs ``graph`` and, where gradients are wanted, back through it."""

        def run() -> object:
            with torch.set_grad_enabled(self._trains):
                found = self._back(graph(*self._args))
            if self._is_on_gpu:
                torch.cuda.synchronize()
            return found

        return run

    def _back(self, results: Sequence[Any]) -> object:
        outputs = [each for each in results if isinstance(each, Tensor) and each.requires_grad]
        if not outputs or not self._wanted:
            return None
        given = [self._gradient(place, each) for place, each in enumerate(outputs)]
        return torch.autograd.grad(outputs, self._wanted, given, allow_unused=True)

    def _gradient(self, place: int, result: Tensor) -> Tensor:
        """The same in every step, and not made while one is timed."""
        if place not in self._gradients:
            self._gradients[place] = torch.ones_like(result)
        return self._gradients[place]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Random numbers go on afterwards as if nothing had run."""
        devices = [torch.cuda.current_device()] if self._is_on_gpu else []
        with torch.random.fork_rng(devices=devices):
            yield


def _apart(arg: Any, *, copied: bool) -> Any:
    """The argument with a history of its own; and with memory of its own, if the graph writes to it."""
    if not isinstance(arg, Tensor):
        return arg
    apart = arg.detach().clone() if copied else arg.detach()
    return apart.requires_grad_(arg.requires_grad)
