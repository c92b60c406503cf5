"""Groups: which operators of a graph make up one task.

    conv ─► bn ─► relu ─┬─► conv ─►          one task each: conv, bn       (large)
                        └─► pool ─► conv ─►  relu joins bn, pool its conv  (small)

A Python scheduler that hands over every operator costs more than it gains, so operators are joined. A join must not
delay any task by more than a small operator takes:

- an operator joins the task of one of its inputs if its other inputs are also inputs of that task, and it is small,
  or the only reader, the two not both large;
- a small task joins its only reader.

Sizes are estimates. They only decide where to cut.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils.flop_counter import flop_registry

from dwconv.errors import CannotBeCut, one_line

# -- operators, one by one ---------------------------------------------------------------------------------------------


_MOST_SHOWN = 80
_KNOWN = ("aten", "prims", "dwconv")
"""Namespaces whose operators only compute, unless their schema has an effect."""


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
    """True if it must run after those of its sort that come before it in the graph: it draws random numbers,
    communicates with other processes, changes something other than its result, or is a custom one of unknown
    effects."""
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
                raise CannotBeCut(
                    f"operator {shown} has a result whose size is known only at run time; the graph runs plainly"
                )
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
    return sum(tensor.nbytes for tensor in tensors_of((*node.all_input_nodes, node)))


def described(tensor: object) -> str:
    """Type, sizes and strides of a tensor as text; other values by their type."""
    if not isinstance(tensor, Tensor):
        return type(tensor).__name__
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}{[*tensor.shape]}{[*_strides(tensor)]}@{tensor.device.type}"


def _strides(tensor: Tensor) -> tuple[int, ...]:
    return tensor.stride() if tensor.layout is torch.strided else ()


# -- groups of operators -----------------------------------------------------------------------------------------------


LARGE_US = 50.0
"""From this estimate on, two operators that follow each other stay apart: each may have its own threads."""
SMALL_US = 20.0
"""What others may wait for in vain: about what a hand-over costs, and some calls of operators."""
_CALL_US = 1.5
_FLOPS_PER_US = 40e3
_BYTES_PER_US = 8e3


@dataclass(kw_only=True)
class Group:
    """Operators that run one after the other, and the groups that they wait for and that wait for them."""

    nodes: list[Node]
    us: float
    """Estimated time."""
    delay_us: float = 0.0
    """Of that, the time by which its readers wait for what they do not need."""
    needs: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)


def estimate_us(node: Node) -> float:
    """Roughly what the operator takes, on a core or a few."""
    return 0.0 if is_free(node) else work_us(flops=flops(node), bytes=moved_bytes(node))


def work_us(*, flops: float, bytes: int, threads: int = 1) -> float:
    """Roughly what so much work takes."""
    return _CALL_US + max(flops / _FLOPS_PER_US, bytes / _BYTES_PER_US) / threads


def bound_by_memory(*, flops: float, bytes: int) -> bool:
    """True if moving the bytes takes longer than the arithmetic."""
    return bytes / _BYTES_PER_US > flops / _FLOPS_PER_US


def groups(nodes: Sequence[Node]) -> list[list[Node]]:
    """``nodes``, in the order of the graph, as groups in an order in which they can run. Within a group the order is
    the graph's."""
    position = {node: place for place, node in enumerate(nodes)}
    found = _single(nodes, position)
    for place in range(len(nodes)):
        _join_an_input(found, place)
    for place in reversed(range(len(nodes))):
        _join_the_reader(found, place)
    return [sorted(group.nodes, key=position.__getitem__) for group in _in_order(found, position)]


def _single(nodes: Sequence[Node], position: dict[Node, int]) -> dict[int, Group]:
    """A group for each operator, by its place in the graph."""
    found: dict[int, Group] = {}
    last_in_order: int | None = None
    for place, node in enumerate(nodes):
        group = found[place] = Group(nodes=[node], us=estimate_us(node))
        group.needs = {position[each] for each in node.all_input_nodes if each in position}
        if keeps_order(node):
            group.needs |= set() if last_in_order is None else {last_in_order}
            last_in_order = place
        for needed in group.needs:
            found[needed].readers.add(place)
    return found


def _join_an_input(found: dict[int, Group], place: int) -> None:
    """Join the group to one that it needs, where that delays no other for long."""
    group = found[place]
    for needed in sorted(group.needs, key=lambda each: -found[each].us):
        other = found[needed]
        if not group.needs <= {needed} | other.needs:
            continue
        if other.readers == {place}:
            if group.us >= LARGE_US and other.us >= LARGE_US:
                continue
        else:
            if group.us + other.delay_us > SMALL_US:
                continue
            other.delay_us += group.us
        _merge(found, place, into=needed)
        return


def _join_the_reader(found: dict[int, Group], place: int) -> None:
    """Join a small group to its only reader."""
    group = found.get(place)
    if group is not None and group.us <= SMALL_US and len(group.readers) == 1:
        _merge(found, place, into=next(iter(group.readers)))


def _merge(found: dict[int, Group], place: int, *, into: int) -> None:
    gone, kept = found.pop(place), found[into]
    kept.nodes += gone.nodes
    kept.us += gone.us
    for needed in gone.needs:
        found_needed = kept if needed == into else found[needed]
        found_needed.readers.discard(place)
        if needed != into:
            found_needed.readers.add(into)
            kept.needs.add(needed)
    for reader in gone.readers:
        found_reader = kept if reader == into else found[reader]
        found_reader.needs.discard(place)
        if reader != into:
            found_reader.needs.add(into)
            kept.readers.add(reader)


def _in_order(found: dict[int, Group], position: dict[Node, int]) -> list[Group]:
    """An order in which the groups can run: as near to the graph's as it can be."""
    last = {place: max(position[node] for node in group.nodes) for place, group in found.items()}
    waiting = TopologicalSorter({place: group.needs for place, group in found.items()})
    waiting.prepare()
    ready: list[tuple[int, int]] = []
    ordered = []
    while waiting.is_active():
        for place in waiting.get_ready():
            heapq.heappush(ready, (last[place], place))
        _, place = heapq.heappop(ready)
        ordered.append(found[place])
        waiting.done(place)
    return ordered
