"""A stage on this rank: its layers, and what they keep from the forward pass of a microbatch for its backward pass.

At its edges tensors go to another rank: dense in the order that both sides expect. What is sent is memory, not a
tensor, so strides that differ between the two sides would give wrong numbers without an error. A channels_last map is
sent as the NHWC tensor that it is in memory: no side copies it. Neither edge gives a view, since the first layer of a
stage may work in place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from dwconv.errors import DwconvError, StageFailed, described_error
from dwconv.parallel.pipeline.spans import Step, Work
from dwconv.parallel.pipeline.stage_gradients import StageGradients
from dwconv.parallel.planning import split_backward
from dwconv.parallel.planning.split_backward import not_a_view


class RunningStage:
    """Stage ``index`` of ``count``, on this rank. Microbatches are numbered over the whole batch."""

    def __init__(
        self, module: StageModule, *, index: int, count: int, gradients: StageGradients, step: Step,
        names: Mapping[str, tuple[str, ...]],
    ) -> None:  # fmt: skip
        """``step``: notes what is computed. ``names``: what the model calls the stage's tensors; one that is shared has
        several."""
        self.module, self.index, self.gradients, self.names = module, index, gradients, names
        self.is_first, self.is_last = index == 0, index + 1 == count
        self._count, self._step = count, step
        self._kept: dict[int, _Kept] = {}
        self._split: dict[int, split_backward.ToDo] = {}
        """Of microbatches whose dgrad was computed, for wgrad."""

    def clear(self) -> None:
        """Forgets what a step that failed has left."""
        self._kept.clear()
        self._split.clear()

    def forward(self, microbatch: int, x: Tensor, loss: Callable[[Tensor], Tensor] | None) -> Tensor:
        """The output of a microbatch, for the stage after; of the last stage its ``loss``, which is a number."""
        if not self.is_first and x.is_floating_point():
            x.requires_grad_()
        with self._noted("forward", microbatch):
            output = self.module(x)
        given = output if loss is None else loss(output)
        self._kept[microbatch] = _Kept(x=x, output=given)
        return given.detach()

    def backward(self, microbatch: int, gradient: Tensor | None, *, is_last: bool) -> Tensor | None:
        """Both gradients. ``gradient``: of the output; None in the last stage. Returns that of what the stage received;
        None in the first one. ``is_last``: of the step."""
        kept = self._kept.pop(microbatch)
        with self._sends_gradients(is_last), self._noted("backward", microbatch):
            if kept.output.requires_grad:
                torch.autograd.backward(kept.output, gradient)
        return self._of_what_was_received(kept)

    def dgrad(self, microbatch: int, gradient: Tensor | None) -> Tensor | None:
        """The gradient of what the stage received. The first stage, which has none to give, leaves all to ``wgrad``."""
        if self.is_first:
            kept = self._kept[microbatch]
            self._kept[microbatch] = _Kept(x=kept.x, output=kept.output, gradient=gradient)
            return None
        kept = self._kept.pop(microbatch)
        with self._noted("dgrad", microbatch):
            self._split[microbatch] = split_backward.dgrad(kept.output, gradient, kept.x, self.module.parameters())
        return self._of_what_was_received(kept)

    def wgrad(self, microbatch: int, *, is_last: bool) -> None:
        """The gradients of the parameters, once ``dgrad`` has run."""
        if self.is_first:
            self.backward(microbatch, self._kept[microbatch].gradient, is_last=is_last)
            return
        groups = self._split.pop(microbatch)
        with self._sends_gradients(is_last), self._noted("wgrad", microbatch):
            if not is_last:
                split_backward.wgrad(self.module.parameters(), groups)
                return
            for group in groups:  # one by one, so that buckets are sent as they fill
                nodes = list(group["params"])
                split_backward.wgrad(self.module.parameters(), [group])
                for node in nodes:
                    self.gradients.arrived(node.variable)

    def _sends_gradients(self, is_last: bool) -> contextlib.AbstractContextManager[None]:
        return self.gradients.last_backward() if is_last else contextlib.nullcontext()

    def _of_what_was_received(self, kept: _Kept) -> Tensor | None:
        """Zeros where nothing behind needs it: the stage before expects a gradient."""
        if self.is_first or not kept.x.is_floating_point():
            return None
        gradient, kept.x.grad = kept.x.grad, None
        return torch.zeros_like(kept.x, requires_grad=False) if gradient is None else gradient

    @contextlib.contextmanager
    def _noted(self, work: Work, microbatch: int) -> Iterator[None]:
        """Notes when it ran. An error within says where it happened."""
        try:
            with self._step.during(work, self.index, microbatch):
                yield
        except DwconvError:
            raise
        except Exception as error:  # noqa: BLE001  the layers are the user's
            cause = error.__cause__ or error  # PyTorch's own error shows tensors, for pages
            where = f"{work} of microbatch {microbatch} in stage {self.index} of {self._count}"
            raise StageFailed(f"{where}: {described_error(cause)}") from cause


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """From the forward pass of a microbatch, for its backward pass."""

    x: Tensor
    output: Tensor
    """Of the last stage, its loss."""
    gradient: Tensor | None = None
    """Of the output, in the first stage between dgrad and wgrad."""


# -- the edges of a stage ----------------------------------------------------------------------------------------------


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

    def buffer(self, device: torch.device) -> Tensor:
        """Memory for what is sent."""
        shape = [self.shape[axis] for axis in _TO_NHWC] if self.channels_last else self.shape
        return torch.empty(shape, dtype=self.dtype, device=device)


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
        return not_a_view(x.permute(_TO_NCHW) if channels_last else x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _dense(grad, channels_last=ctx.channels_last), None


class _Sent(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, channels_last: bool) -> Tensor:
        ctx.channels_last = channels_last
        return not_a_view(_dense(x, channels_last=channels_last))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.permute(_TO_NCHW) if ctx.channels_last else grad, None


def _dense(tensor: Tensor, *, channels_last: bool) -> Tensor:
    return (tensor.permute(_TO_NHWC) if channels_last else tensor).contiguous()
