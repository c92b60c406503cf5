"""A rank of two: ``python -m tests.call.two_ranks RANK FOLDER``. It trains converted models, spread in several ways,
runs calls of DTensors, and saves what came of them."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import dwconv
from dwconv import native
from dwconv.call.call_plan import plans
from dwconv.problems.workload import BLOCK_PASSES

SIZES = (8, 12, 10)
"""Channels, height and width of what its first depthwise layer takes."""
LAYERS = ("1", "4")
"""The depthwise layers of ``small_net``."""
STEPS = 3


def small_net() -> nn.Module:
    """A model, equal in every process. Nothing in it mixes the images of a batch."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 1),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=8, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    ).to(memory_format=torch.channels_last)


def images() -> Tensor:
    """The whole batch."""
    drawn = torch.randn(4, 3, *SIZES[1:], generator=torch.Generator().manual_seed(1))
    return drawn.to(memory_format=torch.channels_last)


def train(model: nn.Module, x: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def in_ddp(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(dwconv.convert(model))


def converted_then_sharded(model: nn.Module) -> nn.Module:
    return _sharded(dwconv.convert(model))


def sharded_then_converted(model: nn.Module) -> nn.Module:
    return dwconv.convert(_sharded(model))


def _sharded(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for name in LAYERS:
        fully_shard(model.get_submodule(name), mesh=mesh)
    return fully_shard(model, mesh=mesh)


def in_fsdp_1(model: nn.Module) -> nn.Module:
    """The older wrapper, which flattens parameters."""
    return FullyShardedDataParallel(dwconv.convert(model), device_id=torch.device("cpu"))


WAYS = {
    "ddp": in_ddp,
    "converted, then sharded": converted_then_sharded,
    "sharded, then converted": sharded_then_converted,
    "fsdp 1": in_fsdp_1,
}


BLOCK = "bn+relu6,bn+relu6"


class Branched(nn.Module):
    """It has a block, and a layer that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.widen, self.last, self.unused = nn.Conv2d(3, 8, 1), nn.Linear(8, 4), nn.Linear(8, 4)
        conv = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.block = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU6(), conv, nn.BatchNorm2d(8), nn.ReLU6())
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.block(self.widen(x)).mean((2, 3)))


def branches_sharded(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model.get_submodule("block"), mesh=mesh)
    return fully_shard(model, mesh=mesh)


BLOCK_WAYS = {
    "ddp": lambda model: DistributedDataParallel(model, find_unused_parameters=True),
    "fsdp 2": branches_sharded,
}


def block_trained(way: str, rank: int) -> dict[str, list[Tensor] | int]:
    """What a plain model and one with a block have learnt, and how often that ran as one."""
    dwconv.reset()
    learnt = {}
    for kind, x in (("plain", images()), ("blocks", images())):
        model, x = Branched(), x[2 * rank : 2 * rank + 2]
        if kind == "blocks":
            dwconv.convert(model, x, blocks=True, seconds=0)
        spread = BLOCK_WAYS[way](model)
        train(spread, x)
        learnt[kind] = [*whole(spread), *(each.clone() for each in spread.buffers())]
    counted = [plan.tally.counted_ops() for plan in plans() if plan.problem.block]
    return {**learnt, **{pass_: sum(ops[pass_] for ops in counted) for pass_ in BLOCK_PASSES}}


def trained(way: str, rank: int) -> dict[str, Any]:
    """What became of the model in its steps on this rank's half of the batch: its ``parameters``, whole, what autograd
    recorded of the first depthwise layer, calls of each pass by layer, of the model and inside its wrapper."""
    dwconv.reset()
    ran: list[str] = []
    model = small_net()
    model[1].register_forward_hook(lambda layer, inputs, y: ran.append(y.grad_fn.name()))
    spread = WAYS[way](model)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        train(spread, images()[2 * rank : 2 * rank + 2])
    calls = {"model": calls_of(spread)} | ({"inside": calls_of(spread.module)} if way == "ddp" else {})
    return {
        "parameters": whole(spread), "ran": ran, "calls": calls, "warned": [str(each.message) for each in heard]
    }  # fmt: skip


def calls_of(model: nn.Module) -> dict[str, list[int]]:
    return {" ".join(row.names): [each.calls for each in row.passes] for row in dwconv.report(model).rows}


def whole(model: nn.Module) -> list[Tensor]:
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [each.detach().clone() for each in small_parameters(model)]
    return [full(each.detach()) for each in model.parameters()]


def full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def small_parameters(model: nn.Module) -> list[Tensor]:
    """As of ``small_net``: flattened ones are in its layers while they are whole."""
    layers = [each for each in model.modules() if isinstance(each, (nn.Conv2d, nn.GroupNorm, nn.Linear))]
    return [each for layer in layers for each in (layer.weight, layer.bias) if each is not None]


# -- calls of DTensors -------------------------------------------------------------------------------------------------


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


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.set_warn_always(True)  # PyTorch says most things once in a process
    native.native()
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=timedelta(seconds=600)
    )
    torch.save({way: trained(way, rank) for way in WAYS}, folder / f"models-{rank}.pt")
    torch.save({way: block_trained(way, rank) for way in BLOCK_WAYS}, folder / f"blocks-{rank}.pt")
    torch.save(run_all(init_device_mesh("cpu", (2,))), folder / f"calls-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
