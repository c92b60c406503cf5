"""The Python of a task: its operators called one after the other, without a scheduler in between.

def task(v):                      # v: the values of the graph that tasks hand each other
    x0 = v[3]; v[3] = None        # nothing else reads it
    x1 = f0(x0, v[7], c0)
    del x0                        # its memory is free from here on
    v[12] = f1(x1)
"""

from __future__ import annotations

import linecache
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

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
    function: TaskFunction = source.bound["task"]
    return function
