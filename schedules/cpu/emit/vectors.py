"""Vectors of neighbouring elements, channels or columns, and sums in vector registers. Those of columns are cut off at
the edges of a row, shuffled by phase, summed over their lanes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.schedules.cpu.emit.words import (
    load,
    load_lanes,
    scratch,
    seen_from,
    store_first,
    store_lanes,
    store_rounded,
    store_some,
)
from dwconv.schedules.cpu.shared.limits import shuffle_stages, vector_count
from dwconv.schedules.emit import Expr, bind, ceil_div, divided, int32, least, serial, store


@dataclass(frozen=True)
class NumberedVector:
    """A vector with its number among all, and its first element."""

    number: Expr
    start: Expr


@dataclass(frozen=True)
class Vectors:
    """``elements`` cut into vectors of ``lanes``. Where they do not divide, the last vector is moved back until it
    ends with the elements and computes some of them twice: the same value, stored twice."""

    elements: Expr
    lanes: int

    @property
    def count(self) -> Expr:
        return vector_count(self.elements, self.lanes)

    @property
    def dtype(self) -> str:
        return "float32" if self.lanes == 1 else f"float32x{self.lanes}"

    def start(self, number: Expr) -> Expr:
        """The first element of a vector."""
        first = number * self.lanes
        if isinstance(self.elements, int) and self.elements % self.lanes == 0:
            return first
        return least(first, self.elements - self.lanes)

    def span(self, start: Expr, step: int = 1) -> Expr:
        """``start``, ``start + step``, … one a lane."""
        return start if self.lanes == 1 else tirx.Ramp(int32(start), int32(step), self.lanes)

    def slot(self, number: Expr) -> Expr:
        """The place of a vector where each has its own, in a workspace of whole vectors."""
        return self.span(number * self.lanes)

    def zero(self) -> Expr:
        return self.everywhere(tirx.FloatImm("float32", 0.0))

    def everywhere(self, value: Expr) -> Expr:
        """A vector with ``value`` in every lane."""
        return value if self.lanes == 1 else tirx.Broadcast(value, self.lanes)

    def divided(self, span: Expr, divisor: int) -> Expr:
        """The integers of ``span``, each divided by ``divisor`` and rounded down."""
        return tirx.floordiv(span, self.everywhere(int32(divisor))) if divisor > 1 else span

    def several(self, first: Expr, count: Expr, *, at_a_time: int, overlap: bool = False) -> Iterator[list[Expr]]:
        """Loops over ``count`` vectors from the ``first`` on, then over what is left. Yields the numbers of those that
        are computed together. If ``count`` is not known, what is left goes one by one; or, where vectors may be
        computed twice (``overlap``), the last are moved back, if they are enough."""
        whole, left = divided(count, at_a_time)
        if isinstance(left, int):
            for turn in serial("group", whole):
                yield [first + turn * at_a_time + v for v in range(at_a_time)]
            if left:
                yield [first + whole * at_a_time + v for v in range(left)]
            return
        groups = least(whole, 1) * ceil_div(count, at_a_time) if overlap else whole
        for turn in serial("group", groups):
            start = bind("number", least(turn * at_a_time, count - at_a_time))
            yield [first + start + v for v in range(at_a_time)]
        done = least(whole, 1) * count if overlap else whole * at_a_time
        for turn in serial("vector", count - done):
            yield [first + done + turn]

    def numbered(self, numbers: list[Expr]) -> list[NumberedVector]:
        """Emits where each of the vectors starts."""
        return [NumberedVector(number, bind("c", self.start(number))) for number in numbers]


def sum_in_pairs(values: Sequence[Expr]) -> Expr:
    """Adding them one by one would take as many times as long, each waiting for the one before."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return bind("pair", sum_in_pairs(values[:half]) + sum_in_pairs(values[half:]))


