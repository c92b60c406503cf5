"""Products of small matrices on tensor cores, and maps in shared memory as these are loaded from them. No TVM here.

A product is a sum of 16 × 8, over 8 or 16 at a time, by a warp. (Source: PTX ISA, 'Matrix multiply-accumulate operation
using mma instruction'.) Shared memory has some rows of some images, in whole units of 16 bytes. The 16 rows of a matrix
are ``tiles`` units side by side of each of ``strips`` strips of ``images`` images; strips are ``tile_h`` rows apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from dwconv.problems.workload import DType, Workload
from dwconv.schedules.cuda.gpu.hardware import (
    BANK_BYTES,
    BANKS,
    LINE_BYTES,
    SECTOR_BYTES,
    TURNS_UNROLLED,
    VECTOR_BYTES,
    WARP,
)
from dwconv.schedules.cuda.gpu.memory import aligned_lanes

ROWS, COLUMNS = 16, 8
"""Of a matrix of sums."""
UNIT = 8
"""Numbers of 16 bits in a row of the matrices that are loaded together: 16 bytes. A product sums over one unit, or
over two."""
MULTIPLIED: dict[DType, str] = {"float16": "f16", "bfloat16": "bf16"}
"""Types that are multiplied, as PTX names them. They are summed in float32."""

ONES: dict[DType, int] = {"float16": 0x3C00_3C00, "bfloat16": 0x3F80_3F80}
"""A word of two ones."""

LEAST_TAPS, MOST_TAPS = 5, 63
"""Columns of a kernel: below, there are more zeros than weights in a band; above, a band needs too many registers."""


def why_not_banded(workload: Workload) -> str | None:
    """Why its kernel rows cannot be bands in matrices; None if they can."""
    if workload.dtype not in MULTIPLIED:
        return f"tensor cores multiply {' and '.join(MULTIPLIED)}, it is {workload.dtype}"
    if workload.stride != (1, 1) or workload.dilation != (1, 1):
        return f"it is for stride and dilation 1, not {workload.stride} and {workload.dilation}"
    if workload.multiplier != 1:
        return f"every result comes from one channel, multiplier={workload.multiplier}"
    if not LEAST_TAPS <= workload.kernel[1] <= MOST_TAPS:
        return f"a kernel row has {LEAST_TAPS} to {MOST_TAPS} weights, not {workload.kernel[1]}"
    if workload.layout == "nhwc" and workload.channels % UNIT:
        return f"channels_last it takes {UNIT} channels at a time, channels={workload.channels}"
    return None


def turns_of_rows(places: Sequence[int]) -> int:
    """The most turns of shared memory for 8 of the 16 rows of a matrix, which begin at units with these numbers. No two
    rows are one, even if only what is left over whole turns of the banks is known of their numbers."""
    units = BANKS * BANK_BYTES // VECTOR_BYTES
    met = [[place % units for place in half] for half in (places[:8], places[8:])]
    return max(banks.count(bank) for banks in met for bank in banks)


# -- maps in shared memory -----------------------------------------------------------------------------------------

PIXELS = 2
"""Neighbours that a thread takes at a time where channels come last: their 16 bits are a word of each map."""
PIXEL_INSTRUCTIONS = 26
"""To find out whether two pixels exist, to load or store a vector of each, and the words of 8 maps."""
PIXELS_AHEAD = 4
"""Pairs that the compiler loads ahead of their stores."""


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """How threads share out the vectors of some rows."""

    threads: int
    rows: int
    vectors: int
    """Of a row."""

    @property
    def across(self) -> int:
        return min(self.vectors, self.threads)

    @property
    def down(self) -> int:
        return self.threads // self.across

    @property
    def parts(self) -> int:
        return -(-self.vectors // self.across)

    @property
    def turns(self) -> int:
        return -(-self.rows // self.down)


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What it takes a block to bring maps of some images from global memory to shared memory, or the other way."""

    instructions: float
    """Of a warp."""
    moved_bytes: float
    """Whole sectors."""
    lines: float
    bank_turns: float
    bytes_in_flight: float


