"""The words of the CPU kernels: arguments, parallel loops, scratch memory, loads and stores. See ``schedules.emit``.

Why not schedule primitives: with the padding inlined and loops partitioned they reach the same speed where channels
fill whole vectors, but a 7×7 kernel took several times as long to compile. Ragged channels were not tried that way.

Tensors hold float32, bfloat16 or float16. Kernels compute in float32: what is loaded is widened,
which is exact, and what is stored is rounded once, to the nearest, ties to even.

    bfloat16   sign 1, exponent 8, mantissa 7: the upper half of a float32
    float16    sign 1, exponent 5, mantissa 10: converted by F16C, AVX-512 or Arm's fcvtl and fcvtn

AVX-512 has an instruction that rounds to bfloat16, vcvtneps2bf16. It takes subnormal numbers for zero; these integer
operations do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.problems.workload import ITEMSIZE, DType
from dwconv.schedules.emit import Expr, bind, int32, least, most, store, when


def argument(name: str, shape: Sequence[Expr], dtype: DType = "float32") -> Any:
    """A tensor that the kernel takes. Aligned to one element: the vector loads of x86 and Arm need no more."""
    return T.arg(name, T.buffer(tuple(shape), dtype, align=ITEMSIZE[dtype]))


def parallel(name: str, extent: Expr) -> Iterator[Expr]:
    """A loop whose turns are shared out over the threads; inside ``on_one_thread`` any other loop."""
    with T.serial(0, extent) if _on_one_thread.get() else T.parallel(extent) as index:
        yield IRBuilder.name(name, index)


_on_one_thread: ContextVar[bool] = ContextVar("on_one_thread", default=False)


@contextmanager
def on_one_thread() -> Iterator[None]:
    """What is emitted inside is a turn of a parallel loop: TVM has none in another."""
    before = _on_one_thread.set(True)
    try:
        yield
    finally:
        _on_one_thread.reset(before)


def scratch(name: str, *shape: Expr, dtype: DType = "float32") -> Any:
    """Numbers that belong to one turn of a loop."""
    return IRBuilder.name(name, T.alloc_buffer(shape, dtype, scope="global"))


def seen_as(tensor: Any, *shape: Expr) -> Any:
    """The memory of ``tensor``, as a tensor of another shape."""
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
    """Requests the cache line of an element that will be read."""
    read, keep, data = 0, 3, 1
    T.evaluate(tirx.call_intrin("void", "tirx.prefetch", T.address_of(tensor[at]), read, keep, data))


def load(tensor: Any, *indices: Expr) -> Expr:
    """Elements of ``tensor``, in float32."""
    return widened(tensor[indices], tensor.dtype)


def store_rounded(tensor: Any, value: Expr, *indices: Expr) -> None:
    """Stores float32 numbers in the type of ``tensor``."""
    store(tensor, rounded(value, tensor.dtype), *indices)


def load_lanes(tensor: Any, live: Expr, *indices: Expr) -> Expr:
    """The elements from ``indices`` on, one a lane, in float32; zero in the lanes that are not ``live``, whose elements
    are not touched."""
    lanes, dtype = _lanes(live), tensor.dtype
    held = "float32" if dtype == "float32" else "uint16"
    nothing = tirx.Broadcast(tirx.const(0, held), lanes)
    address = T.address_of(tensor[indices])
    loaded = T.call_llvm_pure_intrin(_vector(held, lanes), "llvm.masked.load", address, live, nothing)
    return widened(loaded if dtype == held else tirx.reinterpret(_vector(dtype, lanes), loaded), dtype)


def store_lanes(tensor: Any, value: Expr, live: Expr, *indices: Expr) -> None:
    """Stores the lanes of float32 numbers that are ``live``, from ``indices`` on; nothing else is touched."""
    T.evaluate(T.call_llvm_intrin("void", "llvm.masked.store", value, T.address_of(tensor[indices]), live))


def store_some(tensor: Any, value: Expr, count: Expr, *indices: Expr) -> None:
    """Stores the first ``count`` lanes in 16 bits, where ``count`` is only known when the kernel runs: the parts come
    out of memory."""
    lanes, (*row, column) = _lanes(value), indices
    kept = scratch("kept", lanes, dtype=tensor.dtype)
    store_rounded(kept, value, _span(0, lanes))
    count = bind("count", most(least(count, lanes), 0))
    part = lanes
    while part:
        with when(count % (2 * part) >= part):
            done = bind("done", count // (2 * part) * (2 * part))
            store(tensor, kept[_span(done, part)], *row, _span(column + done, part))
        part //= 2


def store_first(tensor: Any, value: Expr, count: int, *indices: Expr) -> None:
    """Stores the first ``count`` lanes of float32 numbers from ``indices`` on, in the type of ``tensor``.

    Numbers of 16 bits go in parts of 8, 4, 2 and 1: AVX2 and Arm have no masked stores of them, and LLVM 22 writes 32
    bits where one lane of a truncated vector is stored by a mask."""
    lanes, dtype = _lanes(value), tensor.dtype
    if dtype == "float32":
        store_lanes(tensor, value, _span(0, lanes) < tirx.Broadcast(int32(count), lanes), *indices)
        return
    (*row, column), done = indices, 0
    kept = bind("kept", tirx.reinterpret(_vector("uint16", lanes), rounded(value, dtype)))
    for part in (8, 4, 2, 1):
        while count - done >= part:
            place = [int32(done + lane) for lane in range(part)]
            value = tirx.reinterpret(_vector(dtype, part), tirx.Shuffle([kept], place))
            store(tensor, value, *row, _span(column + done, part))
            done += part


def widened(value: Expr, dtype: DType) -> Expr:
    """Numbers of ``dtype`` in float32."""
    if dtype == "float32":
        return value
    lanes = _lanes(value)
    if dtype == "float16":
        return tirx.Cast(_vector("float32", lanes), value)
    bits = tirx.Cast(_vector("uint32", lanes), tirx.reinterpret(_vector("uint16", lanes), value))
    return tirx.reinterpret(_vector("float32", lanes), bits << _all(16, lanes))


def rounded(value: Expr, dtype: DType) -> Expr:
    """Numbers of float32 in ``dtype``; beyond its range they are infinite. NaN stays NaN: the lower half of one that
    comes from such inputs, or from the processor, is zero, and carries nothing."""
    if dtype == "float32":
        return value
    lanes = _lanes(value)
    if dtype == "float16":
        return tirx.Cast(_vector("float16", lanes), value)
    bits = bind("bits", tirx.reinterpret(_vector("uint32", lanes), value))
    odd = (bits >> _all(16, lanes)) & _all(1, lanes)
    # Half of the last place that stays, less one bit where that place is even: it carries exactly if it must.
    nearest = (bits + (_all(0x7FFF, lanes) + odd)) >> _all(16, lanes)
    return tirx.reinterpret(_vector("bfloat16", lanes), tirx.Cast(_vector("uint16", lanes), nearest))


def _lanes(value: Expr) -> int:
    return int(value.ty.dtype.lanes)


def _vector(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def _span(start: Expr, lanes: int) -> Expr:
    return start if lanes == 1 else tirx.Ramp(int32(start), int32(1), lanes)


def _all(number: int, lanes: int) -> Expr:
    one = tirx.IntImm("uint32", number)
    return one if lanes == 1 else tirx.Broadcast(one, lanes)
