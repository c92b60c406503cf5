"""Guard: whether a module still is as it was traced.

What a trace has taken for constant is pinned: modules, their classes, mode, hooks and plain attributes. C++ looks at
the same, ``native/traced.h``, from when it is there.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from dwconv import native
from dwconv.call.traces import (
    HOOKS,
    Trace,
    at,
    children_of,
    constants_of,
    forwards,
    frozen,
    names_in,
    plain_class,
)


class _Pin(NamedTuple):
    """One module. What refers to it is weak: a model that is not used any more goes."""

    refers: weakref.ref[nn.Module]
    outer: int
    """The module that has it, by its place among these; -1 of the parent of a trace."""
    name: str
    kind: type | None
    """None: any."""
    items: Sequence[tuple[str, Any]] = ()
    """Attributes that are these very objects."""
    attributes: int = -1
    children: int = -1
    """How many it has; -1: any."""
    absent: Sequence[tuple[str, None]] = ()
    """Children that are None."""

    def holds(self, module: nn.Module | None, outer: dict[str, Any]) -> bool:
        if module is None or (self.outer >= 0 and outer.get(self.name) is not module):
            return False
        if self.kind is not None and type(module) is not self.kind:
            return False
        own, children = vars(module), module._modules
        if self.attributes < 0:
            return True
        return (
            (len(own), len(children)) == (self.attributes, self.children)
            and all(own.get(name) is value for name, value in self.items)
            and all(children.get(name, self) is None for name, _ in self.absent)
            and (self.outer < 0 or not any(own[hooks] for hooks in HOOKS))
        )


class Pinned:
    """What is looked at in every call: identities, as they were when all was compared last."""

    def __init__(self, parent: nn.Module, trace: Trace) -> None:
        watched = {each.path: each for each in trace.modules}
        paths = sorted({".".join(path.split(".")[:depth]) for path in watched for depth in range(path.count(".") + 2)})
        self._lists: list[tuple[weakref.ref[nn.Module], str, Any]] = []
        self._pins: list[_Pin] = []
        self._forwards: list[tuple[Any, Any]] = []
        for path in paths:
            outer, _, name = path.rpartition(".")
            module = at(parent, path)
            of = weakref.ref(module), paths.index(outer) if path else -1, name, type(module) if path else None
            if path not in watched:
                self._pins.append(_Pin(*of))
                continue
            own, children = vars(module), module._modules
            items: list[tuple[str, Any]] = [("training", trace.training)]
            for attribute, value in watched[path].attributes:
                if type(own[attribute]) is list:
                    self._lists.append((of[0], attribute, value))
                else:
                    items.append((attribute, own[attribute]))
            absent = [(each, None) for each, child in children.items() if child is None]
            self._pins.append(_Pin(*of, items, len(own), len(children), absent))
            kind = type(module) if path else watched[path].plain
            if (kind, kind.forward) not in self._forwards:
                self._forwards.append((kind, kind.forward))
        self._native = self._in_cpp()

    def _in_cpp(self) -> Any:
        cpp = native.module
        if cpp is None:
            return None

        def items(of: Sequence[tuple[Any, Any]]) -> list[Any]:
            return [cpp.GuardItem(*each) for each in of]

        modules = [
            cpp.GuardModule(*pin[:4], items(pin.items), pin.attributes, pin.children, items(pin.absent))
            for pin in self._pins
        ]
        return cpp.Guard(modules, items(self._forwards), GLOBAL_HOOKS)

    def holds(self) -> bool:
        if self._native is None:
            self._native = self._in_cpp()
        return (native.holds(self._native) if self._native is not None else self._holds()) and all(
            frozen(vars(refers()).get(name)) == value for refers, name, value in self._lists
        )

    def _holds(self) -> bool:
        inner: list[dict[str, Any]] = []
        for pin in self._pins:
            module = pin.refers()
            if not pin.holds(module, inner[pin.outer] if inner else {}):
                return False
            inner.append(vars(module)["_modules"])
        return not any(GLOBAL_HOOKS) and all(kind.forward is forward for kind, forward in self._forwards)


GLOBAL_HOOKS = [vars(torch.nn.modules.module)[f"_global{name}"] for name in HOOKS]
"""Of all modules."""


def still_holds(parent: nn.Module, trace: Trace) -> bool:
    """Whether a module is as it was traced, by its values. Compilers look into this."""
    if parent.training != trace.training:
        return False
    for watched in trace.modules:
        try:
            module = at(parent, watched.path)
        except AttributeError:
            return False
        if plain_class(type(module)) is not watched.plain and watched.path:
            return False
        if module.training != trace.training or "forward" in module.__dict__:
            return False
        if watched.path and (
            len(module._forward_hooks)
            or len(module._forward_pre_hooks)
            or len(module._backward_hooks)
            or len(module._backward_pre_hooks)
        ):
            return False
        if children_of(module) != watched.children:
            return False
        if forwards.get(watched.plain, watched.plain.forward) is not watched.plain.forward:
            return False
        if not torch.compiler.is_compiling() and (
            constants_of(module) != watched.attributes or names_in(module) != watched.names
        ):
            return False
        if torch.compiler.is_compiling() and any(
            name not in watched.names and hasattr(watched.plain, name) for name in module.__dict__
        ):  # instead of a method of its class
            return False
        for name, value in watched.attributes:  # a compiler cannot look into ``constants_of``
            if torch.compiler.is_compiling() and frozen(getattr(module, name)) != value:
                return False
    return True
