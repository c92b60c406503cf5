"""Tensors that show what a kernel did to memory: between guard bands, filled with patterns that no kernel computes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dwconv.kernels.artifact import Argument

UNWRITTEN = {torch.float32: 0x7FC0DEAD, torch.float16: 0x7EAD, torch.bfloat16: 0x7FED}
"""The bits in results before a run. All three patterns here are NaNs, and all differ: a NaN that a kernel reads and
passes on keeps its bits, and a result computed from a stale workspace must not look unwritten."""
STALE = {torch.float32: 0x7FC0CAFE, torch.float16: 0x7ECA, torch.bfloat16: 0x7FCA}
"""The bits in workspaces before a run."""
_OUTSIDE = {torch.float32: 0x7FC0BEEF, torch.float16: 0x7EEB, torch.bfloat16: 0x7FEB}
_ANY_OTHER_TYPE = 0x5A
# Long enough for a whole row of most layers, a multiple of every alignment, and short enough for PyTorch to fill with
# one thread.
_GUARD_ELEMENTS = 31 << 10
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Guarded:
    """A tensor between two guard bands. It starts ``offset_bytes`` after the start of a cache line. Of a tensor of
    which the kernel knows a slice, ``part`` is that slice, and what lies between is guarded as well."""

    def __init__(
        self,
        argument: Argument,
        *,
        batch: int,
        device: torch.device,
        offset_bytes: int = 0,
        slice_of: tuple[int, int] | None = None,
    ) -> None:
        """``slice_of``: the axis of which the kernel knows the first elements alone, and how many these are."""
        self.name = argument.name
        shape = argument.shape_at(batch)
        self._dtype: torch.dtype = getattr(torch, argument.dtype)
        before = _GUARD_ELEMENTS + offset_bytes // self._dtype.itemsize
        after = before + math.prod(shape)
        everything = torch.empty(after + _GUARD_ELEMENTS, dtype=self._dtype, device=device)
        self.tensor = everything[before:after].view(shape)
        bits = bits_of(everything)
        self._bands: tuple[torch.Tensor, ...] = (bits[:before], bits[after:])
        self.part = self.tensor
        if slice_of:
            axis, count = slice_of
            self.part = self.tensor.narrow(axis, 0, count)
            between = bits_of(self.tensor).narrow(axis, count, shape[axis] - count)
            self._bands = (*self._bands, between)
        for band in self._bands:
            band.fill_(self._pattern(_OUTSIDE))

    def fill(self, patterns: dict[torch.dtype, int]) -> None:
        bits_of(self.tensor).fill_(self._pattern(patterns))

    def count(self, patterns: dict[torch.dtype, int]) -> int:
        """How many elements hold exactly that pattern."""
        return int((bits_of(self.tensor) == self._pattern(patterns)).sum())

    def bands_are_whole(self) -> bool:
        return all(bool((band == self._pattern(_OUTSIDE)).all()) for band in self._bands)

    def _pattern(self, patterns: dict[torch.dtype, int]) -> int:
        return patterns.get(self._dtype, _ANY_OTHER_TYPE)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as whole numbers."""
    return tensor.view(_BITS[tensor.dtype.itemsize])


def have_same_bits(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return all(
        one.dtype == other.dtype and torch.equal(bits_of(one), bits_of(other))
        for one, other in zip(some, others, strict=True)
    )
