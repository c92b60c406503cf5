"""The edges of a stage, where tensors go to another rank: dense in the order that both sides expect.

What is sent is memory, not a tensor, so strides that differ between the two sides would give wrong numbers in silence.
A channels_last map is sent as the NHWC tensor that it is in memory: no side copies it. Neither edge gives a view, since
the first layer of a stage may work in place, and what a stage gives is detached in place after its backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """The tensor between two stages, for one microbatch."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    channels_last: bool

    @staticmethod
    def like(tensor: Tensor) -> Boundary:
        """The boundary that ``tensor`` crosses."""
        last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
        return Boundary(
            shape=tuple(tensor.shape), dtype=tensor.dtype, channels_last=last and not tensor.is_contiguous()
        )

    @property
    def sent(self) -> Tensor:
        """An example, without memory, of what is sent."""
        shape = [self.shape[axis] for axis in _TO_NHWC] if self.channels_last else self.shape
        return torch.empty(shape, dtype=self.dtype, device="meta", requires_grad=self.dtype.is_floating_point)

    @property
    def given(self) -> Tensor:
        """An example, without memory, of what the user gives to the first stage."""
        memory_format = torch.channels_last if self.channels_last else torch.contiguous_format
        return torch.empty(self.shape, dtype=self.dtype, device="meta", memory_format=memory_format)


class StageModule(nn.Module):
    """The layers of one stage, from what the rank before sends to what the rank after expects."""

    def __init__(self, layers: Sequence[nn.Module], *, received: Boundary | None, sent: Boundary | None) -> None:
        """``received``, ``sent``: None at the ends of the model."""
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.received, self.sent = received, sent

    def forward(self, x: Tensor) -> Tensor:
        if self.received is not None:
            x = _Received.apply(x, self.received.channels_last)  # type: ignore[no-untyped-call]
        for layer in self.layers:
            x = layer(x)
        if self.sent is not None:
            x = _Sent.apply(x, self.sent.channels_last)  # type: ignore[no-untyped-call]
        return x


class _Received(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, channels_last: bool) -> Tensor:
        ctx.channels_last = channels_last
        return _not_a_view(x.permute(_TO_NCHW) if channels_last else x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _dense(grad, channels_last=ctx.channels_last), None


class _Sent(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, channels_last: bool) -> Tensor:
        ctx.channels_last = channels_last
        return _not_a_view(_dense(x, channels_last=channels_last))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.permute(_TO_NCHW) if ctx.channels_last else grad, None


def _dense(tensor: Tensor, *, channels_last: bool) -> Tensor:
    return (tensor.permute(_TO_NHWC) if channels_last else tensor).contiguous()


def _not_a_view(tensor: Tensor) -> Tensor:
    """A tensor on the same memory that autograd does not take for a view of another."""
    alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return alias.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
