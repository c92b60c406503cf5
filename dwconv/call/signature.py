"""Signature: the arguments that a trace was made for, as plain data.

    parent(x, None, mode="fast") ─► any tensor; None and "fast", these alone ─► the trace, called with the tensor
    parent(x, mask)              ─► another signature                        ─► the forward pass of the module

Python decides by an argument that is no tensor: a trace stands for these very values. A number that only enters
operations may be any of its type.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


class Free(enum.Enum):
    """What may be any of its kind: an input of a trace."""

    TENSOR = Tensor
    INT = int
    FLOAT = float


@dataclass(frozen=True)
class Constant:
    value: Any


@dataclass(frozen=True)
class Container:
    kind: type
    keys: tuple[Any, ...]
    """Of a dictionary."""
    items: tuple[Pattern, ...]


Pattern = Free | Constant | Container
_CONSTANTS = (
    bool, int, float, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout, torch.Size,
)  # fmt: skip
_NONE = inspect.Parameter.empty


class NoSignature(ValueError):
    """An argument that a trace can neither take nor stand for."""


@dataclass(frozen=True)
class GivenArgument:
    name: str
    """Empty if it is positional only."""
    pattern: Pattern
    default: Any = _NONE

    def free(self) -> GivenArgument:
        """Any number instead of one that is not the default."""
        return (
            self if self.pattern == Constant(self.default) else dataclasses.replace(self, pattern=_free(self.pattern))
        )


@dataclass(frozen=True, kw_only=True)
class Signature:
    positional: tuple[GivenArgument, ...]
    keywords: tuple[GivenArgument, ...] = ()
    more: tuple[str, ...] = ()
    """The keywords that the forward pass takes as a dictionary, in order."""
    is_one_tensor: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        is_one = not self.keywords and [each.pattern for each in self.positional] == [Free.TENSOR]
        object.__setattr__(self, "is_one_tensor", is_one)

    @classmethod
    def of(cls, forward: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: Any = None) -> Signature:
        """Of a call of a method; without ``args``, every argument without a default is a tensor. Raises NoSignature."""
        try:
            signature = inspect.signature(forward)
            (_, *parameters) = signature.parameters.values()
            given = {} if args is None else signature.bind(None, *args, **(kwargs or {})).arguments
        except (TypeError, ValueError) as error:
            raise NoSignature(f"its arguments are not known: {error}") from None
        positional: list[GivenArgument] = []
        keywords: list[GivenArgument] = []
        more = dict(given.get(_more(parameters), {}))
        for each in parameters:
            if each.kind is each.VAR_POSITIONAL:
                positional += [GivenArgument("", pattern_of(value, each.name)) for value in given.get(each.name, ())]
            elif each.kind is not each.VAR_KEYWORD:
                name = "" if each.kind is each.POSITIONAL_ONLY else each.name
                of_kind = keywords if each.kind is each.KEYWORD_ONLY else positional
                of_kind.append(_argument(each, name, given.get(each.name, _NONE), is_called=args is not None))
        keywords += [GivenArgument(name, pattern_of(value, name)) for name, value in more.items()]
        return cls(positional=tuple(positional), keywords=tuple(keywords), more=tuple(more))

    def free(self) -> Signature:
        """This signature with any number in the place of a number that is not the default."""
        positional, keywords = (tuple(each.free() for each in of) for of in (self.positional, self.keywords))
        return dataclasses.replace(self, positional=positional, keywords=keywords)

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any] | None:
        """What a trace takes of a call; None for a call of another signature. Compilers look into this."""
        if self.is_one_tensor and len(args) == 1 and not kwargs:  # the usual one, at once
            return args if isinstance(args[0], Tensor) else None
        if len(args) > len(self.positional):
            return None
        found: list[Any] = []
        named = 0
        for index, argument in enumerate(self.positional):
            value = argument.default
            if index < len(args):
                value = args[index]
            elif argument.name in kwargs:
                value = kwargs[argument.name]
                named += 1
            if not _fits(argument.pattern, value, found):
                return None
        for argument in self.keywords:
            named += argument.name in kwargs
            if not _fits(argument.pattern, kwargs.get(argument.name, argument.default), found):
                return None
        if named != len(kwargs):
            return None
        if self.more and tuple([name for name in kwargs if name in self.more]) != self.more:
            return None
        return found

    def built(self, make: Callable[[Free], Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of such a call, with ``make`` of all that is free, in the order of ``inputs``."""
        positional = [_built(each.pattern, make) for each in self.positional]
        return positional, {each.name: _built(each.pattern, make) for each in self.keywords}


