"""Small models with what real ones have: residual blocks, ReLU in place, statistics, depthwise layers."""

from __future__ import annotations

from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two convolutions, added to what they read, as in a ResNet."""

    def __init__(self, channels: int, out_channels: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = (
            None
            if stride == 1 and channels == out_channels
            else nn.Sequential(
                nn.Conv2d(channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class SmallResNet(nn.Module):
    """(N, 3, H, W) -> (N, classes), laid out as torchvision's ResNets are."""

    def __init__(self, *, classes: int = 5, channels: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(ResidualBlock(channels, channels), ResidualBlock(channels, channels))
        self.layer2 = nn.Sequential(
            ResidualBlock(channels, 2 * channels, stride=2), ResidualBlock(2 * channels, 2 * channels)
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2 * channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(x))
        return self.fc(self.avgpool(x).flatten(1))


class SmallMobileNet(nn.Module):
    """(N, 3, H, W) -> (N, classes): an inverted residual block around a depthwise layer; in the end a mean."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.block = nn.Sequential(
            nn.Conv2d(8, 32, 1),
            nn.ReLU6(inplace=True),
            nn.Conv2d(32, 32, 3, padding=1, groups=32),
            nn.ReLU6(inplace=True),
            nn.Conv2d(32, 8, 1),
        )
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.block(x)
        return self.head(x.mean((2, 3)))
