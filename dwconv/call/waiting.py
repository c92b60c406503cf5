"""Waiting: a tensor that stands for a result until somebody wants it, to see first what comes next.

Functions of PyTorch that go on with it may be made one with it; whatever else is done, the result is computed, and that
is done with it. It has a place of its own in autograd's graph: code that asks no Python function, as ``Function.apply``
does not, gets the same numbers and gradients.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only


class Waiting(Tensor):
    """Of each kind there is a subclass, which knows what it stands for."""

    knows_dwconv: ClassVar[bool] = True
    """It takes our functions as well as PyTorch's."""

    told: ClassVar[frozenset[Any]] = frozenset(
        {
            getattr(Tensor, name).__get__
            for name in ("shape", "dtype", "device", "ndim", "requires_grad", "layout", "is_leaf", "grad_fn")
        }
        | {Tensor.dim, Tensor.size, Tensor.numel, Tensor.is_floating_point}
    )
    """What can be told of it without its numbers."""

    def value(self) -> Tensor:
        """The result itself, computed once."""
        raise NotImplementedError

    def following(self, func: Any, args: Any, kwargs: Any) -> Tensor | None:
        """What a function that may be one with it makes of it, its first argument; None for another."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in cls.told:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if args and isinstance(args[0], Waiting):
            following = args[0].following(func, args, kwargs)
            if following is not None:
                return following
        args, kwargs = tree_map_only(Waiting, lambda each: each.value(), (args, kwargs))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        with torch.no_grad():  # autograd has its place in the graph
            values, keywords = tree_map_only(Waiting, lambda each: each.value().detach(), (args, kwargs or {}))
        result = func(*values, **keywords)
        return args[0] if values and result is values[0] else result  # in place
