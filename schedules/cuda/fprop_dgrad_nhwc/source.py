"""Where the threads of the NHWC gather kernels read the source: straight from global memory, or from a patch of it that
the block has staged in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dwconv.schedules.cuda.emit.sliding_sum import SlidingSource
from dwconv.schedules.cuda.emit.words import (
    Registers,
    as_one_axis,
    commit_copies,
    copy_async,
    flat,
    shared,
    span,
    turns,
    unrolled,
    wait_for_copies,
    zero,
)
from dwconv.schedules.cuda.fprop_dgrad_nhwc.cut import ChannelsLastCut, ImageCut
from dwconv.schedules.cuda.fprop_dgrad_nhwc.place import Element, Strip, StripPlace
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES
from dwconv.schedules.emit import Expr, all_of, bind, inside, when


class Source:
    def stage(self) -> None:
        """Done by all threads of a block together, at first."""

    def wait(self) -> None:
        """Until the thread's part of that is done."""

    def begin(self, strip: Strip) -> None:
        """Before all else that is done for a strip."""

    def prepare(self, loaded: Registers) -> None:
        """Before the first ``load``, where rows go by in a loop."""

    def load(self, loaded: Registers, strip: Strip, plane: SlidingSource, row: Expr, *, is_inside: bool) -> None:
        """The columns of a row of ``plane`` that the strip reads; of padding, zeros. ``row`` is counted from the origin
        of the strip, a number unless the row ``is_inside`` the image."""
        raise NotImplementedError


def source_of(source: Any, cut: ChannelsLastCut, place: StripPlace) -> Source:
    return FromPatch(source, cut, place) if cut.stage == "shared" else FromMemory(source)


@dataclass
class FromMemory(Source):
    """Each thread loads what it needs."""

    source: Any
    _flat: Any = field(init=False)
    _origin: Element = field(init=False)

    def begin(self, strip: Strip) -> None:
        if strip.cut.columns.any_size:
            self._flat, self._origin = as_one_axis(self.source), strip.origin

    def prepare(self, loaded: Registers) -> None:
        """All rows are inside, and the same columns are padding in each: they stay zero from the beginning."""
        loaded.clear()

    def load(self, loaded: Registers, strip: Strip, plane: SlidingSource, row: Expr, *, is_inside: bool) -> None:
        cut, columns = strip.cut, strip.cut.columns
        leftmost = min(columns.reads, default=0)
        row_inside = [] if is_inside else _is_inside(strip.rows.origin + row, cut.rows, row)
        of_row = self._row(strip, plane, row)
        for first, stop in columns.spans:
            for at in unrolled("column", first, stop):
                column, slot = strip.columns.origin + at, at - leftmost
                conditions = [*row_inside, *_is_inside(column, columns, first)]
                if conditions and not is_inside:
                    for lane in unrolled("lane", cut.source_lanes):
                        loaded[slot, lane] = zero(cut.dtype)
                with when(all_of(*conditions)):
                    for lane, value, lanes in of_row(at):
                        loaded.put((slot, lane), value, lanes=lanes)

    def _row(self, strip: Strip, plane: SlidingSource, row: Expr) -> Callable[[Expr], Iterator[tuple[int, Expr, int]]]:
        """Of a row that is counted from the origin of the strip, what is in a column that is: (the first lane, values,
        lanes)."""
        cut, axes = strip.cut, strip.cut.gather.axes
        if cut.columns.any_size:
            number = flat(axes.index(plane.depth, row, 0), axes.inputs[1:])
            start = self._origin.after("row", number)

        def vectors(column: Expr) -> Iterator[tuple[int, Expr, int]]:
            if cut.columns.any_size:
                for lane, at, lanes in _channels(cut, 0, plane.m, offset=start.number(column)):
                    yield lane, self._flat[at], lanes
                return
            at = axes.index(plane.depth, strip.rows.origin + row, strip.columns.origin + column)
            for lane, channels, lanes in _channels(cut, strip.place.strip_c, plane.m):
                yield lane, self.source[(strip.place.image, *at, channels)], lanes

        return vectors


