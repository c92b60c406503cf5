"""Networks of sequences, and of videos and volumes, written plainly: what causal and 3-D depthwise convolution are
used in. First what they share with those of images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class MambaMixer(nn.Module):
    """(N, L, C) -> (N, L, C): a Mamba block as transformers writes it, except for its scan. That is a mean over the
    positions so far, each with a gate of its own, in place of the selective state space: as causal, and memory-bound,
    but with no state to learn. It takes less of a step than a scan in plain PyTorch, and more than a fused one."""

    def __init__(self, channels: int, *, wider: int, taps: int) -> None:
        super().__init__()
        wide = wider * channels
        self.in_proj = nn.Linear(channels, 2 * wide, bias=False)
        self.conv1d = nn.Conv1d(wide, wide, taps, padding=taps - 1, groups=wide)
        self.act = nn.SiLU()
        self.gate = nn.Parameter(torch.zeros(wide, 1))
        self.skip = nn.Parameter(torch.ones(wide, 1))
        self.out_proj = nn.Linear(wide, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        hidden, gate = self.in_proj(x).transpose(1, 2).chunk(2, dim=1)
        hidden = self.act(self.conv1d(hidden)[..., :length])
        scanned = self._scan(hidden) * self.act(gate)
        return self.out_proj(scanned.transpose(1, 2))

    def _scan(self, hidden: Tensor) -> Tensor:
        """(N, C, L) -> (N, C, L): the stand-in."""
        positions = torch.arange(1, hidden.shape[-1] + 1, device=hidden.device, dtype=hidden.dtype)
        return (hidden * (self.gate * hidden).sigmoid()).cumsum(-1) / positions + self.skip * hidden


class Mamba(nn.Module):
    """(N, L, C) -> (N, classes): blocks of MambaMixer on vectors that stand for embedded tokens. The last position,
    which has seen all others, gives the class; a mean would hide roundings."""

    def __init__(
        self, classes: int = 10, *, channels: int = 384, blocks: int = 4, wider: int = 2, taps: int = 4
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(channels) for _ in range(blocks))
        self.mixers = nn.ModuleList(MambaMixer(channels, wider=wider, taps=taps) for _ in range(blocks))
        self.last = nn.RMSNorm(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x = x + mixer(norm(x))
        return self.head(self.last(x)[:, -1])


class ConformerConvolution(nn.Module):
    """(N, L, C) -> (N, L, C): the convolution module of a Conformer, added to its input."""

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


class ConformerBlock(nn.Module):
    """(N, L, C) -> (N, L, C): half a perceptron, attention, the convolution, half a perceptron, each added; a norm."""

    def __init__(self, channels: int, *, kernel: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = (_perceptron(channels) for _ in range(2))
        self.norm = nn.LayerNorm(channels)
        self.attention = nn.MultiheadAttention(channels, heads, batch_first=True)
        self.convolution = ConformerConvolution(channels, kernel)
        self.last = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.first(x)
        near = self.norm(x)
        x = self.convolution(x + self.attention(near, near, near, need_weights=False)[0])
        normed: Tensor = self.last(x + 0.5 * self.second(x))
        return normed


def _perceptron(channels: int) -> nn.Sequential:
    wide = 4 * channels
    return nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, wide), nn.SiLU(), nn.Linear(wide, channels))


class Conformer(nn.Module):
    """(N, L, C) -> (N, classes): the encoder, on vectors that stand for frames of sound, without relative positions;
    the mean over all of them gives the class."""

    def __init__(
        self, classes: int = 10, *, channels: int = 512, blocks: int = 18, kernel: int = 31, heads: int = 8
    ) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(ConformerBlock(channels, kernel=kernel, heads=heads) for _ in range(blocks)))
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean(1))


def convolved(
    channels: int,
    out_channels: int,
    kernel: int = 1,
    *,
    stride: int = 1,
    groups: int = 1,
    act: Callable[[], nn.Module] | None = None,
) -> list[nn.Module]:
    """A convolution of images that keeps the size at stride 1, its norm, and its activation, if it has one."""
    convolution = nn.Conv2d(
        channels, out_channels, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
    )
    return [convolution, nn.BatchNorm2d(out_channels), *([act()] if act else [])]


class SqueezeExcite(nn.Module):
    """Scales every channel of an image, or of a volume, by what its mean says."""

    def __init__(self, channels: int, squeezed: int, *, gate: Callable[[], nn.Module], dims: int = 2) -> None:
        super().__init__()
        convolution = nn.Conv2d if dims == 2 else nn.Conv3d
        self.squeeze = convolution(channels, squeezed, 1)
        self.excite = convolution(squeezed, channels, 1)
        self.gate = gate()

    def forward(self, x: Tensor) -> Tensor:
        squeezed = self.squeeze(x.mean(tuple(range(2, x.dim())), keepdim=True)).relu()
        scale: Tensor = self.gate(self.excite(squeezed))
        return x * scale


class X3DBlock(nn.Module):
    """Widen, convolve depthwise through time and space, narrow; added to its input, which is projected where the sizes
    differ. Swish comes after squeeze-excite."""

    def __init__(self, channels: int, wide: int, out_channels: int, *, stride: int, se: bool) -> None:
        super().__init__()
        strides, squeezed = (1, stride, stride), 8 * max(1, round(wide / 16 / 8))
        self.branch = nn.Sequential(
            nn.Conv3d(channels, wide, 1, bias=False),
            nn.BatchNorm3d(wide),
            nn.ReLU(),
            nn.Conv3d(wide, wide, 3, stride=strides, padding=1, groups=wide, bias=False),
            nn.BatchNorm3d(wide),
            *([SqueezeExcite(wide, squeezed, gate=nn.Sigmoid, dims=3)] if se else []),
            nn.SiLU(),
            nn.Conv3d(wide, out_channels, 1, bias=False),
            nn.BatchNorm3d(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv3d(channels, out_channels, 1, stride=strides, bias=False), nn.BatchNorm3d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.shortcut(x) + self.branch(x)
        return added.relu()


class X3D(nn.Module):
    """(N, 3, frames, H, W) -> (N, classes): X3D-S with fewer blocks of each size. The stem convolves through space,
    then depthwise along time; every other block has squeeze-excite."""

    CHANNELS = (24, 48, 96, 192)
    WIDER = 2.25

    def __init__(
        self, classes: int = 10, *, channels: tuple[int, ...] = CHANNELS, blocks: tuple[int, ...] = (2, 3, 5, 3)
    ) -> None:
        super().__init__()
        first = channels[0]
        self.stem = nn.Sequential(
            nn.Conv3d(3, first, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1), bias=False),
            nn.Conv3d(first, first, (5, 1, 1), padding=(2, 0, 0), groups=first, bias=False),
            nn.BatchNorm3d(first),
            nn.ReLU(),
        )
        stages: list[nn.Module] = []
        before = first
        for out_channels, count in zip(channels, blocks, strict=True):
            wide = int(self.WIDER * out_channels)
            for place in range(count):
                stride = 1 if place else 2
                stages.append(X3DBlock(before, wide, out_channels, stride=stride, se=place % 2 == 0))
                before = out_channels
        self.stages = nn.Sequential(*stages)
        wide = int(self.WIDER * before)
        self.last = nn.Sequential(nn.Conv3d(before, wide, 1, bias=False), nn.BatchNorm3d(wide), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(wide, 2048), nn.ReLU(), nn.Linear(2048, classes))

    def forward(self, x: Tensor) -> Tensor:
        features = self.last(self.stages(self.stem(x)))
        return self.head(features.mean((2, 3, 4)))


class MedNeXtBlock(nn.Module):
    """3×3×3 depthwise with a bias, a norm of each channel by itself, then a perceptron at every position; added to its
    input. With stride 2 it doubles the channels, and a strided 1×1×1 convolution stands for the input."""

    def __init__(self, channels: int, *, wider: int, stride: int = 1) -> None:
        super().__init__()
        out_channels = channels * stride
        self.depthwise: nn.Module = nn.Conv3d(channels, channels, 3, stride=stride, padding=1, groups=channels)
        self.perceptron = nn.Sequential(
            nn.GroupNorm(channels, channels),
            nn.Conv3d(channels, wider * channels, 1),
            nn.GELU(),
            nn.Conv3d(wider * channels, out_channels, 1),
        )
        shortcut = nn.Conv3d(channels, out_channels, 1, stride=stride) if stride > 1 else nn.Identity()
        self.shortcut: nn.Module = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.perceptron(self.depthwise(x))


class MedNeXt(nn.Module):
    """(N, 1, D, H, W) -> (N, classes): the encoder of MedNeXt-S with fewer blocks of each size, and a head for
    classes in place of the decoder."""

    # factor that widens, blocks; each size but the first begins with a block of stride 2
    ROWS = ((2, 2), (3, 2), (4, 2), (4, 2))

    def __init__(self, classes: int = 10, *, channels: int = 32, rows: tuple[tuple[int, int], ...] = ROWS) -> None:
        super().__init__()
        stages: list[nn.Module] = [nn.Conv3d(1, channels, 1)]
        for place, (wider, count) in enumerate(rows):
            if place:
                stages.append(MedNeXtBlock(channels, wider=wider, stride=2))
                channels *= 2
            stages += [MedNeXtBlock(channels, wider=wider) for _ in range(count)]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).mean((2, 3, 4)))


class MedNeXtUpBlock(MedNeXtBlock):
    """Up by a transposed depthwise convolution, which leaves out the first voxel along each axis, to half of the
    channels; a strided transposed 1×1×1 convolution stands for the input."""

    def __init__(self, channels: int, *, wider: int) -> None:
        super().__init__(channels, wider=wider)
        self.depthwise = nn.ConvTranspose3d(channels, channels, 3, stride=2, padding=1, groups=channels)
        self.perceptron[-1] = nn.Conv3d(wider * channels, channels // 2, 1)
        self.shortcut = nn.ConvTranspose3d(channels, channels // 2, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(super().forward(x), (1, 0, 1, 0, 1, 0))


class MedNeXtUNet(nn.Module):
    """(N, 1, D, H, W) -> (N, classes): the whole MedNeXt-S with fewer blocks of each size, encoder and decoder; the
    scores of all voxels, averaged. Sizes are multiples of 8."""

    def __init__(
        self, classes: int = 10, *, channels: int = 32, rows: tuple[tuple[int, int], ...] = MedNeXt.ROWS
    ) -> None:
        super().__init__()
        self.stem = nn.Conv3d(1, channels, 1)
        self.down, self.up, self.after = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for place, (wider, count) in enumerate(rows):
            wide = channels * 2**place
            first = [MedNeXtBlock(wide // 2, wider=wider, stride=2)] if place else []
            self.down.append(nn.Sequential(*first, *_blocks(wide, wider, count)))
            if place:
                narrower, blocks = rows[place - 1]
                self.up.insert(0, MedNeXtUpBlock(wide, wider=wider))
                self.after.insert(0, nn.Sequential(*_blocks(wide // 2, narrower, blocks)))
        self.head = nn.Conv3d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        x = self.stem(x)
        for stage in self.down:
            x = stage(x)
            kept.append(x)
        kept.pop()
        for up, stage in zip(self.up, self.after, strict=True):
            x = stage(up(x) + kept.pop())
        return self.head(x).mean((2, 3, 4))


def _blocks(channels: int, wider: int, count: int) -> list[nn.Module]:
    return [MedNeXtBlock(channels, wider=wider) for _ in range(count)]
