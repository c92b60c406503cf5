"""Networks of large, dilated and decomposed kernels, written plainly: attention by large kernels (Guo et al. 2022; with
separable ones Lau et al. 2023), SLaK (Liu et al. 2022), UniRepLKNet as it trains (Ding et al. 2023), a decoder as that
of DeepLabV3+ (Chen et al. 2018), and a temporal convolutional network (Luo and Mesgarani 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from bench.rows_and_volumes import convolved

Sizes = int | tuple[int, int]
Shapes = Sequence[tuple[Sizes, int]]
"""(kernel, dilation) of each branch of a block."""
BranchesSize = tuple[int, Sequence[Shapes]]


def depthwise(channels: int, kernel: Sizes, *, dilation: int = 1, bias: bool = True) -> nn.Conv2d:
    """One that keeps the size."""
    sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (dilation * (sizes[0] - 1) // 2, dilation * (sizes[1] - 1) // 2)
    return nn.Conv2d(channels, channels, sizes, padding=padding, dilation=dilation, groups=channels, bias=bias)


class LargeKernelAttention(nn.Module):
    """Each channel times what is around it: 5×5, then 7×7 with dilation 3; or rows and columns of these."""

    def __init__(self, channels: int, *, separable: bool) -> None:
        super().__init__()
        near: list[Sizes] = [(1, 5), (5, 1)] if separable else [5]
        far: list[Sizes] = [(1, 7), (7, 1)] if separable else [7]
        self.looks = nn.Sequential(
            *(depthwise(channels, kernel) for kernel in near),
            *(depthwise(channels, kernel, dilation=3) for kernel in far),
            nn.Conv2d(channels, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.looks(x)


class AttentionBlock(nn.Module):
    """Attention, then a perceptron with a 3×3 depthwise layer in it; both are added."""

    def __init__(self, channels: int, *, wider: int, separable: bool) -> None:
        super().__init__()
        wide = wider * channels
        self.attention = nn.Sequential(
            nn.BatchNorm2d(channels), nn.Conv2d(channels, channels, 1), nn.GELU(),
            LargeKernelAttention(channels, separable=separable), nn.Conv2d(channels, channels, 1),
        )  # fmt: skip
        self.perceptron = nn.Sequential(
            nn.BatchNorm2d(channels), nn.Conv2d(channels, wide, 1), depthwise(wide, 3), nn.GELU(),
            nn.Conv2d(wide, channels, 1),
        )  # fmt: skip
        self.scales = nn.Parameter(torch.full((2, channels, 1, 1), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.scales[0] * self.attention(x)
        return x + self.scales[1] * self.perceptron(x)


class VAN(nn.Module):
    """(N, 3, H, W) -> (N, classes): VAN-B0."""

    def __init__(self, classes: int = 10, *, separable: bool = False) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        before = 3
        for channels, count, wider, stride in ((32, 3, 8, 4), (64, 3, 8, 2), (160, 5, 4, 2), (256, 2, 4, 2)):
            stages += convolved(before, channels, 7 if before == 3 else 3, stride=stride)
            stages += [AttentionBlock(channels, wider=wider, separable=separable) for _ in range(count)]
            before = channels
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).mean((2, 3)))


class Branches(nn.Module):
    """The sum of depthwise layers, each with its norm."""

    def __init__(self, channels: int, shapes: Shapes) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(depthwise(channels, kernel, dilation=dilation, bias=False), nn.BatchNorm2d(channels))
            for kernel, dilation in shapes
        )

    def forward(self, x: Tensor) -> Tensor:
        first, *others = self.branches
        found: Tensor = first(x)
        for each in others:
            found = found + each(x)
        return found


class BranchesBlock(nn.Module):
    """Branches, then a perceptron at every position; added."""

    def __init__(self, channels: int, shapes: Shapes) -> None:
        super().__init__()
        wide = 4 * channels
        self.added = nn.Sequential(
            Branches(channels, shapes), nn.Conv2d(channels, wide, 1), nn.GELU(), nn.Conv2d(wide, channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.added(x)
        return x + added


class BranchesNet(nn.Module):
    """(N, 3, H, W) -> (N, classes). ``sizes``: of each size of the maps its channels, and the branches of each of its
    blocks."""

    def __init__(self, sizes: Sequence[BranchesSize], *, classes: int = 10) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        before = 3
        for number, (channels, blocks) in enumerate(sizes):
            stages += convolved(before, channels, 3, stride=2 if number else 4)
            stages += [BranchesBlock(channels, branches) for branches in blocks]
            before = channels
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).mean((2, 3)))


SMALL: Shapes = ((3, 1),)
LARGE: Shapes = ((13, 1), (5, 1), (7, 2), (3, 3), (3, 4), (3, 5))
"""The branches of blocks of UniRepLKNet: of the small, and of the large ones as they train."""


def _decomposed(kernel: int) -> Shapes:
    """Those of a block of SLaK."""
    return (((kernel, 5), 1), ((5, kernel), 1), ((5, 5), 1))


def separable(channels: int, out_channels: int, *, stride: int = 1, dilation: int = 1) -> list[nn.Module]:
    """A 3×3 depthwise layer and a pointwise one, with norms and activations."""
    first = nn.Conv2d(
        channels, channels, 3, stride=stride, padding=dilation, dilation=dilation, groups=channels, bias=False
    )
    return [first, nn.BatchNorm2d(channels), nn.ReLU(), *convolved(channels, out_channels, act=nn.ReLU)]


class DeepLab(nn.Module):
    """(N, 3, H, W) -> (N, classes): the scores of all pixels, averaged. Separable layers down to a 16th of the size,
    the same at rates 6, 12 and 18 side by side, and a decoder at a quarter of it."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.near = nn.Sequential(*convolved(3, 32, 3, stride=2, act=nn.ReLU), *separable(32, 64, stride=2))
        self.far = nn.Sequential(*separable(64, 128, stride=2), *separable(128, 256, stride=2), *separable(256, 256))
        self.rates = nn.ModuleList(nn.Sequential(*separable(256, 128, dilation=rate)) for rate in (6, 12, 18))
        self.whole = nn.Sequential(*convolved(256, 128, act=nn.ReLU))
        self.joined = nn.Sequential(*convolved(4 * 128, 128, act=nn.ReLU))
        self.narrowed = nn.Sequential(*convolved(64, 48, act=nn.ReLU))
        self.decoder = nn.Sequential(*separable(128 + 48, 128), *separable(128, 128), nn.Conv2d(128, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        near = self.near(x)
        far = self.far(near)
        joined = self.joined(torch.cat([self.whole(far), *(rate(far) for rate in self.rates)], 1))
        joined = nn.functional.interpolate(joined, size=near.shape[2:], mode="bilinear", align_corners=False)
        scores: Tensor = self.decoder(torch.cat([joined, self.narrowed(near)], 1))
        return scores.mean((2, 3))


class TemporalBlock(nn.Module):
    """Widen, convolve depthwise with a dilation, narrow; added."""

    def __init__(self, channels: int, wide: int, *, dilation: int) -> None:
        super().__init__()
        self.added = nn.Sequential(
            nn.Conv1d(channels, wide, 1), nn.PReLU(), nn.GroupNorm(1, wide),
            nn.Conv1d(wide, wide, 3, padding=dilation, dilation=dilation, groups=wide), nn.PReLU(),
            nn.GroupNorm(1, wide), nn.Conv1d(wide, channels, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.added(x)
        return x + added


class TCN(nn.Module):
    """(N, L, C) -> (N, classes): eight dilations, from 1 to 128, as Conv-TasNet repeats them."""

    def __init__(self, classes: int = 10, *, channels: int = 128, wide: int = 512) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(TemporalBlock(channels, wide, dilation=2**number) for number in range(8)))
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x.transpose(1, 2)).mean(2))


VANSeparable = partial(VAN, separable=True)
SLaK = partial(BranchesNet, [(124, [_decomposed(51)] * 2), (249, [_decomposed(49)] * 2)])
UniRepLKNet = partial(BranchesNet, [(80, [SMALL] * 2), (160, [LARGE] * 2)])
