"""A backward pass in two: dgrad for the stage before, which waits for it; wgrad later, as in zero-bubble schedules.

torch.distributed.pipelining splits it. What both parts need is computed twice, such as the backward pass of a norm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

ToDo: TypeAlias = list[dict[str, Any]]
"""What ``dgrad`` leaves to ``wgrad``, in groups of parameters."""


def dgrad(output: Tensor, gradient: Tensor | None, x: Tensor, parameters: Iterable[nn.Parameter]) -> ToDo:
    """Adds to ``x.grad``. ``output``: loses its graph, so it is no view of another tensor. ``gradient``: of the output,
    None for a loss."""
    return stage_backward_input([output], None if gradient is None else [gradient], [x], iter(parameters))[1]


def wgrad(parameters: Iterable[nn.Parameter], groups: ToDo, *, retain_graph: bool = False) -> None:
    """Adds to the gradients of the parameters of ``groups``."""
    stage_backward_weight(iter(parameters), groups, retain_graph=retain_graph)


def can_split(model: nn.Module) -> bool:
    """Whether this PyTorch can do so with the layers of ``model``: with dwconv's it can from 2.13 on."""
    return torch.__version__ >= "2.13" or not any("plain_class" in vars(type(each)) for each in model.modules())


def not_a_view(tensor: Tensor) -> Tensor:
    """A tensor on the same memory that autograd does not take for a view of another."""
    alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return alias.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
