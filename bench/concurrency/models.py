"""Networks whose training steps are run op by op: chains and branches, large operators and small ones.

Each is a module whose ``forward`` returns the loss of a batch, so that one graph holds all of a step but the optimizer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.models import MobileNetV3Large, resnet

CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class TrainedNetwork:
    """A module that returns its loss, and made-up data for it: small enough for two cores."""

    name: str
    make: Callable[[], nn.Module]
    data: Callable[[], tuple[Tensor, ...]]


class Classifier(nn.Module):
    """Images and labels -> cross-entropy."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.network(images), labels)


def convolved(channels: int, out_channels: int, kernel: int, *, stride: int = 1) -> nn.Sequential:
    """Convolution with 'same' padding, normalisation, ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels, out_channels, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )


# -- Inception-v2: BN-Inception (Ioffe and Szegedy 2015, table 1) ----------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BranchChannels:
    """Output channels of each branch; pairs are of the 1×1 that narrows, and of what follows it."""

    one: int
    three: tuple[int, int]
    double: tuple[int, int]
    pooled: int
    """Of the 1×1 after pooling; 0 where pooling is all."""
    average: bool = True
    stride: int = 1

    @property
    def channels(self) -> int:
        return self.one + self.three[1] + self.double[1] + self.pooled


_INCEPTIONS = (
    BranchChannels(one=64, three=(64, 64), double=(64, 96), pooled=32),
    BranchChannels(one=64, three=(64, 96), double=(64, 96), pooled=64),
    BranchChannels(one=0, three=(128, 160), double=(64, 96), pooled=0, average=False, stride=2),
    BranchChannels(one=224, three=(64, 96), double=(96, 128), pooled=128),
    BranchChannels(one=192, three=(96, 128), double=(96, 128), pooled=128),
    BranchChannels(one=160, three=(128, 160), double=(128, 160), pooled=96),
    BranchChannels(one=96, three=(128, 192), double=(160, 192), pooled=96),
    BranchChannels(one=0, three=(128, 192), double=(192, 256), pooled=0, average=False, stride=2),
    BranchChannels(one=352, three=(192, 320), double=(160, 224), pooled=128),
    BranchChannels(one=352, three=(192, 320), double=(192, 224), pooled=128, average=False),
)


class InceptionBlock(nn.Module):
    """1×1, 3×3, twice 3×3, and pooling, side by side."""

    def __init__(self, channels: int, branches: BranchChannels) -> None:
        super().__init__()
        narrow, three = branches.three
        narrower, double = branches.double
        stride = branches.stride
        pool = nn.AvgPool2d if branches.average else nn.MaxPool2d
        self.branches = nn.ModuleList(
            [
                nn.Sequential(convolved(channels, narrow, 1), convolved(narrow, three, 3, stride=stride)),
                nn.Sequential(
                    convolved(channels, narrower, 1),
                    convolved(narrower, double, 3),
                    convolved(double, double, 3, stride=stride),
                ),
                nn.Sequential(
                    pool(3, stride=stride, padding=1),
                    *([convolved(channels, branches.pooled, 1)] if branches.pooled else []),
                ),
            ]
        )
        if branches.one:
            self.branches.append(convolved(channels, branches.one, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class InceptionV2(nn.Module):
    """(N, 3, H, W) -> (N, classes)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            convolved(3, 64, 7, stride=2),
            nn.MaxPool2d(3, stride=2, padding=1),
            convolved(64, 64, 1),
            convolved(64, 192, 3),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        channels = 192
        for branches in _INCEPTIONS:
            blocks.append(InceptionBlock(channels, branches))
            channels = branches.channels + (0 if branches.pooled else channels)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


# -- InceptionNeXt (Yu et al. 2023): depthwise branches beside each other ----------------------------------------------


