"""Batch normalisation with the statistics of all replicas. PyTorch's own SyncBatchNorm takes tensors on a GPU alone.

    forward     each rank: mean, variance and count of its images  ─ gathered ─►  those of all
    backward    each rank: sums of its gradients                   ─ summed   ─►  those of all

One round each way. Weight and bias are applied behind it, so that the backward pass of a stage can be split: the
gradient of the input needs the other replicas, those of weight and bias do not.

Before a depthwise convolution a block normalises, and this gives it the statistics. After it, the norm and its
activation are one op, which keeps what it is given alone. All ways exchange the same sums: a rank may run the one while
another runs the other.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from dwconv.discovery.step import check_model
from dwconv.parallel.joining import check_joined
from dwconv.problems.block import Activation
from dwconv.problems.pytorch import ACTIVATION_GRADIENTS, ACTIVATIONS

Model = TypeVar("Model", bound=nn.Module)


def sync_bn(model: Model, *, group: dist.ProcessGroup | None = None) -> Model:
    """Let every ``nn.BatchNorm`` of ``model`` train with the mean and variance over all ranks of ``group``, by default
    of the job; in place. On the CPU, too.

    Returns ``model``. The layers stay the objects they are, with their parameters, statistics and names; only their
    class changes, to a subclass of what it was. In evaluation they do what they did. Call it on every rank, before
    ``dwconv.convert``. Each rank must call such a layer as often as the others, in the same order; batches may differ
    in size."""
    check_model(model)
    check_joined()
    for module in model.modules():
        if isinstance(module, _BatchNorm) and type(module).forward is _BatchNorm.forward:
            module.__class__ = _synchronised(type(module))  # type: ignore[arg-type]
        if isinstance(module, _Synchronised):
            module._replicas = Replicas(group)
    return model


def is_synchronised(model: nn.Module) -> bool:
    """Whether ``sync_bn`` has changed a layer of it."""
    return any(isinstance(module, _Synchronised) for module in model.modules())


class Replicas:
    """A group of ranks that a copy of a module shares. A module that is loaded elsewhere has all ranks of the job."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group

    def __deepcopy__(self, _: object) -> Replicas:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Replicas, (None,)


@cache
def _synchronised(kind: type[_BatchNorm]) -> type[_BatchNorm]:
    return type(f"Synchronised{kind.__name__}", (_Synchronised, kind), {"plain_class": kind, "__module__": __name__})


class _Synchronised(_BatchNorm):
    """Beside a class of BatchNorm, which checks the number of dimensions."""

    _replicas: Replicas

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        x, mean, variance, count = _Normalised.apply(input, self.eps, self._replicas.group)  # type: ignore[no-untyped-call]
        self._remember(mean, variance, count)
        shape = [-1 if axis == 1 else 1 for axis in range(input.dim())]
        if self.weight is None:
            return x.to(input.dtype)
        return (x * self.weight.view(shape) + self.bias.view(shape)).to(input.dtype)

    def statistics_over_ranks(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the variance that ``forward`` normalises with, of each channel, in float32 or float64, with
        gradients for the input; it also updates the running ones. For a norm that trains."""
        mean, variance, count = _Statistics.apply(input, self.eps, self._replicas.group)  # type: ignore[no-untyped-call]
        self._remember(mean.detach(), variance.detach(), count)
        return mean, variance

    def activated(self, input: Tensor, activation: Activation) -> Tensor:
        """What ``forward`` gives, and an activation of it, as one op. For a norm that trains."""
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        z, mean, variance, count = _Activated.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.eps, activation, self._replicas.group
        )
        self._remember(mean, variance, count)
        return z

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        if not self.track_running_stats:
            return
        variance = variance * (count / (count - 1).clamp(min=1))
        assert self.num_batches_tracked is not None and self.running_mean is not None and self.running_var is not None
        self.num_batches_tracked.add_(1)
        share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


class _Normalised(Function):
    """(N, C, …) less its mean, over its deviation, of all ranks; and the mean, the variance, and the number of elements
    a channel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, group: dist.ProcessGroup | None) -> tuple[Tensor, ...]:
        others = [axis for axis in range(x.dim()) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(x.dim())]
        precise = _precise(x)
        mean, variance, total = _of_all_ranks(precise, group)
        deviation = torch.rsqrt(variance + eps)
        normalised = (precise - mean.view(shape)) * deviation.view(shape)
        ctx.save_for_backward(normalised, deviation, total)
        ctx.others, ctx.shape, ctx.group, ctx.dtype = others, shape, group, x.dtype
        ctx.mark_non_differentiable(mean, variance, total)
        return normalised, mean, variance, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        normalised, deviation, total = ctx.saved_tensors
        sums = torch.stack([gradient.sum(ctx.others), (gradient * normalised).sum(ctx.others)])
        dist.all_reduce(sums, group=ctx.group)
        of_gradient, of_product = (each.view(ctx.shape) for each in sums / total)
        found = (gradient - of_gradient - normalised * of_product) * deviation.view(ctx.shape)
        return found.to(ctx.dtype), None, None


