"""Reentrant: calls of ``backward`` within a backward pass, as ``checkpoint(use_reentrant=True)`` makes them, in a step
that changes nothing.

    torch.autograd.grad(…)                          the step's
      └─ CheckpointFunction.backward                computes again, and calls
           └─ torch.autograd.backward(outputs, …)   an error of PyTorch within torch.autograd.grad

In training the inner call adds to ``grad`` of the parameters, and so calls the hooks on these, as those of
DistributedDataParallel and of optimizers that step in the backward pass. Here it runs and adds to ``grad``, calls no
hook, and at the end ``grad`` is what it was.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack


@contextmanager
def reentrant() -> Iterator[None]:
    """In here, and in the threads that autograd runs for it, ``gradients_of`` may run such functions."""
    global _entered, _pytorchs
    with _lock:
        if not _entered:
            _pytorchs = torch.autograd.backward, torch.autograd._is_checkpoint_valid
        _entered += 1
        torch.autograd.backward, torch.autograd._is_checkpoint_valid = _backward, _is_valid
    try:
        with _Step() as step:
            yield
    finally:
        with _lock:
            _entered -= 1
            if not _entered:
                torch.autograd.backward, torch.autograd._is_checkpoint_valid = _pytorchs
        for leaf, gradient in reversed(step.before):
            leaf.grad = gradient


def gradients_of(
    outputs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    gradients: Sequence[Tensor],
    *,
    keeps: bool = False,
    again: bool = False,
) -> Sequence[Tensor | None]:
    """``torch.autograd.grad``. To modes that is one function, and what runs in it is hidden; here they see it."""
    found: Sequence[Tensor | None] = Variable._execution_engine.run_backward(
        tuple(outputs), tuple(gradients), keeps, again, tuple(leaves), allow_unreachable=True, accumulate_grad=False
    )
    return found


def leaves_of(outputs: Iterable[Tensor]) -> list[Tensor]:
    """The tensors without a history that the outputs were computed from: parameters, of the model or not, and
    inputs."""
    leaves: list[Tensor] = []
    waiting: list[Any] = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return leaves


_pytorchs: Any = torch.autograd.backward, torch.autograd._is_checkpoint_valid
_stack: Any = _get_current_function_mode_stack
_lock = threading.Lock()
_entered = 0
"""How many steps there are now, in all threads."""


class _Step(TorchFunctionMode):
    """Distinguishes the threads of a step from others: autograd's threads have the modes of its caller."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[tuple[Tensor, Tensor | None]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.backward:
            with self:
                return _backward(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def backward(self, outputs: list[Tensor], gradients: Any, *, retain_graph: Any, create_graph: bool) -> None:
        leaves = list({id(leaf): leaf for leaf in (*leaves_of(outputs), *filter(_is_leaf, outputs))}.values())
        if not leaves:
            return
        given = gradients or [None] * len(outputs)
        ones = [torch.ones_like(of) if each is None else each for of, each in zip(outputs, given, strict=True)]
        keeps = create_graph if retain_graph is None else retain_graph
        for leaf, gradient in zip(
            leaves, gradients_of(outputs, leaves, ones, keeps=keeps, again=create_graph), strict=True
        ):
            if gradient is not None:
                self.before.append((leaf, leaf.grad))
                leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient


def _is_leaf(output: Tensor) -> bool:
    return output.grad_fn is None and output.requires_grad


def _step() -> _Step | None:
    """The one that is running here."""
    return next((mode for mode in _stack() if isinstance(mode, _Step)), None)


def _is_valid() -> bool:
    return _step() is not None or _pytorchs[1]()


def _backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
    *,
    gradient: Any = None,
) -> None:
    """``torch.autograd.backward``, and ``Tensor.backward``, which has ``gradient``."""
    step = _step()
    given = grad_tensors if gradient is None else gradient
    if step is None or inputs is not None or grad_variables is not None:
        _pytorchs[0](tensors, given, retain_graph, create_graph, grad_variables, inputs)
        return
    outputs, gradients = (
        [each] if isinstance(each, Tensor) else None if each is None else list(each) for each in (tensors, given)
    )
    step.backward(outputs or [], gradients, retain_graph=retain_graph, create_graph=create_graph)
