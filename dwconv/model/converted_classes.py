"""Classes that ``convert`` makes of a user's own, so that a module stays an instance of what it was.

Each is kept under the class it was made of: alike modules have one class. An instance can be copied, pickled and saved,
as far as one of the user's class can. ``plain_class`` is the class that it was made of.
"""

from __future__ import annotations

import abc
import copyreg
import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from dwconv.call.block_ops import note_decisions
from dwconv.call.frozen_forward import Trace
from dwconv.call.function_mode import active
from dwconv.call.guarded_forward import entered
from dwconv.discovery.same_padding import SamePadding
from dwconv.nn import AsPlain, Revertible

Class = type[nn.Module]

FORWARD = ("forward", "_conv_forward", "__call__", "_call_impl", "_wrapped_call_impl", "_slow_forward")
"""The methods of a layer that make up its forward pass."""


def overridden(plain: Class, pytorchs: Class) -> list[str]:
    """The methods of PyTorch's layer that ``plain`` computes its forward pass with instead."""
    return [name for name in FORWARD if getattr(plain, name, None) is not getattr(pytorchs, name, None)]


def depthwise_class(plain: Class, ours: Class) -> Class:
    """``plain``, which computes what PyTorch's layer computes, on the kernels of ``ours``; a lazy layer becomes such a
    one in its first call, if it is depthwise then."""
    return ours if plain is vars(ours)["plain_class"] else _made("depthwise", plain, ours)


def same_padding_class(plain: Class, ours: Class) -> Class:
    """``plain``, which pads as TensorFlow does, on the kernels of ``ours``."""
    return _made("same padding", plain, ours)


def functional_class(module: nn.Module, plain: Class) -> Class:
    """``plain``, the class that ``module`` has or is to have, with its functional calls on dwconv."""
    # The class does not have a forward pass that was set on the instance.
    return _made("called" if "forward" in vars(module) else "functional", plain, None)


Traces = tuple[Trace, ...]


def traced_class(plain: Class, traces: Traces) -> Class:
    """``plain``, with its blocks as one where ``traces`` stand for its forward pass."""
    note_decisions()
    return _made("traced", plain, traces)


def is_functional(kind: Class) -> bool:
    """True if a class is such a one."""
    return getattr(kind, "runs_functional_calls", False)


def reparametrized(module: nn.Module, target: Class) -> Class:
    """The class of a parametrised module (``torch.nn.utils.parametrize``) as it would be had ``target`` been
    parametrised: PyTorch looks for the properties in the class, and for the class before in its bases."""
    plain = type(module)
    members = {name: each for name, each in vars(plain).items() if name not in ("__dict__", "__weakref__")}
    return _new_class(f"Parametrized{target.__name__}", (target,), {**members, "plain_class": plain})


def class_before_parametrizations(module: nn.Module) -> Class:
    found: Class = type(module).__bases__[0] if is_parametrized(module) else type(module)
    return found


def _made(kind: str, plain: Class, ours: Class | Traces | None) -> Class:
    # By what they are, not by what they equal: classes live on in those that are made of them.
    of = kind, id(plain), ours if isinstance(ours, tuple) else id(ours)
    if of not in _classes:
        _classes[of] = _make(kind, plain, ours)
    return _classes[of]


_classes: dict[Any, Class] = {}


@functools.cache
def _as_plain(usual: Any) -> Any:
    return usual if issubclass(usual, AsPlain) else type("AsPlain", (AsPlain, usual), {})


