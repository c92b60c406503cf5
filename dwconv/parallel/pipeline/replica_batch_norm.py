"""Batch normalisation over the replicas of a stage. PyTorch's own SyncBatchNorm takes tensors on a GPU alone.

Written with PyTorch's operators and one sum over the ranks, so that its backward pass can be split into the gradient of
the input, which needs the other replicas, and that of weight and bias, which does not.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm


def synchronise_batch_norms(module: nn.Module, group: dist.ProcessGroup) -> nn.Module:
    """``module`` with the batch normalisations in it replaced by those whose statistics are over all ranks of
    ``group``. Parameters and statistics are the same tensors as before."""
    if isinstance(module, _BatchNorm) and module.track_running_stats:
        return ReplicaBatchNorm(module, group)
    for name, child in list(module.named_children()):
        setattr(module, name, synchronise_batch_norms(child, group))
    return module


class ReplicaBatchNorm(nn.Module):
    """What ``norm`` does, with the mean and variance of a microbatch on all ranks of ``group``."""

    def __init__(self, norm: _BatchNorm, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.eps, self.momentum, self._group = norm.eps, norm.momentum, group
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)
        self.register_buffer("num_batches_tracked", norm.num_batches_tracked)
        self.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        running_mean, running_var = self.get_buffer("running_mean"), self.get_buffer("running_var")
        if not self.training:
            return nn.functional.batch_norm(x, running_mean, running_var, self.weight, self.bias, eps=self.eps)
        others = [axis for axis in range(x.dim()) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(x.dim())]
        count = x.numel() // x.shape[1] * self._group.size()
        # The sum first, then the squares of what is left of it: the square of a large mean would drown the variance.
        mean = self._sum(x.sum(others)) / count
        centred = x - mean.view(shape)
        variance = self._sum(centred.square().sum(others)) / count
        self._remember(mean.detach(), variance.detach() * count / max(count - 1, 1))
        y = centred * torch.rsqrt(variance + self.eps).view(shape)
        return y if self.weight is None else y * self.weight.view(shape) + self.bias.view(shape)

    def _sum(self, mine: Tensor) -> Tensor:
        total: Tensor = _SumOfAll.apply(mine, self._group)  # type: ignore[no-untyped-call]
        return total

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        tracked = self.get_buffer("num_batches_tracked").add_(1)
        share = 1.0 / float(tracked) if self.momentum is None else self.momentum
        self.get_buffer("running_mean").lerp_(mean, share)
        self.get_buffer("running_var").lerp_(variance, share)


class _SumOfAll(Function):
    """The sum over all ranks, which each of them uses: the gradient is a sum over them, too."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _summed(mine, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _summed(grad, ctx.group), None


def _summed(mine: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = mine.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total