def _more(parameters: Sequence[inspect.Parameter]) -> str:
    return next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), "")


def _argument(parameter: inspect.Parameter, name: str, given: Any, *, is_called: bool) -> GivenArgument:
    default = parameter.default if _is_constant(parameter.default) else _NONE
    if given is not _NONE:
        return GivenArgument(name, pattern_of(given, parameter.name), default)
    if parameter.default is _NONE and not is_called:
        return GivenArgument(name, Free.TENSOR)
    if default is _NONE:
        raise NoSignature(f"its argument {parameter.name} is a {type(parameter.default).__name__} by default")
    return GivenArgument(name, pattern_of(default, parameter.name), default)


def pattern_of(value: Any, name: str) -> Pattern:
    """``name``: of the argument. Raises NoSignature."""
    if isinstance(value, Tensor):
        return Free.TENSOR
    if type(value) in (tuple, list):
        return Container(type(value), (), tuple(pattern_of(each, name) for each in value))
    if type(value) is dict and all(map(_is_constant, value)):
        return Container(dict, tuple(value), tuple(pattern_of(each, name) for each in value.values()))
    if not _is_constant(value):
        raise NoSignature(f"its argument {name} is a {type(value).__name__}")
    return Constant(value)


def are_tensors(value: Any) -> bool:
    """Whether a value is a tensor, or a container of such."""
    if type(value) in (tuple, list, dict):
        return all(map(are_tensors, value.values() if type(value) is dict else value))
    return isinstance(value, Tensor)


def _is_constant(value: Any) -> bool:
    """What never changes, and has a name in other processes."""
    if type(value) is tuple:
        return all(map(_is_constant, value))
    return type(value) in _CONSTANTS or (isinstance(value, enum.Enum) and "<locals>" not in type(value).__qualname__)


def _free(pattern: Pattern) -> Pattern:
    if isinstance(pattern, Container):
        return dataclasses.replace(pattern, items=tuple(map(_free, pattern.items)))
    if isinstance(pattern, Constant) and type(pattern.value) in (int, float):
        return Free(type(pattern.value))
    return pattern


def _fits(pattern: Pattern, value: Any, found: list[Any]) -> bool:
    if isinstance(pattern, Constant):
        return _is_same(value, pattern.value)
    if isinstance(pattern, Free):
        found.append(value)
        return isinstance(value, Tensor) if pattern is Free.TENSOR else type(value) is pattern.value
    if type(value) is not pattern.kind or not isinstance(value, (tuple, list, dict)):
        return False
    values = [*value.values()] if isinstance(value, dict) else [*value]
    if len(values) != len(pattern.items) or (isinstance(value, dict) and tuple(value) != pattern.keys):
        return False
    return all(_fits(each, values[index], found) for index, each in enumerate(pattern.items))


def _is_same(value: Any, constant: Any) -> bool:
    if type(value) is not type(constant) or value != constant:
        return False
    return type(value) is not float or math.copysign(1.0, value) == math.copysign(1.0, constant)


def _built(pattern: Pattern, make: Callable[[Free], Any]) -> Any:
    if isinstance(pattern, Constant):
        return pattern.value
    if isinstance(pattern, Free):
        return make(pattern)
    items = [_built(each, make) for each in pattern.items]
    return dict(zip(pattern.keys, items, strict=True)) if pattern.kind is dict else pattern.kind(items)
