"""The tensors of the NHWC gather, read and written a vector of channels at a time. Stores may be streamed: past the
caches, to memory.

A store to a line that no cache holds reads the line first. Where a result is too large to stay in the caches, that
doubles the traffic of writing it, and drives out what the kernel still reads. Vectors stored without a temporal hint
are gathered to whole lines and written; a fence at the end of each thread's work makes them visible to the others.

TIR has no word for this, so that two functions of LLVM IR are linked in; TVM inlines them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.activations import ON_CPU
from dwconv.schedules.cpu.emit.pixels import PackedWeights, PixelRow
from dwconv.schedules.cpu.emit.vectors import NumberedVector, Vectors
from dwconv.schedules.cpu.emit.words import argument, load, rounded, store_rounded
from dwconv.schedules.emit import Expr, bind
from dwconv.schedules.gather import Gather


@dataclass(frozen=True, kw_only=True)
class PixelTensors:
    """Every access is to a vector of channels of one pixel, ``at`` (image, row, column) or, in 3-D, (image, depth, row,
    column)."""

    work: Gather
    vectors: Vectors
    source: Any
    weights: PackedWeights
    result: Any
    bias: Any = None
    dy: Any = None
    """For the epilogue, like the result; each of the two is None where there is none."""
    stream: Stream | None = None
    """Stores the result, where it may be too large for the caches."""

    @classmethod
    def arguments(cls, work: Gather, vectors: Vectors, n: Expr, *, streamed_above: int | None) -> PixelTensors:
        """Emits the kernel's parameters. ``streamed_above``: how many images are left to the caches, or elements where
        the sizes of images are not known; None: all."""
        axes = work.axes
        source = argument(work.source, (n, *axes.inputs, work.source_pitch), work.dtype)
        w = argument("w", (work.weights, *axes.taps), work.dtype)
        bias = argument("bias", (work.channels,), work.dtype) if work.bias else None
        dy = argument("dy", (n, *axes.outputs, work.channels), work.dtype) if work.reads_dy else None
        result = argument(work.result, (n, *axes.outputs, work.channels), work.dtype)
        packed = argument("workspace", (vectors.count, work.fan_in, *axes.taps, vectors.lanes))
        weights = PackedWeights(work=work, vectors=vectors, w=w, packed=packed)
        size = n if axes.are_known else n * (math.prod(axes.outputs) * work.channels)
        stream = None if streamed_above is None else Stream(result, vectors, size > streamed_above)
        return cls(
            work=work, vectors=vectors, source=source, weights=weights, bias=bias, dy=dy, result=result, stream=stream
        )

    def row(self, tensor: Any, *before: Expr) -> PixelRow:
        """A row of the source, of dy or of the result."""
        return PixelRow.of(tensor, *before, is_known=self.work.axes.are_known)

    def load(self, row: PixelRow, column: Expr, *, vector: NumberedVector, m: Expr) -> Expr:
        """The ``m``-th of the source channels that each result channel of ``vector`` sums."""
        channels = self.vectors.span(vector.start * self.work.fan_in + m, self.work.fan_in)
        channels = self.vectors.divided(channels, self.work.fan_out)
        return bind("value", load(row.tensor, *row.at(column, channels)))

    def store(self, total: Expr, row: PixelRow, column: Expr, *, vector: NumberedVector, dy: PixelRow | None) -> None:
        """Adds the bias and stores what the epilogue makes of it. The bias comes last: sums that start from it make
        LLVM write slower loops than sums that start from zeros."""
        channels = self.vectors.span(vector.start)
        value = total + load(self.bias, channels) if self.work.bias else total
        value = ON_CPU.activated(self.work.epilogue, value, load(dy.tensor, *dy.at(column, channels)) if dy else None)
        if self.stream:
            self.stream.store(row.tensor, value, *row.at(column, vector.start))
        else:
            store_rounded(row.tensor, value, *row.at(column, channels))


_IR = """
define void @dwconv.stream(ptr %at, <{lanes} x {type}> %value, i1 %is_large) {{
  %address = ptrtoint ptr %at to i64
  %beyond = and i64 %address, {beyond}
  %is_aligned = icmp eq i64 %beyond, 0
  %streams = and i1 %is_large, %is_aligned
  br i1 %streams, label %past, label %into
past:
  store <{lanes} x {type}> %value, ptr %at, align {aligned}, !tbaa !0, !nontemporal !3
  ret void
into:
  store <{lanes} x {type}> %value, ptr %at, align {least}, !tbaa !0
  ret void
}}

define void @dwconv.fence() {{
  call void asm sideeffect "sfence", "~{{memory}}"()
  ret void
}}

!0 = !{{!1, !1, i64 0}}
!1 = !{{!"dwconv.streamed", !2, i64 0}}  ; nothing else in the kernel touches what is streamed
!2 = !{{!"tvm-tbaa"}}
!3 = !{{i32 1}}
"""
_TYPES = {"float32": "float", "float16": "i16", "bfloat16": "i16"}
"""LLVM's: numbers of 16 bits are passed as their bits."""


@dataclass(frozen=True)
class Stream:
    """Stores to ``target``, a tensor that the kernel never reads, whose pixels are whole vectors. They are streamed if
    ``is_large`` and if the tensor starts where a vector may; x86 has no such store for others."""

    target: Any
    vectors: Vectors
    is_large: Expr

    @contextlib.contextmanager
    def defined(self) -> Iterator[None]:
        """Goes around the parallel loop that stores and the fence behind it: code in here runs once in each thread,
        and the loop shares out its turns among them."""
        itemsize = ITEMSIZE[self.target.dtype]
        width = itemsize * self.vectors.lanes
        text = _IR.format(
            lanes=self.vectors.lanes, type=_TYPES[self.target.dtype], least=itemsize, aligned=width, beyond=width - 1
        )
        with (
            T.attr(tirx.IntImm("int32", 0), "pragma_import_llvm", text),
            T.attr(tirx.IntImm("int32", 0), "pragma_parallel_launch_point", 1),
        ):
            yield

    def store(self, target: Any, value: Expr, *indices: Expr) -> None:
        """Stores a vector in the target, or a part of it; the last index is that of its first lane."""
        kept = rounded(value, self.target.dtype)
        if self.target.dtype != "float32":
            kept = tirx.reinterpret(f"uint16x{self.vectors.lanes}", kept)
        T.evaluate(tirx.call_extern("void", "dwconv.stream", T.address_of(target[indices]), kept, self.is_large))

    def fence(self) -> None:
        """Makes what was stored visible to all threads."""
        T.evaluate(tirx.call_extern("void", "dwconv.fence"))