def _make(kind: str, plain: Class, ours: Class | Traces | None) -> Class:
    bases: tuple[type, ...]
    members: dict[str, Any] = {"plain_class": plain, "__module__": plain.__module__, "__doc__": plain.__doc__}
    if ours is None:
        members["runs_functional_calls"] = True
        name, bases = plain.__name__, (plain,)  # libraries recognise a model by its name
    elif isinstance(ours, tuple):
        members["traces"] = ours
        name, bases = plain.__name__, (plain,) if issubclass(plain, Revertible) else (Revertible, plain)
    elif kind == "depthwise":
        name, bases = f"Depthwise{plain.__name__}", (plain, ours)
    else:
        name, bases = f"Depthwise{plain.__name__}", (SamePadding, plain, ours)
    made = _new_class(name, bases if issubclass(plain, _Unannounced) else (_Unannounced, *bases), members)
    if ours is None:
        method = "__call__" if kind == "called" else "forward"
        setattr(made, method, _under_active(getattr(plain, method)))
    elif isinstance(ours, tuple):
        made.forward = _with_traces(plain, ours)
    if issubclass(plain, LazyModuleMixin):
        setattr(made, "cls_to_become", _becomes(made, kind, ours))  # noqa: B010  which nn.Module does not declare
    if name == plain.__name__:
        made.__qualname__ = plain.__qualname__
    made.__reduce_ex__ = _reduce(made, (kind, plain, ours))  # type: ignore[method-assign, assignment]
    return made


def _becomes(made: Class, kind: str, ours: Class | Traces | None) -> property:
    """The class that a lazy module becomes in its first call."""

    def becomes(self: Any) -> Class | None:
        plain: Class | None = super(made, self).cls_to_become
        if plain is None or (kind == "depthwise" and self.groups != self.in_channels):
            return plain
        return depthwise_class(plain, ours) if kind == "depthwise" else _made(kind, plain, ours)  # type: ignore[arg-type]

    return property(becomes)


class _Unannounced:
    """What ``convert`` makes is none of the user's own classes, which may take arguments of each subclass, or keep a
    list of them."""

    def __init_subclass__(cls, **options: Any) -> None:
        if "plain_class" not in vars(cls):
            super().__init_subclass__(**options)


def _new_class(name: str, bases: tuple[type, ...], members: dict[str, Any]) -> Class:
    """A class that is made without the user's metaclass, if there is one."""
    own = (type(base) for base in bases if type(base) is not AsPlain)  # that of the user's class, or type
    metaclass: Any = max(own, key=lambda each: len(type.mro(each)), default=type)
    if any(issubclass(base, nn.modules.conv._ConvNd) for base in bases):
        metaclass = _as_plain(metaclass)  # tables of classes contain layers; a compiler finds others in their own bases
    new: Any = abc.ABCMeta if issubclass(metaclass, abc.ABCMeta) else type
    made: Class = new.__new__(metaclass, name, bases, members)
    return made


def _under_active(method: Callable[..., Any]) -> Callable[..., Any]:
    under = active  # no global: see ``_instead_of``

    def run(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with under():
            return method(self, *args, **kwargs)

    return _instead_of(method, run)


def _with_traces(plain: Class, traces: Traces) -> Callable[..., Any]:
    enter = entered  # no global: see ``_instead_of``

    def run(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        traced = enter(self, traces)
        inputs = None if traced is None else traced.trace.signature.inputs(args, kwargs)
        if inputs is None:
            return plain.forward(self, *args, **kwargs)
        return traced.forward(self, traced.blocks, *inputs)

    return _instead_of(plain.forward, run)


def _instead_of(method: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, which takes the arguments of ``method``, as libraries see them. torch.jit.script compiles the text of
    ``method`` in its place, with the globals of the function that it finds: they are those of ``method``."""
    if isinstance(run, FunctionType) and isinstance(method, FunctionType):
        run = FunctionType(run.__code__, method.__globals__, closure=run.__closure__)
    return functools.wraps(method)(run)


def _reduce(made: Class, of: tuple[str, Class, Class | Traces | None]) -> Callable[[Any, int], Any]:
    """The class cannot be found by its name: it is made again."""

    def reduce(self: Any, protocol: int) -> Any:
        reduced = super(made, self).__reduce_ex__(max(protocol, 2))
        if isinstance(reduced, tuple) and reduced[:2] == (copyreg.__newobj__, (made,)):  # type: ignore[attr-defined]
            return (_instance, of, *reduced[2:])
        return reduced

    return reduce


def _instance(kind: str, plain: Class, ours: Class | Traces | None) -> nn.Module:
    made = _made(kind, plain, ours)
    return made.__new__(made)
