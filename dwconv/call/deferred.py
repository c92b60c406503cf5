"""Deferred: a causal convolution that runs with the SiLU after it as one kernel, as in Mamba:

    z = F.conv1d(x, weight, bias, padding=K − 1, groups=C)     (B, C, L + K − 1)      nothing runs yet
    z = z[..., :L]                                             (B, C, L)              nothing runs yet
    z = z.transpose(1, 2)                                      (B, L, C)              in some models
    y = F.silu(z)                                                                     one kernel runs it all

Any other use runs the convolution first. A deferred tensor has its own node in autograd's graph, so code that calls no
Python function, such as ``Function.apply``, gets the same numbers and gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.utils._pytree import tree_map_only

from dwconv.call import silu_ops
from dwconv.call.arguments import Call, CallArguments
from dwconv.call.functional import conv1d
from dwconv.call.gradients import Needs, Tied, gradients, wanted
from dwconv.call.torch_ops import DispatchedPasses
from dwconv.call.watchers import are_plain, is_foreign, is_looked_at
from dwconv.errors import InvalidWorkload


def deferred(given: CallArguments) -> Tensor | None:
    """The deferred result of a depthwise call of ``conv1d`` if kernels with SiLU measured faster at these sizes; None
    for other calls, and if something watches."""
    if torch.compiler.is_compiling() or is_looked_at():  # autocast is no matter: the ops handle it
        return None
    if given.input is None or not are_plain(*given[:3]) or not is_causal(given) or is_foreign(*given[:3]):
        return None
    before = given.weight.shape[-1] - 1
    tensors = [tensor for tensor in given[:3] if tensor is not None]
    trains = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    sums = _Sums(*given[:3], beyond=before)
    try:
        problem = Call.of(sums.arguments(beyond=0)).problem
    except InvalidWorkload:  # the call itself raises the error
        return None
    at_once = silu_ops.is_at_once(problem, given.input.device, trains=trains)
    return sums.tensor() if at_once else None


def is_causal(given: CallArguments) -> bool:
    """True for a depthwise ``conv1d`` that pads both sides with as many elements as the kernel reads before an
    element."""
    before = given.weight.shape[-1] - 1
    pads_as_wide = before > 0 and given.input.dim() == 3 and given[3:6] in ((1, before, 1), ((1,), (before,), (1,)))
    return pads_as_wide and given.weight.shape[1] == 1


def cuts(index: Any, length: int, *, beyond: int) -> bool:
    """True if ``index``, of a tensor of three axes, takes the first elements along the last and leaves out ``beyond``
    of its ``length``."""
    *others, last = index if isinstance(index, tuple) else (index,)
    whole = [slice(None)] * 2
    return (
        (others == [Ellipsis] or others == whole)
        and isinstance(last, slice)
        and all(bound is None or type(bound) is int for bound in (last.start, last.stop, last.step))
        and last.indices(length) == (0, length - beyond, 1)
    )


def swaps(func: Any, args: Any) -> bool:
    """True for the transpose of the last two of three axes."""
    if func not in (Tensor.transpose, torch.transpose) or len(args) != 3:
        return False
    return {axis % 3 for axis in args[1:] if type(axis) is int} == {1, 2}


@dataclass(frozen=True)
class _Sums:
    """A convolution that has not run."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    beyond: int
    """Elements of the result after the last of x."""
    swapped: bool = False
    """Whether the result is (B, L, C)."""

    def arguments(self, *, beyond: int | None = None) -> CallArguments:
        sides = (self.weight.shape[-1] - 1, self.beyond if beyond is None else beyond)
        return CallArguments(self.x, self.weight, self.bias, 1, (sides,), 1, None, 1)

    def tensor(self) -> Tensor:
        return _Defer.apply(self.x, self.weight, self.bias, self)  # type: ignore[no-untyped-call]

    def as_seen(self, result: Tensor) -> Tensor:
        return result.transpose(1, 2) if self.swapped else result

    def as_own(self, result: Tensor) -> Tensor:
        """A result that is still private, marked in place: no view."""
        return result.transpose_(1, 2) if self.swapped else result

    def run(self) -> Tensor:
        return self.as_own(conv1d(*self.arguments()[:-1]))

    def run_with_silu(self) -> Tensor:
        call = Call.of(self.arguments())
        y = silu_ops.fprop_silu(call.x, call.w, self.bias, *call.problem.geometry)
        return self.as_own(call.given.as_given(y))