@dataclass
class FromPatch(Source):
    """The threads of a block copy its patch to shared memory: of the one plane that it meets."""

    source: Any
    cut: ChannelsLastCut
    place: StripPlace
    _patch: Any = field(init=False)

    def stage(self) -> None:
        cut, place, patch = self.cut, self.place, self.cut.patch
        dynamic = cut.shared_bytes > STATIC_SHARED_BYTES
        self._patch = shared("patch", patch.elements, dtype=cut.dtype, dynamic=dynamic)
        vector, pixel = place.thread % patch.vectors, place.thread // patch.vectors
        mine_w, mine_h = bind("copied_w", pixel % patch.across), bind("copied_h", pixel // patch.across)
        channel = bind("copied_c", place.block_c * cut.block_channels // cut.channels.threads + vector * patch.lanes)
        origin_h = bind("origin_h", place.block_h * cut.rows.step + patch.rows.first)
        origin_w = bind("origin_w", place.block_w * cut.columns.step + patch.columns.first)
        depth = place.depth * cut.gather.depths.up + cut.gather.depths.shift
        copiers = patch.vectors * patch.across * patch.down
        with when(place.thread < copiers if copiers < cut.threads else True):
            for turn_w in range(patch.turns[1]):
                for turn_h in turns("turn_h", patch.turns[0]):
                    h, w = turn_h * patch.down + mine_h, turn_w * patch.across + mine_w
                    row, column = origin_h + h, origin_w + w
                    asked = [
                        (patch.rows.count % patch.down, h < patch.rows.count),
                        (patch.columns.count % patch.across, w < patch.columns.count),
                    ]
                    valid = [
                        (_may_be_padding(cut.rows), inside(row, cut.rows.axis.inputs)),
                        (_may_be_padding(cut.columns), inside(column, cut.columns.axis.inputs)),
                        (cut.channels.idle, channel < cut.gather.source_channels),
                    ]
                    with when(all_of(*[holds for unsure, holds in asked if unsure])):
                        copy_async(
                            self._patch, h * patch.pitch + w * patch.channels + vector * patch.lanes,
                            self.source, place.image, *cut.gather.axes.index(depth, row, column), channel,
                            elements=patch.lanes, valid=all_of(*[holds for unsure, holds in valid if unsure]),
                        )  # fmt: skip
        commit_copies()

    def wait(self) -> None:
        wait_for_copies()

    def load(self, loaded: Registers, strip: Strip, plane: SlidingSource, row: Expr, *, is_inside: bool) -> None:
        cut, patch, place = self.cut, self.cut.patch, self.place
        h = strip.rows.origin + row - place.block_h * cut.rows.step - patch.rows.first
        w = strip.w_in_block * cut.columns.step - patch.columns.first
        leftmost = min(cut.columns.reads, default=0)
        for first, stop in cut.columns.spans:
            for at in unrolled("column", first, stop):
                pixel = h * patch.pitch + (w + at) * patch.channels
                for lane, channels, lanes in _channels(cut, place.thread_c, plane.m, offset=pixel):
                    loaded.put((at - leftmost, lane), self._patch[channels], lanes=lanes)


def _channels(cut: ChannelsLastCut, strip_c: Expr, m: Expr, *, offset: Expr = 0) -> Iterator[tuple[int, Expr, int]]:
    """The source channels of a strip of channels in vectors: (the first lane, index, lanes)."""
    if cut.fan_in < cut.gather.fan_in:  # every fan_in-th channel
        first = offset + strip_c * cut.strip_kernels + m
        for lane in unrolled("lane", cut.source_lanes):
            yield lane, first + lane * cut.gather.fan_in, 1
        return
    first = offset + strip_c * (cut.channels.tile * cut.gather.fan_in) // cut.gather.fan_out
    lanes = cut.vector(cut.source_lanes, itemsize=cut.itemsize)
    for lane in range(0, cut.source_lanes, lanes):
        yield lane, span(first + lane, lanes), lanes


def _is_inside(at: Expr, axis: ImageCut, read: int) -> list[Expr]:
    """Conditions that input ``at`` of an axis, the ``read``-th from the origin of the strip, is no padding; none where
    that is known."""
    before = [at >= 0] if axis.may_be_before(read) else []
    return [*before, at < axis.axis.inputs] if axis.may_be_behind(read) else before


def _may_be_padding(axis: ImageCut) -> bool:
    return axis.idle or any(map(axis.may_be_padding, axis.reads))
