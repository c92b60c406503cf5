"""Networks of sequences, written plainly: what causal depthwise convolution is used in."""

from __future__ import annotations

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
        mixed: Tensor = self.out_proj(scanned.transpose(1, 2))
        return mixed

    def _scan(self, hidden: Tensor) -> Tensor:
        """(N, C, L) -> (N, C, L): the stand-in."""
        positions = torch.arange(1, hidden.shape[-1] + 1, device=hidden.device, dtype=hidden.dtype)
        return (hidden * (self.gate * hidden).sigmoid()).cumsum(-1) / positions + self.skip * hidden


class Mamba(nn.Module):
    """(N, L, C) -> (N, classes): blocks of MambaMixer on vectors that stand for embedded tokens. The last position,
    which has seen all others, tells the class; a mean would hide roundings."""

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
        logits: Tensor = self.head(self.last(x)[:, -1])
        return logits