class _Defer(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, sums: _Sums) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.sums = replace(sums, x=None, weight=None, bias=None)  # type: ignore[arg-type]  # which would keep each other
        return Deferred(sums)

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        sums = replace(ctx.sums, x=x, weight=weight, bias=bias)
        call = Call.of(sums.arguments())
        needs_x, needs_w, needs_bias, *_ = wanted(ctx)
        passes = DispatchedPasses.of(call.problem, weight_strides=call.w.stride())
        tied = Tied(call.x, call.w, None, sums.as_seen(dz).unsqueeze(2))
        dx, dw, db, _ = gradients(passes, tied, Needs(needs_x, needs_w, needs_bias))
        return None if dx is None else dx.squeeze_(2), None if dw is None else dw.squeeze_(2), db, None


class Deferred(Tensor):
    """The result of a convolution that is not computed yet."""

    knows_dwconv: ClassVar[bool] = True
    """It accepts dwconv's functions as well as PyTorch's."""
    known: ClassVar[frozenset[Any]] = frozenset(
        {
            getattr(Tensor, name).__get__
            for name in ("shape", "dtype", "device", "ndim", "requires_grad", "layout", "is_leaf", "grad_fn")
        }
        | {Tensor.dim, Tensor.size, Tensor.numel, Tensor.is_floating_point}
    )
    """Functions that do not read its numbers."""

    _sums: _Sums
    _value: Tensor | None

    @staticmethod
    def __new__(cls: type[Deferred], sums: _Sums) -> Deferred:
        batch, _, length = sums.x.shape
        channels = sums.weight.shape[0]
        like = sums.as_seen(torch.empty((batch, channels, length + sums.beyond), device="meta"))
        call = Call.of(sums.arguments())
        made: Deferred = Tensor._make_wrapper_subclass(cls, like.shape, dtype=call.problem.dtype, device=sums.x.device)
        made._sums, made._value = sums, None
        return made

    def value(self) -> Tensor:
        """The result itself."""
        if self._value is None:
            with torch.set_grad_enabled(self.requires_grad):  # not as it is now: others may use it later
                self._value = self._sums.run()
        return self._value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in cls.known:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if args and isinstance(args[0], Deferred) and args[0]._value is None:
            following = _following(args[0]._sums, func, args, kwargs)
            if following is not None:
                return following
        args, kwargs = tree_map_only(Deferred, lambda each: each.value(), (args, kwargs))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        with torch.no_grad():  # autograd has its place in the graph
            values, keywords = tree_map_only(Deferred, lambda each: each.value().detach(), (args, kwargs or {}))
        result = func(*values, **keywords)
        return args[0] if values and result is values[0] else result  # in place


def _following(sums: _Sums, func: Any, args: Any, kwargs: Any) -> Tensor | None:
    """The result of a function that is part of the pattern; None for another."""
    if func is Tensor.__getitem__ and sums.beyond and not sums.swapped:
        length = sums.x.shape[2] + sums.beyond
        return replace(sums, beyond=0).tensor() if cuts(args[1], length, beyond=sums.beyond) else None
    if not sums.beyond and not kwargs and swaps(func, args):
        return replace(sums, swapped=not sums.swapped).tensor()
    if func is F.silu and not sums.beyond and len(args) == 1 and not kwargs.get("inplace"):
        return sums.run_with_silu()
    return None
