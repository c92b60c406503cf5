"""A small network of depthwise convolutions that rounds on a GPU exactly as on a CPU."""

from __future__ import annotations

import torch
from torch import nn

from dwconv.problems.workload import Workload
from tests.planted_records import workload_of

SHAPE = (3, 8, 10, 9)
WORKLOADS: tuple[Workload, ...] = (
    workload_of(shape=SHAPE, layout="nchw"),
    workload_of(shape=(3, 8, 10, 9), kernel=(5, 5), stride=2, padding=2, layout="nchw"),
)
"""The workloads of its layers."""


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
        nn.ReLU(),
        nn.Conv2d(8, 8, 5, stride=2, padding=2, groups=8, bias=False),
    )


def data(seed: int) -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = model(x)
    return (y * y).sum() / 100
