"""The one kernel on a GPU that is of no template: ``dwconv/native/statistics.cu``, which moves the running statistics
of a block's norms. Verified as templates are: by its results, and by guard bands around what it writes."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dwconv.kernels.entry import message
from dwconv.kernels.launch import launch_statistics
from dwconv.records.record import Verdict

_CHANNELS, _MOMENTS = (1, 20, 128, 1000), (0.1, 0.7)
_GUARD, _OUTSIDE = 64, -7.0
"""Elements on each side of what is written, and what they hold."""
_ALLOWED_ERROR = 1e-6
"""As a share of the largest: three roundings in float32."""


@message
@dataclass(frozen=True, kw_only=True)
class StatisticsCheck:
    """A request: norms of so many channels each, which move together by ``momentum``; the batches of the first one are
    counted with ``counts``."""

    channels: tuple[int, ...]
    momentum: float
    counts: bool

    def __str__(self) -> str:
        return f"running statistics of {'+'.join(map(str, self.channels))} channels by {self.momentum}" + (
            ", counted" if self.counts else ""
        )


def checks() -> Iterator[StatisticsCheck]:
    """One norm and two, of all numbers of channels that fill a block of threads, and that do not."""
    alone = [(channels,) for channels in _CHANNELS]
    for channels in (*alone, *itertools.pairwise(_CHANNELS)):
        for momentum in _MOMENTS:
            yield StatisticsCheck(channels=channels, momentum=momentum, counts=momentum < 0.5)


class _Moving(ctypes.Structure):
    """``Moving`` of ``native/statistics.h``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("mean", "variance", "of_mean", "of_variance", "batches")),
        ("momentum", ctypes.c_float),
        ("unbiased", ctypes.c_float),
        ("channels", ctypes.c_int64),
    )


def verdict_of(check: StatisticsCheck, *, device: torch.device) -> Verdict:
    """Launch the kernel once, and compare. Raises BrokenInstallation, BuildError."""
    torch.manual_seed(0)
    unbiased = 1.25
    norms = (_Moving * 2)()
    watched: list[tuple[Tensor, Tensor]] = []
    kept: list[Tensor] = []
    for place, channels in enumerate(check.channels):
        of_batch = [torch.rand(channels, device=device) + 0.5 for _ in range(2)]
        running = [_guarded(channels, device=device) for _ in range(2)]
        batches = torch.full((3,), 5, dtype=torch.int64, device=device)
        counted = check.counts and place == 0
        for whole, of, factor in zip(running, of_batch, (1.0, unbiased), strict=True):
            wanted = whole.clone()
            wanted[_GUARD:-_GUARD].lerp_(of * factor, check.momentum)
            watched.append((whole, wanted))
        watched.append((batches, torch.tensor([5, 5 + counted, 5], device=device)))
        norms[place] = _Moving(
            *(each[_GUARD:].data_ptr() for each in running), *(each.data_ptr() for each in of_batch),
            batches[1:].data_ptr() if counted else None, check.momentum, unbiased, channels,
        )  # fmt: skip
        kept += of_batch
    launch_statistics(norms, count=len(check.channels), channels=max(check.channels))
    torch.cuda.synchronize()
    return _judged(watched)


def _guarded(channels: int, *, device: torch.device) -> Tensor:
    whole = torch.full((channels + 2 * _GUARD,), _OUTSIDE, device=device)
    whole[_GUARD:-_GUARD] = torch.rand(channels, device=device)
    return whole


def _judged(watched: Sequence[tuple[Tensor, Tensor]]) -> Verdict:
    error = max(float((seen - wanted).abs().max()) for seen, wanted in watched)
    right = error <= _ALLOWED_ERROR
    reason = "" if right else f"statistics, batches or what lies beside them are off by {error:.1e}"
    return Verdict(right=right, max_error=error, allowed_error=_ALLOWED_ERROR, reason=reason)
