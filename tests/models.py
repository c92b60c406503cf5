"""Small models, written plainly: what depthwise convolution is used in."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bench.rows_and_volumes import ConformerConvolution as ConformerConvolution


class TinyNet(nn.Module):
    """(N, 3, H, W) -> (N, classes): strided, dilated, biased and multiplied depthwise layers, in little time."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 1),
            nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.Hardswish(),
            nn.Conv2d(8, 16, 5, stride=2, padding=2, groups=8),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding="same", dilation=2, groups=16, padding_mode="reflect"),
        )
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class OneLayer(nn.Module):
    """(N, 3, H, W) -> (N, classes): one depthwise layer, with all that the three of ``TinyNet`` have but a dilation."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.widen = nn.Conv2d(3, 8, 1)
        self.depthwise = nn.Conv2d(8, 16, 5, stride=2, padding=2, groups=8)
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.depthwise(self.widen(x)).relu().mean((2, 3)))


class OneBlock(OneLayer):
    """``OneLayer``, its depthwise layer between two norms and activations."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__(classes)
        self.before = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU6())
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.after = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU6())
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.after(self.depthwise(self.before(self.widen(x)))).mean((2, 3)))


class VideoNet(nn.Module):
    """(N, 3, D, H, W) -> (N, classes): X3D in little, first along time, then through space as well."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.widen = nn.Conv3d(3, 8, 1)
        self.time = nn.Conv3d(8, 8, (5, 1, 1), padding=(2, 0, 0), groups=8, bias=False)
        self.norm = nn.BatchNorm3d(8)
        self.space = nn.Conv3d(8, 8, 3, stride=(1, 2, 2), padding=1, groups=8)
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu(self.norm(self.time(self.widen(x))))
        return self.head(self.space(y).mean((2, 3, 4)))


def train(model: nn.Module, inputs: Tensor, *, steps: int, lr: float = 0.05) -> list[float]:
    """Losses of a few steps towards made-up classes, by SGD with momentum."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for _ in range(steps):
        outputs = model(inputs)
        classes = torch.arange(outputs.shape[0]) % outputs.shape[1]
        loss = nn.functional.cross_entropy(outputs, classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
