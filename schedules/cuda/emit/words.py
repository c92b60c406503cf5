"""The words of the CUDA kernels: grid, block, threads, registers, shared memory. See ``schedules.emit``.

Loops of the two-level partition are written as they nest, ``for plane in blocks(…)``, ``for t in threads(…)``; over
Python's ``range`` everything unrolls, which registers need: they cannot be indexed by what is not known when compiling.

Vectors are loaded and stored whole and taken apart in registers, element by element: a vectorised conversion from
registers can read a stale value (TVM reuses its temporary), an unrolled one cannot, and compiles to the same.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cuda.gpu.hardware import TURNS_UNROLLED, VECTOR_BYTES
from dwconv.schedules.emit import Expr, bind, int32, serial, store, when
from dwconv.schedules.gather import Gather

Start = tuple[Any, Expr]
"""A tensor of one axis, and an element of it."""


def argument(name: str, shape: Sequence[Expr], dtype: str) -> Any:
    """A tensor that the kernel takes. It starts at a multiple of ``VECTOR_BYTES``."""
    return T.arg(name, T.buffer(tuple(shape), dtype))


def gather_arguments(gather: Gather, n: Expr, *, dtype: str) -> tuple[Any, Any, Any | None, Any]:
    """Source, weights, bias if there is one, and result, in NCHW; in 3-D with depths before heights."""
    source = argument(gather.source, (n, gather.source_channels, *gather.axes.inputs), dtype)
    w = argument("w", (gather.weights, *gather.axes.taps), dtype)
    bias = argument("bias", (gather.channels,), dtype) if gather.bias else None
    return source, w, bias, argument(gather.result, (n, gather.channels, *gather.axes.outputs), dtype)


def as_one_axis(tensor: Any) -> Any:
    """The memory of ``tensor``, indexed by one number: for vectors that go across axes."""
    return IRBuilder.name(tensor.name, T.decl_buffer((math.prod(tensor.shape),), tensor.dtype, data=tensor.data))


def flat(position: Sequence[Expr], sizes: Sequence[Expr]) -> Expr:
    """The number of a position, all but the first index of which are below ``sizes``."""
    first, *others = position
    return functools.reduce(lambda number, axis: number * axis[1] + axis[0], zip(others, sizes, strict=True), first)


# -- the partition -------------------------------------------------------------------------------------------------


def blocks(name: str, extent: Expr, *, axis: str = "x") -> Iterator[Expr]:
    """Over the blocks of the grid. Only x counts beyond 65535. A kernel has at least one such loop."""
    return _bound(name, extent, f"blockIdx.{axis}")


def threads(name: str, extent: int, *, axis: str = "x") -> Iterator[Expr]:
    """Over the threads of a block. One kernel, one extent an axis. CUDA allows 1024 in all and 64 on z."""
    return _bound(name, extent, f"threadIdx.{axis}")


def unrolled(name: str, *bounds: int) -> Iterator[Expr]:
    """``range(*bounds)`` as a loop in the source that the CUDA compiler unrolls: less to read than Python's unrolling,
    and registers may be indexed by it all the same. A loop of one turn is none."""
    start, stop = (0, *bounds) if len(bounds) == 1 else bounds
    if stop - start <= 1:
        yield from range(start, stop)
        return
    with T.unroll(start, stop, annotations={"pragma_unroll_explicit": False}) as index:
        yield IRBuilder.name(name, index)


def turns(name: str, count: int) -> Iterator[Expr]:
    """Over the turns in which threads move data together: unrolled, where they are not too many, for many loads on
    their way at a time."""
    return unrolled(name, count) if count <= TURNS_UNROLLED else serial(name, count)


def _bound(name: str, extent: Expr, tag: str) -> Iterator[Expr]:
    with T.thread_binding(extent, thread=tag) as index:
        yield 0 if extent == 1 and isinstance(extent, int) else IRBuilder.name(name, index)


MIN_BLOCKS_PER_SM = "tirx.launch_bounds_min_blocks_per_sm"
"""TVM's attribute of all that the threads of a kernel do."""


@contextlib.contextmanager
def blocks_per_sm(least: int) -> Iterator[None]:
    """Leaves a thread no more registers than ``least`` blocks on an SM have, and all of these. Put around all that the
    threads of a kernel do. Without it ptxas aims at a number of its own, and spills to reach it."""
    with T.attr(int32(0), MIN_BLOCKS_PER_SM, int32(least)):
        yield


