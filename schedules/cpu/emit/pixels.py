"""Rows of pixels in NHWC, read and written a vector of channels at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.schedules.cpu.emit.words import seen_from
from dwconv.schedules.emit import Expr, int32, size_of


@dataclass(frozen=True)
class PixelRow:
    """A row of an image in a tensor."""

    tensor: Any
    before: tuple[Expr, ...]
    """The indices before those of the column and the channels."""
    pitch: Expr = None
    """From pixel to pixel, where ``tensor`` is what begins with the row."""

    @classmethod
    def of(cls, tensor: Any, *before: Expr, is_known: bool) -> PixelRow:
        """``is_known``: whether the sizes of the image are. Where not, the address of the row is computed once: it
        would not be the sum of one that is there and a number."""
        if is_known:
            return cls(tensor, before)
        return cls(seen_from(tensor, *before, 0, 0), (), pitch=size_of(tensor.shape[-1]))

    def at(self, column: Expr, channels: Expr) -> tuple[Expr, ...]:
        """The indices in ``tensor`` of channels, one or a vector, of the pixel in a column."""
        if self.pitch is None:
            return (*self.before, column, channels)
        offset = column * self.pitch
        lanes = 1 if isinstance(channels, int) else int(channels.ty.dtype.lanes)
        return (channels + (offset if lanes == 1 else tirx.Broadcast(int32(offset), lanes)),)
