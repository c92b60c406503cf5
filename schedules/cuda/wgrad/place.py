"""Which sums each thread of the weight gradient has: of what tiles, and where they go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx

from dwconv.schedules.cuda.emit.split_sum import sum_over_threads
from dwconv.schedules.cuda.emit.words import Registers, Start, blocks, blocks_per_sm, keep, threads
from dwconv.schedules.cuda.wgrad.cut import WeightGradientCut
from dwconv.schedules.emit import Expr, all_of, bind, ceil_div, int32, is_number, serial, store, when
from dwconv.schedules.taps import Axes

Tile = tuple[Expr, Expr, Expr]
"""A tile of dy: its image, in 3-D its plane of those of all images; and where it begins, (row, column)."""


@dataclass(frozen=True, kw_only=True)
class WgradPlace:
    """One thread, and what it owns."""

    cut: WeightGradientCut
    channels: Expr
    """Of dy, all together."""
    part: Expr
    vector: Expr
    """Which vector of channels."""
    group: Expr
    """Which group of kernel rows."""
    mate: Expr
    """Its number among the threads whose sums it meets."""
    neighbour: tuple[Expr, Expr]
    """Its numbers on (kernel rows, channels) in the block."""

    @property
    def channel(self) -> Expr:
        return self.vector * self.cut.vector_c

    @property
    def kd(self) -> Expr:
        """Its tap along the depth: those of the same kernel rows are side by side."""
        return self.group % self.cut.depths.taps if self.cut.depths.taps > 1 else 0

    @property
    def kh(self) -> Expr:
        return self.group // self.cut.depths.taps * self.cut.group_kh

    @property
    def _item(self) -> Expr:
        return self.part * self.cut.threads_p + self.mate

    def tiles(self, axes: Axes, planes: Expr) -> Iterator[Tile]:
        cut, item = self.cut, self._item
        if not cut.workload.any_size:
            image, left = item // (cut.tiles_h * cut.tiles_w), item % cut.tiles_w
            top = item // cut.tiles_w % cut.tiles_h
            for turn in serial("turn", tirx.truncdiv(planes - image + (cut.split_n - 1), cut.split_n)):
                yield bind("image", image + turn * cut.split_n), top * cut.tile_h, left * cut.tile_w
            return
        sizes = (ceil_div(axes.rows.outputs, cut.tile_h), ceil_div(axes.columns.outputs, cut.tile_w))
        across, down = int32(keep("tiles_w", sizes[1])), int32(keep("tiles_h", sizes[0]))
        at, further = Registers("tile", 3, dtype="int32"), list[tuple[Expr, Expr, Expr]]()
        for number in (int32(cut.items), int32(item)):
            rest, left = tirx.truncdiv(number, across), tirx.truncmod(number, across)
            further.append((tirx.truncdiv(rest, down), tirx.truncmod(rest, down), left))
        for axis in range(3):
            at[axis] = further[1][axis]
        step = [keep("step", each) for each in further[0]]
        for _ in serial("turn", tirx.truncdiv(planes * down * across - item + (cut.items - 1), cut.items)):
            yield at[0], at[1] * cut.tile_h, at[2] * cut.tile_w
            # One division each, once; from tile to tile, carries.
            for axis in range(3):
                at[axis] = at[axis] + step[axis]
            for axis, size in ((2, across), (1, down)):
                with when(at[axis] >= size):
                    at[axis] = at[axis] - size
                    at[axis - 1] = at[axis - 1] + 1

    def has_work(self) -> Expr:
        cut = self.cut
        has_item = cut.items == cut.parts * cut.threads_p or self._item < cut.items
        return all_of(has_item, self._has_channels(), cut.groups % cut.threads_kh == 0 or self.group < cut.groups)

    def _has_channels(self) -> Expr:
        if not is_number(self.channels):
            return self.channel < self.channels
        return self.cut.vectors % self.cut.threads_c == 0 or self.vector < self.cut.vectors

    def sum_over_mates(self, sums: Registers) -> None:
        cut, (group, lane) = self.cut, self.neighbour

        def slot(mate: Expr, width: int) -> Expr:
            """In the order of the threads, so that those of a warp use different banks."""
            if cut.channel_last:
                return (group * width + mate) * cut.threads_c + lane
            return (group * cut.threads_c + lane) * width + mate

        others = cut.threads_c * cut.threads_kh
        sum_over_threads(sums, mate=self.mate, mates=cut.threads_p, others=others, slot=slot)

    def write(self, sums: Registers, weights: Start, bias: Start | None = None) -> None:
        taps_h, taps_w = self.cut.rows.taps, self.cut.columns.taps
        with when(all_of(self.cut.threads_p == 1 or self.mate == 0, self._has_channels())):
            into, start = weights
            taps = self.cut.depths.taps * taps_h
            first = bind("first", start + self.channel * (taps * taps_w))
            for a in range(self.cut.group_kh):
                with when(self.cut.kernel_rows == taps_h or self.kh + a < taps_h):
                    for b in range(taps_w):
                        for c in range(self.cut.vector_c):
                            row = self.kd * taps_h + self.kh
                            at = first + (row * taps_w + (c * taps + a) * taps_w + b)
                            store(into, sums[a * taps_w + b, c].astype(into.dtype), at)
            if bias is not None:
                into, start = bias
                with when(self.cut.groups == 1 or self.group == 0):
                    for c in range(self.cut.vector_c):
                        store(into, sums[self.cut.sums_of_channel - 1, c].astype(into.dtype), start + self.channel + c)


def threads_of(cut: WeightGradientCut, channels: Expr) -> Iterator[WgradPlace]:
    """All threads of all blocks. NHWC: neighbouring threads own neighbouring channels; NCHW: neighbouring tiles."""
    channel_blocks, parts, group_blocks = cut.blocks
    if not is_number(channels):
        channel_blocks = ceil_div(channels, cut.threads_c * cut.vector_c)
    across, down = (cut.threads_c, cut.threads_p) if cut.channel_last else (cut.threads_p, cut.threads_c)
    for groups in blocks("groups", group_blocks, axis="y"):
        for block in blocks("block", channel_blocks * parts):
            for z in threads("z", cut.threads_kh, axis="z"):
                for y in threads("y", down, axis="y"):
                    for x in threads("x", across):
                        lane, mate = (x, y) if cut.channel_last else (y, x)
                        with blocks_per_sm(cut.blocks_per_sm):
                            yield WgradPlace(
                                cut=cut,
                                channels=channels,
                                part=block // channel_blocks,
                                vector=block % channel_blocks * cut.threads_c + lane,
                                group=groups * cut.threads_kh + z,
                                mate=mate,
                                neighbour=(z, lane),
                            )
