"""``causal_conv1d``: the convolution of Mamba-like models, with the meaning of ``causal_conv1d_fn`` of the package
causal-conv1d, on tuned kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch.overrides import handle_torch_function, has_torch_function

from dwconv.call import silu_ops, through_dispatcher
from dwconv.call.arguments import Call, CallArguments
from dwconv.call.function_mode import named_weight
from dwconv.call.functional import conv1d
from dwconv.call.watchers import is_foreign, is_recorded_for_elsewhere, is_spread, is_unknown_to_our_ops
from dwconv.errors import InvalidArgument, InvalidCall
from dwconv.problems.problem import Problem
from dwconv.problems.workload import by

ACTIVATIONS = ("silu", "swish")
"""Two names of one function."""


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """y[b, c, t] = act(bias[c] + Σ over k of x[b, c, t − K + 1 + k] · weight[c, k]), differentiable to any order.

    ``x`` is (B, C, L), contiguous or the transpose of a contiguous (B, L, C), or a slice of the channels of either, and
    the result has the same layout, without gaps; ``weight`` is (C, K), ``bias`` (C). Both are cast to the type of x.
    Before the first element come zeros or ``initial_states``, (B, C, K − 1). ``seq_idx``, (B, L) whole numbers, is the
    sequence of each element: elements of different sequences do not mix, and where it is negative the result is 0; the
    initial states are of the sequence of the first element. ``activation``: None, ``"silu"`` or ``"swish"``, which is
    the same; it runs in the kernel, and its gradient computes the sums again from x, where that was measured to be
    faster.

    Returns y, (B, C, L); with ``return_final_states`` also what the next call takes as its initial states, which is
    ``final_states_out``, written in place, if there is one.

    Raises InvalidCall, a RuntimeError, for sizes that do not fit, and for an unknown activation.
    """
    arguments = (x, weight, bias, seq_idx, initial_states, return_final_states, final_states_out, activation)
    given = (x, weight, *(each for each in (bias, seq_idx, initial_states, final_states_out) if each is not None))
    if has_torch_function(given):
        return handle_torch_function(causal_conv1d, given, *arguments)
    return computed(*arguments)


def computed(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """``causal_conv1d`` without ``__torch_function__``."""
    _check(x, weight, bias, seq_idx, initial_states, final_states_out, activation)
    before = weight.shape[1] - 1
    weight = named_weight(weight.unsqueeze(1)).to(x.dtype)
    bias = None if bias is None else bias.to(x.dtype)
    given = CallArguments(x, weight, bias, 1, ((before, 0),), 1, None, 1)
    y = _convolve(given, activation=activation is not None)
    if initial_states is not None or seq_idx is not None:
        y = _mended(y, given.lowered() or given, seq_idx, initial_states, activation=activation is not None)
    if not return_final_states:
        return y
    last = _final_states(x, initial_states, count=before)
    return y, last if final_states_out is None else final_states_out.copy_(last)


def _convolve(given: CallArguments, *, activation: bool) -> Tensor:
    """With zeros before the first element."""
    if not activation:
        return conv1d(*given[:-1])
    if _is_at_once(given):
        call = Call.of(given)
        return given.as_given(silu_ops.fprop_silu(call.x, call.w, given.bias, *call.problem.geometry))
    # SiLU reads what is a view as well: so PyTorch's op need not pad x by itself, which copies it.
    before, length = given.weight.shape[-1] - 1, given.input.shape[-1]
    return F.silu(conv1d(*given[:3], padding=before)[..., :length])


def _is_at_once(given: CallArguments) -> bool:
    """Whether convolution and activation are one op."""
    if is_recorded_for_elsewhere():
        return False
    if (
        not torch.compiler.is_compiling()
        and (
            _len_torch_dispatch_stack()  # as discovery has it, which looks at the parts
            or is_foreign(*given[:3])
            or is_spread(*given[:2])
            or is_unknown_to_our_ops(*given[:2])
        )
    ):
        return False
    tensors = [tensor for tensor in given[:3] if tensor is not None]
    trains = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    call = Call.of(given)
    if through_dispatcher.has_symbols(call):
        return False
    of_problem = [getattr(call.problem, name) for name in _OF_PROBLEM]
    return _decided(*of_problem, str(given.input.device), trains)


def _decided(*known: Any) -> bool:
    """From plain values, so that a compiler evaluates it once, while it traces."""
    *of_problem, device, trains = known
    problem = Problem(**dict(zip(_OF_PROBLEM, of_problem, strict=True)))
    return silu_ops.is_at_once(problem, torch.device(device), trains=trains)


_OF_PROBLEM = tuple(field.name for field in dataclasses.fields(Problem))
_decided._dynamo_marked_constant = True  # type: ignore[attr-defined]


# -- elements that touch initial states or another sequence ------------------------------------------------------------


def _mended(
    y: Tensor, given: CallArguments, seq_idx: Tensor | None, initial_states: Tensor | None, *, activation: bool
) -> Tensor:
    """``y``, with the few elements computed again that touch initial states or another sequence."""
    x, weight, bias, *_ = given
    before = weight.shape[-1] - 1
    states = _states(x, initial_states, count=before)
    image, place = _changed(x, seq_idx, before=before, starts=initial_states is not None).nonzero(as_tuple=True)
    met = place[:, None] + torch.arange(before + 1, device=x.device)
    windows = torch.cat([states, x], 2).transpose(1, 2)[image[:, None], met]  # (elements, K, C)
    if seq_idx is not None:
        owners = torch.cat([seq_idx[:, :1].expand(-1, before), seq_idx], 1)[image[:, None], met]
        windows = windows.masked_fill((owners != owners[:, -1:])[:, :, None], 0.0)
    z = torch.einsum("ekc,ck->ec", windows, weight.squeeze(1))
    z = z if bias is None else z + bias
    # Nothing has read it yet. ``torch.func.vmap`` needs indices next to each other.
    y.transpose(1, 2)[image, place] = F.silu(z) if activation else z
    return y if seq_idx is None else y.masked_fill((seq_idx < 0)[:, None], 0.0)


def _changed(x: Tensor, seq_idx: Tensor | None, *, before: int, starts: bool) -> Tensor:
    """(B, L), true where an element touches one before the first, if x ``starts`` with states, or may touch another
    sequence."""
    batch, _, length = x.shape
    changed = (torch.arange(length, device=x.device) < before * starts).expand(batch, length)
    if seq_idx is None:
        return changed
    ends = F.pad((seq_idx[:, 1:] != seq_idx[:, :-1]).long(), (1 + before, 0)).cumsum(1)  # up to each element
    return changed | (ends[:, before:] > ends[:, :length])


def _states(x: Tensor, initial_states: Tensor | None, *, count: int) -> Tensor:
    return x.new_zeros(*x.shape[:2], count) if initial_states is None else initial_states.to(x.dtype)


def _final_states(x: Tensor, initial_states: Tensor | None, *, count: int) -> Tensor:
    """The last ``count`` elements of the initial states and x."""
    if x.shape[2] < count:
        x = torch.cat([_states(x, initial_states, count=count), x], 2)
    return x[:, :, x.shape[2] - count :].clone()


# -- what does not fit -----------------------------------------------------------------------------------------------


def _check(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    seq_idx: Tensor | None,
    initial_states: Tensor | None,
    final_states_out: Tensor | None,
    activation: str | None,
) -> None:
    """Raises InvalidCall, and InvalidArgument for what is no tensor. What is left for ``conv1d`` to check it does."""
    if activation is not None and activation not in ACTIVATIONS:
        raise InvalidCall(f"activation={activation!r} is unknown; use None, 'silu' or 'swish'")
    if not (isinstance(x, Tensor) and isinstance(weight, Tensor)):
        name, other = ("weight", weight) if isinstance(x, Tensor) else ("x", x)
        raise InvalidArgument(f"{name} must be a Tensor, not {type(other).__name__}")
    if not (bias is seq_idx is initial_states is final_states_out is None):
        others = {"bias": bias, "seq_idx": seq_idx, "initial_states": initial_states}
        for name, tensor in (others | {"final_states_out": final_states_out}).items():
            if tensor is not None and not isinstance(tensor, Tensor):
                raise InvalidArgument(f"{name} must be a Tensor, not {type(tensor).__name__}")
    if x.dim() != 3:
        raise InvalidCall(f"x of shape {by(x.shape)} is not (B, C, L)")
    batch, channels, length = x.shape
    if weight.dim() != 2 or weight.shape[0] != channels or not weight.shape[1]:
        raise InvalidCall(f"weight of shape {by(weight.shape)} is not (C, K) with C={channels} channels")
    if seq_idx is not None and (seq_idx.shape != (batch, length) or seq_idx.is_floating_point()):
        raise InvalidCall(
            f"seq_idx of shape {by(seq_idx.shape)} and {seq_idx.dtype} is not (B, L) whole numbers with B={batch}, "
            f"L={length}"
        )
    states = (batch, channels, weight.shape[1] - 1)
    for name, tensor in (("initial_states", initial_states), ("final_states_out", final_states_out)):
        if tensor is not None and tensor.shape != states:
            raise InvalidCall(f"{name} of shape {by(tensor.shape)} is not (B, C, K − 1), {by(states)}")
