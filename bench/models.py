"""The networks whose training steps are compared, and those of images, written plainly: what depthwise convolution is
used in; and ResNet-18, -34 and -50 (He et al. 2015). Those of volumes and sequences are in ``rows_and_volumes.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor, nn

from bench.rows_and_volumes import X3D, Mamba, MedNeXt
from dwconv.errors import InvalidWorkload


@dataclass(frozen=True, kw_only=True)
class Network:
    """A model, and the input it is trained on here: small enough for two cores."""

    name: str
    make: Callable[[], nn.Module]
    batch: int = 8
    sample: tuple[int, ...] = (3, 224, 224)
    """The shape of one input: (C, H, W) of an image, (C, D, H, W) of a volume, (L, C) of a sequence."""
    goal: float = 1.0
    """How many times as fast a converted step should be."""

    @property
    def dims(self) -> int:
        """How many dimensions its convolutions have: 1 for sequences, 2 for images, 3 for volumes."""
        return len(self.sample) - 1

    def resized(self, image: int) -> Network:
        """The network with inputs whose height and width are ``image``. Raises InvalidWorkload for sequences."""
        if self.dims == 1:
            raise InvalidWorkload(f"--image {image}: {self.name} takes sequences, which have no height; leave it out")
        return replace(self, sample=(*self.sample[:-2], image, image))


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
        self,
        channels: int,
        wide: int,
        out_channels: int,
        *,
        kernel: int,
        stride: int,
        se: bool = False,
        activation: Callable[[], nn.Module] = nn.ReLU6,
    ) -> None:
        super().__init__()
        self.adds = stride == 1 and channels == out_channels
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
        narrowed: Tensor = self.block(x)
        return x + narrowed if self.adds else narrowed


class MobileNetV2(nn.Module):
    """(N, 3, 224, 224) -> (N, classes): every depthwise layer is 3×3."""

    # factor that widens, out_channels, blocks, stride of the first
    ROWS = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        blocks, channels = [], 32
        for factor, out_channels, count, first_stride in self.ROWS:
            for stride in (first_stride, *[1] * (count - 1)):
                blocks.append(InvertedResidual(channels, factor * channels, out_channels, kernel=3, stride=stride))
                channels = out_channels
        self.stem = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()
        )  # fmt: skip
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(nn.Conv2d(channels, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6())
        self.head = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        features = self.last(self.blocks(self.stem(x)))
        return self.head(features.mean((2, 3)))


class MobileNetV3Large(nn.Module):
    """(N, 3, 224, 224) -> (N, classes): half of the depthwise layers are 5×5."""

    # kernel, wide, out_channels, squeeze-excite, activation, stride
    ROWS = (
        (3, 16, 16, False, nn.ReLU, 1),
        (3, 64, 24, False, nn.ReLU, 2),
        (3, 72, 24, False, nn.ReLU, 1),
        (5, 72, 40, True, nn.ReLU, 2),
        (5, 120, 40, True, nn.ReLU, 1),
        (5, 120, 40, True, nn.ReLU, 1),
        (3, 240, 80, False, nn.Hardswish, 2),
        (3, 200, 80, False, nn.Hardswish, 1),
        (3, 184, 80, False, nn.Hardswish, 1),
        (3, 184, 80, False, nn.Hardswish, 1),
        (3, 480, 112, True, nn.Hardswish, 1),
        (3, 672, 112, True, nn.Hardswish, 1),
        (5, 672, 160, True, nn.Hardswish, 2),
        (5, 960, 160, True, nn.Hardswish, 1),
        (5, 960, 160, True, nn.Hardswish, 1),
    )

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        blocks, channels = [], 16
        for kernel, wide, out_channels, se, activation, stride in self.ROWS:
            blocks.append(
                InvertedResidual(
                    channels, wide, out_channels, kernel=kernel, stride=stride, se=se, activation=activation
                )
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


class ConvNeXtBlock(nn.Module):
    """7×7 depthwise with a bias, LayerNorm over the channels, then a perceptron at every position."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(channels), nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.perceptron(self.depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + added


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """(N, 3, 224, 224) -> (N, classes): ConvNeXt-T with fewer blocks of each size."""

    CHANNELS = (96, 192, 384, 768)

    def __init__(self, classes: int = 10, *, blocks: tuple[int, ...] = (2, 2, 2, 2)) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        channels, step = 3, 4
        for out_channels, count in zip(self.CHANNELS, blocks, strict=True):
            if channels > 3:
                stages.append(ChannelNorm(channels))
            stages += [nn.Conv2d(channels, out_channels, step, stride=step)]
            stages += [ChannelNorm(out_channels)] if channels == 3 else []
            stages += [ConvNeXtBlock(out_channels) for _ in range(count)]
            channels, step = out_channels, 2
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).mean((2, 3)))


class LargeKernelBlock(nn.Module):
    """A depthwise layer with a kernel as large as the map, and a 5×5 one beside it; then a perceptron."""

    def __init__(self, channels: int, *, kernel: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(channels), nn.Conv2d(channels, channels, 1), nn.ReLU())
        self.large = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)
        self.small = nn.Conv2d(channels, channels, 5, padding=2, groups=channels, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        self.after = nn.Sequential(nn.ReLU(), nn.Conv2d(channels, channels, 1))
        self.perceptron = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.Conv2d(channels, 4 * channels, 1),
            nn.GELU(),
            nn.Conv2d(4 * channels, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        narrow = self.before(x)
        x = x + self.after(self.norms[0](self.large(narrow)) + self.norms[1](self.small(narrow)))
        added: Tensor = self.perceptron(x)
        return x + added


class RepLKNet(nn.Module):
    """(N, 3, 112, 112) -> (N, classes): the first two sizes of RepLKNet-31B, on maps half as large."""

    # channels, kernel, blocks
    ROWS = ((128, 31, 2), (256, 29, 2))

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        channels, step = 3, 4
        for out_channels, kernel, count in self.ROWS:
            stages += [nn.Conv2d(channels, out_channels, step, stride=step), nn.BatchNorm2d(out_channels), nn.ReLU()]
            stages += [LargeKernelBlock(out_channels, kernel=kernel) for _ in range(count)]
            channels, step = out_channels, 2
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).mean((2, 3)))


NETWORKS = (
    Network(name="MobileNetV2", make=MobileNetV2, goal=1.05),
    Network(name="MobileNetV3-Large", make=MobileNetV3Large, goal=1.35),
    Network(name="ConvNeXt-like", make=ConvNeXt, goal=1.15),
    Network(name="RepLKNet-like", make=RepLKNet, batch=4, sample=(3, 112, 112), goal=7.0),
    Network(name="X3D-S-like", make=X3D, batch=2, sample=(3, 13, 160, 160)),
    Network(name="MedNeXt-S-like", make=MedNeXt, batch=1, sample=(1, 48, 48, 48)),
    Network(name="Mamba-like", make=Mamba, batch=4, sample=(512, 384)),
)


def _round_to_8(channels: float) -> int:
    """As MobileNet rounds: to a multiple of 8, not down by more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


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
        return self.relu(y + (x if self.shortcut is None else self.shortcut(x)))


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
        return self.relu(y + (x if self.shortcut is None else self.shortcut(x)))


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
        return self.head(self.pool(self.blocks(self.stem(x))).flatten(1))


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
