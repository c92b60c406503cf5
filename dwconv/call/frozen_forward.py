"""Forward passes with blocks in them, frozen as plain data."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dwconv.call.block_call import BlockForm
from dwconv.call.signature import Signature

Forward = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A function that tracing wrote."""

    source: str
    names: tuple[tuple[str, str, str], ...] = ()
    """What it reads: name, module, name in the module."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", _made(self.source, self.names))  # compilers support no cached properties

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "run"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, run=_made(state["source"], state["names"]))

    run: ClassVar[Forward]


@dataclass(frozen=True, kw_only=True)
class TracedBlock(_Source):
    """A block in a traced forward pass. ``run(parent, x)`` runs its parts, one by one."""

    place: BlockForm
    conv: str
    """The path of the convolution from the parent."""
    norms: tuple[str, ...]
    """Those of its norms."""
    counts: tuple[bool, ...]
    """Whether the block counts batches for a norm: the trace itself does where it looked into the norm."""
    over_ranks: bool = False
    """Whether the first norm, as one that is frozen, is given the statistics of all ranks in each call."""


@dataclass(frozen=True, kw_only=True)
class WatchedModule:
    """A module whose code, mode and attributes are part of a trace."""

    path: str
    training: bool
    plain: type[nn.Module]
    attributes: tuple[tuple[str, Any], ...]
    children: tuple[tuple[str, bool], ...]
    """The names in its ``_modules``, and which are None."""
    tensors: tuple[tuple[str, str, bool], ...]
    """Where it has parameters and buffers, their names, and which are None; of a module whose code is traced."""
    names: tuple[str, ...]
    """All that it has of its own."""
    methods: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    """Of its class, where it has no attribute of the name."""
    over_ranks: bool = False
    """Whether it is a norm with the statistics of all ranks."""

    @classmethod
    def of(cls, module: nn.Module, *, path: str, is_traced: bool) -> WatchedModule:
        plain: Any = plain_class(type(module))
        forwards.setdefault(plain, plain.forward)
        names = names_in(module)
        return cls(
            path=path,
            training=module.training,
            plain=plain,
            attributes=constants_of(module),
            children=children_of(module),
            tensors=tensors_of(module) if is_traced else (),
            names=names,
            methods=tuple(
                name for name, value in of_class(plain) if name not in names and isinstance(value, FunctionType)
            ),
            constants=tuple(
                (name, frozen(value))
                for name, value in of_class(plain)
                if name not in names and is_constant(value) and not isinstance(value, FunctionType)
            ),
            over_ranks=is_over_ranks(module),
        )


@dataclass(frozen=True, kw_only=True)
class Trace(_Source):
    """The forward pass of a module in one mode. ``run(parent, blocks, *inputs)`` runs it."""

    training: bool
    """Of the module itself; norms inside may keep their statistics meanwhile."""
    signature: Signature
    tools: tuple[str, ...]
    """The functions with which it checks if a compiler, an exporter or a tracer runs it: none does where the trace
    runs."""
    blocks: tuple[TracedBlock, ...]
    modules: tuple[WatchedModule, ...]


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLAIN_CONSTANTS = (
    bool, int, float, str, type(None), torch.dtype, torch.Size, FunctionType, BuiltinFunctionType, type,
)  # fmt: skip
_OWN_CHECKS = ("training", "_is_full_backward_hook")
"""Attributes that have checks of their own, or change nothing."""
_MARKS = ("_compiled_call_impl", "_is_fsdp_managed_module", "_fsdp_use_orig_params", "__composable_api_state_key_")
"""What PyTorch sets at modules that it compiles or shards, which no forward pass reads."""


def constants_of(module: nn.Module) -> tuple[tuple[str, Any], ...]:
    """The plain attributes of a module, by name."""
    others = ["momentum"] * (batch_norm_eps(module) is not None) + ["traces"] * is_written(module)
    live = (*_OWN_CHECKS, *_MARKS, *others)
    found = (item for item in vars(module).items() if item[0] not in live and is_constant(item[1]))
    return tuple(sorted(((name, frozen(value)) for name, value in found), key=lambda item: item[0]))


def is_written(module: nn.Module) -> bool:
    """Whether a module is a block by itself: ``dwconv.nn.DepthwiseBlock``."""
    return hasattr(type(module), "parts_of_block")


def children_of(module: nn.Module) -> tuple[tuple[str, bool], ...]:
    return tuple((name, child is None) for name, child in module._modules.items())


def tensors_of(module: nn.Module) -> tuple[tuple[str, str, bool], ...]:
    held = (("_parameters", module._parameters), ("_buffers", module._buffers))
    return tuple((where, name, tensor is None) for where, of in held for name, tensor in of.items())


def names_in(module: nn.Module) -> tuple[str, ...]:
    return tuple(sorted(name for name in module.__dict__ if not name.startswith(_MARKS)))


@functools.cache
def of_class(plain: type[nn.Module]) -> tuple[tuple[str, Any], ...]:
    """What a forward pass reads by ``self`` of its class, and an attribute of a module can stand for."""
    own = [kind for kind in plain.__mro__ if kind not in nn.Module.__mro__]
    found = {"_call_impl": nn.Module._call_impl} | {k: v for kind in reversed(own) for k, v in vars(kind).items()}
    return tuple(sorted((item for item in found.items() if not item[0].startswith("__")), key=lambda item: item[0]))


forwards: dict[type, Any] = {}
"""The forward pass of a class when it was traced first: a class may be patched later."""


def is_constant(value: Any) -> bool:
    return all(map(is_constant, value)) if type(value) in (tuple, list) else isinstance(value, _PLAIN_CONSTANTS)


def frozen(value: Any) -> Any:
    """A list as a tuple, which does not change."""
    return tuple(map(frozen, value)) if type(value) in (tuple, list) else value


def at(module: nn.Module, path: str) -> nn.Module:
    """The submodule at a path; the module itself at the empty one."""
    for name in path.split(".") if path else ():
        module = getattr(module, name)
    return module


def batch_norm_eps(module: Any) -> float | None:
    """The eps of a BatchNorm that a block can hold; None for another module."""
    is_usual = isinstance(module, _BatchNorm) and type(module).forward is _BatchNorm.forward
    if not is_usual or isinstance(module, nn.SyncBatchNorm) or not module.track_running_stats:
        return None
    return module.eps if type(module.eps) is float and module.eps > 0 else None


def is_over_ranks(module: Any) -> bool:
    """Whether a BatchNorm shares its statistics with other ranks where it trains: one of ``parallel.sync_bn``."""
    return hasattr(type(module), "statistics_over_ranks")


def plain_class(kind: type) -> type:
    """The class that ``dwconv.revert`` gives back."""
    while (plain := kind.__dict__.get("plain_class")) is not None:
        kind = plain
    return kind


def _made(source: str, names: tuple[tuple[str, str, str], ...]) -> Forward:
    """The function of a source that tracing wrote."""
    scope: dict[str, Any] = {"torch": torch, "inf": float("inf"), "nan": float("nan"), "NoneType": type(None)}
    for name, module, inside in names:
        value: Any = importlib.import_module(module)
        for each in inside.split(".") if inside else ():
            value = getattr(value, each)
        scope[name] = value
    exec(compile(source, "<traced by dwconv>", "exec"), scope)
    return scope["forward"]
