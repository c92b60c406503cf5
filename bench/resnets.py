"""ResNet-18, -34 and -50 (He et al. 2015), written plainly, for small images and for large ones."""

from __future__ import annotations

from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions, added to what they read."""

    EXPANSION = 1

    def __init__(self, channels: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = _shortcut(channels, width * self.EXPANSION, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        added: Tensor = self.relu(y + (x if self.shortcut is None else self.shortcut(x)))
        return added


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1, of which the last is four times as wide."""

    EXPANSION = 4

    def __init__(self, channels: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, self.EXPANSION * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(self.EXPANSION * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(channels, width * self.EXPANSION, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        added: Tensor = self.relu(y + (x if self.shortcut is None else self.shortcut(x)))
        return added


def _shortcut(channels: int, out_channels: int, *, stride: int) -> nn.Module | None:
    if stride == 1 and channels == out_channels:
        return None
    return nn.Sequential(nn.Conv2d(channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels))


class ResNet(nn.Module):
    """(N, 3, H, W) -> (N, classes). For small images the first convolution keeps the size, as is usual on CIFAR."""

    def __init__(
        self, blocks: tuple[int, ...], block: type[BasicBlock | Bottleneck], *, classes: int, small_images: bool
    ) -> None:
        super().__init__()
        if small_images:
            self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        else:
            self.stem = nn.Sequential(
                nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
                nn.BatchNorm2d(64),
                nn.ReLU(),
                nn.MaxPool2d(3, stride=2, padding=1),
            )
        made: list[nn.Module] = []
        channels = 64
        for number, (width, count) in enumerate(zip(WIDTHS, blocks, strict=True)):
            for position in range(count):
                made.append(block(channels, width, stride=2 if number and not position else 1))
                channels = width * block.EXPANSION
        self.blocks = nn.Sequential(*made)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.pool(self.blocks(self.stem(x))).flatten(1))
        return logits


_DEPTHS: dict[str, tuple[tuple[int, ...], type[BasicBlock | Bottleneck]]] = {
    "ResNet-18": ((2, 2, 2, 2), BasicBlock),
    "ResNet-34": ((3, 4, 6, 3), BasicBlock),
    "ResNet-50": ((3, 4, 6, 3), Bottleneck),
}
RESNETS = tuple(_DEPTHS)
"""Names."""


def resnet(name: str, *, classes: int, small_images: bool) -> ResNet:
    """The network of that name."""
    blocks, block = _DEPTHS[name]
    return ResNet(blocks, block, classes=classes, small_images=small_images)
