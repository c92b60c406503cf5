"""Calls of DTensors, for ranks to run, and what they are as plain tensors in one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor

import dwconv
from dwconv.call.call_plan import plans


@dataclass(frozen=True, kw_only=True)
class SpreadCall:
    """A convolution of tensors that are spread over the ranks of a mesh with one axis."""

    x: Placement
    w: Placement
    shape: tuple[int, ...] = (4, 8, 12, 10)
    """Of x."""
    multiplier: int = 1
    bias: bool = True
    stride: int = 1
    channels_last: bool = False
    ran: str = "pytorch"
    """The provider of a rank's part, by the records of the job; empty for what PyTorch is left to spread."""

    def leaves(self) -> list[Tensor]:
        """x, w and, where there is one, a bias: whole."""
        drawn, axes = torch.Generator().manual_seed(0), len(self.shape) - 2
        features = self.shape[1] * self.multiplier
        shapes = [self.shape, (features, 1, *[3] * axes), *([(features,)] if self.bias else [])]
        leaves = [torch.randn(shape, generator=drawn) for shape in shapes]
        if self.channels_last:
            leaves[0] = leaves[0].to(memory_format=torch.channels_last)
        return leaves

    def plain(self) -> dict[str, Tensor]:
        """PyTorch's results in one process."""
        options = {"stride": self.stride, "padding": 1, "groups": self.shape[1]}
        convolve = F.conv1d if len(self.shape) == 3 else F.conv2d
        return self._results(convolve, [leaf.requires_grad_() for leaf in self.leaves()], options)

    def spread(self, mesh: DeviceMesh) -> dict[str, Any]:
        """dwconv's results on the ranks, whole; where they were, and the provider of a rank's part in fprop."""
        dwconv.reset()
        places = (self.x, self.w, self.w)[: 3 if self.bias else 2]
        leaves = [distribute_tensor(leaf, mesh, [place]) for leaf, place in zip(self.leaves(), places, strict=True)]
        if self.channels_last:
            part = leaves[0].to_local().to(memory_format=torch.channels_last)
            leaves[0] = DTensor.from_local(part, mesh, [self.x])
        convolve = dwconv.conv1d if len(self.shape) == 3 else dwconv.conv2d
        options = {"stride": self.stride, "padding": 1}
        results = self._results(convolve, [leaf.requires_grad_() for leaf in leaves], options)
        return {
            "whole": {name: each.full_tensor() for name, each in results.items()},
            "placements": {name: str(each.placements[0]) for name, each in results.items()},
            "ran": sorted({plan.decisions["fprop"].provider for plan in plans() if plan.tally.ops["fprop"]}),
            "strides": results["y"].stride(),
        }

    def _results(self, convolve: Any, leaves: list[Tensor], options: dict[str, int]) -> dict[str, Tensor]:
        """y, first derivatives of a sum of its squares, and those of a sum of their squares. The gradient of such a sum
        arrives as it is on every rank. Second derivatives only where dwconv computes them: what PyTorch 2.13 spreads
        has wrong ones for the weight, or none."""
        y = convolve(*leaves, **options)
        names = ("x", "w", "bias")[: len(leaves)]
        first = torch.autograd.grad(y.square().sum(), leaves, retain_graph=True)
        results = {"y": y.detach(), **{f"d{name}": each for name, each in zip(names, first, strict=True)}}
        if self.ran:
            again = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
            second = torch.autograd.grad(sum(each.square().sum() for each in again), leaves)
            results |= {f"dd{name}": each for name, each in zip(names, second, strict=True)}
        return results


BY_IMAGES = {"x": Shard(0), "w": Replicate()}
BY_CHANNELS = {"x": Shard(1), "w": Shard(0)}
CALLS = {
    "images": SpreadCall(**BY_IMAGES),
    "images, channels_last": SpreadCall(**BY_IMAGES, channels_last=True, ran="dwconv"),
    "images, without bias": SpreadCall(**BY_IMAGES, bias=False),
    "channels": SpreadCall(**BY_CHANNELS),
    "channels, multiplied": SpreadCall(**BY_CHANNELS, multiplier=2, stride=2),
    "all": SpreadCall(x=Replicate(), w=Replicate()),
    "lines": SpreadCall(**BY_IMAGES, shape=(4, 8, 11)),
    "3 images": SpreadCall(**BY_IMAGES, shape=(3, 8, 12, 10), ran=""),
}


def run_all(mesh: DeviceMesh) -> dict[str, dict[str, Any]]:
    """The results of every call, by its name."""
    return {name: call.spread(mesh) for name, call in CALLS.items()}