def moved_pixels(sharing: Sharing, *, images: int, groups: int, channels: int, pixels: float) -> Moved:
    """Pairs of pixels, of a vector each, whose channels become maps. A block has ``groups`` vectors of a pixel, of the
    layer's ``channels``; of an image so many ``pixels`` exist."""
    turns = sharing.turns if sharing.turns <= TURNS_UNROLLED else 1  # in a loop each waits for its loads
    ahead = min(images * sharing.parts * turns, PIXELS_AHEAD)
    apart_bytes = PIXELS * channels * VECTOR_BYTES // UNIT  # pixels with few channels share a line
    return Moved(
        instructions=images * sharing.parts * sharing.turns * PIXEL_INSTRUCTIONS,
        moved_bytes=images * pixels * max(groups * VECTOR_BYTES, SECTOR_BYTES),
        lines=images * pixels * min(1.0, apart_bytes / LINE_BYTES),
        bank_turns=float(-(-images * sharing.rows * sharing.vectors // WARP) * UNIT),
        bytes_in_flight=float(sharing.threads * ahead * PIXELS * VECTOR_BYTES),
    )


@dataclass(frozen=True, kw_only=True)
class StagedMaps:
    """Rows and units that a block holds of the maps of a channel, counted from where the block begins."""

    height: int
    """Of a map; so is the next."""
    width: int
    rows: range
    units: range
    images: int
    tile_h: int
    offset: int = 0
    """Columns by which units are off the map's whole units."""
    tiles: int = 1
    right: int | None = None
    """Units of nothing beside the map, on its right, that have to be there. Then a row's are those on the left of the
    next one, as far as they can be, and further ones are the next one's map. None: every row has all of ``units``."""

    @property
    def strips(self) -> int:
        return ROWS // (self.images * self.tiles)

    @cached_property
    def lanes(self) -> int:
        return aligned_lanes(self.width, UNIT, self.offset, itemsize=VECTOR_BYTES // UNIT)

    @cached_property
    def _pads(self) -> tuple[int, int, int]:
        units, rows, apart = (count % UNIT for count in (self._least_units, len(self.rows), self.tile_h))
        return _pads(units, rows, tiles=self.tiles, strips=self.strips, tile_h=apart, beyond=self._beyond)

    @property
    def _least_units(self) -> int:
        """Of a row."""
        if self.right is None:
            return len(self.units)
        return -(-self.width // UNIT) + max(self.right, -self.units.start)

    @property
    def _beyond(self) -> int:
        return len(self.units) - self._least_units

    @property
    def row_units(self) -> int:
        return self._least_units + self._pads[1]

    @property
    def last_units(self) -> int:
        """Units of nothing after the last row of an image, which has no next one."""
        return max(0, self._beyond - self._pads[1])

    @property
    def image_units(self) -> int:
        return len(self.rows) * self.row_units + self._pads[2]

    @property
    def turns_of_rows(self) -> int:
        return self._pads[0]

    @property
    def elements(self) -> int:
        return self.images * self.image_units * UNIT

    def sharing(self, threads: int) -> Sharing:
        return Sharing(threads=threads, rows=len(self.rows), vectors=self.row_units * UNIT // self.lanes)

    def sharing_of_pixels(self, threads: int, *, groups: int, with_pads: bool) -> Sharing:
        """How they move an image whose pixels have so many vectors of channels: pairs of pixels, of a vector each."""
        units = self.row_units if with_pads else len(self.units)
        return Sharing(threads=threads, rows=len(self.rows), vectors=units * UNIT // PIXELS * groups)


@dataclass(frozen=True, kw_only=True)
class WaitingPixels:
    """How the pixels of whole rows wait in shared memory to be taken apart: those with one vector of channels, then
    those with the next. Rows are whole units of pixels, which are matrices."""

    held: StagedMaps
    rows: range
    """Of those that are held, the ones that may meet the map."""
    groups: int
    """Vectors of channels of a pixel."""

    @property
    def units(self) -> range:
        held = self.held.units
        return range(max(held.start, 0), min(held.stop, -(-(self.held.width + self.held.offset) // UNIT)))

    @property
    def row_elements(self) -> int:
        return len(self.units) * UNIT * UNIT

    @property
    def image_elements(self) -> int:
        return len(self.rows) * self.row_elements

    @property
    def group_elements(self) -> int:
        """From a vector of channels to the next: with a pad, since threads copy those of a pixel together."""
        return self.held.images * self.image_elements + (UNIT // self.groups * UNIT if self.groups > 1 else 0)

    @property
    def elements(self) -> int:
        return self.groups * self.group_elements

    def sharing(self, threads: int) -> Sharing:
        vectors = len(self.units) * UNIT * self.groups
        return Sharing(threads=threads, rows=len(self.rows), vectors=vectors)

    def sharing_of_warps(self, warps: int) -> Sharing:
        return Sharing(threads=warps, rows=len(self.rows), vectors=self.groups)


@dataclass(frozen=True, kw_only=True)
class BlockMaps:
    """How the maps of a block's channels follow each other in shared memory."""

    planes: int
    """Channels."""
    elements: int
    """Of a map."""
    channels_last: bool
    """Whether they come as pixels of whole vectors of channels: then there is a pad after those of a vector, so that
    threads with one pixel and different vectors meet different banks."""

    @property
    def groups(self) -> int:
        return self.planes // UNIT

    @property
    def group_elements(self) -> int:
        """From the maps of a vector of channels to those of the next."""
        return UNIT * self.elements + BANKS * PIXELS // self.groups

    @property
    def all_elements(self) -> int:
        return self.groups * self.group_elements if self.channels_last else self.planes * self.elements

    def map_at(self, channel: Any) -> Any:
        """Where the map of a channel of the block, an int or an expression, begins."""
        if not self.channels_last:
            return channel * self.elements
        return channel // UNIT * self.group_elements + channel % UNIT * self.elements


@cache
def _pads(units: int, rows: int, *, tiles: int, strips: int, tile_h: int, beyond: int) -> tuple[int, int, int]:
    """(turns of shared memory for 8 rows of a matrix, units after each row, units after each image): the fewest turns,
    then the least pads. Only what is left over whole turns of the banks matters of each number but ``beyond``, units
    that there have to be after the last row."""

    def found() -> Iterator[tuple[int, int, int]]:
        for after_row, after_image in itertools.product(range(UNIT), repeat=2):
            row = units + after_row
            after_image += max(0, beyond - after_row)
            image = rows * row + after_image
            strip_places = [m // strips * image + m % strips * tile_h * row for m in range(ROWS // tiles)]
            places = [place + tile for place in strip_places for tile in range(tiles)]
            yield turns_of_rows(places), after_row, after_image

    return min(found())