# -- memory --------------------------------------------------------------------------------------------------------


class Registers:
    """Scalars of one thread, indexed by small known integers, one for each axis."""

    def __init__(self, name: str, *sizes: int, dtype: str = "float32") -> None:
        self.sizes = sizes
        self.dtype = dtype
        self._buffer = IRBuilder.name(f"{name}_local", T.alloc_buffer((math.prod(sizes),), dtype, scope="local"))

    @classmethod
    def zeros(cls, name: str, *sizes: int, dtype: str = "float32") -> Registers:
        registers = cls(name, *sizes, dtype=dtype)
        registers.clear()
        return registers

    def __getitem__(self, position: int | tuple[int, ...]) -> Expr:
        return self.vector(position, 1)

    def __setitem__(self, position: int | tuple[int, ...], value: Expr) -> None:
        self.put(position, value)

    def vector(self, position: int | tuple[int, ...], lanes: int) -> Expr:
        """``lanes`` neighbours on the last axis, from ``position`` on; for a vector, a multiple of ``lanes``."""
        return self._buffer[span(self._index(position), lanes)]

    def in_float32(self, position: int | tuple[int, ...]) -> Expr:
        """One of them, converted. Of two bfloat16 that share a word, each is a float32 with one instruction: the lower
        one shifted up, the upper one without the lower. The compiler would first move the upper one down."""
        index = self._index(position)
        if self.dtype != "bfloat16" or index + 1 - index % 2 == math.prod(self.sizes):
            return in_float32(self._buffer[index])
        word = tirx.reinterpret("int32", self._buffer[span(index - index % 2, 2)])
        bits = tirx.bitwise_and(word, int32(-1 << 16)) if index % 2 else tirx.shift_left(word, int32(16))
        return tirx.reinterpret("float32", bits)

    def put(self, position: int | tuple[int, ...], value: Expr, *, lanes: int = 1) -> None:
        """Sets ``lanes`` neighbours on the last axis to a vector."""
        store(self._buffer, value, span(self._index(position), lanes))

    def load(self, position: int | tuple[int, ...], source: Any, start: Expr, *, lanes: int) -> None:
        """Sets ``lanes`` neighbours on the last axis to those of a tensor from ``start`` on."""
        index, width = self._index(position), min(lanes, VECTOR_BYTES // ITEMSIZE[self.dtype])
        for lane in range(0, lanes, width):
            store(self._buffer, source[span(start + lane, width)], span(index + lane, width))

    def save(self, position: int | tuple[int, ...], target: Any, start: Expr, *, lanes: int) -> None:
        """The way back: into a tensor, rounded to its type."""
        index, held = self._index(position), self._buffer
        if target.dtype != self.dtype:
            rounded = Registers("rounded", lanes, dtype=target.dtype)
            for lane in range(lanes):
                rounded[lane] = held[index + lane].astype(target.dtype)
            index, held = 0, rounded._buffer
        width = min(lanes, VECTOR_BYTES // ITEMSIZE[target.dtype])
        for lane in range(0, lanes, width):
            store(target, held[span(index + lane, width)], span(start + lane, width))

    def clear(self) -> None:
        self.fill(zero(self.dtype))

    def fill(self, value: Expr) -> None:
        for index in unrolled("index", math.prod(self.sizes)):
            store(self._buffer, value, index)

    def _index(self, position: int | tuple[int, ...]) -> int:
        index = 0
        for at, size in zip(position if isinstance(position, tuple) else (position,), self.sizes, strict=True):
            index = index * size + at
        return index


def keep(name: str, value: Expr) -> Expr:
    """Names a value for good. What is only bound TVM writes out again at every use, which takes it long here."""
    return value if isinstance(value, int) else bind(name, in_register(name, value))


def in_register(name: str, value: Expr, *, dtype: str = "int32") -> Expr:
    """A copy of ``value`` that is read from its register at every use: where shared memory is dynamic, TVM lets nothing
    be bound that was loaded."""
    if isinstance(value, int):
        return value
    kept = Registers(name, 1, dtype=dtype)
    kept[0] = value
    return kept[0]


def shared(name: str, elements: int, *, dtype: str = "float32", dynamic: bool = False) -> Any:
    """A flat buffer in shared memory; ``dynamic`` if all of a kernel together have more than 48 KiB."""
    scope = "shared.dyn" if dynamic else "shared"
    return IRBuilder.name(f"{name}_shared", T.alloc_buffer((elements,), dtype, scope=scope))


def seen_apart(name: str, target: Any) -> Any:
    """The shared memory of ``target`` by another name, which TVM knows neither as that memory nor as shared. Else it
    puts a barrier between a load and a later store wherever it sees them; those that are needed have to be written."""
    start = T.address_of(target[0])
    start = ir.Call(start.op, start.args, ret_ty=ir.PointerType(ir.PrimType(target.dtype), "global"))
    pointer = IRBuilder.name(f"{name}_start", T.bind(start))
    return IRBuilder.name(name, T.decl_buffer(target.shape, target.dtype, data=pointer))


def start_of(target: Any, *, elements: int) -> Expr:
    """Where shared memory begins, as a number. TVM takes all dynamic shared memory for one, and puts a barrier between
    a load and a store wherever it sees them; what is loaded from a number it does not see."""
    start = T.cuda.cvta_generic_to_shared(target.access_ptr("r", offset=0, extent=elements))
    return in_register("start", start, dtype="uint32")


def barrier() -> None:
    """All threads of the block arrive before any goes on."""
    T.evaluate(T.tvm_storage_sync("shared"))


def span(start: Expr, lanes: int) -> Expr:
    """The index of ``lanes`` neighbours: a vector load or store of that width."""
    return start if lanes == 1 else tirx.Ramp(int32(start), int32(1), lanes)


def zero(dtype: str, lanes: int = 1) -> Expr:
    value = tirx.const(0, dtype)
    return value if lanes == 1 else tirx.Broadcast(value, lanes)


def in_float32(value: Expr) -> Expr:
    """A scalar, converted: what all kernels calculate in."""
    return value.astype("float32")


# -- copies to shared memory in the background ---------------------------------------------------------------------


def copy_async(target: Any, at: Expr, source: Any, *indices: Expr, elements: int, valid: Expr = True) -> None:
    """Copies ``elements`` neighbours, 4, 8 or 16 bytes, from ``source`` to shared memory by cp.async; where ``valid``
    does not hold, zeros, and nothing is read. They are there after ``wait_for_copies`` and a barrier."""
    size = elements * ITEMSIZE[source.dtype]
    # Past the first-level cache where it can: what is staged is read from shared memory alone.
    copy = T.ptx.cp.async_.cg if size == VECTOR_BYTES else T.ptx.cp.async_.ca
    # By its pointer: from an address TVM would conclude that one element is used, and cut the buffer after the last.
    addresses = target.access_ptr("w", offset=at, extent=elements), T.address_of(source[indices])
    filled = () if valid is True else (tirx.Select(valid, _uint32(size), _uint32(0)),)
    T.evaluate(copy.shared.global_(*addresses, size, *filled))


def commit_copies() -> None:
    T.evaluate(T.ptx.cp.async_.commit_group())


def wait_for_copies(*, pending: int = 0) -> None:
    """Until at most ``pending`` groups, the latest, are still on their way."""
    T.evaluate(T.ptx.cp.async_.wait_group(pending))


def _uint32(value: int) -> Expr:
    return tirx.IntImm("uint32", value)


# -- work in turns -------------------------------------------------------------------------------------------------

Held = TypeVar("Held")
"""Registers of a thread."""


def in_turns(
    items: int,
    *,
    thread: Expr,
    threads: int,
    most: int,
    value: Callable[[], Held],
    fetch: Callable[[Held, Expr], Expr],
    keep: Callable[[Held, Expr], None],
) -> None:
    """``fetch`` fills a ``value`` from an item and says where it goes, ``keep`` puts it there. A thread fetches
    up to ``most`` items before it keeps the first; neighbouring threads take neighbouring items."""
    turns = -(-items // threads)
    rounds = -(-turns // most)
    together = -(-turns // rounds)
    for round_ in serial("round", rounds):
        fetched = []
        for turn in range(together):
            item = (round_ * together + turn) * threads + thread
            there = ((rounds - 1) * together + turn + 1) * threads <= items or item < items
            held = value()
            with when(there):
                fetched.append((there, held, fetch(held, item)))
        for there, held, at in fetched:
            with when(there):
                keep(held, at)
