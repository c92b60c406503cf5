"""Where the tiles of an image axis lie, and which of their reads and writes need a test.

A kernel knows its first tile and its last, so it knows at which offsets every tile stays inside, at which none does,
and at which it depends on the tile: only the last need a test while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from dwconv.schedules.emit import Expr, all_of
from dwconv.schedules.taps import Axis


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The tile of ``width`` outputs with number ``index``, one of ``tiles`` side by side."""

    axis: Axis
    width: int
    tiles: int
    index: Expr

    @property
    def step(self) -> int:
        """Inputs from a tile to the next."""
        return self.axis.origin(self.width)

    def source(self, at: int) -> Expr:
        """The input at offset ``at`` of the tile."""
        return self.index * self.step + at

    def result(self, out: int) -> Expr:
        """The ``out``-th output of the tile."""
        return self.index * self.width + out

    def reads(self, at: int, lanes: int = 1) -> Expr:
        """Whether the inputs ``at`` … ``at + lanes − 1`` exist: True, False for all tiles, or a test."""
        return self._within(at, self.step, self.axis.inputs - lanes)

    def writes(self, out: int, lanes: int = 1) -> Expr:
        """Whether the outputs ``out`` … ``out + lanes − 1`` exist: True, False for all tiles, or a test."""
        return self._within(out, self.width, self.axis.outputs - lanes)

    def live_reads(self) -> dict[int, list[tuple[int, int]]]:
        """Inputs that exist for some tile, by offset, each with the (output, tap) pairs that it meets."""
        reads = self.axis.reads(self.width)
        return {at: pairs for at, pairs in reads.items() if self.reads(at) is not False}

    def _within(self, offset: int, step: int, last: int) -> Expr:
        """Whether 0 ≤ index · step + offset ≤ last."""
        places = [tile * step + offset for tile in range(self.tiles)]
        if not any(0 <= place <= last for place in places):
            return False
        position = self.index * step + offset
        return all_of(places[0] >= 0 or position >= 0, places[-1] <= last or position <= last)
