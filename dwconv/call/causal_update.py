"""``causal_conv1d_update``: a causal convolution of the elements that come next, with what came before as a state; with
the meaning of the function of that name of the package causal-conv1d. For decoding, so nothing is recorded for a
backward pass.

    states (B, C, S)  ──┐
    x      (B, C, N)  ──┴─►  the last K − 1 and x, (B, C, K − 1 + N)  ─►  y (B, C, N)
                        └─►  states, in place: the last S of both; or x alone, written behind the elements seen
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from dwconv.call.arguments import is_autocast
from dwconv.call.causal import ACTIVATIONS, causal_conv1d
from dwconv.errors import InvalidArgument, InvalidCall
from dwconv.problems.workload import by

_MANY = 16
"""Elements from which on a kernel of the convolution computes them."""


@torch.no_grad()
def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """y[b, c, t] = act(bias[c] + Σ over k of z[b, c, t + k] · weight[c, k]), where z is the last K − 1 elements of the
    state followed by x; the state then holds the last elements of both.

    ``x`` is (B, C), one element, or (B, C, N), and so is the result, in the type of x; ``weight`` is (C, K), ``bias``
    (C). ``conv_state``, (B, C, S) with S ≥ K − 1, is changed in place. With ``cache_seqlens``, (B) whole numbers, it is
    a ring: x is written from element ``cache_seqlens % S`` on. With ``conv_state_indices``, (B) whole numbers, it holds
    the states of more sequences, and these are the ones of x; where the number is negative, x is padding: its result
    is 0, and no state changes. ``activation``: None, ``"silu"`` or ``"swish"``, which is the same. Sums are computed in
    float32, or in the type of x if that is wider, also under autocast. There is no gradient.

    Raises InvalidCall, a RuntimeError, for sizes that do not fit and for an unknown activation, InvalidArgument for
    what is no tensor.
    """
    _check(x, conv_state, weight, bias, activation, cache_seqlens, conv_state_indices)
    with torch.autocast(x.device.type, enabled=False) if is_autocast(x) else nullcontext():
        return _updated(x, conv_state, weight, bias, activation, cache_seqlens, conv_state_indices)


def _updated(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str | None,
    cache_seqlens: Tensor | None,
    conv_state_indices: Tensor | None,
) -> Tensor:
    image = x.unsqueeze(-1) if x.dim() == 2 else x
    of_more = None if conv_state_indices is None or not len(x) else _Chosen(conv_state, conv_state_indices.long())
    states = of_more.states() if of_more else conv_state
    before = _before(states, cache_seqlens, count=weight.shape[1] - 1).to(x.dtype)
    y = _convolved(image, before, weight, bias, activation)
    _keep(states, image.to(states.dtype), cache_seqlens)
    if of_more:
        of_more.put_back(states)
        y = y.masked_fill(of_more.are_padding[:, None, None], 0)
    return y.squeeze(-1) if x.dim() == 2 else y


class _Chosen:
    """Some of the states in a tensor of more, by their numbers; those with a negative one are padding.

    Nothing depends on how many are padding, so that no device has to be waited for: the state of another sequence is
    written once more in their place, or that which is there, if all are padding."""

    def __init__(self, everything: Tensor, numbers: Tensor) -> None:
        self.are_padding = numbers < 0
        self._first = (~self.are_padding).int().argmax(0, keepdim=True)
        self._everything = everything
        self._numbers = torch.where(self.are_padding, numbers[self._first].clamp(min=0), numbers)

    def states(self) -> Tensor:
        return self._everything[self._numbers]

    def put_back(self, states: Tensor) -> None:
        are_padding = self.are_padding[:, None, None]
        kept = torch.where(are_padding[self._first], self._everything[self._numbers], states)
        self._everything[self._numbers] = torch.where(are_padding, kept[self._first], states)


def _before(states: Tensor, seen: Tensor | None, *, count: int) -> Tensor:
    """The last ``count`` elements that were seen."""
    length = states.shape[2]
    if seen is None:
        return states[:, :, length - count :]
    places = (torch.arange(-count, 0, device=states.device) + seen.long()[:, None]) % length
    return states.gather(2, places[:, None].expand(-1, states.shape[1], -1))


def _convolved(x: Tensor, before: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    length, taps = x.shape[2], weight.shape[1]
    if length >= _MANY:
        dtype = torch.promote_types(x.dtype, weight.dtype)  # which it is cast to
        y = causal_conv1d(x.to(dtype), weight, bias, initial_states=before.to(dtype), activation=activation)
        assert isinstance(y, Tensor), "no final states are returned"
        return y.to(x.dtype)
    dtype = torch.promote_types(x.dtype, torch.float32)
    windows = torch.cat([before, x], 2).unfold(2, taps, 1)  # (B, C, N, K)
    z = (windows.to(dtype) * weight.to(dtype)[:, None]).sum(-1)
    z = z if bias is None else z + bias.to(dtype)[:, None]
    return (F.silu(z) if activation else z).to(x.dtype)


def _keep(states: Tensor, x: Tensor, seen: Tensor | None) -> None:
    """Let the states hold x as well, in place."""
    size, length = states.shape[2], x.shape[2]
    if seen is None:
        states.copy_(torch.cat([states, x], 2)[:, :, length:])
        return
    last = x[:, :, max(0, length - size) :]  # what is not written over at once
    places = torch.arange(length - last.shape[2], length, device=x.device) + seen.long()[:, None]
    states.scatter_(2, (places % size)[:, None].expand(-1, x.shape[1], -1), last)


def _check(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str | None,
    cache_seqlens: Tensor | None,
    conv_state_indices: Tensor | None,
) -> None:
    if activation is not None and activation not in ACTIVATIONS:
        raise InvalidCall(f"activation={activation!r} is unknown; use None, 'silu' or 'swish'")
    for name, tensor in (("x", x), ("conv_state", conv_state), ("weight", weight)):
        if not isinstance(tensor, Tensor):
            raise InvalidArgument(f"{name} must be a Tensor, not {type(tensor).__name__}")
    optional = {"bias": bias, "cache_seqlens": cache_seqlens, "conv_state_indices": conv_state_indices}
    for name, other in optional.items():
        if other is not None and not isinstance(other, Tensor):
            raise InvalidArgument(f"{name} must be a Tensor, not {type(other).__name__}")
    if x.dim() not in (2, 3):
        raise InvalidCall(f"x of shape {by(x.shape)} is not (B, C) or (B, C, N)")
    batch, channels = x.shape[:2]
    if weight.dim() != 2 or weight.shape[0] != channels or not weight.shape[1]:
        raise InvalidCall(f"weight of shape {by(weight.shape)} is not (C, K) with C={channels} channels")
    if bias is not None and bias.shape != (channels,):
        raise InvalidCall(f"bias of shape {by(bias.shape)} is not (C), with C={channels} channels")
    count = weight.shape[1] - 1
    is_whole = conv_state_indices is None and conv_state.dim() == 3 and len(conv_state) != batch
    if conv_state.dim() != 3 or is_whole or conv_state.shape[1] != channels or conv_state.shape[2] < max(count, 1):
        wanted = f"(B, C, S) with B={batch}, C={channels}, S ≥ {max(count, 1)}"
        raise InvalidCall(f"conv_state of shape {by(conv_state.shape)} is not {wanted}")
    for name, numbers in (("cache_seqlens", cache_seqlens), ("conv_state_indices", conv_state_indices)):
        if numbers is not None and (numbers.shape != (batch,) or numbers.is_floating_point()):
            given = f"{name} of shape {by(numbers.shape)} and {numbers.dtype}"
            raise InvalidCall(f"{given} is not (B) whole numbers, with B={batch}")
