"""The kernel behind wgrad: every weight is the correlation of the input with the output gradient.

    dw[c, k] = Σ over n, o of x[n, o·stride + k·dilation − padding, c // multiplier] · dy[n, o, c]

A group of taps is summed in registers while rows go by: a tile of dy is loaded once for all taps of the group, each
x once for all dy that it meets. The gradient of a bias is one sum more, of the dy that the first group loads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cpu.emit import Accumulators, Vectors, argument, parallel, prefetch, scratch
from dwconv.schedules.cpu.sizes import rows_ahead
from dwconv.schedules.emit import BATCH, Expr, bind, ceil_div, inside, kernel, least, most, nest, serial, store, when
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis, Run, column_runs
from dwconv.workload import Workload

PARALLEL_SUM = 16384
"""Partial sums below this number are added up by one thread: it takes less time than waking the others."""


def schedule_correlation(workload: Workload, config: Config, *, lanes: int, group_kw: int) -> s_tir.Schedule:
    """Parameters: x (n, H, W, C), dy (n, OH, OW, C·M), dw (C·M, KH, KW), dbias (C·M) if there is a bias and, if tasks
    are images, workspace (tasks, sums, C·M in whole vectors): the partial sums."""
    rows, columns = Axis.of_convolution(workload, 0), Axis.of_convolution(workload, 1)
    vectors = Vectors(workload.out_channels, lanes)
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        x = argument("x", (n, rows.inputs, columns.inputs, workload.channels))
        dy = argument("dy", (n, rows.outputs, columns.outputs, workload.out_channels))
        dw = argument("dw", workload.weight_shape)
        dbias = argument("dbias", (workload.out_channels,)) if workload.bias else None
        results = Results(dw, dbias, rows.taps, columns.taps, vectors)
        tile = (int(config.to_dict().get("tile_h", 1)), config.tile_w)
        reader = Reader(x, dy, rows, columns, workload.multiplier, vectors, tile, config.order, rows_ahead(config))
        groups = TapGroups(
            rows.taps, columns.taps, config.group_kh, group_kw, config.unroll == "none", sum_dy=workload.bias
        )
        if config.parallel == "channels":
            sum_by_channels(reader, groups, results, n, config.vectors_c)
        else:
            partial = argument("workspace", (config.tasks, results.count, vectors.count * lanes))
            sum_by_images(reader, groups, results, partial, n, config)
            add_partial_sums(partial, results)
    return s_tir.Schedule(builder.get())


def sum_by_channels(reader: Reader, groups: TapGroups, results: Results, n: Expr, vectors_c: int) -> None:
    """A task owns some channels and goes through all images: no partial sums."""
    vectors = reader.vectors
    for task in parallel("task", vectors.count // vectors_c):
        numbers = [task * vectors_c + v for v in range(vectors_c)]
        channels = vectors.starts(numbers)
        for taps in groups:
            sums = Sums(vectors, taps, vectors_c)
            for image in serial("image", n):
                reader.add_rows(sums, image, (0, reader.rows.outputs), channels)
            for place, v, value in sums.items():
                results.write(value, numbers[v], place)


def sum_by_images(reader: Reader, groups: TapGroups, results: Results, partial: Any, n: Expr, config: Config) -> None:
    """A task goes through its share of the row blocks of all images, and sums up all results of its own."""
    rows, vectors = reader.rows, reader.vectors
    blocks = ceil_div(rows.outputs, config.block_h)
    for task in parallel("task", config.tasks):
        for number in serial("number", results.count):
            for vector in serial("vector", vectors.count):
                store(partial, vectors.zero(), task, number, vectors.slot(vector))
        share = bind("share", ceil_div(n * blocks, config.tasks))
        first = bind("first", least(task * share, n * blocks))
        for unit in serial("unit", first, least(first + share, n * blocks)):
            image = bind("image", unit // blocks)
            top = unit % blocks * config.block_h if blocks > 1 else 0
            block = (bind("top", top), bind("bottom", least(top + config.block_h, rows.outputs)))
            for numbers in vectors.groups(0, vectors.count, config.vectors_c):
                channels = vectors.starts(numbers)
                for taps in groups:
                    sums = Sums(vectors, taps, len(channels))
                    reader.add_rows(sums, image, block, channels)
                    for place, v, value in sums.items():
                        at = (task, results.number(place), vectors.slot(numbers[v]))
                        store(partial, partial[at] + value, *at)


def add_partial_sums(partial: Any, results: Results) -> None:
    """In the order of the tasks, whichever thread ran them: the same bits every time."""
    vectors = results.vectors
    tasks, numbers, slots = (int(size) for size in partial.ty.shape)
    loop = parallel if tasks * numbers * slots > PARALLEL_SUM else serial
    for vector in loop("vector", vectors.count):
        for place in results.places():
            total = Accumulators(vectors, 1)
            for task in serial("task", tasks):
                total.add((0,), partial[task, results.number(place), vectors.slot(vector)])
            results.write(total[(0,)], vector, place)


Place = tuple[Expr, ...]
"""Of a sum among the results: (kh, kw) in dw, or () for dbias."""


@dataclass(frozen=True)
class Results:
    """Where sums go in the end."""

    dw: Any
    dbias: Any
    """None if there is no bias."""
    taps_h: int
    taps_w: int
    vectors: Vectors

    @property
    def count(self) -> int:
        """Sums of one channel."""
        return self.taps_h * self.taps_w + (self.dbias is not None)

    def number(self, place: Place) -> Expr:
        """Of the sum among those of its channel."""
        return place[0] * self.taps_w + place[1] if place else self.taps_h * self.taps_w

    def places(self) -> Iterator[Place]:
        for kh in serial("kh", self.taps_h):
            for kw in serial("kw", self.taps_w):
                yield (kh, kw)
        if self.dbias is not None:
            yield ()

    def write(self, value: Expr, vector: Expr, place: Place) -> None:
        """dw lies channels outermost, so lanes go out one by one; those that the vector before has too are left out."""
        lanes = scratch(self.vectors.lanes)
        store(lanes, value, self.vectors.span(0))
        start = self.vectors.start(vector)
        for lane in serial("lane", vector * self.vectors.lanes - start, self.vectors.lanes):
            store(self.dw if place else self.dbias, lanes[lane], start + lane, *place)


@dataclass(frozen=True)
class TapGroup:
    """The taps that are summed at the same time: ``height`` × ``width`` from (kh, kw) on, or none."""

    kh: Expr
    height: int
    kw: Expr
    width: int
    sums_dy: bool = False
    """Whether dy is summed too: then every row and column of it is visited."""

    @property
    def only_met_rows(self) -> bool:
        """Whether the rows of dy that its kernel row meets are the only ones to visit."""
        return self.height == 1 and not self.sums_dy


@dataclass(frozen=True)
class TapGroups:
    """Kernel rows one by one are a loop, several at a time are unrolled. Kernel columns are unrolled in groups,
    unless ``rolled``: then every tap is a turn of a loop. One group, outside of these loops, sums dy if asked."""

    taps_h: int
    taps_w: int
    group_kh: int
    group_kw: int
    rolled: bool
    sum_dy: bool

    def __iter__(self) -> Iterator[TapGroup]:
        in_loops = self.rolled or (self.group_kh == 1 and self.taps_h > 1)
        if self.sum_dy and in_loops:
            yield TapGroup(0, 0, 0, 0, sums_dy=True)
        for kh in serial("kh", self.taps_h) if self.group_kh == 1 else range(0, self.taps_h, self.group_kh):
            height = 1 if self.group_kh == 1 else min(self.group_kh, self.taps_h - kh)
            if self.rolled:
                for kw in serial("kw", self.taps_w):
                    yield TapGroup(kh, height, kw, 1)
            else:
                for kw in range(0, self.taps_w, self.group_kw):
                    width = min(self.group_kw, self.taps_w - kw)
                    is_first = not in_loops and (kh, kw) == (0, 0)
                    yield TapGroup(kh, height, kw, width, sums_dy=self.sum_dy and is_first)


class Sums:
    """The sums of a tap group in registers, for some vectors of channels."""

    def __init__(self, vectors: Vectors, taps: TapGroup, count: int) -> None:
        self.taps = taps
        self._products = Accumulators(vectors, taps.height, taps.width, count) if taps.height else None
        self._dy = Accumulators(vectors, count) if taps.sums_dy else None

    def add(self, tap: tuple[int, int], v: int, product: Expr) -> None:
        """At a tap, counted from the first of the group."""
        assert self._products is not None
        self._products.add((*tap, v), product)

    def add_dy(self, v: int, value: Expr) -> None:
        assert self._dy is not None
        self._dy.add((v,), value)

    def items(self) -> Iterator[tuple[Place, int, Expr]]:
        """Every sum with its place and the vector it is of."""
        if self._products is not None:
            for (a, b, v), value in self._products.items():
                yield (self.taps.kh + a, self.taps.kw + b), v, value
        if self._dy is not None:
            for (v,), value in self._dy.items():
                yield (), v, value


@dataclass(frozen=True)
class Tile:
    """The rows and columns of dy that are loaded together, ``height`` × ``width`` from (``top``, ``left``) on."""

    image: Expr
    top: Expr
    left: Expr
    height: int
    width: int
    reads: list[tuple[Expr, list[tuple[int, int]]]]
    """Columns of x from where the first column of the tile meets tap 0, with the (output, tap) pairs of each."""
    channels: list[Expr]
    """Of every vector its first one."""


@dataclass(frozen=True)
class Reader:
    """Goes through x and dy, and adds to the sums what they give."""

    x: Any
    dy: Any
    rows: Axis
    columns: Axis
    multiplier: int
    vectors: Vectors
    tile: tuple[int, int]
    """Rows and columns of dy that are loaded together."""
    order: str
    """Loops over rows and tiles of columns, the outer one first."""
    ahead: int
    """So many rows before they are needed, the lines of x and dy are asked for; 0: when they are needed."""

    def add_rows(self, sums: Sums, image: Expr, block: tuple[Expr, Expr], channels: list[Expr]) -> None:
        """The rows of dy from block[0] to block[1] − 1; where the group is one kernel row, those it meets alone."""
        taps = sums.taps
        first, stop = live_outputs(self.rows, taps.kh, *block) if taps.only_met_rows else block
        if not isinstance(taps.kw, int):
            reach = taps.kw * self.columns.step + self.columns.shift
            for row in serial("row", first, stop):
                for column in serial("column", *live_outputs(self.columns, taps.kw, 0, self.columns.outputs)):
                    self._add(sums, Tile(image, row, column, 1, 1, [(reach, [(0, 0)])], channels))
            return
        columns = self.columns.part(taps.kw, taps.width)
        for height, rows in self._row_tiles(first, stop):
            loops = {"h": rows, "w": lambda: column_tiles(columns, self.tile[1])}
            for at in nest(self.order, loops):
                column, run = at["w"]
                tile = Tile(image, at["h"], column, height, run.width, columns.reads_of(run), channels)
                if self.ahead:
                    self._prefetch(taps, tile)
                self._add(sums, tile)

    def _row_tiles(self, first: Expr, stop: Expr) -> list[tuple[int, Callable[[], Iterator[Expr]]]]:
        """The height of tiles with the loop over their first rows: whole ones, then those of one of the rows left."""
        height = self.tile[0]
        if height == 1:
            return [(1, lambda: serial("row", first, stop))]
        middle = bind("middle", stop - (stop - first) % height)
        return [(height, lambda: tiles_of(height, first, middle)), (1, lambda: serial("row", middle, stop))]

    def _add(self, sums: Sums, tile: Tile) -> None:
        taps = sums.taps
        outputs = range(tile.width) if taps.sums_dy else sorted({out for _, pairs in tile.reads for out, _ in pairs})
        gradient = {
            (row, out, v): self._load_dy(tile.image, tile.top + row, tile.left + out, c)
            for row in range(tile.height)
            for out in outputs
            for v, c in enumerate(tile.channels)
        }
        if taps.sums_dy:
            for v in range(len(tile.channels)):
                sums.add_dy(v, sum_of([value for (_, _, of), value in gradient.items() if of == v]))
        origin = self.rows.origin(tile.top) + self.rows.shift + taps.kh * self.rows.step
        for row_at, row_pairs in dataclasses.replace(self.rows, taps=taps.height, shift=0).reads(tile.height).items():
            x_row = bind("x_row", origin + row_at)
            with when(taps.only_met_rows or inside(x_row, self.rows.inputs)):
                for column_at, pairs in tile.reads:
                    for v, c in enumerate(tile.channels):
                        value = self._load_x(tile.image, x_row, self.columns.origin(tile.left) + column_at, c)
                        for row, a in row_pairs:
                            for out, b in pairs:
                                sums.add((a, b), v, value * gradient[row, out, v])

    def _prefetch(self, taps: TapGroup, tile: Tile) -> None:
        """What no tile but the one ``ahead`` rows below reads first: rows of dy, the rows of x that each of them adds,
        and of their columns those that the tiles to the left and right leave."""
        new_columns = tile.width * self.columns.up
        shared = max(0, len(tile.reads) - new_columns) // 2
        new_taps = [a for a in range(taps.height) if (taps.height - 1 - a) * self.rows.step < self.rows.up]
        for row in range(tile.height):
            below = bind("below", least(tile.top + row + self.ahead, self.rows.outputs - 1))
            for out in range(tile.width):
                for c in tile.channels:
                    prefetch(self.dy, tile.image, below, tile.left + out, c)
            for a in new_taps:
                x_row = self.rows.origin(below) + self.rows.shift + (taps.kh + a) * self.rows.step
                x_row = bind("x_below", most(least(x_row, self.rows.inputs - 1), 0))
                for column_at, _ in tile.reads[shared:][:new_columns]:
                    column = self.columns.origin(tile.left) + column_at
                    for c in tile.channels:
                        prefetch(self.x, tile.image, x_row, column, c // self.multiplier)

    def _load_x(self, image: Expr, row: Expr, column: Expr, c: Expr) -> Expr:
        channels = self.vectors.span(c)
        if self.multiplier > 1:
            channels = tirx.floordiv(channels, self.vectors.splat(self.multiplier))
        return bind("x_value", self.x[image, row, column, channels])

    def _load_dy(self, image: Expr, row: Expr, column: Expr, c: Expr) -> Expr:
        return bind("dy_value", self.dy[image, row, column, self.vectors.span(c)])


def tiles_of(height: int, first: Expr, stop: Expr) -> Iterator[Expr]:
    """First rows of the tiles."""
    for tile in serial("tile_h", (stop - first) // height):
        yield bind("row", first + tile * height)


def column_tiles(columns: Axis, tile_w: int) -> Iterator[tuple[Expr, Run]]:
    """First columns of the tiles: the left edge, the interior in a loop, the right edge."""
    for run in column_runs(columns, tile_w):
        for tile in serial("tile_w", run.tiles):
            yield bind("column", run.start + tile * run.width), run


def sum_of(values: list[Expr]) -> Expr:
    """In pairs: adding them one by one would take as many times as long, each waiting for the one before."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return bind("pair", sum_of(values[:half]) + sum_of(values[half:]))


def live_outputs(axis: Axis, tap: Expr, begin: Expr, end: Expr) -> tuple[Expr, Expr]:
    """Of the outputs begin … end − 1, those that meet an input, not padding, at ``tap``."""
    at = tap * axis.step + axis.shift
    first = bind("first", most(begin, ceil_div(-at, axis.up)))
    return first, bind("stop", most(first, least(end, (axis.inputs - 1 - at) // axis.up + 1)))
