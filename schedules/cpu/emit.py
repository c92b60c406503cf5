"""The words of the CPU kernels: parallel loops, vectors of channels, sums in vector registers. See ``schedules.emit``.

Why not schedule primitives: with the padding inlined and loops partitioned they reach the same speed where channels
fill whole vectors, but a 7×7 kernel took several times as long to compile. Ragged channels were not tried that way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.schedules.emit import Expr, bind, int32, least, serial, store


def argument(name: str, shape: Sequence[Expr]) -> Any:
    """A float32 tensor that the kernel takes. Aligned to 4 bytes: the vector loads of x86 and Arm need no more."""
    return T.arg(name, T.buffer(tuple(shape), "float32", align=4))


def parallel(name: str, extent: Expr) -> Iterator[Expr]:
    """A loop whose turns are shared out over the threads."""
    with T.parallel(extent) as index:
        yield IRBuilder.name(name, index)


@dataclass(frozen=True)
class Vectors:
    """``channels`` cut into vectors of ``lanes``. Where they do not divide, the last vector is moved back until it
    ends with the channels and computes some of them twice: the same value, stored twice."""

    channels: int
    lanes: int

    @property
    def count(self) -> int:
        return -(-self.channels // self.lanes)

    @property
    def dtype(self) -> str:
        return "float32" if self.lanes == 1 else f"float32x{self.lanes}"

    def start(self, vector: Expr) -> Expr:
        """The first channel of the ``vector``-th vector."""
        first = vector * self.lanes
        if self.channels % self.lanes == 0:
            return first
        return least(first, self.channels - self.lanes)

    def span(self, start: Expr, step: int = 1) -> Expr:
        """``start``, ``start + step``, … one a lane."""
        return start if self.lanes == 1 else tirx.Ramp(int32(start), int32(step), self.lanes)

    def slot(self, vector: Expr) -> Expr:
        """The place of a vector where each has its own, in a workspace of whole vectors."""
        return self.span(vector * self.lanes)

    def zero(self) -> Expr:
        zero = tirx.FloatImm("float32", 0.0)
        return zero if self.lanes == 1 else tirx.Broadcast(zero, self.lanes)

    def splat(self, value: int) -> Expr:
        """The same integer in every lane."""
        return int32(value) if self.lanes == 1 else tirx.Broadcast(int32(value), self.lanes)

    def groups(self, first: Expr, count: int, per_group: int) -> Iterator[list[Expr]]:
        """Loops over ``count`` vectors from the ``first`` on, ``per_group`` at a time, then over what is left.
        Yields the numbers of the vectors in a group."""
        whole, left = divmod(count, per_group)
        for group in serial("group", whole):
            yield [first + group * per_group + v for v in range(per_group)]
        if left:
            yield [first + whole * per_group + v for v in range(left)]

    def numbered(self, numbers: list[Expr]) -> list[tuple[Expr, Expr]]:
        """Every vector's number with its first channel."""
        return list(zip(numbers, self.starts(numbers), strict=True))

    def starts(self, numbers: list[Expr]) -> list[Expr]:
        return [bind("c", self.start(number)) for number in numbers]


class Accumulators:
    """Vector registers, indexed by small known integers, zero at first.

    Each is a small array of its own: TVM would put one that holds them all, or an array of vectors, on the heap, where
    LLVM stores every sum whenever it cannot tell that a load reads something else."""

    def __init__(self, vectors: Vectors, *sizes: int) -> None:
        self._sizes = sizes
        self._lanes = vectors.span(0)
        self._registers = [
            IRBuilder.name("sum", T.alloc_buffer((vectors.lanes,), "float32", scope="global"))
            for _ in range(math.prod(sizes))
        ]
        for register in self._registers:
            store(register, vectors.zero(), self._lanes)

    def __getitem__(self, position: tuple[int, ...]) -> Expr:
        return self._register(position)[self._lanes]

    def add(self, position: tuple[int, ...], value: Expr) -> None:
        store(self._register(position), self[position] + value, self._lanes)

    def items(self) -> Iterator[tuple[tuple[int, ...], Expr]]:
        """Every position with its sum."""
        for position in itertools.product(*map(range, self._sizes)):
            yield position, self[position]

    def _register(self, position: tuple[int, ...]) -> Any:
        index = 0
        for at, size in zip(position, self._sizes, strict=True):
            index = index * size + at
        return self._registers[index]


def scratch(elements: int) -> Any:
    """A few floats that belong to one turn of a loop."""
    return IRBuilder.name("scratch", T.alloc_buffer((elements,), "float32", scope="global"))


def prefetch(tensor: Any, *at: Expr) -> None:
    """Asks for the cache line of an element that will be read."""
    read, keep, data = 0, 3, 1
    T.evaluate(tirx.call_intrin("void", "tirx.prefetch", T.address_of(tensor[at]), read, keep, data))
