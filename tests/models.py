"""Small models, written plainly: what depthwise convolution is used in."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SqueezeExcite(nn.Module):
    """Scales every channel by what its mean says."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = _round_to_8(channels / 4)
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.squeeze(x.mean((2, 3), keepdim=True)).relu()
        return x * nn.functional.hardsigmoid(self.excite(scale))


class InvertedResidual(nn.Module):
    """Widen, convolve depthwise, narrow; added to its input where the sizes allow."""

    def __init__(
        self, channels: int, wide: int, out_channels: int, *, kernel: int, stride: int, se: bool, hardswish: bool
    ) -> None:
        super().__init__()
        self.adds = stride == 1 and channels == out_channels
        activation = nn.Hardswish if hardswish else nn.ReLU
        widen = (
            [] if wide == channels else [nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), activation()]
        )
        self.block = nn.Sequential(
            *widen,
            nn.Conv2d(wide, wide, kernel, stride=stride, padding=kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            activation(),
            *([SqueezeExcite(wide)] if se else []),
            nn.Conv2d(wide, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x) if self.adds else self.block(x)


class MobileNetV3Large(nn.Module):
    """(N, 3, 224, 224) -> (N, classes): the depthwise layers of MobileNetV3-Large."""

    # kernel, wide, out_channels, squeeze-excite, hardswish, stride
    ROWS = (
        (3, 16, 16, False, False, 1),
        (3, 64, 24, False, False, 2),
        (3, 72, 24, False, False, 1),
        (5, 72, 40, True, False, 2),
        (5, 120, 40, True, False, 1),
        (5, 120, 40, True, False, 1),
        (3, 240, 80, False, True, 2),
        (3, 200, 80, False, True, 1),
        (3, 184, 80, False, True, 1),
        (3, 184, 80, False, True, 1),
        (3, 480, 112, True, True, 1),
        (3, 672, 112, True, True, 1),
        (5, 672, 160, True, True, 2),
        (5, 960, 160, True, True, 1),
        (5, 960, 160, True, True, 1),
    )

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        blocks, channels = [], 16
        for kernel, wide, out_channels, se, hardswish, stride in self.ROWS:
            blocks.append(
                InvertedResidual(channels, wide, out_channels, kernel=kernel, stride=stride, se=se, hardswish=hardswish)
            )
            channels = out_channels
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()
        )
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(nn.Conv2d(channels, 960, 1, bias=False), nn.BatchNorm2d(960), nn.Hardswish())
        self.head = nn.Sequential(nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, classes))

    def forward(self, x: Tensor) -> Tensor:
        features = self.last(self.blocks(self.stem(x)))
        return self.head(features.mean((2, 3)))


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


class ConformerConvolution(nn.Module):
    """(N, L, C) -> (N, L, C): the convolution module of a Conformer."""

    def __init__(self, channels: int = 16, kernel: int = 9) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.widen = nn.Conv1d(channels, 2 * channels, 1)
        self.depthwise = nn.Conv1d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)
        self.batch_norm = nn.BatchNorm1d(channels)
        self.narrow = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.glu(self.widen(self.norm(x).transpose(1, 2)), dim=1)
        y = nn.functional.silu(self.batch_norm(self.depthwise(y)))
        return x + self.narrow(y).transpose(1, 2)


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


def _round_to_8(channels: float) -> int:
    """As MobileNet rounds: to a multiple of 8, not down by more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
