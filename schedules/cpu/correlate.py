"""The kernel behind wgrad: every weight is the correlation of the input with the output gradient.

    dw[c, k] = Σ over n, o of x[n, o·stride + k·dilation − padding, c // multiplier] · dy[n, o, c]

A group of taps is summed in registers while rows go by: a tile of dy is loaded once for all taps of the group, each
x once for all dy that it meets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.schedules.cpu.emit import Accumulators, Vectors, argument, parallel, scratch
from dwconv.schedules.emit import BATCH, Expr, bind, ceil_div, inside, kernel, least, most, serial, store, when
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis, column_runs
from dwconv.workload import Workload

PARALLEL_SUM = 16384
"""Partial sums below this number are added up by one thread: it takes less time than waking the others."""


def schedule_correlation(workload: Workload, config: Config, *, lanes: int, group_kw: int) -> s_tir.Schedule:
    """Parameters: x (n, H, W, C), dy (n, OH, OW, C·M), dw (C·M, KH, KW) and, if tasks are images, workspace
    (tasks, KH, KW, C·M in whole vectors): the partial sums."""
    rows, columns = Axis.of_convolution(workload, 0), Axis.of_convolution(workload, 1)
    vectors = Vectors(workload.out_channels, lanes)
    n = tirx.Var(BATCH, "int32")
    with kernel() as builder:
        x = argument("x", (n, rows.inputs, columns.inputs, workload.channels))
        dy = argument("dy", (n, rows.outputs, columns.outputs, workload.out_channels))
        dw = argument("dw", workload.weight_shape)
        reader = Reader(x, dy, rows, columns, workload.multiplier, vectors, config.tile_w)
        groups = TapGroups(rows.taps, columns.taps, config.group_kh, group_kw, config.unroll == "none")
        if config.parallel == "channels":
            sum_by_channels(reader, groups, dw, n, config.vectors_c)
        else:
            partial = argument("workspace", (config.tasks, *workload.kernel, vectors.count * lanes))
            sum_by_images(reader, groups, partial, n, config)
            add_partial_sums(partial, dw, vectors)
    return s_tir.Schedule(builder.get())


def sum_by_channels(reader: Reader, groups: TapGroups, dw: Any, n: Expr, vectors_c: int) -> None:
    """A task owns some channels and goes through all images: no partial sums."""
    vectors = reader.vectors
    for task in parallel("task", vectors.count // vectors_c):
        numbers = [task * vectors_c + v for v in range(vectors_c)]
        channels = vectors.starts(numbers)
        for taps in groups:
            sums = Accumulators(vectors, taps.height, taps.width, vectors_c)
            for image in serial("image", n):
                reader.add_rows(sums, taps, image, (0, reader.rows.outputs), channels)
            for (a, b, v), value in sums.items():
                store_lanes(dw, value, vectors, numbers[v], (taps.kh + a, taps.kw + b))


def sum_by_images(reader: Reader, groups: TapGroups, partial: Any, n: Expr, config: Config) -> None:
    """A task goes through its share of the row blocks of all images, and sums up all weights of its own."""
    rows, vectors = reader.rows, reader.vectors
    blocks = ceil_div(rows.outputs, config.block_h)
    for task in parallel("task", config.tasks):
        for kh in serial("kh", rows.taps):
            for kw in serial("kw", reader.columns.taps):
                for vector in serial("vector", vectors.count):
                    store(partial, vectors.zero(), task, kh, kw, vectors.slot(vector))
        share = bind("share", ceil_div(n * blocks, config.tasks))
        first = bind("first", least(task * share, n * blocks))
        for unit in serial("unit", first, least(first + share, n * blocks)):
            image = bind("image", unit // blocks)
            top = unit % blocks * config.block_h if blocks > 1 else 0
            block = (bind("top", top), bind("bottom", least(top + config.block_h, rows.outputs)))
            for numbers in vectors.groups(0, vectors.count, config.vectors_c):
                channels = vectors.starts(numbers)
                for taps in groups:
                    sums = Accumulators(vectors, taps.height, taps.width, len(channels))
                    reader.add_rows(sums, taps, image, block, channels)
                    for (a, b, v), value in sums.items():
                        at = (task, taps.kh + a, taps.kw + b, vectors.slot(numbers[v]))
                        store(partial, partial[at] + value, *at)


def add_partial_sums(partial: Any, dw: Any, vectors: Vectors) -> None:
    """In the order of the tasks, whichever thread ran them: the same bits every time."""
    tasks, taps_h, taps_w, slots = (int(size) for size in partial.ty.shape)
    loop = parallel if tasks * taps_h * taps_w * slots > PARALLEL_SUM else serial
    for vector in loop("vector", vectors.count):
        for kh in serial("kh", taps_h):
            for kw in serial("kw", taps_w):
                total = Accumulators(vectors, 1)
                for task in serial("task", tasks):
                    total.add((0,), partial[task, kh, kw, vectors.slot(vector)])
                store_lanes(dw, total[(0,)], vectors, vector, (kh, kw))


def store_lanes(dw: Any, value: Expr, vectors: Vectors, vector: Expr, tap: tuple[Expr, Expr]) -> None:
    """dw lies channels outermost, so lanes go out one by one; those that the vector before has too are left out."""
    lanes = scratch(vectors.lanes)
    store(lanes, value, vectors.span(0))
    start = vectors.start(vector)
    for lane in serial("lane", vector * vectors.lanes - start, vectors.lanes):
        store(dw, lanes[lane], start + lane, *tap)


@dataclass(frozen=True)
class TapGroup:
    """The taps that are summed at the same time: ``height`` × ``width`` from (kh, kw) on."""

    kh: Expr
    height: int
    kw: Expr
    width: int


@dataclass(frozen=True)
class TapGroups:
    """Kernel rows one by one are a loop, several at a time are unrolled. Kernel columns are unrolled in groups,
    unless ``rolled``: then every tap is a turn of a loop."""

    taps_h: int
    taps_w: int
    group_kh: int
    group_kw: int
    rolled: bool

    def __iter__(self) -> Iterator[TapGroup]:
        for kh in serial("kh", self.taps_h) if self.group_kh == 1 else range(0, self.taps_h, self.group_kh):
            height = 1 if self.group_kh == 1 else min(self.group_kh, self.taps_h - kh)
            if self.rolled:
                for kw in serial("kw", self.taps_w):
                    yield TapGroup(kh, height, kw, 1)
            else:
                for kw in range(0, self.taps_w, self.group_kw):
                    yield TapGroup(kh, height, kw, min(self.group_kw, self.taps_w - kw))


@dataclass(frozen=True)
class Reader:
    """Goes through x and dy, and adds to the sums what they give."""

    x: Any
    dy: Any
    rows: Axis
    columns: Axis
    multiplier: int
    vectors: Vectors
    tile_w: int

    def add_rows(
        self, sums: Accumulators, taps: TapGroup, image: Expr, block: tuple[Expr, Expr], channels: list[Expr]
    ) -> None:
        """The rows of dy from block[0] to block[1] − 1; where the group is one kernel row, those it meets alone."""
        bounds = live_outputs(self.rows, taps.kh, *block) if taps.height == 1 else block
        for row in serial("row", *bounds):
            if not isinstance(taps.kw, int):
                reach = taps.kw * self.columns.step + self.columns.shift
                for column in serial("column", *live_outputs(self.columns, taps.kw, 0, self.columns.outputs)):
                    self._add_tile(sums, taps, image, row, column, [(reach, [(0, 0)])], channels)
                continue
            columns = self.columns.part(taps.kw, taps.width)
            for run in column_runs(columns, self.tile_w):
                for tile in serial("tile_w", run.tiles):
                    column = bind("column", run.start + tile * run.width)
                    self._add_tile(sums, taps, image, row, column, columns.reads_of(run), channels)

    def _add_tile(
        self,
        sums: Accumulators,
        taps: TapGroup,
        image: Expr,
        row: Expr,
        column: Expr,
        reads: list[tuple[Expr, list[tuple[int, int]]]],
        channels: list[Expr],
    ) -> None:
        """``reads``: columns of x from where output ``column`` meets tap 0, with the (output, tap) pairs of each."""
        outputs = sorted({out for _, pairs in reads for out, _ in pairs})
        gradient = {
            (out, v): self._load_dy(image, row, column + out, c) for out in outputs for v, c in enumerate(channels)
        }
        for a in range(taps.height):
            x_row = bind("x_row", self.rows.origin(row) + self.rows.shift + (taps.kh + a) * self.rows.step)
            with when(taps.height == 1 or inside(x_row, self.rows.inputs)):
                for at, pairs in reads:
                    for v, c in enumerate(channels):
                        value = self._load_x(image, x_row, self.columns.origin(column) + at, c)
                        for out, b in pairs:
                            sums.add((a, b, v), value * gradient[out, v])

    def _load_x(self, image: Expr, row: Expr, column: Expr, c: Expr) -> Expr:
        channels = self.vectors.span(c)
        if self.multiplier > 1:
            channels = tirx.floordiv(channels, self.vectors.splat(self.multiplier))
        return bind("x_value", self.x[image, row, column, channels])

    def _load_dy(self, image: Expr, row: Expr, column: Expr, c: Expr) -> Expr:
        return bind("dy_value", self.dy[image, row, column, self.vectors.span(c)])


def live_outputs(axis: Axis, tap: Expr, begin: Expr, end: Expr) -> tuple[Expr, Expr]:
    """Of the outputs begin … end − 1, those that meet an input, not padding, at ``tap``."""
    at = tap * axis.step + axis.shift
    first = bind("first", most(begin, ceil_div(-at, axis.up)))
    return first, bind("stop", most(first, least(end, (axis.inputs - 1 - at) // axis.up + 1)))