class _Statistics(Function):
    """The mean and the variance of (N, C, …) over all ranks, and the number of elements a channel. Of a gradient g of
    what is normalised with them, that of the mean is -Σ g / σ, and that of the variance -Σ g · normalised / 2σ²."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, group: dist.ProcessGroup | None) -> tuple[Tensor, ...]:
        mean, variance, total = _of_all_ranks(_precise(x), group)
        ctx.save_for_backward(x, mean, variance, total)
        ctx.eps, ctx.group = eps, group
        ctx.mark_non_differentiable(total)
        return mean, variance, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_mean: Tensor, of_variance: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        x, mean, variance, total = ctx.saved_tensors
        inverse = torch.rsqrt(variance + ctx.eps)
        sums = torch.stack([-of_mean / inverse, -2 * of_variance / inverse.square()])
        dist.all_reduce(sums, group=ctx.group)
        of_gradient, of_product = sums / total
        # -(of_gradient + (x - mean) / σ · of_product) / σ
        slope = -of_product * inverse.square()
        shape = [-1 if axis == 1 else 1 for axis in range(x.dim())]
        offset = (-of_gradient * inverse - mean * slope).view(shape)
        return torch.addcmul(offset, _precise(x), slope.view(shape)).to(x.dtype), None, None


class _Activated(Function):
    """An activation of the norm of y, (N, C, …); and the mean, the variance, and the number of elements a channel.

    Of the gradient d of what the norm gives, that of y is γ/σ · d + slope · y + offset."""

    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        gamma: Tensor | None,
        beta: Tensor | None,
        eps: float,
        activation: Activation,
        group: dist.ProcessGroup | None,
    ) -> tuple[Tensor, ...]:
        mean, variance, total = _of_all_ranks(_precise(y), group)
        ctx.save_for_backward(y, gamma, beta, mean, variance, total)
        ctx.eps, ctx.activation, ctx.group = eps, activation, group
        z = ACTIVATIONS[activation](F.batch_norm(y, mean, variance, gamma, beta, False, 0.0, eps))
        ctx.mark_non_differentiable(mean, variance, total)
        return z, mean, variance, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        y, gamma, beta, mean, variance, total = ctx.saved_tensors
        normalised = F.batch_norm(y, mean, variance, gamma, beta, False, 0.0, ctx.eps)
        d = ACTIVATION_GRADIENTS[ctx.activation](dz, normalised)
        _, of_gamma, of_beta = torch.ops.aten.native_batch_norm_backward(
            d, y, gamma, mean, variance, None, None, False, ctx.eps, (False, True, True)
        )
        scale = torch.rsqrt(variance + ctx.eps)
        sums = torch.stack([of_beta, of_gamma]).to(mean.dtype)
        sums = sums if gamma is None else sums * gamma
        dist.all_reduce(sums, group=ctx.group)
        of_gradient, of_product = sums / total
        slope = -of_product * scale.square()
        offset = -of_gradient * scale - mean * slope
        scale = scale if gamma is None else scale * gamma
        shape = [-1 if axis == 1 else 1 for axis in range(y.dim())]
        found = torch.addcmul(offset.view(shape), _precise(y), slope.view(shape)).addcmul_(d, scale.view(shape))
        given = (None, None) if gamma is None else (of_gamma, of_beta)
        return found.to(y.dtype), *given, None, None, None


def _precise(x: Tensor) -> Tensor:
    return x if x.dtype is torch.float64 else x.float()


def _of_all_ranks(x: Tensor, group: dist.ProcessGroup | None) -> tuple[Tensor, Tensor, Tensor]:
    """The mean, the variance and the number of elements of each channel, on all ranks together."""
    variance, mean = torch.var_mean(x, [axis for axis in range(x.dim()) if axis != 1], correction=0)
    count = torch.full_like(mean, x.numel() / max(1, x.shape[1]))
    mine = torch.stack([mean, variance, count])
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, mine, group=group)
    means, variances, counts = torch.stack(everyone, dim=1)
    total = counts.sum(0)
    mean = (counts * means).sum(0) / total
    return mean, (counts * (variances + (means - mean).square())).sum(0) / total, total
