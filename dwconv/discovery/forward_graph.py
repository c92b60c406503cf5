"""The graph of a forward pass, for one signature of its call.

What is free in the signature is symbolic, all else has its value: Python decides by it as in the call. A decision by
something symbolic raises TraceError.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from torch import Tensor, nn
from torch.fx import Graph, Proxy, Tracer
from torch.fx.proxy import Attribute, TraceError

from dwconv.call.frozen_forward import is_written
from dwconv.call.signature import Free, Signature
from dwconv.discovery.python_decisions import Decided

_OF_HISTORY = ("grad", "grad_fn", "_base", "_grad", "_version", "_backward_hooks", "names", "is_leaf", "output_nr")
"""Attributes that depend on what computed a tensor, and may be None."""


_requires_grad: list[bool] = []
"""What the innermost ``answering`` says; nothing: such a decision raises TraceError."""


@contextmanager
def answering(*, requires_grad: bool) -> Iterator[None]:
    """Code that looks whether a tensor requires a gradient gets this answer, and its caller tries both."""
    _requires_grad.append(requires_grad)
    try:
        yield
    finally:
        _requires_grad.pop()


class _Value(Proxy):
    """Of a tensor, or of what a tensor gives."""

    def __getattr__(self, name: str) -> Any:
        if name == "requires_grad" and _requires_grad:
            return _requires_grad[-1]
        if name in _OF_HISTORY:
            _refuse(f"it reads {name} of a tensor")
        is_asked = "getattr" in sys._getframe(1).f_code.co_names and not name.startswith("__")
        if is_asked and not hasattr(Tensor, name):
            _refuse(f"it reads {name} of a tensor")
        return _Attribute(self, name)

    def __hash__(self) -> int:
        _refuse("it looks up what depends on a tensor")


class _Attribute(Attribute, _Value):
    __hash__ = _Value.__hash__


class _Number(_Value):
    """Of an argument that may be any number."""

    def __str__(self) -> str:
        _refuse("it makes text of a number")

    def __format__(self, text: str) -> str:
        _refuse("it makes text of a number")


def _refuse(why: str) -> NoReturn:
    raise TraceError(why)


class _Tracer(Tracer):
    """Traces into the given modules, and calls the others."""

    proxy_buffer_attributes = True

    def __init__(self, through: Collection[nn.Module], signature: Signature) -> None:
        super().__init__()
        self._through, self._signature = through, signature
        self.called: set[nn.Module] = set()
        self._held: list[tuple[Any, Any]] = []

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if m not in self._through:
            self.called.add(m)
        return m not in self._through

    def proxy(self, node: Any) -> Proxy:
        return _Value(node, self)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        def make(kind: Free) -> Proxy:
            number = sum(node.op == "placeholder" for node in self.graph.nodes)
            node = self.create_proxy("placeholder", f"given_{number}", (), {}).node
            return _Value(node, self) if kind is Free.TENSOR else _Number(node, self)

        args, kwargs = self._signature.built(make)
        self._held = [(each, _entries(each)) for each in _containers([args, kwargs])]
        return lambda: root_fn(self.root, *args, **kwargs), []

    def changes_arguments(self) -> bool:
        """Whether a list or dictionary that the call was given holds something else now."""
        for each, before in self._held:
            now = _entries(each)
            if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                return True
        return False


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple, dict)):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _containers(each)


def _entries(container: Any) -> list[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else [*container]


@contextmanager
def plain(modules: Iterator[nn.Module]) -> Iterator[None]:
    """Modules that are traced already have their own forward pass meanwhile."""
    kinds = [(module, type(module)) for module in modules if "traces" in vars(type(module))]
    for module, kind in kinds:
        module.__class__ = vars(kind)["plain_class"]
    try:
        yield
    finally:
        for module, kind in kinds:
            module.__class__ = kind


def graph_of(parent: nn.Module, through: Collection[nn.Module], signature: Signature) -> tuple[Graph, Signature]:
    """The graph, and the signature that it is for: any number for one of ``signature`` if no decision depends on it."""
    if is_written(parent):  # in a constructor, which other threads run beside: a tracer patches all modules
        graph = Graph()
        z = graph.placeholder("x")
        for name in type(parent).parts_of_block:  # type: ignore[attr-defined]
            z = z if getattr(parent, name) is None else graph.call_module(name, (z,))
        graph.output(z)
        return graph, signature
    with plain(parent.modules()):
        tracer, signature = _traced(parent, through, signature)
        return tracer.graph, signature


def _traced(parent: nn.Module, through: Collection[nn.Module], signature: Signature) -> tuple[_Tracer, Signature]:
    free = signature.free()
    if free != signature:
        tracer = _Tracer(through, free)
        try:
            tracer.trace(parent)
            return tracer, free
        except Exception:  # noqa: BLE001  whatever the model's own code raises
            pass
    tracer = _Tracer(through, signature)
    tracer.trace(parent)
    return tracer, signature


def decided_in(
    parent: nn.Module, through: set[nn.Module], signature: Signature, *, doubtful: Collection[nn.Module]
) -> tuple[str, set[str]]:
    """What a trace would freeze, empty if nothing; and the functions by which it checks for tools. ``doubtful``:
    modules that may give None."""
    if is_written(parent):
        return "", set()
    with plain(parent.modules()), Decided(through) as decided:
        tracer, _ = _traced(parent, through, signature)
    why_not = decided.why_not
    if not why_not and tracer.changes_arguments():
        why_not = "changes its arguments"
    if not why_not and decided.tests_for_none and not tracer.called.isdisjoint(doubtful):
        why_not = "tests for None what another module may give"
    return why_not, decided.tools
