"""The words in which the CPU kernels are written: loops, conditions and vectors of TVM's TIR builder.

A Python ``for`` over these generators emits a loop in the kernel; over ``range`` it unrolls.

Why not schedule primitives: with the padding inlined and loops partitioned they reach the same speed where channels
fill whole vectors, but take several times as long to compile, and a vector across a ragged edge turns into scalars.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

Expr = Any
"""A Python int where the value is known when compiling, a TVM expression where not."""

BATCH = "n"


@contextlib.contextmanager
def kernel() -> Iterator[IRBuilder]:
    """A PrimFunc called ``main``; ``builder.get()`` returns it afterwards."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"tirx.noalias": True})
        yield builder


def argument(name: str, shape: Sequence[Expr]) -> Any:
    """A float32 tensor that the kernel takes. Aligned to 4 bytes: the vector loads of x86 and Arm need no more."""
    return T.arg(name, T.buffer(tuple(shape), "float32", align=4))


def serial(name: str, *bounds: Expr) -> Iterator[Expr]:
    """``range(*bounds)`` in the kernel; a loop of one known turn is none."""
    start, stop = (0, *bounds) if len(bounds) == 1 else bounds
    if isinstance(start, int) and isinstance(stop, int) and stop - start <= 1:
        yield from range(start, stop)
        return
    with T.serial(start, stop) as index:
        yield IRBuilder.name(name, index)


def parallel(name: str, extent: Expr) -> Iterator[Expr]:
    """A loop whose turns are shared out over the threads."""
    with T.parallel(extent) as index:
        yield IRBuilder.name(name, index)


@contextlib.contextmanager
def when(condition: Expr) -> Iterator[None]:
    """Guards what is emitted inside; nothing to guard where the condition is known to hold."""
    if condition is True:
        yield
        return
    with T.If(tirx.const(False, "bool") if condition is False else condition), T.Then():
        yield


def bind(name: str, value: Expr) -> Expr:
    """Gives a value a name, and computes it once."""
    return value if isinstance(value, int) else IRBuilder.name(name, T.bind(value))


def least(a: Expr, b: Expr) -> Expr:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else tirx.min(a, b)


def most(a: Expr, b: Expr) -> Expr:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else tirx.max(a, b)


def ceil_div(a: Expr, b: int) -> Expr:
    return (a + (b - 1)) // b


def inside(at: Expr, size: int) -> Expr:
    """Whether 0 ≤ at < size."""
    return 0 <= at < size if isinstance(at, int) else tirx.all(at >= 0, at < size)


def nest(order: str, loops: dict[str, Callable[[], Iterator[Any]]]) -> Iterator[dict[str, Any]]:
    """Loops one inside the other, outermost first: ``nest("hwc", {"c": …, "h": …, "w": …})``."""
    if not order:
        yield {}
        return
    for value in loops[order[0]]():
        for inner in nest(order[1:], loops):
            yield {order[0]: value, **inner}


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
        return start if self.lanes == 1 else tirx.Ramp(_int32(start), _int32(step), self.lanes)

    def slot(self, vector: Expr) -> Expr:
        """The place of a vector where each has its own, in a workspace of whole vectors."""
        return self.span(vector * self.lanes)

    def zero(self) -> Expr:
        zero = tirx.FloatImm("float32", 0.0)
        return zero if self.lanes == 1 else tirx.Broadcast(zero, self.lanes)

    def splat(self, value: int) -> Expr:
        """The same integer in every lane."""
        return _int32(value) if self.lanes == 1 else tirx.Broadcast(_int32(value), self.lanes)

    def groups(self, first: Expr, count: int, per_group: int) -> Iterator[list[Expr]]:
        """Loops over ``count`` vectors from the ``first`` on, ``per_group`` at a time, then over what is left.
        Yields the numbers of the vectors in a group."""
        whole, left = divmod(count, per_group)
        for group in serial("group", whole):
            yield [first + group * per_group + v for v in range(per_group)]
        if left:
            yield [first + whole * per_group + v for v in range(left)]

    def starts(self, numbers: list[Expr]) -> list[Expr]:
        return [bind("c", self.start(number)) for number in numbers]


class Accumulators:
    """Vector registers, indexed by small known integers, zero at first."""

    def __init__(self, vectors: Vectors, *sizes: int) -> None:
        count = 1
        for size in sizes:
            count *= size
        self._sizes = sizes
        self._registers = IRBuilder.name("sum", T.alloc_buffer((count,), vectors.dtype, scope="local"))
        for index in range(count):
            T.buffer_store(self._registers, vectors.zero(), [index])

    def __getitem__(self, position: tuple[int, ...]) -> Expr:
        return self._registers[self._index(position)]

    def add(self, position: tuple[int, ...], value: Expr) -> None:
        T.buffer_store(self._registers, self[position] + value, [self._index(position)])

    def items(self) -> Iterator[tuple[tuple[int, ...], Expr]]:
        """Every position with its sum."""
        for position in itertools.product(*map(range, self._sizes)):
            yield position, self[position]

    def _index(self, position: tuple[int, ...]) -> Expr:
        index = 0
        for at, size in zip(position, self._sizes, strict=True):
            index = index * size + at
        return index


def scratch(elements: int) -> Any:
    """A few floats that belong to one turn of a loop."""
    return IRBuilder.name("scratch", T.alloc_buffer((elements,), "float32", scope="local"))


def store(target: Any, value: Expr, *indices: Expr) -> None:
    T.buffer_store(target, value, list(indices))


def _int32(value: Expr) -> Expr:
    return tirx.IntImm("int32", value) if isinstance(value, int) else value
