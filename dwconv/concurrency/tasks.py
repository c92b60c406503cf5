"""Tasks: a traced graph of PyTorch's operators, cut into a TaskGraph, and the Python that runs each task.

def task(v):                      # v: the values of the graph that tasks hand each other
    x0 = v[3]; v[3] = None        # nothing else reads it
    x1 = f0(x0, v[7], c0)
    del x0                        # its memory is free from here on
    v[12] = f1(x1)
"""

from __future__ import annotations

import hashlib
import linecache
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Node

from dwconv.concurrency.instructions import Instructions, instructions
from dwconv.concurrency.operator_groups import (
    check,
    described,
    estimate_us,
    flops,
    groups,
    keeps_order,
    kind_of,
    moved_bytes,
    tensors_of,
)
from dwconv.concurrency.task_graph import Stored, Task, TaskGraph

TaskFunction = Callable[[list[Any]], None]
"""Reads values from the list and writes others to it."""


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Where the values are that tasks hand each other."""

    of: Mapping[Node, int]
    """By node, its place in the list."""
    taken: Collection[int]
    """Places whose value one task alone reads: it takes it out."""


@dataclass(kw_only=True)
class _Source:
    """Lines of a task while they are written, and the names that they use."""

    slots: Slots
    attributes: Mapping[Node, Any]
    lines: list[str] = field(default_factory=list)
    bound: dict[str, Any] = field(default_factory=dict)
    names: dict[Node, str] = field(default_factory=dict)
    reads: dict[Node, None] = field(default_factory=dict)

    def bind(self, letter: str, value: Any) -> str:
        """A global name for ``value``."""
        name = f"{letter}{len(self.bound)}"
        self.bound[name] = value
        return name

    def rendered(self, value: Any) -> str:
        """``value``, an argument of a node, as an expression."""
        if isinstance(value, Node):
            return self._name(value)
        if isinstance(value, (list, tuple)) and type(value).__name__ in ("list", "tuple", "immutable_list"):
            items = [self.rendered(each) for each in value]
            if isinstance(value, tuple):
                return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
            return f"[{', '.join(items)}]"
        if isinstance(value, slice):
            return f"slice({', '.join(self.rendered(each) for each in (value.start, value.stop, value.step))})"
        if isinstance(value, Mapping):
            pairs = ", ".join(f"{key!r}: {self.rendered(each)}" for key, each in value.items())
            return "{" + pairs + "}"
        is_literal = value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))
        return repr(value) if is_literal else self.bind("c", value)

    def _name(self, node: Node) -> str:
        if node in self.names:
            return self.names[node]
        name = self.names[node] = f"x{len(self.names)}"
        if node in self.attributes:
            self.names[node] = self.bind("a", self.attributes[node])
            return self.names[node]
        slot = self.slots.of[node]
        self.reads[node] = None
        self.lines.append(f"{name} = v[{slot}]")
        if slot in self.slots.taken:
            self.lines.append(f"v[{slot}] = None")
        return name

    def call(self, node: Node) -> None:
        """Add the lines that run ``node``."""
        args = [self.rendered(each) for each in node.args]
        if node.target is operator.getitem:
            called = f"{args[0]}[{args[1]}]"
        else:
            args += [f"{name}={self.rendered(each)}" for name, each in node.kwargs.items()]
            called = f"{self.bind('f', node.target)}({', '.join(args)})"
        name = self.names[node] = f"x{len(self.names)}"
        self.lines.append(f"{name} = {called}")
        if node in self.slots.of:
            self.lines.append(f"v[{self.slots.of[node]}] = {name}")


def compile_task(nodes: Sequence[Node], *, slots: Slots, attributes: Mapping[Node, Any], name: str) -> TaskFunction:
    """The function that runs ``nodes``, in this order. ``attributes``: the values of ``get_attr`` nodes."""
    source = _Source(slots=slots, attributes=attributes)
    last = {each: node for node in nodes for each in node.all_input_nodes}
    for node in nodes:
        source.call(node)
        done = [source.names[each] for each, reader in last.items() if reader is node and each not in attributes]
        if not node.users or node not in last:
            done.append(source.names[node])
        if done:
            source.lines.append(f"del {', '.join(dict.fromkeys(done))}")
    body = "\n    ".join(source.lines)
    text = f"def task(v):\n    {body}\n"
    file = f"<dwconv task {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # tracebacks show the line
    exec(compile(text, file, "exec"), source.bound)
    return source.bound["task"]


# -- a graph in tasks --------------------------------------------------------------------------------------------------


VERSION = 4
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
    outputs: tuple[Any, ...]
    """The graph's results: a ``ValuePlace`` each, or a constant."""
    held: tuple[Stored, ...]
    """What is in memory while the graph runs."""
    examples: Mapping[int, Any]
    """By place, the value as it was traced, without data."""
    instructions: Instructions | None = None
    """The tasks for compiled code; None if only ``functions`` can run them."""

    def values(self, inputs: Iterable[Any]) -> list[Any]:
        """The list to begin with."""
        values = [*inputs]
        return values + [None] * (self.size - len(values))

    def results(self, values: list[Any]) -> list[Any]:
        """The graph's results, once all tasks have run."""
        return [values[each.index] if isinstance(each, ValuePlace) else each for each in self.outputs]


