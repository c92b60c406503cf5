"""Stands for ``torch.cuda.CUDAGraph``: launches and PyTorch's operators, in the order in which they were captured."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch

from tests.standin.device import device


class Graph:
    """``launches``: for each part of one, the number of operators before it, and the function that runs it."""

    captured: ClassVar[Graph | None] = None
    """The graph that is being captured."""
    spoilt: ClassVar[set[object]] = set()
    """Pools of captures that failed: PyTorch goes on recording to them."""
    _numbers: ClassVar[Iterator[int]] = itertools.count(1)

    def __init__(self, keep_graph: bool = False) -> None:
        self._steps: int | None = None
        self._operators = 0
        self.launches: list[tuple[int, Callable[[], object]]] = []
        self._pool = (next(Graph._numbers), 0)  # an address can come again after a graph that failed

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
        if device().standin_capturing() or self._steps:
            raise RuntimeError("a graph is captured already")
        if not device().standin_stream():
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        if capture_error_mode not in ("global", "thread_local", "relaxed"):
            raise RuntimeError(f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                               f"{capture_error_mode}")  # fmt: skip
        self._pool = pool or self._pool
        if self._pool in Graph.spoilt:
            raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
        Graph.captured = self
        device().standin_begin_capture()

    def capture_end(self) -> None:
        if not device().standin_capturing():
            raise RuntimeError("no graph is captured")
        Graph.captured = None
        self._operators = device().standin_captured_steps()
        self._steps = device().standin_end_capture()
        if not self._steps:
            Graph.spoilt.add(self._pool)
            raise torch.AcceleratorError("CUDA error: operation failed due to a previous error during capture")

    def replay(self) -> None:
        """Run all of it in order, on the current contents of memory."""
        from tests.standin.torch_cuda import check

        check()
        if not self._steps:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        library, done = device(), 0
        if library.standin_lost(self._steps):  # a GPU computes with whatever is there now, or breaks down
            raise torch.AcceleratorError("CUDA error: the graph uses memory outside its pool that was freed")
        for before, run in self.launches:
            library.standin_replay(self._steps, done, before)
            run()
            done = before
        library.standin_replay(self._steps, done, self._operators)
        library.standin_spend(library.standin_graph_ns(self._steps))

    def reset(self) -> None:
        if self._steps:
            device().standin_forget(self._steps)
        self._steps, self.launches = None, []

    def pool(self) -> tuple[int, int]:
        return self._pool

    def __del__(self) -> None:
        self.reset()
