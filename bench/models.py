"""The networks whose training steps are compared, and those of images, written plainly: what depthwise convolution is
used in; and ResNet-18, -34 and -50 (He et al. 2015). Those of volumes and sequences are in ``rows_and_volumes.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from bench.dilated import TCN, VAN, DeepLab, SLaK, UniRepLKNet, VANSeparable
from bench.rows_and_volumes import X3D, Mamba, MedNeXt, MedNeXtUNet, SqueezeExcite, convolved
from dwconv.errors import InvalidWorkload


@dataclass(frozen=True, kw_only=True)
class Network:
    """A model, and the input it is trained on here: small enough for two cores."""

    name: str
    make: Callable[[], nn.Module]
    batch: int = 8
    is_dilated: bool = False
    """Whether it stands for kernels that are dilated, large or decomposed, which have a run of their own."""
    sample: tuple[int, ...] = (3, 224, 224)
    """The shape of one input: (C, H, W) of an image, (C, D, H, W) of a volume, (L, C) of a sequence."""

    @property
    def dims(self) -> int:
        """How many dimensions its convolutions have: 1 for sequences, 2 for images, 3 for volumes."""
        return len(self.sample) - 1

    def resized(self, image: int) -> Network:
        """The network with inputs whose height and width are ``image``. Raises InvalidWorkload for sequences."""
        if self.dims == 1:
            raise InvalidWorkload(f"--image {image}: {self.name} takes sequences, which have no height; leave it out")
        return replace(self, sample=(*self.sample[:-2], image, image))


@dataclass(frozen=True)
class BottleneckSizes:
    """An inverted residual block: its kernel, the channels that it widens to and gives, squeeze-excite or not, its
    activation and its stride."""

    kernel: int
    wide: int
    out_channels: int
    se: bool
    activation: type[nn.Module]
    stride: int


class InvertedResidual(nn.Module):
    """Widen, convolve depthwise, narrow; added to its input where the sizes allow."""

    def __init__(self, channels: int, row: BottleneckSizes) -> None:
        super().__init__()
        wide, act = row.wide, row.activation
        self.adds = row.stride == 1 and channels == row.out_channels
        self.block = nn.Sequential(
            *(convolved(channels, wide, act=act) if wide != channels else []),
            *convolved(wide, wide, row.kernel, stride=row.stride, groups=wide, act=act),
            *([SqueezeExcite(wide, _round_to_8(wide / 4), gate=nn.Hardsigmoid)] if row.se else []),
            *convolved(wide, row.out_channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        narrowed: Tensor = self.block(x)
        return x + narrowed if self.adds else narrowed


class MobileNet(nn.Module):
    """(N, 3, 224, 224) -> (N, classes)"""

    def __init__(
        self, rows: Sequence[BottleneckSizes], *, first: int, last: int, act: type[nn.Module], head: nn.Module
    ) -> None:
        super().__init__()
        before = [first, *(row.out_channels for row in rows)]
        self.stem = nn.Sequential(*convolved(3, first, 3, stride=2, act=act))
        self.blocks = nn.Sequential(*(InvertedResidual(channels, row) for channels, row in zip(before, rows)))  # noqa: B905
        self.last = nn.Sequential(*convolved(before[-1], last, act=act))
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        features = self.last(self.blocks(self.stem(x)))
        return self.head(features.mean((2, 3)))


class MobileNetV2(MobileNet):
    """Every depthwise layer is 3×3."""

    # factor that widens, out_channels, blocks, stride of the first
    ROWS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, classes: int = 10) -> None:
        rows, channels = [], 32
        for factor, out_channels, count, first_stride in self.ROWS:
            for stride in (first_stride, *[1] * (count - 1)):
                rows.append(BottleneckSizes(3, factor * channels, out_channels, False, nn.ReLU6, stride))
                channels = out_channels
        super().__init__(rows, first=32, last=1280, act=nn.ReLU6, head=nn.Linear(1280, classes))


class FrozenMobileNetV2(MobileNetV2):
    """Its norms keep their statistics in training, as where a network is fine-tuned."""

    def train(self, mode: bool = True) -> FrozenMobileNetV2:
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


class MobileNetV3Large(MobileNet):
    """Half of the depthwise layers are 5×5."""

    ROWS = (
        BottleneckSizes(3, 16, 16, False, nn.ReLU, 1),
        BottleneckSizes(3, 64, 24, False, nn.ReLU, 2),
        BottleneckSizes(3, 72, 24, False, nn.ReLU, 1),
        BottleneckSizes(5, 72, 40, True, nn.ReLU, 2),
        BottleneckSizes(5, 120, 40, True, nn.ReLU, 1),
        BottleneckSizes(5, 120, 40, True, nn.ReLU, 1),
        BottleneckSizes(3, 240, 80, False, nn.Hardswish, 2),
        BottleneckSizes(3, 200, 80, False, nn.Hardswish, 1),
        BottleneckSizes(3, 184, 80, False, nn.Hardswish, 1),
        BottleneckSizes(3, 184, 80, False, nn.Hardswish, 1),
        BottleneckSizes(3, 480, 112, True, nn.Hardswish, 1),
        BottleneckSizes(3, 672, 112, True, nn.Hardswish, 1),
        BottleneckSizes(5, 672, 160, True, nn.Hardswish, 2),
        BottleneckSizes(5, 960, 160, True, nn.Hardswish, 1),
        BottleneckSizes(5, 960, 160, True, nn.Hardswish, 1),
    )

    def __init__(self, classes: int = 10) -> None:
        head = nn.Sequential(nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, classes))
        super().__init__(self.ROWS, first=16, last=960, act=nn.Hardswish, head=head)


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
    """(N, 3, 224, 224) -> (N, classes): ConvNeXt-T with two blocks of each size."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        stages: list[nn.Module] = [nn.Conv2d(3, 96, 4, stride=4), ChannelNorm(96)]
        for channels in (96, 192, 384, 768):
            if channels > 96:
                stages += [ChannelNorm(channels // 2), nn.Conv2d(channels // 2, channels, 2, stride=2)]
            stages += [ConvNeXtBlock(channels), ConvNeXtBlock(channels)]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.LayerNorm(768), nn.Linear(768, classes))

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
        wide = 4 * channels
        self.perceptron = nn.Sequential(
            nn.BatchNorm2d(channels), nn.Conv2d(channels, wide, 1), nn.GELU(), nn.Conv2d(wide, channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        narrow = self.before(x)
        x = x + self.after(self.norms[0](self.large(narrow)) + self.norms[1](self.small(narrow)))
        added: Tensor = self.perceptron(x)
        return x + added


class RepLKNet(nn.Module):
    """(N, 3, 112, 112) -> (N, classes): the first two sizes of RepLKNet-31B, on maps half as large."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for channels, out_channels, kernel, step in ((3, 128, 31, 4), (128, 256, 29, 2)):
            stages += [nn.Conv2d(channels, out_channels, step, stride=step), nn.BatchNorm2d(out_channels), nn.ReLU()]
            stages += [LargeKernelBlock(out_channels, kernel=kernel) for _ in range(2)]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(256, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).mean((2, 3)))


def _round_to_8(channels: float) -> int:
    """As MobileNet rounds: to a multiple of 8, not down by more than a tenth."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class GhostModule(nn.Module):
    """Half of the channels by a 1×1 convolution, the others from these by a depthwise one (Han et al. 2020)."""

    def __init__(self, channels: int, out_channels: int, *, act: type[nn.Module] | None) -> None:
        super().__init__()
        half = out_channels // 2
        self.primary = nn.Sequential(*convolved(channels, half, act=act))
        self.cheap = nn.Sequential(*convolved(half, half, 3, groups=half, act=act))

    def forward(self, x: Tensor) -> Tensor:
        first = self.primary(x)
        return torch.cat([first, self.cheap(first)], 1)


class GhostBottleneck(nn.Module):
    """Widen, stride depthwise, weigh, narrow; added to what it reads."""

    def __init__(self, channels: int, row: BottleneckSizes) -> None:
        super().__init__()
        wide, kernel, stride = row.wide, row.kernel, row.stride
        strided = convolved(wide, wide, kernel, stride=stride, groups=wide) if stride > 1 else []
        weighed = [SqueezeExcite(wide, _round_to_8(wide / 4), gate=nn.Hardsigmoid)] if row.se else []
        self.branch = nn.Sequential(
            GhostModule(channels, wide, act=row.activation), *strided, *weighed,
            GhostModule(wide, row.out_channels, act=None),
        )  # fmt: skip
        changes = stride > 1 or channels != row.out_channels
        shortcut = convolved(channels, channels, kernel, stride=stride, groups=channels) if changes else []
        self.shortcut = nn.Sequential(*shortcut, *(convolved(channels, row.out_channels) if changes else []))

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x) + self.shortcut(x)


class GhostNet(nn.Module):
    """(N, 3, H, W) -> (N, classes): many small depthwise layers (Han et al. 2020)."""

    _ROWS = (
        (3, 16, 16, False, 1), (3, 48, 24, False, 2), (3, 72, 24, False, 1), (5, 72, 40, True, 2),
        (5, 120, 40, True, 1), (3, 240, 80, False, 2), (3, 200, 80, False, 1), (3, 184, 80, False, 1),
        (3, 184, 80, False, 1), (3, 480, 112, True, 1), (3, 672, 112, True, 1), (5, 672, 160, True, 2),
        (5, 960, 160, False, 1), (5, 960, 160, True, 1), (5, 960, 160, False, 1), (5, 960, 160, True, 1),
    )  # fmt: skip

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = convolved(3, 16, 3, stride=2, act=nn.ReLU)
        channels = 16
        for kernel, wide, out_channels, se, stride in self._ROWS:
            layers.append(GhostBottleneck(channels, BottleneckSizes(kernel, wide, out_channels, se, nn.ReLU, stride)))
            channels = out_channels
        self.layers = nn.Sequential(*layers, *convolved(channels, 960, act=nn.ReLU))
        self.head = nn.Linear(960, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3)))


