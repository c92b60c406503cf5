"""Streamed stores: past the caches, to memory.

A store to a line that no cache holds reads the line first. Where a result is too large to stay in the caches, that
doubles the traffic of writing it, and drives out what the kernel still reads. Vectors stored without a temporal hint
are gathered to whole lines and written; a fence at the end of each thread's work makes them visible to the others.

TIR has no word for this, so that two functions of LLVM IR are linked in; TVM inlines them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dwconv.problems.workload import ITEMSIZE
from dwconv.schedules.cpu.emit.storage import rounded
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.emit import Expr

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
