"""Guard: whether a module still is as it was traced.

What a trace has taken for constant is pinned: modules, their classes, mode, hooks and plain attributes. C++ looks at
the same, ``native/traced.h``, from when it is there.
"""

from __future__ import annotations

from typing import Any

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


class Pinned:
    """What is looked at in every call: identities, as they were when all was compared last. It holds dictionaries and
    classes, no module."""

    def __init__(self, parent: nn.Module, trace: Trace) -> None:
        self.modules: list[tuple[dict[str, Any], str, dict[str, Any], type]] = []
        self.items: list[tuple[dict[str, Any], str, Any]] = []
        self.lists: list[tuple[dict[str, Any], str, Any]] = []
        self.lengths: list[tuple[Any, int]] = [(hooks, 0) for hooks in GLOBAL_HOOKS]
        self.forwards: list[tuple[Any, Any]] = []
        for watched in trace.modules:
            outer, _, name = watched.path.rpartition(".")
            module = at(parent, watched.path)
            own = vars(module)
            if watched.path:
                self.modules.append((at(parent, outer)._modules, name, own, type(module)))
                self.lengths += [(own[hooks], 0) for hooks in HOOKS]
                self.items += [(own, hooks, own[hooks]) for hooks in HOOKS]
            kind = type(module) if watched.path else watched.plain
            if (kind, kind.forward) not in self.forwards:
                self.forwards.append((kind, kind.forward))
            self.items.append((own, "training", trace.training))
            children = own["_modules"]
            self.lengths.append((children, len(children)))
            self.items += [(children, name, None) for name, child in children.items() if child is None]
            for name, value in watched.attributes:
                if type(own[name]) is list:
                    self.lists.append((own, name, value))
                else:
                    self.items.append((own, name, own[name]))
            self.lengths.append((own, len(own)))
        self._native = self._in_cpp()

    def _in_cpp(self) -> Any:
        compiled = native.module
        if compiled is None:
            return None
        return compiled.Guard(
            [compiled.GuardModule(*each) for each in self.modules],
            [compiled.GuardItem(*each) for each in self.items],
            [compiled.GuardLength(*each) for each in self.lengths],
            [compiled.GuardForward(*each) for each in self.forwards],
        )

    def holds(self) -> bool:
        if self._native is not None:
            return native.holds(self._native) and not (self.lists and not self._lists_hold())
        if native.module is not None:
            self._native = self._in_cpp()
        return (
            all(own.get(name) is value for own, name, value in self.items)
            and all(len(several) == length for several, length in self.lengths)
            and all(_is(several.get(name), own, kind) for several, name, own, kind in self.modules)
            and all(kind.forward is forward for kind, forward in self.forwards)
            and self._lists_hold()
        )

    def _lists_hold(self) -> bool:
        return all(frozen(own.get(name)) == value for own, name, value in self.lists)


GLOBAL_HOOKS = [vars(torch.nn.modules.module)[f"_global{name}"] for name in HOOKS]
"""Of all modules."""


def _is(module: Any, own: dict[str, Any], kind: type) -> bool:
    return type(module) is kind and vars(module) is own


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