NETWORKS = (
    Network(name="MobileNetV2", make=MobileNetV2),
    Network(name="MobileNetV3-Large", make=MobileNetV3Large),
    Network(name="ConvNeXt-like", make=ConvNeXt),
    Network(name="RepLKNet-like", make=RepLKNet, batch=4, sample=(3, 112, 112)),
    Network(name="X3D-S-like", make=X3D, batch=2, sample=(3, 13, 160, 160)),
    Network(name="MedNeXt-S-like", make=MedNeXt, batch=1, sample=(1, 48, 48, 48)),
    Network(name="MedNeXt-S-like, whole", make=MedNeXtUNet, batch=1, sample=(1, 48, 48, 48)),
    Network(name="Mamba-like", make=Mamba, batch=4, sample=(512, 384)),
    Network(name="VAN-B0", make=VAN, batch=4, sample=(3, 160, 160), is_dilated=True),
    Network(name="VAN-B0-LSKA", make=VANSeparable, batch=4, sample=(3, 160, 160), is_dilated=True),
    Network(name="SLaK-like", make=SLaK, batch=2, sample=(3, 160, 160), is_dilated=True),
    Network(name="UniRepLKNet-like", make=UniRepLKNet, batch=4, sample=(3, 160, 160), is_dilated=True),
    Network(name="DeepLabV3+-like", make=DeepLab, batch=2, sample=(3, 256, 256), is_dilated=True),
    Network(name="TCN-like", make=TCN, batch=2, sample=(1999, 128), is_dilated=True),
)


