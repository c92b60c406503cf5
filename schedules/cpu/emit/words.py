"""The words of the CPU kernels: arguments, parallel loops, scratch memory, prefetches. See ``schedules.emit``.

Why not schedule primitives: with the padding inlined and loops partitioned they reach the same speed where channels
fill whole vectors, but a 7×7 kernel took several times as long to compile. Ragged channels were not tried that way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.problems.workload import ITEMSIZE, DType
from dwconv.schedules.emit import Expr, bind


def argument(name: str, shape: Sequence[Expr], dtype: DType = "float32") -> Any:
    """A tensor that the kernel takes. Aligned to one element: the vector loads of x86 and Arm need no more."""
    return T.arg(name, T.buffer(tuple(shape), dtype, align=ITEMSIZE[dtype]))


def parallel(name: str, extent: Expr) -> Iterator[Expr]:
    """A loop whose turns are shared out over the threads."""
    with T.parallel(extent) as index:
        yield IRBuilder.name(name, index)


def scratch(name: str, *shape: Expr, dtype: DType = "float32") -> Any:
    """Numbers that belong to one turn of a loop."""
    return IRBuilder.name(name, T.alloc_buffer(shape, dtype, scope="global"))


def seen_as(tensor: Any, *shape: Expr) -> Any:
    """The same numbers, as a tensor of another shape."""
    return T.decl_buffer(shape, tensor.dtype, data=tensor.data, align=ITEMSIZE[tensor.dtype])


def seen_from(tensor: Any, *at: Expr) -> Any:
    """All of ``tensor`` from an element on, as a tensor of one axis, its last. The address of that element is computed
    once."""
    pointer = tirx.Var("row", PointerType(PrimType(tensor.dtype), "global"))
    T.bind(T.address_of(tensor[at]), var=pointer)
    return T.decl_buffer((tensor.shape[-1],), tensor.dtype, data=pointer, align=ITEMSIZE[tensor.dtype])


def settled(name: str, value: Expr) -> Expr:
    """Gives a value a name, as ``bind``, and hides how it came about: at every condition that has it, TVM would take
    its minima and maxima apart, which takes longer than all else."""
    held = IRBuilder.name(name, T.alloc_buffer((1,), "int32", scope="global"))
    T.buffer_store(held, value, [0])
    return bind(name, held[0])


def prefetch(tensor: Any, *at: Expr) -> None:
    """Asks for the cache line of an element that will be read."""
    read, keep, data = 0, 3, 1
    T.evaluate(tirx.call_intrin("void", "tirx.prefetch", T.address_of(tensor[at]), read, keep, data))