class DepthwiseBranches(nn.Module):
    """(N, C, H, W) -> the same: a 3×3, a 1×11 and an 11×1 depthwise convolution of an eighth of the channels each; the
    other channels stay as they are."""

    def __init__(self, channels: int, *, band: int = 11) -> None:
        super().__init__()
        self.width = width = channels // 8

        def depthwise(height: int, wide: int) -> nn.Conv2d:
            return nn.Conv2d(width, width, (height, wide), padding=(height // 2, wide // 2), groups=width)

        self.branches = nn.ModuleList([depthwise(3, 3), depthwise(1, band), depthwise(band, 1)])

    def forward(self, x: Tensor) -> Tensor:
        kept = x.shape[1] - 3 * self.width
        first, *parts = torch.split(x, [kept, self.width, self.width, self.width], dim=1)
        return torch.cat([first, *(branch(part) for branch, part in zip(self.branches, parts, strict=True))], dim=1)


class MetaNeXtBlock(nn.Module):
    """(N, C, H, W) -> the same: depthwise branches, normalisation, and an MLP of four times as many channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mixer = nn.Sequential(DepthwiseBranches(channels), nn.BatchNorm2d(channels))
        self.mlp = nn.Sequential(nn.Conv2d(channels, 4 * channels, 1), nn.GELU(), nn.Conv2d(4 * channels, channels, 1))
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.mlp(self.mixer(x))


class InceptionNeXt(nn.Module):
    """(N, 3, H, W) -> (N, classes): the sizes of InceptionNeXt-A."""

    WIDTHS, DEPTHS = (40, 80, 160, 320), (2, 2, 6, 2)

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width, depth in zip(self.WIDTHS, self.DEPTHS, strict=True):
            if channels == 3:
                layers += [nn.Conv2d(channels, width, 4, stride=4), nn.BatchNorm2d(width)]
            else:
                layers += [nn.BatchNorm2d(channels), nn.Conv2d(channels, width, 2, stride=2)]
            layers += [MetaNeXtBlock(width) for _ in range(depth)]
            channels = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


# -- DCGAN (Radford et al. 2015): both players in one step -----------------------------------------------------------


class Discriminator(nn.Module):
    """(N, 3, 64, 64) -> (N,) logits. ``frozen`` keeps gradients from its weights, for the generator's loss."""

    WIDTHS = (3, 32, 64, 128, 256)

    def __init__(self) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(self.WIDTHS))
        self.convolutions = nn.ModuleList([nn.Conv2d(a, b, 4, stride=2, padding=1, bias=False) for a, b in pairs])
        self.norms = nn.ModuleList([nn.BatchNorm2d(b, affine=False) for _, b in pairs])
        self.last = nn.Conv2d(self.WIDTHS[-1], 1, 4, bias=False)

    def forward(self, x: Tensor, *, frozen: bool) -> Tensor:
        *weights, last = [
            each.detach() if frozen else each for name, each in self.named_parameters() if name.endswith("weight")
        ]
        for weight, norm in zip(weights, self.norms, strict=True):
            x = F.leaky_relu(norm(F.conv2d(x, weight, stride=2, padding=1)), 0.2)
        return F.conv2d(x, last).flatten()


def _generator(noise: int = 64) -> nn.Sequential:
    """(N, noise, 1, 1) -> (N, 3, 64, 64)."""
    widths = (256, 128, 64, 32)
    layers: list[nn.Module] = [nn.ConvTranspose2d(noise, widths[0], 4, bias=False)]
    for wide, narrow in itertools.pairwise(widths):
        layers += [nn.BatchNorm2d(wide), nn.ReLU(), nn.ConvTranspose2d(wide, narrow, 4, 2, 1, bias=False)]
    last = nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1, bias=False)
    return nn.Sequential(*layers, nn.BatchNorm2d(widths[-1]), nn.ReLU(), last, nn.Tanh())


class DCGAN(nn.Module):
    """Images and noise -> the discriminator's loss on real and made-up images, and the generator's, added. No gradient
    of one reaches the other."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = _generator()
        self.discriminator = Discriminator()

    def forward(self, images: Tensor, noise: Tensor) -> Tensor:
        made_up = self.generator(noise)
        real = self.discriminator(images, frozen=False)
        unreal = self.discriminator(made_up.detach(), frozen=False)
        fooled = self.discriminator(made_up, frozen=True)
        return F.softplus(-real).mean() + F.softplus(unreal).mean() + F.softplus(-fooled).mean()


# -- LSTM ------------------------------------------------------------------------------------------------------------


class LSTM(nn.Module):
    """Words and the words after them -> cross-entropy. Layers of cells, unrolled: the layers of one moment wait for
    each other, but a layer's next moment need not wait for the layers above."""

    def __init__(self, *, words: int = 500, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.cells = nn.ModuleList([nn.LSTMCell(width, width) for _ in range(layers)])
        self.head = nn.Linear(width, words)

    def forward(self, words: Tensor, following: Tensor) -> Tensor:
        states: list[tuple[Tensor, Tensor] | None] = [None] * len(self.cells)
        tops = []
        for x in self.embedding(words).unbind(1):
            for layer, cell in enumerate(self.cells):
                state = states[layer] = cell(x, states[layer])
                x = state[0]
            tops.append(x)
        logits = self.head(torch.stack(tops, dim=1))
        return F.cross_entropy(logits.flatten(0, 1), following.flatten())


def _resnet() -> nn.Module:
    return Classifier(resnet("ResNet-34", classes=CLASSES, small_images=False))


def images_of(batch: int, size: int) -> Callable[[], tuple[Tensor, ...]]:
    """Makes images and labels."""
    return lambda: (torch.randn(batch, 3, size, size), torch.randint(0, CLASSES, (batch,)))


NETWORKS = (
    TrainedNetwork(name="ResNet-34", make=_resnet, data=images_of(4, 96)),
    TrainedNetwork(
        name="DCGAN", make=DCGAN, data=lambda: (torch.randn(16, 3, 64, 64), torch.randn(16, 64, 1, 1))
    ),
    TrainedNetwork(name="Inception-v2", make=lambda: Classifier(InceptionV2()), data=images_of(4, 96)),
    TrainedNetwork(
        name="LSTM", make=LSTM, data=lambda: (torch.randint(0, 500, (32, 12)), torch.randint(0, 500, (32, 12)))
    ),
    TrainedNetwork(
        name="MobileNetV3", make=lambda: Classifier(MobileNetV3Large(classes=CLASSES)), data=images_of(4, 96)
    ),
    TrainedNetwork(name="InceptionNeXt", make=lambda: Classifier(InceptionNeXt()), data=images_of(4, 128)),
)  # fmt: skip
