"""Instructions: a graph in tasks as plain calls of PyTorch's dispatcher, which compiled code runs without Python.

    x, w ─► slots 0, 1 ─► aten::mm(slot 0, slot 1) ─► slot 2 ─► aten::relu(slot 2) ─► slot 3 ─► results

Each value has a slot. Its last reader takes it out; of several tasks that read it, the last one to end frees it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from dwconv.errors import one_line

_CONSTANT, _VALUE, _VALUES, _DEFAULT = range(4)
"""What an argument is, as the compiled code has it."""
_MOST_SHOWN = 80


class _CannotBeSaid(Exception):
    """The graph has something for which there is no instruction: Python runs it."""


@dataclass(kw_only=True)
class _Call:
    """An operator with its arguments, while the last readers are not known yet."""

    node: Node
    arguments: list[tuple[int, Any]]
    """Of values, their slots."""
    gives: list[int]
    is_unpacked: bool

    @property
    def reads(self) -> list[int]:
        slots: list[int] = []
        for kind, what in self.arguments:
            if kind == _VALUE:
                slots.append(what)
            elif kind == _VALUES:
                slots += [slot for slot in what if slot is not None]
        return slots


@dataclass(kw_only=True)
class Instructions:
    """All tasks of a graph, ready for the compiled module."""

    tasks: list[list[tuple[Any, ...]]]
    slots: int
    readers: list[int]
    """By slot, how many tasks read it, if several do and the graph does not return it; else 0."""
    constants: list[Any]
    """Tensors of the graph itself: their slots come after those of the inputs."""
    inputs: int
    results: list[int | None]
    """By result, its slot; None: it is the constant at its place in ``outputs``."""
    outputs: list[Any]
    _programs: dict[int, Any] = field(default_factory=dict)

    def program(self, module: Any) -> Any | None:
        """The program of the compiled module, made once; None if it has an argument that cannot be converted."""
        if id(module) not in self._programs:
            slots = [slot for slot in self.results if slot is not None]
            try:
                made = module.Program(self.inputs, self.slots, self.tasks, self.readers, slots, self.constants)
            except (RuntimeError, TypeError, ValueError):
                made = None
            self._programs[id(module)] = made
        return self._programs[id(module)]

    def returned(self, found: list[Any]) -> list[Any]:
        """The results of the graph, of those that the program gives."""
        if len(found) == len(self.results):
            return found
        values = iter(found)
        return [given if slot is None else next(values) for slot, given in zip(self.results, self.outputs, strict=True)]


def instructions(
    inputs: Sequence[Node], grouped: Iterable[Sequence[Node]], results: Sequence[Any], attributes: Mapping[Node, Any]
) -> Instructions | None:
    """The tasks ``grouped`` as instructions; None if Python has to run them. ``attributes``: by node, tensors of the
    graph itself."""
    try:
        return _Writer(inputs, attributes).written(grouped, results)
    except _CannotBeSaid:
        return None


class _Writer:
    def __init__(self, inputs: Sequence[Node], attributes: Mapping[Node, Any]) -> None:
        self._inputs, self._constants = len(inputs), [*attributes.values()]
        self._slot_of = {node: slot for slot, node in enumerate([*inputs, *attributes])}
        self._slots = len(self._slot_of)

    def written(self, grouped: Iterable[Sequence[Node]], results: Sequence[Any]) -> Instructions:
        calls = [[self._call(node) for node in group if node.target is not operator.getitem] for group in grouped]
        returned = [self._slot(each) if isinstance(each, Node) else None for each in results]
        kept = {slot for slot in returned if slot is not None}
        reading: dict[int, int] = {}
        for task in calls:
            for slot in {slot for call in task for slot in call.reads}:
                reading[slot] = reading.get(slot, 0) + 1
        readers = [reading.get(slot, 0) if slot not in kept else 0 for slot in range(self._slots)]
        return Instructions(
            tasks=[_task(task, readers, kept) for task in calls], slots=self._slots,
            readers=[count if count > 1 else 0 for count in readers], constants=self._constants, inputs=self._inputs,
            results=returned, outputs=[*results],
        )  # fmt: skip

    def _slot(self, node: Node) -> int:
        if node not in self._slot_of:
            raise _CannotBeSaid(one_line(str(node), most=_MOST_SHOWN))
        return self._slot_of[node]

    def _new_slot(self) -> int:
        self._slots += 1
        return self._slots - 1

    def _call(self, node: Node) -> _Call:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            raise _CannotBeSaid(str(target))
        schema = target._schema
        given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
        arguments = [
            self._argument(given[argument.name]) if argument.name in given else (_DEFAULT, None)
            for argument in schema.arguments
        ]
        gives, is_unpacked = self._gives(node, schema.returns)
        return _Call(node=node, arguments=arguments, gives=gives, is_unpacked=is_unpacked)

    def _argument(self, value: Any) -> tuple[int, Any]:
        if isinstance(value, Node):
            return _VALUE, self._slot(value)
        if isinstance(value, (list, tuple)) and any(isinstance(each, Node) for each in value):
            if not all(each is None or isinstance(each, Node) for each in value):
                raise _CannotBeSaid(one_line(repr(value), most=_MOST_SHOWN))
            return _VALUES, [None if each is None else self._slot(each) for each in value]
        return _CONSTANT, _plain(value)

    def _gives(self, node: Node, returns: Sequence[Any]) -> tuple[list[int], bool]:
        """By result of the operator, its slot, -1 if it is not read; and whether these are the tensors of a list."""
        is_list = len(returns) == 1 and isinstance(returns[0].type, torch.ListType)
        if len(returns) == 1 and not is_list:
            slot = self._new_slot()
            self._slot_of[node] = slot
            return [slot], False
        count = len(node.meta["val"]) if is_list else len(returns)
        gives = [-1] * count
        for user in node.users:
            if user.target is not operator.getitem or not isinstance(user.args[1], int):
                raise _CannotBeSaid(one_line(str(user), most=_MOST_SHOWN))
            place = user.args[1]
            if gives[place] < 0:
                gives[place] = self._new_slot()
            self._slot_of[user] = gives[place]
        return gives, is_list


def _plain(value: Any) -> Any:
    """A constant without the classes of torch.fx."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def _task(calls: Sequence[_Call], readers: Sequence[int], kept: set[int]) -> list[tuple[Any, ...]]:
    """The instructions of a task: each reads what it is given, and takes what nothing reads later."""
    last = {slot: place for place, call in enumerate(calls) for slot in call.reads}
    made = []
    for place, call in enumerate(calls):
        ending = [slot for slot in dict.fromkeys(call.reads) if last[slot] == place and slot not in kept]
        left = {slot: call.reads.count(slot) for slot in ending if readers[slot] == 1}

        def source(slot: int | None, left: dict[int, int] = left) -> tuple[int, bool] | None:
            if slot is None:
                return None
            left[slot] = left.get(slot, 0) - 1
            return slot, left[slot] == 0

        arguments = [
            (kind, source(what) if kind == _VALUE else [source(slot) for slot in what] if kind == _VALUES else what)
            for kind, what in call.arguments
        ]
        gives = [slot if slot in kept or slot < 0 or readers[slot] else -1 for slot in call.gives]
        target: Any = call.node.target
        schema = target._schema
        made.append((
            schema.name, schema.overload_name, arguments, gives, call.is_unpacked, target.namespace == "aten",
            [slot for slot in ending if readers[slot] > 1],
        ))  # fmt: skip
    return made