class Accumulators:
    """Vector registers, indexed by small known integers, zero at first.

    Each is a small array of its own: TVM would put one that holds them all, or an array of vectors, on the heap, where
    LLVM stores every sum whenever it cannot prove that a load reads something else."""

    def __init__(self, vectors: Vectors, *sizes: int) -> None:
        self._sizes = sizes
        self._lanes = vectors.span(0)
        self._registers = [scratch("sum", vectors.lanes) for _ in range(math.prod(sizes))]
        for register in self._registers:
            store(register, vectors.zero(), self._lanes)

    def __getitem__(self, position: tuple[int, ...]) -> Expr:
        return self._register(position)[self._lanes]

    def add(self, position: tuple[int, ...], value: Expr, live: Expr = None) -> None:
        """``live``: the lanes that count; None is all."""
        total = self[position] + value
        store(
            self._register(position), total if live is None else tirx.Select(live, total, self[position]), self._lanes
        )

    def items(self) -> Iterator[tuple[tuple[int, ...], Expr]]:
        """Every position with its sum."""
        for position in itertools.product(*map(range, self._sizes)):
            yield position, self[position]

    def _register(self, position: tuple[int, ...]) -> Any:
        index = 0
        for at, size in zip(position, self._sizes, strict=True):
            index = index * size + at
        return self._registers[index]


def load_columns(
    vectors: Vectors, tensor: Any, row: Sequence[Expr], column: Expr, *, is_tested: bool = False
) -> Expr | None:
    """The columns from ``column`` on of a row of ``tensor``, zeros outside; None if no lane is inside.

    A vector at an edge has a known ``column``, or each of its lanes ``is_tested``; any other is inside."""
    columns = extent(tensor, -1)
    tensor, row = row_of(tensor, row)
    if is_tested:
        return load_lanes(tensor, lanes_inside(vectors, column, columns), *row, column)
    first, stop = 0, vectors.lanes
    if isinstance(column, int):
        first, stop = max(0, -column), _least_known(vectors.lanes, columns - column)
    if first >= stop:
        return None
    if stop - first == vectors.lanes:
        return load(tensor, *row, vectors.span(column))
    return load_lanes(tensor, _lanes_between(vectors, first, stop), *row, column)


def store_columns(
    vectors: Vectors, tensor: Any, value: Expr, row: Sequence[Expr], column: Expr, *, is_tested: bool = False
) -> None:
    """The lanes of ``value`` that are columns of ``tensor``, from ``column`` on."""
    columns = extent(tensor, -1)
    tensor, row = row_of(tensor, row)
    if is_tested and tensor.dtype == "float32":
        store_lanes(tensor, value, lanes_inside(vectors, column, columns), *row, column)
        return
    if is_tested:
        store_some(tensor, value, columns - column, *row, column)
        return
    stop = _least_known(vectors.lanes, columns - column) if isinstance(column, int) else vectors.lanes
    if stop == vectors.lanes:
        store_rounded(tensor, value, *row, vectors.span(column))
    elif stop > 0:
        store_first(tensor, value, stop, *row, column)


def row_of(tensor: Any, row: Sequence[Expr]) -> tuple[Any, Sequence[Expr]]:
    """The tensor with the indices before those of columns. Where sizes are symbols, the address of the row is computed
    once: it would not be the sum of one that is there and a number."""
    is_known = isinstance(extent(tensor, -1), int)
    return (tensor, row) if is_known or not row else (seen_from(tensor, *row, 0), ())


def extent(tensor: Any, axis: int) -> Expr:
    """A size of ``tensor``."""
    size = tensor.shape[axis]
    return int(size) if isinstance(size, (int, tirx.IntImm)) else size


def keep(vectors: Vectors, value: Expr, lanes: tuple[int, int] | None) -> Expr:
    """The lanes from the first up to the second of ``lanes``, zeros in the others; None is all.

    The value has a name, and is no part of the selection: where TVM simplifies what is selected it takes the condition
    for true, so that a load whose mask is the same condition would have none, and read beyond the tensor."""
    if lanes is None:
        return value
    return tirx.Select(_lanes_between(vectors, *lanes), bind("loaded", value), vectors.zero())


