"""Vectors of neighbouring elements, channels or columns, and sums in vector registers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.schedules.cpu.emit.words import scratch
from dwconv.schedules.cpu.shared.registers import vector_count
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
        """The same value in every lane."""
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
    LLVM stores every sum whenever it cannot tell that a load reads something else."""

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
