"""Which inputs meet which taps: the geometry of one image axis, in plain integers.

Everything here is known when compiling, so what a tile emits holds live taps only: no multiplication by padding at the
left and right edge, no tap of the wrong phase in a strided gradient.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from dwconv.problems.workload import Workload

DEPTH, HEIGHT, WIDTH = -3, -2, -1
"""The axes of an image, counted from the last; 2-D has no depth."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Output ``o`` and tap ``k`` meet at input ``(o·up + k·step + shift) / down``, if that is whole.

    ``up`` is the stride of a convolution, ``down`` that of its input gradient; one of them is 1. Tiles of outputs
    start at multiples of ``down``: then which taps are live does not depend on where the tile is.
    """

    outputs: int
    inputs: int
    taps: int
    up: int
    down: int
    step: int
    shift: int

    @classmethod
    def of_convolution(cls, workload: Workload, axis: int) -> Axis:
        """y[o] = Σ x[o·stride + k·dilation − padding] · w[k]."""
        if -axis > workload.axes:
            return _NO_AXIS
        return cls(
            outputs=workload.output_size[axis], inputs=workload.input_size[axis], taps=workload.kernel[axis],
            up=workload.stride[axis], down=1, step=workload.dilation[axis], shift=-workload.padding[axis][0],
        )  # fmt: skip

    @classmethod
    def of_input_gradient(cls, workload: Workload, axis: int) -> Axis:
        """dx[o] = Σ dy[(o + padding − k·dilation) / stride] · w[k]."""
        if -axis > workload.axes:
            return _NO_AXIS
        return cls(
            outputs=workload.input_size[axis], inputs=workload.output_size[axis], taps=workload.kernel[axis],
            up=1, down=workload.stride[axis], step=-workload.dilation[axis], shift=workload.padding[axis][0],
        )  # fmt: skip

    def meets(self, out: int, tap: int) -> int | None:
        """The input that output ``out`` of a tile meets at ``tap``, counted from ``origin`` of the tile."""
        at = out * self.up + tap * self.step + self.shift
        return at // self.down if at % self.down == 0 else None

    def origin(self, start: Any) -> Any:
        """Where the inputs of a tile are counted from that starts at output ``start``, a number or a TVM expression."""
        return start * self.up // self.down

    def reads(self, width: int) -> dict[int, list[tuple[int, int]]]:
        """For every input that a tile of ``width`` outputs reads, the (output, tap) pairs that it meets."""
        found: dict[int, list[tuple[int, int]]] = {}
        for out in range(width):
            for tap in range(self.taps):
                at = self.meets(out, tap)
                if at is not None:
                    found.setdefault(at, []).append((out, tap))
        return dict(sorted(found.items()))

    @property
    def reach(self) -> tuple[int, int]:
        """The least and the greatest input that a tile of ``down`` outputs reads."""
        least, greatest = _extent(self, self.down)
        return (least, greatest) if least <= greatest else (0, 0)

    def spanned(self, width: int) -> tuple[int, int]:
        """(the first, how many) inputs from the least to the greatest that a tile of ``width`` outputs reads."""
        nearest, farthest = self.reach
        last: int = self.origin((width - 1) // self.down * self.down)
        return nearest, last + farthest - nearest + 1

    def live_reads(self, start: int, width: int) -> dict[int, list[tuple[int, int]]]:
        """``reads`` of the tile at ``start``, without padding."""
        origin = self.origin(start)
        return {at: pairs for at, pairs in self.reads(width).items() if 0 <= origin + at < self.inputs}

    def tile_reads(self, width: int, *, tiles: int) -> dict[int, list[tuple[int, int]]]:
        """``reads`` of one of ``tiles`` tiles side by side: one that is alone reads no padding."""
        return _tile_reads(self, width, alone=tiles == 1)

    def covered(self, width: int) -> int:
        """Outputs that tiles of ``width`` compute, wanted or not."""
        return -(-self.outputs // width) * width

    def live_tiles(self, at: int, *, width: int) -> int:
        """Tiles of ``width`` outputs for which the input ``at`` after their origin is no padding."""
        tiles, step = -(-self.outputs // width), self.origin(width)
        return max(0, min(tiles, (self.inputs - 1 - at) // step + 1) - max(0, -(at // step)))

    @property
    def live_pairs(self) -> int:
        """Pairs of an output and a tap that meet an input, not padding."""
        return _live_pairs(self)

    @property
    def one_to_one(self) -> bool:
        """Whether every output meets one input, which is no padding."""
        return self.taps == self.down == 1 and self.is_interior(0, 1) and self.is_interior(self.outputs - 1, 1)

    def is_interior(self, start: int, width: int) -> bool:
        """Whether a whole tile at ``start`` is in the output and reads no padding."""
        return start in self.interior_starts(width, step=1)

    def interior_starts(self, width: int, *, step: int) -> range:
        """Those multiples of ``step`` at which a tile of ``width`` outputs is interior. Where it begins decides both
        ends of what it reads, so that they follow each other: a long axis is not walked tile by tile."""
        starts = range(0, self.outputs, step)
        first, stop = 0, bisect_right(starts, self.outputs - width)
        least, greatest = _extent(self, width)
        if least <= greatest:
            first = bisect_left(starts, -least, key=self.origin)
            stop = min(stop, bisect_left(starts, self.inputs - greatest, key=self.origin))
        return starts[first : max(first, stop)]

    def reads_of(self, run: TileRun) -> list[tuple[int, list[tuple[int, int]]]]:
        """The inputs that a tile of ``run`` reads, each with the (output, tap) pairs that it meets; no padding."""
        reads = self.reads(run.width) if run.interior else self.live_reads(run.start, run.width)
        return list(reads.items())

    def is_tested(self, run: TileRun, at: int) -> bool:
        """Whether it is only known when the kernel runs that the input ``at``, which a tile of ``run`` reads, is no
        padding."""
        return False

    def may_lack(self, run: TileRun, out: int) -> bool:
        """Whether it is only known when the kernel runs that output ``out`` of a tile of ``run`` exists."""
        return False

    @property
    def home(self) -> Axis:
        """The axis at the size that the configuration was chosen for."""
        return self

    def vector_runs(self, vector: int, vectors: int, *, is_padded: bool) -> list[TileRun]:
        """Cut the axis into tiles of ``vectors`` vectors of ``vector`` outputs. Edges are tiles of their own, unless
        zeros lie beside the inputs."""
        width = vector * vectors
        if not is_padded:
            return column_runs(self, width)
        whole, left = divmod(self.outputs, width)
        tiles = [TileRun(start=0, tiles=whole, width=width, interior=True)] if whole else []
        return [*tiles, TileRun(start=whole * width, tiles=1, width=left, interior=False)] if left else tiles

    def part(self, first: int, taps: int) -> Axis:
        """This axis with ``taps`` of its taps alone, from ``first`` on."""
        return dataclasses.replace(self, taps=taps, shift=self.shift + first * self.step)

    def tap_loop(self, out: int) -> TapLoop | None:
        """The live taps of output ``out`` of a tile as a loop; None if no tap is live."""
        period = self.down // math.gcd(self.down, self.step)
        for first in range(min(period, self.taps)):
            at = self.meets(out, first)
            if at is not None:
                count = (self.taps - 1 - first) // period + 1
                return TapLoop(first=first, period=period, count=count, at=at, delta=period * self.step // self.down)
        return None


_NO_AXIS = Axis(outputs=1, inputs=1, taps=1, up=1, down=1, step=1, shift=0)
"""The depth in 2-D."""


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The axes of a pass: what has a depth of its own is 3-D."""

    depths: Axis
    rows: Axis
    columns: Axis
    is_3d: bool = False

    @classmethod
    def of_convolution(cls, workload: Workload) -> Axes:
        """From y to x."""
        return cls._of(workload, Axis.of_convolution)

    @classmethod
    def of_input_gradient(cls, workload: Workload) -> Axes:
        """From dx to dy."""
        return cls._of(workload, Axis.of_input_gradient)

    @classmethod
    def _of(cls, workload: Workload, axis: Callable[[Workload, int], Axis]) -> Axes:
        depths, rows, columns = (axis(workload, number) for number in (DEPTH, HEIGHT, WIDTH))
        return cls(depths=depths, rows=rows, columns=columns, is_3d=workload.axes == 3)

    @property
    def inputs(self) -> tuple[int, ...]:
        """(height, width) or, in 3-D, (depth, height, width); so are the next two."""
        return self.index(self.depths.inputs, self.rows.inputs, self.columns.inputs)

    @property
    def outputs(self) -> tuple[int, ...]:
        return self.index(self.depths.outputs, self.rows.outputs, self.columns.outputs)

    @property
    def taps(self) -> tuple[int, ...]:
        return self.index(self.depths.taps, self.rows.taps, self.columns.taps)

    @property
    def are_known(self) -> bool:
        """Whether the sizes are numbers."""
        return isinstance(self.columns.inputs, int)

    @property
    def is_row(self) -> bool:
        """Whether images and kernels are single rows, as in a 1-D convolution."""
        rows = self.rows
        return not self.is_3d and rows.inputs == rows.outputs == rows.taps == 1

    def index(self, depth: Any, *others: Any) -> tuple[Any, ...]:
        """The indices of a position in a tensor; in 2-D it has none for the depth."""
        return (depth, *others) if self.is_3d else others


