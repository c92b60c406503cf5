"""Operators of a traced graph, one by one: which are free, which keep their order, and what each costs and is called.

A node of a graph that AOTAutograd traced has its result in ``node.meta["val"]``, as a tensor without data.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils.flop_counter import flop_registry

from dwconv.errors import CannotBeCut, one_line

_MOST_SHOWN = 80
_KNOWN = ("aten", "prims", "dwconv")
"""Whose operators are known to do nothing but compute, unless they say so."""


def kind_of(node: Node) -> str:
    """The operator without its overload: ``aten.convolution_backward``."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}.{target._schema.name.split('::')[-1]}"
    return str(getattr(target, "__name__", target))


def is_free(node: Node) -> bool:
    """True if it moves no data: a view, or one of several results."""
    target = node.target
    return target is operator.getitem or (isinstance(target, torch._ops.OpOverload) and target.is_view)


def keeps_order(node: Node) -> bool:
    """True if it must run after those of its sort that come before it in the graph: it draws random numbers, talks to
    other processes, acts on something else than its result, or is somebody's own, of which nobody knows."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        is_random = torch.Tag.nondeterministic_seeded in target.tags
        return is_random or target.namespace not in _KNOWN or node.is_impure()
    return target is not operator.getitem


def check(node: Node) -> None:
    """Raises CannotBeCut for an operator that cannot run in a task."""
    made_by = node.all_input_nodes[0] if node.target is operator.getitem else node
    shown = one_line(str(made_by.target), most=_MOST_SHOWN)
    if node.op in ("call_module", "call_method"):
        raise CannotBeCut(f"operator {shown} was not traced down to PyTorch's own; the graph runs plainly")
    if node.op == "call_function":
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            if target._schema.is_mutable:
                raise CannotBeCut(f"operator {shown} writes to its arguments; the graph runs plainly")
        elif target is not operator.getitem:  # such as those that keep and set the state of random numbers
            raise CannotBeCut(f"{shown} is a higher-order operator; the graph runs plainly")
    for value in values_of(node):
        if not isinstance(value, Tensor):
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise CannotBeCut(f"operator {shown} gives a size that is known when it runs; the graph runs plainly")
        elif type(value) not in (Tensor, torch.nn.Parameter, torch._subclasses.FakeTensor):
            raise CannotBeCut(f"operator {shown} gives a {type(value).__name__}; the graph runs plainly")
        elif any(not isinstance(size, int) for size in (*value.shape, *_strides(value))):
            raise CannotBeCut(f"operator {shown} has sizes that change; the graph runs plainly")


def values_of(node: Node) -> Iterator[Any]:
    """The results of a node, as it was traced."""
    value = node.meta.get("val")
    yield from value if isinstance(value, (tuple, list)) else (value,)


def tensors_of(nodes: Iterable[Node]) -> list[Tensor]:
    """Their results that are tensors."""
    return [value for node in nodes for value in values_of(node) if isinstance(value, Tensor)]


def flops(node: Node) -> float:
    """Floating-point operations, a multiply-add counted as two; 0 where no formula is known."""
    target = node.target
    formula = flop_registry.get(target.overloadpacket) if isinstance(target, torch._ops.OpOverload) else None
    if formula is None:
        return 0.0
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta.get("val"))
    return float(formula(*args, **kwargs, out_val=node.meta.get("val")))


def moved_bytes(node: Node) -> int:
    """Bytes that it reads and writes."""
    if is_free(node):
        return 0
    return sum(bytes_of(tensor) for tensor in tensors_of((*node.all_input_nodes, node)))


def bytes_of(tensor: Tensor) -> int:
    """Bytes of its elements."""
    return tensor.numel() * tensor.element_size()


def described(tensor: object) -> str:
    """Type, sizes and strides of a tensor as text; other values by their type."""
    if not isinstance(tensor, Tensor):
        return type(tensor).__name__
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}{[*tensor.shape]}{[*_strides(tensor)]}@{tensor.device.type}"


def _strides(tensor: Tensor) -> tuple[int, ...]:
    return tensor.stride() if tensor.layout is torch.strided else ()