class Residual(nn.Module):
    """Two 3×3 convolutions, or with ``narrow`` a 1×1, a 3×3 and a 1×1 one of which the last is four times as wide;
    added to what they read."""

    def __init__(self, channels: int, width: int, *, stride: int, narrow: bool) -> None:
        super().__init__()
        out_channels = 4 * width if narrow else width
        relu = partial(nn.ReLU, inplace=True)
        first = convolved(channels, width, act=relu) if narrow else []
        strided = convolved(width if narrow else channels, width, 3, stride=stride, act=relu)
        self.branch = nn.Sequential(*first, *strided, *convolved(width, out_channels, 1 if narrow else 3))
        self.relu = relu()
        changes = stride > 1 or channels != out_channels
        self.shortcut = nn.Sequential(*(convolved(channels, out_channels, stride=stride) if changes else []))

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.branch(x) + self.shortcut(x))


class ResNet(nn.Module):
    """(N, 3, H, W) -> (N, classes). For small images the first convolution keeps the size, as is usual on CIFAR."""

    def __init__(self, counts: tuple[int, ...], *, narrow: bool, classes: int, small_images: bool) -> None:
        super().__init__()
        if small_images:
            self.stem = nn.Sequential(*convolved(3, 64, 3, act=nn.ReLU))
        else:
            self.stem = nn.Sequential(*convolved(3, 64, 7, stride=2, act=nn.ReLU), nn.MaxPool2d(3, stride=2, padding=1))
        made: list[nn.Module] = []
        channels = 64
        for number, count in enumerate(counts):
            for position in range(count):
                width, stride = 64 << number, 2 if number and not position else 1
                made.append(Residual(channels, width, stride=stride, narrow=narrow))
                channels = 4 * width if narrow else width
        self.blocks = nn.Sequential(*made)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.blocks(self.stem(x))).flatten(1))


_DEPTHS = {"ResNet-18": (2, 2, 2, 2), "ResNet-34": (3, 4, 6, 3), "ResNet-50": (3, 4, 6, 3)}
RESNETS = tuple(_DEPTHS)
"""Names."""


def resnet(name: str, *, classes: int, small_images: bool) -> ResNet:
    """The network of that name."""
    return ResNet(_DEPTHS[name], narrow=name == "ResNet-50", classes=classes, small_images=small_images)
