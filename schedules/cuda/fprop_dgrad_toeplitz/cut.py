"""How a configuration cuts maps into products of matrices, and how a block's source and weights lie in shared memory.
No TVM here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

from dwconv.problems.workload import ITEMSIZE, DType, Layout, Workload
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, BANKS, WARP
from dwconv.schedules.cuda.gpu.tensor_cores import COLUMNS, ROWS, UNIT, BlockMaps, Sharing, StagedMaps
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis

Meetings = list[tuple[int, list[tuple[int, int]]]]
"""Rows of the source, counted from the first of a tile, each with the (row of the tile, kernel row) that meet in it."""


@dataclass(frozen=True, kw_only=True)
class RowTurn:
    """Kernel rows that are straight code: ``count`` times, ``taps`` of them each, from ``first`` on."""

    first: int
    taps: int
    count: int


@dataclass(frozen=True, kw_only=True)
class ToeplitzCut:
    """A configuration in numbers. The 16 rows of a product are ``images`` images with ``strips`` rows each, with
    ``tiles_w`` tiles each; a warp goes down all ``tile_h`` rows of a strip, and has ``tile_w`` columns."""

    gather: Gather
    dtype: DType
    layout: Layout
    planes: int
    """Channels of a block."""
    warps_c: int
    """Channels at a time, each with warps of its own."""
    images: int
    tile_h: int
    tile_w: int
    warps_h: int
    warps_w: int
    taps_h: int
    """Kernel rows in straight code."""
    tiles_w: int = 1
    """Tiles of 8 columns side by side, each of which is a row of a product."""
    interleaved: bool = False
    """Whether strips take turns at rows: those of a product are neighbours."""
    lean: bool = False
    """Whether kernel rows are cleared as a whole and weights alone put into them, and units are multiplied by twos as
    they were loaded."""

    @classmethod
    def of(cls, workload: Workload, config: Config) -> ToeplitzCut:
        knobs: dict[str, Any] = dict(config.values)
        return cls(
            gather=Gather.of(workload),
            dtype=workload.dtype,
            layout=workload.layout,
            warps_c=knobs.pop("warps_c", config.planes),
            interleaved=knobs.pop("interleave", 0) == 1,
            lean=knobs.pop("lean", 0) == 1,
            **knobs,
        )

    @property
    def strips(self) -> int:
        return ROWS // (self.images * self.tiles_w)

    @property
    def threads(self) -> int:
        return self.warps_c * self.threads_of_channel

    @property
    def turns_c(self) -> int:
        return self.planes // self.warps_c

    @property
    def warp_h(self) -> int:
        return self.strips * self.tile_h

    @property
    def strip_apart(self) -> int:
        """Rows from a strip's first to the next strip's."""
        return 1 if self.interleaved else self.tile_h

    @property
    def row_apart(self) -> int:
        """Rows from one of a strip to its next."""
        return self.strips if self.interleaved else 1

    @property
    def block_h(self) -> int:
        return self.warps_h * self.warp_h

    @property
    def blocks_h(self) -> int:
        return -(-self.gather.rows.outputs // self.block_h)

    @property
    def block_w(self) -> int:
        return self.warps_w * self.tile_w

    @property
    def blocks_w(self) -> int:
        return -(-self.gather.columns.outputs // self.block_w)

    @property
    def threads_of_channel(self) -> int:
        return self.warps_h * self.warps_w * WARP

    @property
    def source_sharing(self) -> Sharing:
        """Of an image: of a channel's map by the threads of the channel or, where channels come last, of all maps by
        those of the block."""
        if self.channels_last:
            return self.source.sharing_of_pixels(self.threads, groups=self.maps.groups, with_pads=True)
        return self.source.sharing(self.threads_of_channel)

    @property
    def result_sharing(self) -> Sharing:
        if self.channels_last:
            return self.results.sharing_of_pixels(self.threads, groups=self.maps.groups, with_pads=False)
        return Sharing(threads=self.threads_of_channel, rows=self.block_h, vectors=self.block_w // self.results.lanes)

    @property
    def band_sharing(self) -> Sharing:
        """Of the kernel rows, each with its copy."""
        return Sharing(threads=self.threads_of_channel, rows=self.gather.rows.taps, vectors=2 * self.band_apart)

    # -- down ----------------------------------------------------------------------------------------------------------

    @property
    def turns(self) -> list[RowTurn]:
        whole, rest = divmod(self.gather.rows.taps, self.taps_h)
        found = [
            RowTurn(first=0, taps=self.taps_h, count=whole),
            RowTurn(first=whole * self.taps_h, taps=rest, count=1),
        ]
        return [turn for turn in found if turn.taps]

    @property
    def leaves_padding_out(self) -> bool:
        """Whether all rows of a product are the same row of different images, or neighbours: what is padding for one is
        for all, or nearly."""
        return self.strips == 1 or self.interleaved

    @property
    def knows_padding(self) -> bool:
        """Whether it is known when compiling: a tile is a whole map, and no kernel row in a loop."""
        is_whole = self.leaves_padding_out and self.warps_h * self.blocks_h == 1
        return is_whole and self.taps_h == self.gather.rows.taps

    @property
    def live_rows(self) -> range:
        """Rows of the source at which a product's first strip may be, where those that are padding for all strips are
        left out."""
        return range(1 - self.row_apart, self.gather.rows.inputs)

    def meetings(self, turn: RowTurn) -> Meetings:
        rows = self.gather.rows.part(turn.first, turn.taps)
        if not self.interleaved:
            return list(rows.tile_reads(self.tile_h, tiles=1 if self.knows_padding else 2).items())
        met = _met_in_turns(rows, self.tile_h, self.strips)
        return [(at, pairs) for at, pairs in met if not self.knows_padding or at in self.live_rows]

    @cached_property
    def rows(self) -> range:
        """Rows of the source that a block holds, counted from where its own begin: without padding, if it has them
        all and leaves it out, but for what neighbours in a product meet."""
        if self.leaves_padding_out and self.blocks_h == 1:
            return range(1 - self.row_apart, self.gather.rows.inputs + self.row_apart - 1)
        first, count = self.gather.rows.spanned(self.block_h)
        return range(first, first + count)

    # -- across --------------------------------------------------------------------------------------------------------

    @property
    def tiles(self) -> int:
        return self.tile_w // (COLUMNS * self.tiles_w)

    @cached_property
    def is_whole(self) -> bool:
        """Whether a warp has whole rows, and no padding beside them."""
        return self.warps_w * self.blocks_w * self.tiles_w == 1

    @cached_property
    def band(self) -> range:
        """Units of the source that the columns of one product meet, counted from where these begin."""
        first, count = self.gather.columns.spanned(COLUMNS)
        return range(first // UNIT, (first + count - 1) // UNIT + 1)

    @cached_property
    def units(self) -> range:
        """Units of the source that a block holds, counted from its first column; no padding where it has them all."""
        if self.is_whole:
            return range(-(-self.gather.columns.inputs // UNIT))
        return range(self.band.start, self.block_w // COLUMNS - 1 + self.band.stop)

    @cached_property
    def right(self) -> int | None:
        """Units beside the map, on its right, that tiles with wanted columns meet, where rows share them; None where
        they do not: a block has no whole rows, or nothing beside them."""
        if not self.lean or self.is_whole or self.blocks_w > 1:
            return None
        tiles, inputs = (-(-size // UNIT) for size in (self.gather.columns.outputs, self.gather.columns.inputs))
        right = max(0, tiles - 1 + self.band.stop - inputs)
        return None if inputs + max(right, -self.units.start) >= len(self.units) or self.units.start > 0 else right

    def units_of(self, tile: int) -> range:
        first, stop = tile + self.band.start, tile + self.band.stop
        if self.is_whole:
            first, stop = max(first, self.units.start), min(stop, self.units.stop)
        return range(first, stop)

    @cached_property
    def units_of_warp(self) -> range:
        met = [unit for tile in range(self.tiles) for unit in self.units_of(tile)]
        return range(min(met), max(met) + 1)

    def depths(self, tile: int) -> Iterator[tuple[int, ...]]:
        """The units of each of its products: two together, or one. Registers of two that were not loaded together would
        have to be moved side by side."""
        of_tile = self.units_of(tile)
        units = iter(of_tile)
        if self.lean and (of_tile.start - self.units_of_warp.start) % 2:
            yield (next(units),)
        while pair := tuple(itertools.islice(units, 2)):
            yield pair

    @cached_property
    def products(self) -> int:
        return sum(len(list(self.depths(tile))) for tile in range(self.tiles))

    # -- in shared memory ----------------------------------------------------------------------------------------------

    @cached_property
    def source(self) -> StagedMaps:
        rows, columns = self.gather.rows, self.gather.columns
        return self._staged(rows.inputs, columns.inputs, self.rows, self.units, right=self.right)

    @cached_property
    def results(self) -> StagedMaps:
        """Of a channel, in the place of its source."""
        rows, columns = self.gather.rows, self.gather.columns
        return self._staged(rows.outputs, columns.outputs, range(self.block_h), range(self.block_w // COLUMNS))

    def _staged(self, height: int, width: int, rows: range, units: range, right: int | None = None) -> StagedMaps:
        return StagedMaps(
            height=height, width=width, rows=rows, units=units, images=self.images, tile_h=self.strip_apart,
            tiles=self.tiles_w, right=right,
        )  # fmt: skip

    @property
    def channels_last(self) -> bool:
        return self.layout == "nhwc"

    @property
    def maps(self) -> BlockMaps:
        elements = max(self.source.elements, self.results.elements)
        return BlockMaps(planes=self.planes, elements=elements, channels_last=self.channels_last)

    @property
    def band_apart(self) -> int:
        """Elements from a kernel row to its copy, one element on. Of a product's columns the even ones read pairs from
        the row, the odd ones from the copy: 7 words each, in different banks."""
        itemsize = ITEMSIZE[self.dtype]
        words = (len(self.band) + 1) * UNIT * itemsize // BANK_BYTES  # with zeros on both sides of the weights
        if self.lean:
            words = _words_of_band(words, self.gather.rows.taps, self.gather.columns.taps, self.weight_at(0) % 2)
        while not _are_different_banks(words):
            words += 1
        return words * BANK_BYTES // itemsize

    def weight_at(self, tap: Any) -> Any:
        """Where a weight stands in its kernel row, a number or a TVM expression."""
        columns = self.gather.columns
        return tap * columns.step + (columns.shift - first_of_band(self.band))

    @property
    def weights_turns(self) -> int:
        """Turns of shared memory in which the weights of a channel are put into kernel rows and their copies."""
        rows, columns = self.gather.rows.taps, self.gather.columns.taps
        words = self.band_apart * ITEMSIZE[self.dtype] // BANK_BYTES
        return _weights_turns(words, rows, columns, self.weight_at(0) % 2)

    @property
    def bands_at(self) -> int:
        return self.maps.all_elements

    @property
    def kernel_elements(self) -> int:
        return self.gather.rows.taps * 2 * self.band_apart

    @property
    def weights_of_thread(self) -> int:
        """Of a channel, where those of all its threads are put into its kernel rows."""
        return -(-self.gather.rows.taps * self.gather.columns.taps // self.threads_of_channel)

    @property
    def bands_in_turns(self) -> bool:
        """Whether there are kernel rows of as many channels as have their turn together: the weights of the next ones
        wait in registers."""
        return self.lean and self.turns_c > 1 and self.weights_of_thread <= MOST_WEIGHTS_AHEAD

    @property
    def bands(self) -> int:
        return self.warps_c if self.bands_in_turns else self.planes

    @property
    def shared_elements(self) -> int:
        return self.bands_at + self.bands * self.kernel_elements

    @property
    def shared_bytes(self) -> int:
        return self.shared_elements * ITEMSIZE[self.dtype]


def first_of_band(band: range) -> int:
    """What stands first in a kernel row: the distance from a column of the result to the source."""
    return band.start * UNIT - (COLUMNS - 1) - 1


@lru_cache(maxsize=1024)
def _met_in_turns(rows: Axis, tile_h: int, strips: int) -> Meetings:
    """The meetings of the first of so many strips that take turns."""
    found: dict[int, list[tuple[int, int]]] = {}
    for out, tap in itertools.product(range(tile_h), range(rows.taps)):
        at = rows.meets(out * strips, tap)
        assert at is not None, "the stride is 1"
        found.setdefault(at, []).append((out, tap))
    return sorted(found.items())


def _are_different_banks(words: int) -> bool:
    return 7 <= words % BANKS <= BANKS - 7


MOST_WEIGHTS_AHEAD = 8
"""Weights of the next channel that a thread has in registers."""
MOST_WORDS_MORE = 8
"""Words after a kernel row that only keep weights in different banks."""


@cache
def _words_of_band(words: int, rows: int, columns: int, odd: int) -> int:
    """From a kernel row of so many to its copy: those with which weights are put there in the fewest turns."""
    fitting = [more for more in range(words, words + BANKS) if _are_different_banks(more)]
    fitting = [more for more in fitting if more <= fitting[0] + MOST_WORDS_MORE]
    return min(fitting, key=lambda more: (_weights_turns(more, rows, columns, odd), more))


@cache
def _weights_turns(words: int, rows: int, columns: int, odd: int) -> int:
    """Of warps whose lanes put neighbouring weights, each a half of a word, to rows twice so many words apart."""
    turns = 0
    for copy, first in itertools.product((0, 1), range(0, rows * columns, WARP)):
        weights = [divmod(weight, columns) for weight in range(first, min(first + WARP, rows * columns))]
        met = {row * 2 * words + (odd + copy + column) // 2 for row, column in weights}
        banks = [word % BANKS for word in met]
        turns += max(map(banks.count, banks))
    return turns
