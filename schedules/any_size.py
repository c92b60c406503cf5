"""Axes whose sizes are arguments of the kernel: the same tiles, cut by expressions where else numbers stand.

What taps meet does not depend on the size. Tiles at the left edge know what is padding, since they begin at known
places; those at the right edge do as well, since they end where the axis ends; the tiles between read no padding.

    0            first                                 end
    ├──────┬──────┼──────┬──────┬──────┬──────┬──────┼──────┤
    │ left edge   │ interior                         │ right│    where tiles may overlap, the last of the interior is
    └─────────────┴──────────────────────────────────┴──────┘    moved back; else its rest goes in narrow ones

An axis too short for that is cut as at the size that the configuration was chosen for, if it has that size; else into
narrow tiles that test each input.

Where a vector is neighbouring outputs (NCHW), tiles at the right edge test their lanes instead: a vector costs as much
whether all of them count or one.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.emit.words import settled
from dwconv.schedules.emit import Expr, all_of, bind, ceil_div, is_number, least, most
from dwconv.schedules.taps import DEPTH, HEIGHT, WIDTH, Axes, Axis, TileRun, column_runs, inputs_beyond

AnyCut = TypeVar("AnyCut", bound=Any)
"""A dataclass whose ``work`` has ``axes``."""

Reads = list[tuple[int, list[tuple[int, int]]]]


@dataclass(frozen=True, kw_only=True)
class AnyRun(TileRun):
    """Tiles of an axis of any size."""

    start: Expr
    tiles: Expr
    from_start: int | None = None
    """Where the tile is, counted from the first output; None if that is not known."""
    to_end: int | None = None
    """How far before the end of the axis it begins; None if that is not known."""
    last_start: Expr = None
    """The last tile begins no later; None: wherever it comes to."""

    def at(self, tile: Expr) -> Expr:
        start = super().at(tile)
        return start if self.last_start is None else least(start, self.last_start)


@dataclass(frozen=True, kw_only=True, eq=False)
class AnyAxis(Axis):
    """An axis of which ``outputs`` and ``inputs`` are symbols."""

    outputs: Expr
    inputs: Expr
    known: Axis
    """The axis at the size that the configuration was chosen for."""
    beyond: tuple[int, int]
    """``inputs_beyond`` of the pass."""

    @property
    def home(self) -> Axis:
        return self.known

    @property
    def end(self) -> Expr:
        """The outputs in whole groups of ``down``."""
        return self.outputs if self.down == 1 else ceil_div(self.outputs, self.down) * self.down

    @property
    def one_to_one(self) -> bool:
        last = -self.up + self.reach[1]
        return self.taps == self.down == 1 and self.reach[0] >= 0 and last < self.beyond[0]

    def part(self, first: int, taps: int) -> AnyAxis:
        known, shift = self.known.part(first, taps), self.shift + first * self.step
        return replace(self, known=known, taps=taps, shift=shift)

    def reads_of(self, run: TileRun) -> Reads:
        if not isinstance(run, AnyRun):
            return self.known.reads_of(run)
        return [(at, pairs) for at, pairs in self.reads(run.width).items() if not self._is_padding(run, at)]

    def is_tested(self, run: TileRun, at: int) -> bool:
        if not isinstance(run, AnyRun):
            return False
        return run.is_tested if run.to_end is None else self.origin(-run.to_end) + at >= self.beyond[0]

    def may_lack(self, run: TileRun, out: int) -> bool:
        if not isinstance(run, AnyRun):
            return False
        return run.is_tested and out > 0 if run.to_end is None else out > run.to_end - self.down

    def _is_padding(self, run: AnyRun, at: int) -> bool:
        is_before = run.from_start is not None and self.origin(run.from_start) + at < 0
        return is_before or (run.to_end is not None and self.origin(-run.to_end) + at >= self.beyond[1])

    # -- cuts --------------------------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        """Outputs before the first tile that reads no padding on the left."""
        nearest = self.reach[0]
        return max(0, -nearest * self.down if self.down > 1 else -(nearest // self.up))

    @property
    def right(self) -> int:
        """Outputs behind the last tile that is sure to read no padding on the right."""
        farthest = self.reach[1]
        # A tile of ``down`` outputs that begins ``o`` before the end reads up to origin(-o) + farthest.
        before = self.down
        while self.origin(-before) + farthest >= self.beyond[0] or (before == self.down > 1):
            before += self.down
        return before - self.down

    def cuts(self, width: int, *, overlap: bool, narrower: bool = False) -> Iterator[list[TileRun]]:
        """The ways to cut the axis into tiles of ``width``, each inside the test of whether it fits. ``overlap``:
        whether outputs may be computed twice. ``narrower``: also into tiles of a half and of a quarter of that."""
        widths = [width // part // self.down * self.down for part in ((1, 2, 4) if narrower else (1,))]
        widths = [each for each in dict.fromkeys(widths) if each > (each != width)]
        ways = [self._in_tiles(each, overlap=overlap) for each in widths]
        if not self._fits(width, self.known.covered(self.down), overlap=overlap):
            is_known = all_of(self.outputs == self.known.outputs, self.inputs == self.known.inputs)
            ways.insert(0, (is_known, column_runs(self.known, width)))
        fits_all = not overlap and self._first_edge(widths[-1]) + sum(self._last_edge(widths[-1])) <= 1
        with contextlib.ExitStack() as otherwise:
            for condition, runs in ways:
                if fits_all and runs is ways[-1][1]:  # without it TVM divides by the outputs of an axis that has none
                    yield runs
                    return
                otherwise.enter_context(T.If(condition))
                with T.Then():
                    yield runs
                otherwise.enter_context(T.Else())
            groups = ceil_div(self.outputs, self.down)
            yield [AnyRun(start=0, tiles=groups, width=self.down, interior=False, is_tested=True)]

    def _fits(self, width: int, end: Expr, *, overlap: bool) -> Expr:
        """Whether tiles at the edges, which know the padding of one side, read none of the other, and those between
        read none."""
        first, last = self._first_edge(width), sum(self._last_edge(width))
        if not overlap:
            return end >= first + last
        has_none_between, has_room = end <= first + last, end >= last + width + self.left
        return all_of(
            end >= first + self.right if first else True,
            end >= last + self.left if last else True,
            has_none_between or has_room if isinstance(end, int) else tirx.any(has_none_between, has_room),
        )

    def _first_edge(self, width: int) -> int:
        """Outputs in the tiles of the left edge."""
        return -(-self.left // width) * width

    def _last_edge(self, width: int) -> list[int]:
        """The widths of the tiles of the right edge, the last of which is what is left over at the known size."""
        widths = [left_over] if (left_over := self.known.covered(self.down) % width) else []
        while sum(widths) < self.right:
            widths.insert(0, width)
        return widths

    def _in_tiles(self, width: int, *, overlap: bool) -> tuple[Expr, list[TileRun]]:
        """The condition under which the axis can be cut into tiles that know what is padding, and these."""
        widths, end = self._last_edge(width), bind("end", self.end)
        first, last = self._first_edge(width), sum(widths)
        inner = end - (first + last)
        if overlap:
            tiles = most(ceil_div(inner, width), 0)
            last_start = end - (last + width)
            between = [AnyRun(start=first, tiles=tiles, width=width, interior=True, last_start=last_start)]
        else:
            tiles, rest = inner // width, inner % width
            between = [
                AnyRun(start=first, tiles=tiles, width=width, interior=True),
                AnyRun(start=end - last - rest, tiles=rest, width=1, interior=True),
            ]
        at_end = [(each, sum(widths[number:])) for number, each in enumerate(widths)]
        edges = [
            [AnyRun(start=at, tiles=1, width=width, interior=False, from_start=at) for at in range(0, first, width)],
            [AnyRun(start=end - to_end, tiles=1, width=each, interior=False, to_end=to_end) for each, to_end in at_end],
        ]
        return self._fits(width, end, overlap=overlap), [*edges[0], *between, *edges[1]]

    def vector_runs(self, vector: int, vectors: int, *, is_padded: bool) -> list[TileRun]:
        """On the left, tiles that know what is padding, unless the axis is too short for them; on the right, tiles that
        test what they read and store. What fills no tile is one of as many vectors as at the known size, or of one, if
        that is enough."""
        width = vector * vectors
        first, last = 0 if is_padded else self._first_edge(width), self.outputs - width
        if not is_padded:
            nearest, span = self.known.spanned(width)
            last = least(last, (self.inputs - nearest - span) * self.down // self.up)
        inner = settled("inner", most((last - first) // width + 1, 0))
        is_long = settled("last", last) >= first - width
        count = settled("vectors", ceil_div(self.outputs, vector))
        behind = settled("behind", inner + tirx.Cast("int32", is_long) * (first // width))
        whole, left = settled("whole", count // vectors), settled("left_over", count % vectors)
        middle = max(1, ceil_div(self.known.outputs, vector) % vectors or vectors // 2)

        def right(tile: Expr, *, tiles: Expr = 1, size: int, exists: Expr = True) -> TileRun:
            start, wide = tile * width, size * vector
            return AnyRun(start=start, tiles=tiles, width=wide, interior=False, is_tested=True, exists=exists)

        edge = [
            AnyRun(start=start, tiles=1, width=width, interior=False, exists=is_long)
            for start in range(0, first, width)
        ]
        return [
            *edge,
            AnyRun(start=first, tiles=inner, width=width, interior=True),
            right(behind, tiles=whole - behind + tirx.Cast("int32", left > middle), size=vectors),
            *([right(whole, size=middle, exists=all_of(left > 1, left <= middle))] if middle > 1 else []),
            *([right(whole, size=1, exists=left == 1)] if vectors > 1 else []),
        ]

    def rolled_runs(self, width: int) -> list[TileRun]:
        """The tiles of an axis whose taps are loops, which know their bounds: edges in tiles as narrow as can be."""
        narrow, first = self.down, self.left
        tiles = ceil_div(self.outputs, narrow)
        farthest = max(self.reads(width), default=0)
        last = least(self.outputs - width, (self.inputs - 1 - farthest) * self.down // self.up)
        inner = bind("inner", most((last - first) // width + 1, 0))
        left = bind("left", least(first // narrow, tiles))
        stop = left + inner * (width // narrow)
        return [
            AnyRun(start=0, tiles=left, width=narrow, interior=False, is_tested=True),
            AnyRun(start=first, tiles=inner, width=width, interior=True),
            AnyRun(start=stop * narrow, tiles=tiles - stop, width=narrow, interior=False, is_tested=True),
        ]


def any_pieces(first: Expr, stop: Expr, sizes: Iterable[int]) -> Iterator[tuple[Expr, Expr, int]]:
    """(the first, how many, their size): pieces of the largest of ``sizes``, then of the next, …, then of one."""
    for each in sorted({*sizes, 1} - {0}, reverse=True):
        count = settled("pieces", (stop - first) // each)
        yield first, count, each
        first = settled("rest", first + count * each)


def at_any_size(cut: AnyCut, workload: Workload) -> AnyCut:
    """``cut``; if ``workload`` is of any size, on axes whose sizes are symbols, and with channels that are one if it
    takes any number of them."""
    if not workload.any_size:
        return cut
    work = replace(cut.work, axes=any_axes(workload))
    if workload.any_channels:
        work = replace(work, channels=channels_of(workload), chosen_channels=cut.work.channels)
    return replace(cut, work=work)


def of_any_width(cut: AnyCut, rows: Iterable[tuple[Expr, int]]) -> Iterator[AnyCut]:
    """The cut of a GPU's kernel, and of any size also that without vectors, each inside the test of whether ``rows`` of
    tensors, (their length, elements of a vector) each, are whole numbers of vectors."""
    unsure = [tirx.truncmod(size, lanes) == 0 for size, lanes in rows if lanes > 1 and not is_number(size)]
    if not unsure:
        yield cut
        return
    with T.If(all_of(*unsure)):
        with T.Then():
            yield cut
        with T.Else():
            yield replace(cut, has_vectors=False)


def any_axes(workload: Workload, symbols: dict[str, tirx.Var] | None = None) -> Axes:
    """The axes of a pass with sizes that are symbols: those of x are ``d``, ``h`` and ``w``, those of y have an ``o``
    before. A 1-D convolution keeps its height of 1. ``symbols``: those of another pass, which new ones join."""
    symbols = {} if symbols is None else symbols
    is_gradient = workload.pass_ == "dgrad"
    known = Axes.of_input_gradient(workload) if is_gradient else Axes.of_convolution(workload)

    def sized(axis: Axis, number: int) -> Axis:
        if -number > workload.axes or (workload.is_row and number == HEIGHT):
            return axis
        names = [name + "whd"[-1 - number] for name in ("", "o")]
        x_size, y_size = (symbols.setdefault(name, tirx.Var(name, "int32")) for name in names)
        fields = {field.name: getattr(axis, field.name) for field in dataclasses.fields(axis)}
        fields |= {"outputs": x_size, "inputs": y_size} if is_gradient else {"outputs": y_size, "inputs": x_size}
        return AnyAxis(**fields, known=axis, beyond=inputs_beyond(workload, number))

    return replace(
        known, depths=sized(known.depths, DEPTH), rows=sized(known.rows, HEIGHT), columns=sized(known.columns, WIDTH)
    )


def channels_of(workload: Workload) -> Expr:
    """Channels of the result: a number, or the symbol ``c``."""
    if workload.any_channels:
        return tirx.Var("c", "int32")
    return workload.result_channels