@dataclass(frozen=True)
class ValuePlace:
    """A place in the list of values."""

    index: int


def cut(module: GraphModule) -> CutGraph:
    """Cut a graph that AOTAutograd traced. Raises CannotBeCut, naming the operator."""
    nodes = list(module.graph.nodes)
    for node in nodes:
        check(node)
    inputs = [node for node in nodes if node.op == "placeholder"]
    attributes = {node: operator.attrgetter(str(node.target))(module) for node in nodes if node.op == "get_attr"}
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
        outputs=tuple(_output(each, slots, attributes) for each in results),
        held=stored(inputs, grouped, owner, {each for each in results if isinstance(each, Node)}),
        examples={slot: node.meta.get("val") for node, slot in slots.of.items()},
        instructions=instructions(inputs, grouped, results, attributes),
    )


def whole(module: GraphModule) -> Instructions | None:
    """All operators of a graph as one task, in its order; None if only Python can run them."""
    nodes = list(module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    attributes = {node: operator.attrgetter(str(node.target))(module) for node in nodes if node.op == "get_attr"}
    called = [node for node in nodes if node.op == "call_function"]
    results = next(node for node in nodes if node.op == "output").args[0]
    return instructions(inputs, [called], results, attributes)


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
    return Task(
        index=index,
        name=main.name,
        kind=kind_of(main),
        signature=_signature(group),
        needs=tuple(sorted(needs)),
        flops=sum(flops(node) for node in group),
        bytes=sum(moved_bytes(node) for node in group),
    )


def _kept_order(called: Sequence[Node]) -> dict[Node, Node]:
    """By operator that keeps its order, the one that runs before it."""
    ordered = [node for node in called if keeps_order(node)]
    return dict(zip(ordered[1:], ordered, strict=False))


def _output(result: Any, slots: Slots, attributes: Mapping[Node, Any]) -> Any:
    if not isinstance(result, Node):
        return result
    return attributes[result] if result in attributes else ValuePlace(slots.of[result])


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


# -- what is held in memory --------------------------------------------------------------------------------------------


_HELD_BY_OTHERS = "primals"
"""AOTAutograd's name for what the user passes: parameters and inputs, which stay whatever the graph does."""


def stored(
    inputs: Sequence[Node], grouped: Sequence[Sequence[Node]], owner: Mapping[Node, int], returned: set[Node]
) -> tuple[Stored, ...]:
    """What the graph is given and hands on between its tasks. ``owner``: by operator, its task."""
    made: dict[int, int | None] = {}
    size: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    stays: set[int] = set()
    for node in [*inputs, *(node for group in grouped for node in group)]:
        if node not in owner and node.name.startswith(_HELD_BY_OTHERS):
            for tensor in tensors_of([node]):
                made[_storage(tensor)] = -1
            continue
        for tensor in tensors_of([node]):
            storage = _storage(tensor)
            made.setdefault(storage, owner.get(node))
            size[storage] = tensor.untyped_storage().nbytes()
            others = {owner[user] for user in node.users if user in owner} - {made[storage]}
            readers.setdefault(storage, set()).update(others)
            if node in returned:
                stays.add(storage)
    return tuple(
        Stored(bytes=size[each], made_by=by, read_by=tuple(sorted(readers[each])), returned=each in stays)
        for each, by in made.items()
        if by != -1 and (readers[each] or each in stays)
    )


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