@cache
def _tile_reads(axis: Axis, width: int, *, alone: bool) -> dict[int, list[tuple[int, int]]]:
    return axis.live_reads(0, width) if alone else axis.reads(width)


@cache
def _live_pairs(axis: Axis) -> int:
    return sum(len(pairs) * axis.live_tiles(at, width=axis.down) for at, pairs in axis.reads(axis.down).items())


@cache
def _extent(axis: Axis, width: int) -> tuple[int, int]:
    """The least and the greatest input that a tile of ``width`` outputs reads; (0, -1) if it reads none."""
    if axis.down == 1:
        across = axis.step * (axis.taps - 1)
        return axis.shift + min(0, across), axis.shift + (width - 1) * axis.up + max(0, across)
    found = axis.reads(width)
    return min(found, default=0), max(found, default=-1)


def inputs_beyond(workload: Workload, axis: int) -> tuple[int, int]:
    """The least and the most, over all sizes, by which the inputs of an axis are more than those that its outputs begin
    at, these in whole groups of ``Axis.down``."""
    stride = workload.stride[axis]
    spare = sum(workload.padding[axis]) - workload.dilation[axis] * (workload.kernel[axis] - 1) - 1
    if workload.pass_ != "dgrad":  # size = (outputs - 1) · stride - spare + what is left over, less than a stride
        least_size = -stride - spare
        return least_size, least_size + stride - 1
    found = [(over + spare) // stride + 1 - (over > 0) for over in range(stride)]
    return min(found), max(found)


@dataclass(frozen=True, kw_only=True)
class TapLoop:
    """Taps ``first + q·period`` for q in 0 … ``count`` − 1; the q-th meets input ``at + q·delta``."""

    first: int
    period: int
    count: int
    at: int
    delta: int


@dataclass(frozen=True, kw_only=True)
class TileRun:
    """``tiles`` tiles of ``width`` outputs one after the other, the first at ``start``. All of them are
    ``interior``, or there is one alone, at an edge (or with ``edges="rolled"`` several)."""

    start: int
    tiles: int
    width: int
    interior: bool
    is_tested: bool = False
    """Whether it is only known when the kernel runs which inputs are padding, and which outputs exist."""
    exists: Any = True
    """Whether there are these tiles: True, or a TVM expression."""

    def at(self, tile: Any) -> Any:
        """The first output of a tile of that number, a number or a TVM expression."""
        return self.start + tile * self.width


def column_runs(axis: Axis, width: int) -> list[TileRun]:
    """Cut the axis into tiles of ``width`` outputs: each edge tile alone, interior ones in runs."""
    inner = axis.interior_starts(width, step=width)
    stop = inner.start + len(inner) * width
    return [
        *_edges(axis, range(0, inner.start, width), width),
        *([TileRun(start=inner.start, tiles=len(inner), width=width, interior=True)] if inner else []),
        *_edges(axis, range(stop, axis.outputs, width), width),
    ]


def _edges(axis: Axis, starts: range, width: int) -> Iterator[TileRun]:
    for start in starts:
        yield TileRun(start=start, tiles=1, width=min(width, axis.outputs - start), interior=False)


def rolled_column_runs(axis: Axis, width: int) -> list[TileRun]:
    """Runs of tiles where taps are loops: edges in tiles as narrow as can be, since each output has its own taps."""
    narrow = axis.down
    starts = axis.interior_starts(width, step=narrow)
    tiles = 0 if not starts else (starts[-1] - starts[0]) // width + 1
    first = starts[0] if starts else axis.outputs
    edges = [(0, first), (first + tiles * width, axis.outputs)]
    left, right = (list(_edge_runs(begin, end, narrow)) for begin, end in edges)
    interior = [TileRun(start=first, tiles=tiles, width=width, interior=True)] if tiles else []
    return [*left, *interior, *right]


def _edge_runs(begin: int, end: int, narrow: int) -> Iterator[TileRun]:
    whole = max(0, end - begin) // narrow
    if whole:
        yield TileRun(start=begin, tiles=whole, width=narrow, interior=False)
    if begin + whole * narrow < end:
        yield TileRun(start=begin + whole * narrow, tiles=1, width=end - begin - whole * narrow, interior=False)
