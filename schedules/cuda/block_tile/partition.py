"""The two-level partition, as TVM schedule primitives.

Level one cuts the output into block tiles, one CUDA block each. Level two cuts a block tile, on every axis, over
virtual threads, threads and a register tile, from the outside in:

    axis of the output  ─►  block │ vthread │ thread │ register
    index in the tile    =  (vthread · threads + thread) · registers + register

Virtual threads stride the tile: at registers = 1 neighbouring threads own neighbouring elements, so they read
neighbouring words of shared memory (no bank conflict) and write whole lines (coalesced), however many each owns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dwconv.schedules.cuda.block_tile.cut import AxisTile
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES

if TYPE_CHECKING:
    from tvm import s_tir

Block = Any
Loop = Any


@dataclass(frozen=True, kw_only=True)
class Partition:
    """The loops that ``two_level`` made, outermost first."""

    block: Loop
    """The loop in which a block tile is computed: blockIdx.x, or the turns that a block takes."""
    thread: Loop
    """The innermost thread loop; what is computed at it is private to a thread."""
    reduction: tuple[Loop, ...]
    registers: tuple[Loop, ...]
    """Over the register tile, one loop an axis, inside the reduction."""
    threads: tuple[int, ...]
    """Threads on each axis, (…, y, x)."""


def two_level(sch: s_tir.Schedule, block: Block, *, tiles: Sequence[AxisTile], turns: int = 1) -> Partition:
    """Partition ``block``, whose loops are the batch, one for every tile, then the reduction. The last axis is x.

    The block tiles of all axes and of the batch go to blockIdx.x: it alone counts beyond 65535. The batch is outermost,
    so it needs no number in the kernel, and tiles that share a halo run close together. With ``turns`` a block goes
    through that many tiles, one after the other; it divides the tiles of an image.
    """
    batch, *loops = sch.get_loops(block)
    axes, reduction = loops[: len(tiles)], loops[len(tiles) :]
    cut = [sch.split(axis, [None, t.vthreads, t.threads, t.registers]) for axis, t in zip(axes, tiles, strict=True)]
    blocks, vthreads, threads, registers = zip(*cut, strict=True)
    sch.reorder(*blocks, *vthreads, *threads, *reduction, *registers)
    inner = []
    if turns > 1:
        *blocks, inner = sch.split(sch.fuse(*blocks), [None, turns])
    fused = sch.fuse(batch, *blocks)
    sch.bind(fused, "blockIdx.x")
    for axis, vthread, thread in zip(_names(len(tiles)), vthreads, threads, strict=True):
        sch.bind(vthread, f"vthread.{axis}")
        sch.bind(thread, f"threadIdx.{axis}")
    return Partition(
        block=inner if turns > 1 else fused,
        thread=threads[-1],
        reduction=tuple(reduction),
        registers=tuple(registers),
        threads=tuple(tile.threads for tile in tiles),
    )


def keep_in_registers(sch: s_tir.Schedule, total: Block, *, partition: Partition, result: Block, unrolled: int) -> None:
    """Accumulate in registers, store once at the end. The ``unrolled`` innermost reduction loops are unrolled."""
    sch.set_scope(total, 0, "local")
    sch.reverse_compute_at(result, partition.thread, preserve_unit_loops=True)
    for loop in sch.get_loops(result)[-len(partition.registers) :]:
        sch.unroll(loop)
    for loop in (*partition.reduction[len(partition.reduction) - unrolled :], *partition.registers):
        sch.unroll(loop)
    sch.decompose_reduction(total, partition.reduction[0])


# -- staging the input ---------------------------------------------------------------------------------------------


def stage_in_registers(sch: s_tir.Schedule, staged: Block, *, partition: Partition) -> None:
    """Every thread reads the patch of its own register tile from global memory, all at once: the loads overlap."""
    sch.set_scope(staged, 0, "local")
    sch.compute_at(staged, partition.thread, preserve_unit_loops=True)
    for loop in sch.get_loops(staged)[-len(partition.threads) - 1 :]:
        sch.unroll(loop)


def stage_in_shared(
    sch: s_tir.Schedule,
    staged: Block,
    *,
    fetched: Block,
    partition: Partition,
    plane_words: int,
    row_words: int,
    in_flight: int,
) -> None:
    """Bring the block's patch into shared memory, all threads together.

    Both stages are (batch, plane, tile row, tile column, row turn, row thread, phase, column turn, column thread): a
    thread fetches, at every turn, what lies at its own place, so no index is divided. It has about ``in_flight`` loads
    under way before it stores the first. Planes and rows lie ``plane_words`` and ``row_words`` apart.
    """
    sch.storage_align(staged, 0, axis=_ROW_THREAD, factor=row_words, offset=0)
    sch.storage_align(staged, 0, axis=_PLANE, factor=plane_words, offset=0)
    sch.compute_at(staged, partition.block, preserve_unit_loops=True)
    plane, _, _, row_turn, row, phase, column_turn, column = sch.get_loops(staged)[2:]
    planes, phases, turns_across = (int(sch.get(loop).extent) for loop in (plane, phase, column_turn))
    sch.set_scope(staged, 0, "shared" if 4 * planes * plane_words <= STATIC_SHARED_BYTES else "shared.dyn")
    rounds, row_turn = sch.split(row_turn, [None, max(1, in_flight // (phases * turns_across))])
    # A stride can leave the last rows or columns unread: cut to the number of threads, whatever is left.
    cut = [sch.split(axis, [None, count]) for axis, count in zip((plane, row, column), partition.threads, strict=True)]
    turns, threads = zip(*cut, strict=True)
    sch.reorder(*threads, *turns, rounds, row_turn, phase, column_turn)
    for axis, thread in zip(_names(len(threads)), threads, strict=True):
        sch.bind(thread, f"threadIdx.{axis}")
    sch.set_scope(fetched, 0, "local")
    sch.compute_at(fetched, rounds, preserve_unit_loops=True)
    for loop in (*sch.get_loops(fetched)[-_STAGED_AXES:], row_turn, phase, column_turn):
        sch.unroll(loop)


def copy_to_shared(sch: s_tir.Schedule, staged: Block, *, partition: Partition, buffers: int, held_bytes: int) -> None:
    """Bring the patch of the next block tiles into shared memory while this one is computed: cp.async, which needs no
    register. The innermost loop of ``staged`` is a vector; ``buffers`` patches exist at a time, ``held_bytes`` in all.
    """
    sch.set_scope(staged, 0, "shared" if held_bytes <= STATIC_SHARED_BYTES else "shared.dyn")
    sch.compute_at(staged, partition.block, preserve_unit_loops=True)
    *patch, lane = sch.get_loops(staged)[2:]
    _, *threads = sch.split(sch.fuse(*patch), [None, *partition.threads])
    for axis, thread in zip(_names(len(threads)), threads, strict=True):
        sch.bind(thread, f"threadIdx.{axis}")
    sch.vectorize(lane)
    computing = (buffers - 1,) * _COMPUTING
    sch.annotate(partition.block, "software_pipeline_stage", [0, *computing])
    sch.annotate(partition.block, "software_pipeline_order", list(range(1 + _COMPUTING)))
    sch.annotate(partition.block, "software_pipeline_async_stages", [0])


_COMPUTING = 3
"""Statements of a turn beside the copy: sums set to zero, sums, results."""

_STAGED_AXES, _PLANE, _ROW_THREAD = 9, 1, 5


def _names(count: int) -> str:
    """Names of ``count`` axes, the last one x."""
    return "zyx"[-count:]