def interleave(vectors: Vectors, values: Sequence[Expr]) -> list[Expr]:
    """Vectors whose lanes one after the other are lane 0 of each of ``values``, lane 1 of each, and so on."""
    return _interleaved(vectors, values, shuffle_stages(len(values)))


def _interleaved(vectors: Vectors, values: Sequence[Expr], stages: Sequence[int]) -> list[Expr]:
    count, (first, *others), lanes = len(values), stages, vectors.lanes
    if count == 1:
        return list(values)
    if others:
        streams = [_interleaved(vectors, values[number::first], others) for number in range(first)]
        return [each for parts in zip(*streams, strict=True) for each in _interleaved(vectors, parts, [first])]
    places = [at % count * lanes + at // count for at in range(count * lanes)]
    return [shuffle(values, places[v * lanes : (v + 1) * lanes]) for v in range(count)]


def split_by_phase(vectors: Vectors, values: Sequence[Expr]) -> list[Expr]:
    """The other way round: of the lanes of ``values`` one after the other, every ``len(values)``-th, by phase."""
    return _split(vectors, values, shuffle_stages(len(values)))


def _split(vectors: Vectors, values: Sequence[Expr], stages: Sequence[int]) -> list[Expr]:
    count, (first, *others) = len(values), stages
    if count == 1:
        return list(values)
    if others:
        parts = [_split(vectors, values[at : at + first], [first]) for at in range(0, count, first)]
        streams = [_split(vectors, stream, others) for stream in zip(*parts, strict=True)]
        return [streams[phase % first][phase // first] for phase in range(count)]
    return [shuffle(values, [lane * count + phase for lane in range(vectors.lanes)]) for phase in range(count)]


def total(vectors: Vectors, value: Expr) -> Expr:
    """The sum of all lanes, halves added to halves."""
    lanes = vectors.lanes
    while lanes > 1:
        lanes //= 2
        low, high = (shuffle([value], list(range(first, first + lanes))) for first in (0, lanes))
        value = bind("half", low + high)
    return value


def shuffle(values: Sequence[Expr], lanes: Sequence[int]) -> Expr:
    """A vector of the ``lanes`` of ``values``, all their lanes counted one after the other."""
    if len(lanes) == 1:
        return tirx.Shuffle(list(values), [int32(lanes[0])])
    return bind("shuffled", tirx.Shuffle(list(values), [int32(lane) for lane in lanes]))


def lanes_from(vectors: Vectors, column: Expr, first: Expr, stop: Expr) -> Expr:
    """Which lanes of the vector from ``column`` on are columns from ``first`` up to ``stop``, which is not known when
    compiling. One comparison: where AVX2 stands in for AVX-512, LLVM 22 loads other lanes than a conjunction of two
    names, if one of them is partly known."""
    unsigned = "uint32" if vectors.lanes == 1 else f"uint32x{vectors.lanes}"
    beyond, count = vectors.span(int32(column) - int32(first)), int32(stop) - int32(first)
    return tirx.reinterpret(unsigned, beyond) < tirx.reinterpret(unsigned, vectors.everywhere(count))


def lanes_inside(vectors: Vectors, column: Expr, columns: Expr, *, step: int = 1) -> Expr:
    """Which lanes of the vector from ``column`` on, ``step`` columns apart, are among all ``columns``. The lanes and
    where they begin are kept apart: TVM would make a ramp of them, and LLVM build that lane by lane."""
    parts = (vectors.span(int32(0), step), vectors.everywhere(int32(-column)), vectors.everywhere(int32(columns)))
    unsigned = "uint32" if vectors.lanes == 1 else f"uint32x{vectors.lanes}"
    lane, before, count = (tirx.reinterpret(unsigned, part) for part in parts)
    return lane - before < count


def _least_known(*values: Expr) -> int:
    """Of an axis of any size, tiles with a known place are far from its end."""
    return min(value for value in values if isinstance(value, int))


def _lanes_between(vectors: Vectors, first: int, stop: int) -> Expr:
    lane = vectors.span(0)
    live = lane < vectors.everywhere(int32(stop))
    return live if first == 0 else tirx.And(lane >= vectors.everywhere(int32(first)), live)
