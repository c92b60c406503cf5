"""How a configuration cuts a weight gradient into products of matrices, and how x and dy lie in shared memory.
No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from dwconv.problems.workload import ITEMSIZE, DType
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, WARP
from dwconv.schedules.cuda.gpu.tensor_cores import COLUMNS, ROWS, UNIT, BlockMaps, StagedMaps, WaitingPixels
from dwconv.schedules.cuda.gpu.workload_cut import WorkloadCut
from dwconv.schedules.taps import Axis

OFFSETS = (0, 4, 2, 6)
"""Columns by which products may begin before whole units of dy: for as few units of x as can be; where a product has
several tiles, for as few products of matrices in a row, and then tiles."""
DIAGONAL_PAD = 4
"""Words after a column of sums, so that the lanes of a warp store it in different banks."""
Meetings = list[tuple[int, list[tuple[int, int]]]]
"""Rows of x, counted from the first of a tile, each with the (row of the tile, kernel row) pairs that meet in it."""


@dataclass(frozen=True, kw_only=True)
class ToeplitzGradientCut(WorkloadCut):
    """A configuration in numbers. A product sums over 16 rows of matrices: ``tiles_w`` tiles side by side of each of
    ``strips`` rows of ``images`` images, ``tile_h`` apart. A block goes through every ``split_n``-th group of images, a
    warp through some columns and some kernel rows of each."""

    images: int
    tile_h: int
    warps_w: int
    warps_kh: int
    split_n: int
    planes: int = 1
    """Channels of a block: more than one only where they come last; so is the next."""
    blocks_kh: int = 1
    """Blocks that share out the kernel rows of the same channels."""
    tiles_w: int = 1
    tile_w: int = COLUMNS
    """Columns of dy of a tile. More than 8 are a whole row."""
    pipeline: int = 1
    """2: the pixels of the next item are on their way while one is multiplied."""
    lean: int = 0
    """1: units of x are loaded in the order in which they are multiplied; an odd one at the end of a band together with
    that of the next row, for two kernel rows; and where a tile is a whole row, nothing beside the map."""

    @property
    def dtype(self) -> DType:
        return self.workload.dtype

    @property
    def strips(self) -> int:
        return ROWS // (self.images * self.tiles_w)

    @property
    def channels_last(self) -> bool:
        return self.workload.layout == "nhwc"

    @property
    def channel_blocks(self) -> int:
        return -(-self.workload.channels // self.planes)

    @property
    def weights(self) -> int:
        return self.workload.channels * self.rows.taps * self.columns.taps

    @property
    def results(self) -> int:
        return self.weights + self.workload.channels * self.workload.bias

    @property
    def warps(self) -> int:
        return self.planes * self.warps_w * self.warps_kh

    @property
    def threads(self) -> int:
        return self.warps * WARP

    # -- down ----------------------------------------------------------------------------------------------------------

    @property
    def block_h(self) -> int:
        """Rows of dy of an item: a block's work between two barriers."""
        return self.strips * self.tile_h

    @property
    def blocks_h(self) -> int:
        return -(-self.rows.outputs // self.block_h)

    @property
    def group_kh(self) -> int:
        return -(-self.rows.taps // (self.warps_kh * self.blocks_kh))

    @property
    def block_kh(self) -> int:
        return self.group_kh * self.warps_kh

    @property
    def knows_padding(self) -> bool:
        """Whether it is known when compiling which rows are padding: a tile is a whole map, and has all kernel rows."""
        return self.strips * self.blocks_h * self.warps_kh * self.blocks_kh == 1

    @cached_property
    def meetings(self) -> Meetings:
        rows = self.rows.part(0, self.group_kh)
        return list(rows.tile_reads(self.tile_h, tiles=1 if self.knows_padding else 2).items())

    # -- across --------------------------------------------------------------------------------------------------------

    @cached_property
    def offset(self) -> int:
        """Columns of dy from the first of a product to the next whole unit."""
        if self.is_whole:
            return 0
        if self.tiles_w == 1:
            return min(OFFSETS, key=lambda offset: len(self._units_met(offset)))

        def of_row(offset: int) -> tuple[int, int]:
            tiles = -(-self._tiles(offset) // self.tiles_w) * self.tiles_w
            return tiles * -(-len(self._units_met(offset)) // 2), tiles

        return min(OFFSETS, key=of_row)

    def _units_met(self, offset: int) -> range:
        first, count = self.columns.spanned(self.tile_w)
        first -= offset
        return range(first // UNIT, (first + count - 1) // UNIT + 1)

    @cached_property
    def is_whole(self) -> bool:
        return self.lean == 1 and self.tiles_w == 1 and self.tile_w >= self.columns.outputs

    @cached_property
    def band(self) -> range:
        """Units of x that the columns of one product meet, counted from the unit of dy after its first column."""
        return range(-(-self.columns.inputs // UNIT)) if self.is_whole else self._units_met(self.offset)

    @cached_property
    def matrices(self) -> int:
        return len(self.band) // 2 if self.lean else -(-len(self.band) // 2)

    @property
    def has_odd_unit(self) -> bool:
        """Whether a unit is left over, which is multiplied together with that of the next row."""
        return self.lean == 1 and len(self.band) % 2 == 1

    @cached_property
    def pairs_met(self) -> Meetings:
        """Rows of x, each with the (row of the tile, pair of kernel rows) that it and the next one meet."""
        rows = self.rows.part(0, self.group_kh)
        return _pairs_met(rows, self.tile_h, alone=self.knows_padding) if self.has_odd_unit else []

    @property
    def units_w(self) -> int:
        return self.tile_w // COLUMNS

    @cached_property
    def tiles(self) -> int:
        return self._tiles(self.offset)

    def _tiles(self, offset: int) -> int:
        return -(-(self.columns.outputs + offset) // self.tile_w)

    @property
    def products_w(self) -> int:
        return -(-self.tiles // self.tiles_w)

    @property
    def products_of_warp(self) -> int:
        return -(-self.products_w // self.warps_w)

    @property
    def tiles_held(self) -> int:
        return self.products_of_warp * self.warps_w * self.tiles_w

    @property
    def diagonal(self) -> int:
        """Which column of x, of the band, meets the first column of a product at the first tap."""
        return self.columns.shift - self.offset - self.band.start * UNIT

    # -- in shared memory ----------------------------------------------------------------------------------------------

    @cached_property
    def dy(self) -> StagedMaps:
        """Columns are counted from ``offset`` before the map."""
        return StagedMaps(
            height=self.rows.outputs, width=self.columns.outputs, rows=range(self.block_h),
            units=range(self.tiles_held * self.units_w), images=self.images, tile_h=self.tile_h, offset=self.offset,
            tiles=self.tiles_w,
        )  # fmt: skip

    @cached_property
    def x(self) -> StagedMaps:
        first, count = self.rows.part(0, self.block_kh).spanned(self.block_h)  # for the first kernel rows
        rows = range(self.rows.inputs) if self.knows_padding else range(first, first + count)
        units = range(self.band.start, (self.tiles_held - 1) * self.units_w + self.band.stop)
        return StagedMaps(
            height=self.rows.inputs, width=self.columns.inputs, rows=rows, units=units, images=self.images,
            tile_h=self.tile_h, tiles=self.tiles_w,
        )  # fmt: skip

    @property
    def diagonal_pitch(self) -> int:
        """Words from a column of sums to the next, where diagonals are summed."""
        return (len(self.band) * UNIT if self.lean else self.matrices * ROWS) + DIAGONAL_PAD

    @property
    def sums_of_warp(self) -> int:
        return self.tile_w * self.diagonal_pitch

    @property
    def sums_of_group(self) -> int:
        """Words from the sums of the warps that share kernel rows of a channel to those of the next: neighbouring
        weights begin at neighbouring words, of different groups, too."""
        return self.warps_w * self.sums_of_warp + self.columns.taps

    def maps(self, held: StagedMaps) -> BlockMaps:
        units = held.elements // UNIT
        units += self.pipeline > 1 and units % 2 == 0  # a warp stores a unit of 8 of them together, in different banks
        return BlockMaps(planes=self.planes, elements=units * UNIT, channels_last=self.channels_last)

    def waiting(self, held: StagedMaps) -> WaitingPixels:
        """Those of x or of dy of the next item: no padding, where it is known which rows are."""
        rows = held.rows
        if self.blocks_h * self.blocks_kh == 1:
            rows = range(max(rows.start, 0), min(rows.stop, held.height))
        return WaitingPixels(held=held, rows=rows, groups=self.maps(held).groups)

    @property
    def words_passed(self) -> int:
        return self.planes * self.warps_kh * self.sums_of_group

    @property
    def elements(self) -> int:
        return self.maps(self.x).all_elements + self.maps(self.dy).all_elements

    @property
    def waiting_elements(self) -> int:
        return sum(self.waiting(held).elements for held in (self.x, self.dy)) if self.pipeline > 1 else 0

    @property
    def shared_bytes(self) -> int:
        return (self.elements + self.waiting_elements) * ITEMSIZE[self.dtype] + self.words_passed * BANK_BYTES


@lru_cache(maxsize=1024)
def _pairs_met(rows: Axis, tile_h: int, *, alone: bool) -> Meetings:
    """The meetings of rows of x and the ones after them, with pairs of kernel rows."""
    found: dict[int, set[tuple[int, int]]] = {}
    for at, met in rows.tile_reads(tile_h, tiles=1 if alone else 2).items():
        for row, tap in met:
            found.setdefault(at - tap % 2 * rows.step, set()).add((row, tap // 2))
    return [(at, sorted(found[at])) for at in sorted(found)]
