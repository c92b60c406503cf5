"""Guards: whether a module is as it was when its forward pass was traced. It is compared in three ways:

    holds_by_values             before identities are pinned, after a change, and under a compiler, which looks into it
    Pinned.holds ─► native.holds            every other call: identities, in C++
                 └► _holds_in_python        until C++ is compiled, and where there is none

To compare values takes 25 times as long as identities for a block of MobileNetV2. Identities alone would not do: what
is equal may be another object, as in a copy of a model. So where one differs, the values are compared again.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import nn

from dwconv import native
from dwconv.call.frozen_forward import (
    HOOKS,
    Trace,
    WatchedModule,
    at,
    children_of,
    constants_of,
    forwards,
    frozen,
    is_over_ranks,
    names_in,
    plain_class,
)

GLOBAL_HOOKS = [vars(torch.nn.modules.module)[f"_global{name}"] for name in HOOKS]
"""Of all modules."""


def holds_by_values(parent: nn.Module, trace: Trace) -> bool:
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
        if module.training != watched.training or is_over_ranks(module) is not watched.over_ranks:
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
        for where, tensor, is_none in watched.tensors:
            if (vars(module)[where].get(tensor) is None) is not is_none:
                return False
        if forwards.get(watched.plain, watched.plain.forward) is not watched.plain.forward:
            return False
        if not torch.compiler.is_compiling() and (
            constants_of(module) != watched.attributes or names_in(module) != watched.names
        ):  # a forward pass of the instance is a name, too
            return False
        if torch.compiler.is_compiling() and _replaces_what_its_class_has(module, watched):
            return False
        for name, value in watched.attributes:  # a compiler cannot look into ``constants_of``
            if torch.compiler.is_compiling() and frozen(getattr(module, name)) != value:
                return False
    return True


_CAN_LIST = torch.__version__ >= "2.13"
"""Whether a compiler can list what a module has of its own: that of PyTorch 2.11 cannot."""


def _replaces_what_its_class_has(module: nn.Module, watched: WatchedModule) -> bool:
    if _CAN_LIST:
        return any(name not in watched.names and hasattr(watched.plain, name) for name in module.__dict__)
    return not all(_is_of_class(module, name) for name in watched.methods) or any(
        frozen(getattr(module, name)) != value for name, value in watched.constants
    )


def _is_of_class(module: nn.Module, name: str) -> bool:
    method = getattr(module, name)
    return (
        isinstance(method, MethodType) and method.__self__ is module and method.__func__ is getattr(type(module), name)
    )


# -- identities --------------------------------------------------------------------------------------------------------


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
    tensors: Sequence[tuple[str, str, bool]] = ()

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
            and all((own[where].get(name) is None) is is_none for where, name, is_none in self.tensors)
            and (self.outer < 0 or not any(own[hooks] for hooks in HOOKS))
        )


class Pinned:
    """What is compared in every call: identities, as they were when the values were compared last."""

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
            items: list[tuple[str, Any]] = [("training", watched[path].training)]
            for attribute, value in watched[path].attributes:
                if type(own[attribute]) is list:
                    self._lists.append((of[0], attribute, value))
                else:
                    items.append((attribute, own[attribute]))
            absent = [(each, None) for each, child in children.items() if child is None]
            self._pins.append(_Pin(*of, items, len(own), len(children), absent, watched[path].tensors))
            kind = type(module) if path else watched[path].plain
            if (kind, kind.forward) not in self._forwards:
                self._forwards.append((kind, kind.forward))
        self._in_cpp = self._made_in_cpp()

    def _made_in_cpp(self) -> Any:
        cpp = native.module
        return cpp and cpp.Guard([cpp.GuardModule(*pin) for pin in self._pins], self._forwards, GLOBAL_HOOKS)

    def holds(self) -> bool:
        if self._in_cpp is None:
            self._in_cpp = self._made_in_cpp()
        return (self._holds_in_python() if self._in_cpp is None else native.holds(self._in_cpp)) and all(
            frozen(vars(refers()).get(name)) == value for refers, name, value in self._lists
        )

    def _holds_in_python(self) -> bool:
        inner: list[dict[str, Any]] = []
        for pin in self._pins:
            module = pin.refers()
            if not pin.holds(module, inner[pin.outer] if inner else {}):
                return False
            inner.append(vars(module)["_modules"])
        return not any(GLOBAL_HOOKS) and all(kind.forward is forward for kind, forward in self._forwards)
