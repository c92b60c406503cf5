"""The path through PyTorch's dispatcher, for calls that are observed: by torch.compile, modes, subclasses of Tensor."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.functional_tensor import FunctionalTensor

from dwconv.call import torch_ops
from dwconv.call.arguments import AnyArguments, AnyCall, Call, CallArguments
from dwconv.call.call_plan import plan_for
from dwconv.call.warned_once import warn_once
from dwconv.call.watchers import is_foreign, is_recorded_for_elsewhere, is_spread, is_unknown_to_our_ops


def convolve(given: CallArguments) -> Tensor:
    """y. Raises InvalidCall, InvalidArgument."""
    if is_for_elsewhere(given):
        return given.on_pytorch()
    call = Call.of(given)
    if torch.compiler.is_compiling() and not has_symbols(call) and 0 in call.x.shape[2:]:
        return given.on_pytorch()  # which raises its error now
    if is_unknown_to_our_ops(call.x, call.w):
        return given.on_pytorch()
    if is_spread(call.x, call.w):
        y = None if torch.compiler.is_compiling() or has_symbols(call) else _sharded(given)
        return given.on_pytorch() if y is None else y
    if is_for_pytorch(call):
        return given.on_pytorch()
    return given.as_given(torch_ops.fprop(call.x, call.w, given.bias, *call.problem.geometry))


def is_for_elsewhere(given: AnyArguments) -> bool:
    """True if no kernel can take such a call, whatever its sizes: PyTorch's op runs it."""
    if is_recorded_for_elsewhere():
        if torch.compiler.is_compiling():
            _warn_unless_exporting()
        return True
    return not torch.compiler.is_compiling() and is_foreign(*given[:3])  # a compiler has made sure that they are not


def _warn_unless_exporting() -> None:
    """Warns if what is compiled, not exported, gets PyTorch's op: nothing else would show it."""
    if not torch.compiler.is_exporting():
        warn_once(
            "what was compiled runs its depthwise layers on PyTorch's own op: PyTorch "
            f"{torch.__version__} treats it as an export; use another version, or do not compile these layers"
        )


_warn_unless_exporting._dynamo_marked_constant = True  # type: ignore[attr-defined]  # run as it is, while others trace


def is_for_pytorch(call: AnyCall, *, is_transposed: bool = False) -> bool:
    """True if PyTorch's own op does it all: then nothing of ours stands in its way."""
    if torch.compiler.is_compiling() or has_symbols(call) or isinstance(call.x, FunctionalTensor):
        return False  # decided when the compiled code runs; PyTorch 2.11 hides from our own ops that it is compiling
    plan = plan_for(call.problem, call.x.device)
    if plan.is_open:
        plan.meet(id(call.given.weight))
    if plan.is_pytorch:
        x, w, trains = call.given.input, call.given.weight, torch.is_grad_enabled()
        needs = {"for_x": trains and x.requires_grad, "for_w": trains and w.requires_grad}
        plan.tally.count(w, **needs, is_transposed=is_transposed)
    return plan.is_pytorch


def _sharded(given: CallArguments) -> Tensor | None:
    from dwconv.call import sharded  # late: importing PyTorch's DTensor takes long

    return sharded.convolve(given)


def has_symbols(call: AnyCall) -> bool:
    """True for sizes that stand for any number, as in a trace with symbolic shapes."""
    if torch.compiler.is_compiling():  # there symbols pass for ints
        from torch.fx.experimental.symbolic_shapes import has_static_value  # late: it imports sympy

        return not all(has_static_value(size) for size in call.x.shape)
    return not all(type(size) is int for size in (*call.x.shape, *call.w.shape))
