"""Graphs of PyTorch's operators as AOTAutograd would hand them over, and schedules of them, without torch.compile."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from dwconv.concurrency.task_graph import Placement, Schedule
from dwconv.concurrency.tasks import CutGraph

Inputs = list[Tensor]


def traced(function: Callable[..., Any], inputs: Inputs) -> GraphModule:
    """``function``, which returns a list, with what is known of each result."""
    graph: GraphModule = make_fx(function, tracing_mode="fake")(*inputs)
    return graph


def branches_inputs() -> Inputs:
    """x and the weights of ``branches``."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(2, 8, 12, 12), (8, 8, 1, 1), (8, 8, 3, 3), (8, 8, 5, 5), (8,)]
    return [torch.randn(shape, generator=draw) for shape in shapes]


def branches(x: Tensor, one: Tensor, three: Tensor, five: Tensor, bias: Tensor) -> list[Tensor]:
    """An Inception block with its gradients: independent convolutions, read side by side and joined again."""
    weights = [each.detach().requires_grad_() for each in (one, three, five, bias)]
    x = x.detach().requires_grad_()
    one, three, five, bias = weights
    y = torch.cat([F.conv2d(x, one, bias).relu(), F.conv2d(x, three, padding=1).relu(),
                   F.conv2d(F.max_pool2d(x, 3, 1, 1), five, padding=2).tanh()], 1)  # fmt: skip
    y = y.mean((2, 3))
    return [y.detach(), *torch.autograd.grad(y.square().sum(), [x, *weights])]


def drops(x: Tensor) -> list[Tensor]:
    """Random numbers on branches that do not need each other."""
    dropout = torch.ops.aten.native_dropout.default
    first, second = (x @ x).tanh(), (x @ x.t()).sin()
    return [dropout(first, 0.5, True)[0] @ x, dropout(second, 0.3, True)[0] @ x, torch.rand_like(x) @ x]


def chain(x: Tensor) -> list[Tensor]:
    """Each step reads what the one before has given, twice."""
    found = x @ x
    for _ in range(6):
        found = (found @ x) + (found @ found)
    return [found]


def cells(x: Tensor, w: Tensor, u: Tensor) -> list[Tensor]:
    """A few steps of an LSTM: a long chain of small operators."""
    h = c = torch.zeros(x.shape[1], u.shape[1])
    for step in x.unbind(0):
        i, f, g, o = (step @ w.t() + h @ u.t()).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return [h, c]


def dealt(cut: CutGraph, *, workers: int, threads: int = 1, seed: int | None = None) -> Schedule:
    """The tasks dealt out to ``workers`` in turns, or, with a seed, by chance."""
    draw = random.Random(seed)
    free = [0.0] * workers
    ended: dict[int, float] = {}
    placements = []
    for task in cut.graph.tasks:
        worker = task.index % workers if seed is None else draw.randrange(workers)
        start = max([free[worker], *(ended[needed] for needed in task.needs)])
        free[worker] = ended[task.index] = start + draw.random() + 0.1
        placed = Placement(task=task.index, worker=worker, threads=threads, start_us=start, end_us=free[worker])
        placements.append(placed)
    return Schedule(strategies=(), cores=workers * threads, placements=tuple(placements))


def noting_what_is_held(cut: CutGraph) -> tuple[CutGraph, list[int]]:
    """The graph, and how many tensors its values are after each task, in the order in which they ran."""
    held: list[int] = []

    def watching(function: Callable[[list[Any]], None]) -> Callable[[list[Any]], None]:
        def run(values: list[Any]) -> None:
            function(values)
            held.append(sum(isinstance(value, Tensor) for value in values))

        return run

    return dataclasses.replace(cut, functions=tuple(map(watching, cut.functions)), instructions=None), held
