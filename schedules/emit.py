"""The words in which kernels are written, on every device: conditions, loops and names of TVM's TIR builder.

A Python ``for`` over these generators emits a loop in the kernel; over ``range`` it unrolls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.schedules.taps import Axis

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


def serial(name: str, *bounds: Expr) -> Iterator[Expr]:
    """``range(*bounds)`` in the kernel; a loop of one known turn is none."""
    start, stop = (0, *bounds) if len(bounds) == 1 else bounds
    if isinstance(start, int) and isinstance(stop, int) and stop - start <= 1:
        yield from range(start, stop)
        return
    with T.serial(start, stop) as index:
        yield IRBuilder.name(name, index)


def taps_of(kernel: Sequence[int]) -> Iterator[tuple[Expr, ...]]:
    """Loops over all taps of a kernel: (kh, kw), or (kd, kh, kw)."""
    if not kernel:
        yield ()
        return
    for first in serial(("kw", "kh", "kd")[len(kernel) - 1], kernel[0]):
        for rest in taps_of(kernel[1:]):
            yield (first, *rest)


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


def all_of(*conditions: Expr) -> Expr:
    """Whether all of them hold: True or False where this is known when compiling, else a test of those that are not."""
    if any(condition is False for condition in conditions):
        return False
    unknown = [condition for condition in conditions if condition is not True]
    return tirx.all(*unknown) if len(unknown) > 1 else unknown[0] if unknown else True


def inside(at: Expr, size: int) -> Expr:
    """Whether 0 ≤ at < size."""
    return 0 <= at < size if isinstance(at, int) else tirx.all(at >= 0, at < size)


def turns_inside(at: Expr, step: int, count: int, *, size: int) -> tuple[Expr, Expr]:
    """The turns q of ``count`` for which 0 ≤ at + q·step < size, as the bounds of a loop."""
    if step > 0:
        first, stop = ceil_div(-at, step), ceil_div(size - at, step)
    else:
        first, stop = ceil_div(at - (size - 1), -step), at // -step + 1
    first = bind("first", most(first, 0))
    return first, bind("stop", most(first, least(stop, count)))


def planes_met(depths: Axis, depth: Expr) -> Iterator[tuple[Expr, Expr]]:
    """A loop over the taps along the depth that meet a plane of the source from plane ``depth`` of the result: (tap,
    plane). A test in each turn keeps out of the padding and, with a strided gradient, of taps of another phase."""
    for kd in serial("kd", depths.taps):
        at = depth * depths.up + kd * depths.step + depths.shift
        is_met = True if depths.down == 1 else at % depths.down == 0
        plane = bind("source_depth", at // depths.down)
        with when(all_of(is_met, inside(plane, depths.inputs))):
            yield kd, plane


def divided(value: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """The quotient and the rest."""
    return (value, 0) if isinstance(divisor, int) and divisor == 1 else (value // divisor, value % divisor)


def nest(order: str, loops: Mapping[str, Callable[[], Iterator[Any]]]) -> Iterator[dict[str, Any]]:
    """Loops one inside the other, outermost first: ``nest("hwc", {"c": …, "h": …, "w": …})``."""
    if not order:
        yield {}
        return
    for value in loops[order[0]]():
        for inner in nest(order[1:], loops):
            yield {order[0]: value, **inner}


def store(target: Any, value: Expr, *indices: Expr) -> None:
    T.buffer_store(target, value, list(indices))


def is_number(value: Expr) -> bool:
    """Whether it is known when compiling."""
    return isinstance(value, int)


def size_of(size: Expr) -> Expr:
    """A size in a tensor's shape: a Python int, or a symbol."""
    return int(size) if isinstance(size, tirx.IntImm) else size


def int32(value: Expr) -> Expr:
    """A Python int as a constant of the kernel."""
    return tirx.IntImm("int32", value) if isinstance(value, int) else value
