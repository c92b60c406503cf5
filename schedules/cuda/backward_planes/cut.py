"""How both gradients of NCHW maps are cut over blocks and threads: plain integers, no TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dwconv.schedules.cuda.gpu.image_planes import ImagePlanes
from dwconv.schedules.cuda.gpu.vectors import exact_vectors
from dwconv.schedules.taps import HEIGHT, WIDTH, Axis


@dataclass(frozen=True, kw_only=True)
class Cut(ImagePlanes):
    """A configuration in numbers. x has the tiles, and so has dx, which takes its place; they meet dy."""

    writes: ClassVar[bool] = True

    @cached_property
    def rows(self) -> Axis:
        return Axis.of_input_gradient(self.workload, HEIGHT)

    @cached_property
    def columns(self) -> Axis:
        return Axis.of_input_gradient(self.workload, WIDTH)

    def row_pieces(self, each: int, row: int) -> list[tuple[int, int]]:
        """The vectors in which a thread stores a row of dx: (elements from the first of its tile in its ``each``-th
        plane, lanes)."""
        first, start = each * self.tiled.pitch, row * self.columns.outputs
        stop = start + min(self.tile_w, self.columns.outputs)
        pieces = exact_vectors(first + start, first + stop, self.tiled.lanes)
        return [(at - first, width) for at, width in pieces]
