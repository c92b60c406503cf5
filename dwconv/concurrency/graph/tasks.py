"""Tasks: a traced graph of PyTorch's operators, cut into a TaskGraph and the functions that run its tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Node

from dwconv.concurrency.graph.cutting import estimate_us, groups
from dwconv.concurrency.graph.operators import check, described, flops, keeps_order, kind_of, moved_bytes, tensors_of
from dwconv.concurrency.graph.stored import Stored, stored
from dwconv.concurrency.graph.task_code import Slots, TaskFunction, compile_task
from dwconv.concurrency.graph.task_graph import Task, TaskGraph

VERSION = 2
"""Raised when graphs are cut in another way, or plain execution is another: choices that were kept fit no more."""


@dataclass(frozen=True, kw_only=True)
class CutGraph:
    """A graph in tasks. Values that tasks hand each other have places in a list, the graph's inputs the first ones."""

    graph: TaskGraph
    functions: tuple[TaskFunction, ...]
    """By task."""
    nodes: tuple[tuple[Node, ...], ...]
    """By task, its operators."""
    reads: tuple[tuple[int, ...], ...]
    """By task, the places that it reads."""
    size: int
    """Places in all."""
    inputs: int
    outputs: tuple[Any, ...]
    """The graph's results: a ``Place`` each, or a constant."""
    held: tuple[Stored, ...]
    """What is in memory while the graph runs."""
    examples: Mapping[int, Any]
    """By place, the value as it was traced, without data."""

    def values(self, inputs: Iterable[Any]) -> list[Any]:
        """The list to begin with."""
        values = [*inputs]
        return values + [None] * (self.size - len(values))

    def results(self, values: list[Any]) -> list[Any]:
        """The graph's results, once all tasks have run."""
        return [values[each.index] if isinstance(each, Place) else each for each in self.outputs]


@dataclass(frozen=True)
class Place:
    """A place in the list of values."""

    index: int


def cut(module: GraphModule) -> CutGraph:
    """Cut a graph that AOTAutograd traced. Raises CannotBeCut, naming the operator."""
    nodes = list(module.graph.nodes)
    for node in nodes:
        check(node)
    inputs = [node for node in nodes if node.op == "placeholder"]
    attributes = {node: _attribute(module, str(node.target)) for node in nodes if node.op == "get_attr"}
    called = [node for node in nodes if node.op == "call_function"]
    results = tuple(next(node for node in nodes if node.op == "output").args[0])
    grouped = groups(called)
    owner = {node: index for index, group in enumerate(grouped) for node in group}
    slots = _slots(inputs, called, owner, results)
    reads = [_read(group, slots) for group in grouped]
    before = _kept_order(called)
    tasks = tuple(_task(index, group, owner, before) for index, group in enumerate(grouped))
    names = [f"{module.__class__.__name__}.{task.name}" for task in tasks]
    return CutGraph(
        graph=TaskGraph(tasks=tasks),
        functions=tuple(
            compile_task(group, slots=slots, attributes=attributes, name=name)
            for group, name in zip(grouped, names, strict=True)
        ),
        nodes=tuple(tuple(group) for group in grouped),
        reads=tuple(reads),
        size=len(slots.of),
        inputs=len(inputs),
        outputs=tuple(_output(each, slots, attributes) for each in results),
        held=stored(inputs, grouped, owner, {each for each in results if isinstance(each, Node)}),
        examples={slot: node.meta.get("val") for node, slot in slots.of.items()},
    )


def _attribute(module: GraphModule, target: str) -> Any:
    found: Any = module
    for name in target.split("."):
        found = getattr(found, name)
    return found


def _slots(
    inputs: Sequence[Node], called: Sequence[Node], owner: Mapping[Node, int], results: tuple[Any, ...]
) -> Slots:
    """A place for every input, and for every result that another task reads or the graph returns."""
    returned = {each for each in results if isinstance(each, Node)}
    handed = [node for node in called if node in returned or any(owner.get(user) != owner[node] for user in node.users)]
    of = {node: place for place, node in enumerate([*inputs, *handed])}
    readers = {node: {owner[user] for user in node.users if user in owner} - {owner.get(node, -1)} for node in of}
    taken = {place for node, place in of.items() if len(readers[node]) == 1 and node not in returned}
    return Slots(of=of, taken=taken)


def _read(group: Sequence[Node], slots: Slots) -> tuple[int, ...]:
    inside = set(group)
    read = {each: None for node in group for each in node.all_input_nodes if each not in inside and each in slots.of}
    return tuple(slots.of[node] for node in read)


def _task(index: int, group: Sequence[Node], owner: Mapping[Node, int], before: Mapping[Node, Node]) -> Task:
    main = max(group, key=estimate_us)
    needs = {owner[each] for node in group for each in node.all_input_nodes if each in owner} - {index}
    needs |= {owner[before[node]] for node in group if node in before} - {index}
    handed = [node for node in group if any(owner.get(user) not in (index, None) for user in node.users)]
    return Task(
        index=index,
        name=main.name,
        kind=kind_of(main),
        signature=_signature(group),
        needs=tuple(sorted(needs)),
        flops=sum(flops(node) for node in group),
        bytes=sum(moved_bytes(node) for node in group),
        result_bytes=_stored_bytes(handed, group),
    )


def _kept_order(called: Sequence[Node]) -> dict[Node, Node]:
    """By operator that keeps its order, the one that runs before it."""
    ordered = [node for node in called if keeps_order(node)]
    return dict(zip(ordered[1:], ordered, strict=False))


def _stored_bytes(handed: Sequence[Node], group: Sequence[Node]) -> int:
    """Bytes of what the group hands on and has made itself; views of one tensor count once."""
    inside = set(group)
    given = {_storage(tensor) for node in group for each in node.all_input_nodes if each not in inside
             for tensor in tensors_of([each])}  # fmt: skip
    stored = {_storage(tensor): tensor for tensor in tensors_of(handed)}
    return sum(tensor.untyped_storage().nbytes() for storage, tensor in stored.items() if storage not in given)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _output(result: Any, slots: Slots, attributes: Mapping[Node, Any]) -> Any:
    if not isinstance(result, Node):
        return result
    return attributes[result] if result in attributes else Place(slots.of[result])


# -- the same operators on the same sizes ------------------------------------------------------------------------------


def _signature(group: Sequence[Node]) -> str:
    names: dict[Node, str] = {}
    lines = []
    for node in group:
        for each in node.all_input_nodes:
            if each not in names:
                names[each] = f"%{len(names)}:{_traced(each)}"
        lines.append(_line(node, names))
        names[node] = f"%{len(names)}"
    return "; ".join(lines)


def digest_of(module: GraphModule) -> str:
    """Names a graph: equal for equal operators, sizes and types, in every process."""
    nodes = list(module.graph.nodes)
    names = {node: f"%{place}" for place, node in enumerate(nodes)}
    lines = [f"{node.op} {_line(node, names)} {_traced(node)}" for node in nodes]
    return hashlib.sha256("\n".join([str(VERSION), *lines]).encode()).hexdigest()


def _line(node: Node, names: Mapping[Node, str]) -> str:
    target = "" if node.op in ("placeholder", "output") else str(node.target)
    return f"{target}({_named(node.args, names)}, {_named(node.kwargs, names)})"


def _named(value: Any, names: Mapping[Node, str]) -> str:
    """``value`` as text, equal in every process."""
    if isinstance(value, Node):
        return names[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_named(each, names) for each in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={_named(each, names)}" for key, each in sorted(value.items())) + "}"
    return str(value)


def _traced(node: Node) -> str:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return ",".join(described(each) for each in values)
