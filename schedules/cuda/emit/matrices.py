"""The words for tensor cores: a warp loads matrices from shared memory and multiplies them.

columns of B   n = lane / 4                     a lane holds
             ┌───────────┐                      A: rows lane / 4 and lane / 4 + 8, of each unit of 8 columns
             │     B     │ k                       2 words with columns lane % 4 · 2 and the next
rows of A    └───────────┘                      B: column lane / 4, of each unit of 8 rows a word with
┌─────────┐  ┌───────────┐                         rows lane % 4 · 2 and the next
│ A     k │  │   sums    │ lane / 4, + 8        sums: rows lane / 4, lane / 4 + 8, of each
└─────────┘  └───────────┘                         columns lane % 4 · 2 and the next
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tvm.script.ir_builder import tirx as T

from dwconv.problems.workload import DType
from dwconv.schedules.cuda.gpu.tensor_cores import MULTIPLIED, UNIT
from dwconv.schedules.emit import Expr


def load_matrices(into: Sequence[Expr], source: Any, at: Expr, *, transposed: bool = False) -> None:
    """Matrices of 8 rows of 8 elements from shared memory, one for each word of ``into``. Lane 8 · m + r says at which
    element row r of the m-th begins, a whole vector; further lanes may say anything. ``transposed``: rows become
    columns."""
    load_matrices_at(into, source.access_ptr("r", offset=at, extent=UNIT), transposed=transposed)


def load_matrices_at(into: Sequence[Expr], address: Expr, *, transposed: bool = False) -> None:
    """The same from an address, which may be a number that ``start_of`` has given."""
    load = T.ptx.ldmatrix.sync.aligned.m8n8
    load = {1: load.x1, 2: load.x2, 4: load.x4}[len(into)]
    load = load.trans if transposed else load
    T.evaluate(load.shared.b16(*into, address))


def in_powers(count: int, *, most: int) -> Iterator[tuple[int, int]]:
    """(first, how many) of matrices that are loaded together: as many as can be, a power of two."""
    first = 0
    while first < count:
        together = most
        while together > count - first:
            together //= 2
        yield first, together
        first += together


def multiply_add(sums: Sequence[Expr], a: Sequence[Expr], b: Sequence[Expr], *, dtype: DType) -> None:
    """sums += A · B, of one unit or of two: two words of A each, and one of B."""
    shape = {1: T.ptx.mma.sync.aligned.m16n8k8, 2: T.ptx.mma.sync.aligned.m16n8k16}[len(b)]
    kind = MULTIPLIED[dtype]
    T.evaluate(getattr(getattr(shape.row.col.f32, kind), kind).f32(*sums, *a, *b, *sums))
