"""The two-level partition, and rows spread over the banks of shared memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import s_tir, te, tirx

from dwconv.schedules.cuda.block_tile.cut import AxisTile
from dwconv.schedules.cuda.block_tile.kernel import Partition, keep_in_registers, two_level
from dwconv.schedules.cuda.gpu.hardware import BANKS
from dwconv.schedules.cuda.gpu.memory import spread_words


def test_a_block_tile_is_its_levels_multiplied() -> None:
    assert AxisTile(vthreads=2, threads=28, registers=3).block == 168
    assert AxisTile().block == 1


def test_loops_are_bound_to_blocks_virtual_threads_and_threads() -> None:
    sch, partition = _partitioned(rows=AxisTile(threads=4, registers=2), columns=AxisTile(vthreads=2, threads=8))
    assert _bound(sch) == {
        "blockIdx.x": {"n * 2"},
        "vthread.y": {"1"},
        "vthread.x": {"2"},
        "threadIdx.y": {"4"},
        "threadIdx.x": {"8"},
    }
    assert partition.threads == (4, 8)
    assert [int(sch.get(loop).extent) for loop in partition.registers] == [2, 1]


def test_the_sum_has_no_guard_and_the_store_has_one() -> None:
    sch, _ = _partitioned(rows=AxisTile(threads=4, registers=2), columns=AxisTile(vthreads=2, threads=8))
    guards = {name: str(_realize(sch, name).predicate) for name in ("sum", "y")}
    assert guards["sum"] in ("True", "T.bool(True)")
    assert "< 13" in guards["y"]


def test_virtual_threads_stride_the_tile() -> None:
    """Column of the tile = vthread · threads + thread, so neighbouring threads own neighbouring columns."""
    sch, _ = _partitioned(rows=AxisTile(threads=4, registers=2), columns=AxisTile(vthreads=2, threads=8))
    column = str(_realize(sch, "sum").iter_values[2])
    assert column.count("* 8") == 1 and "* 2" not in column


@settings(max_examples=60, deadline=None)
@given(
    held=st.integers(1, 300),
    threads=st.tuples(st.sampled_from([1, 2, 4, 7, 32]), st.sampled_from([1, 7, 8, 14, 16, 28, 32, 33])),
    rows=st.integers(1, 16),
)
def test_rows_are_spread_over_the_banks(held: int, threads: tuple[int, int], rows: int) -> None:
    apart = spread_words(held, threads=threads, words=((rows, 1),))
    assert held <= apart < held + BANKS
    assert _most_in_a_bank(apart, threads, rows) == min(
        _most_in_a_bank(other, threads, rows) for other in range(held, held + BANKS)
    )


@pytest.mark.parametrize("threads", [(4, 8), (2, 16), (1, 32), (8, 4)])
def test_odd_strips_meet_no_bank_twice(threads: tuple[int, int]) -> None:
    apart = spread_words(58, threads=threads, words=((7, 1),))
    assert _most_in_a_bank(apart, threads, 7) == 1


def _most_in_a_bank(apart: int, threads: tuple[int, int], rows: int) -> int:
    lanes = range(min(BANKS, threads[0] * threads[1]))
    words = {lane // threads[1] * rows * apart + lane % threads[1] for lane in lanes}
    return max(Counter(word % BANKS for word in words).values())


def _partitioned(*, rows: AxisTile, columns: AxisTile) -> tuple[s_tir.Schedule, Partition]:
    """Row sums of three neighbours on 13 × 16 outputs, padded to 16 × 16."""
    batch = te.var("n", "int32")
    x = te.placeholder((batch, 16, 18), "float32", name="x")
    k = te.reduce_axis((0, 3), name="k")
    total = te.compute((batch, 16, 16), lambda n, h, w: te.sum(x[n, h, w + k], axis=k), name="sum")
    y = te.compute((batch, 13, 16), lambda n, h, w: total[n, h, w], name="y")
    sch = s_tir.Schedule(te.create_prim_func([x, y]))
    block = sch.get_sblock("sum")
    partition = two_level(sch, block, tiles=(rows, columns))
    keep_in_registers(sch, block, partition=partition, result=sch.get_sblock("y"), unrolled=1)
    return sch, partition


def _bound(sch: s_tir.Schedule) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}

    def visit(loop: Any) -> None:
        if loop.thread_binding is not None:
            found.setdefault(str(loop.thread_binding.thread_tag), set()).add(str(loop.extent))

    tvm_ffi.structural_walk(sch.mod["main"].body, [(tirx.For, visit)])
    return found


def _realize(sch: s_tir.Schedule, name: str) -> Any:
    found: list[Any] = []

    def visit(realize: Any) -> None:
        if realize.block.name_hint in (name, f"{name}_update"):
            found.append(realize)

    tvm_ffi.structural_walk(sch.mod["main"].body, [(s_tir.SBlockRealize, visit)])
    (one,) = found
    return one
