"""The estimated cost of the NCHW gather, from plain integers. No TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.fprop_dgrad_nchw.cut import FEW_WEIGHTS, GatherNchwCut, loop_period
from dwconv.schedules.cpu.shared.cost import (
    ACTIVATED,
    AxisWork,
    CpuWork,
    ScratchWork,
    Traffic,
    conversions,
    largest_share,
    lines_of_columns,
    price,
    read_work,
    row_tiles,
)
from dwconv.schedules.cpu.shared.limits import (
    MOST_AT_ONCE,
    shuffles_each,
    threads_of,
    vector_count,
    vector_registers,
)
from dwconv.schedules.space import Config
from dwconv.schedules.tap_loops import full_source_loops
from dwconv.schedules.taps import Axis

LOOP_TURNS = 5
"""Turns that it takes to begin and end a loop over source rows: its bounds are computed."""


def estimate_us(workload: Workload, config: Config, target: CpuTarget) -> float:
    return price(cpu_work(workload, config, target), target)


def cpu_work(workload: Workload, config: Config, target: CpuTarget) -> CpuWork:
    cut = GatherNchwCut.of(workload, config, target)
    work, rows, columns, lanes = cut.work, cut.work.rows, cut.work.columns, cut.lanes
    down, across = (
        row_tiles(rows, config.tile_h),
        _across(columns, lanes=lanes, vectors_w=config.vectors_w, stage=config.stage),
    )
    reads, phase_products = _cell(columns)
    planes = workload.batch * work.depths.outputs * work.channels
    groups = planes // work.fan_out
    met = workload.batch * work.depths.live_pairs * work.channels  # pairs of a plane of the result and of the source
    threads, blocks = threads_of(config, target), cut.rows.blocks * cut.column_blocks
    tasks = -(-groups // config.planes) * blocks
    tiles = planes * down.tiles * across.tiles
    products = met * work.fan_in * down.products * phase_products * across.vectors
    read = met * work.fan_in * down.reads * reads
    in_place = config.stage == "none"
    loads_each, shuffles_each = read_work(columns, lanes=lanes, stage=config.stage)
    masks = read * across.edge_vectors if in_place else 0.0
    # A weight is one number in all lanes: few stay in registers, others are loaded for all vectors of a tile's row.
    taps = rows.taps * columns.taps
    is_few = work.fan_in == 1 and taps <= FEW_WEIGHTS and config.unroll == "taps"
    held = is_few and cut.sums + taps + 2 <= vector_registers(target)
    weights = met * blocks * taps if held else products * across.tiles / across.vectors
    stores = planes * rows.outputs * columns.down * across.vectors
    scratch = _scratch(cut, groups=groups, tasks=tasks)
    if config.unroll == "none":
        loads_each *= _shared_reads(cut)
    widened = read * across.vectors * loads_each if in_place else scratch.loads
    loops = LOOP_TURNS * work.fan_in * _loops(rows, config.tile_h) if config.unroll == "kw" else 1
    return CpuWork(
        tasks=tasks,
        threads=threads,
        share=largest_share(tasks, threads),
        tiles=tiles,
        multiply_adds=products,
        loads=read * across.vectors * loads_each + weights + scratch.loads,
        stores=stores * lines_of_columns(lanes) + scratch.stores,
        # Sums are cleared and, with a strided gradient, interleaved.
        others=read * across.vectors * shuffles_each
        + masks
        + stores * (_interleaving(columns.down) + ACTIVATED[work.epilogue])
        + scratch.shuffles
        + conversions(work.dtype, loaded=widened, stored=stores),
        turns=met * work.fan_in * down.reads * across.tiles + tiles * loops + scratch.turns,
        live=(cut.sums + 2 + (taps if held else 0)) / vector_registers(target),
        chain=work.fan_in * taps * work.depths.taps / (work.depths.down * rows.down * columns.down),
        traffic=_traffic(cut, down, scratch=scratch, workload=workload, threads=threads),
        scratches=scratch.scratches,
        fills=scratch.fills,
    )


def _traffic(
    cut: GatherNchwCut, down: AxisWork, *, scratch: ScratchWork, workload: Workload, threads: int
) -> tuple[Traffic, ...]:
    work, rows = cut.work, cut.work.rows
    groups, depths = workload.batch * (work.channels // work.fan_out), work.depths
    row_bytes = float(work.itemsize) * work.columns.inputs * work.fan_in
    source = groups * depths.inputs * rows.inputs * row_bytes
    result = float(work.itemsize) * workload.batch * work.channels * math.prod(work.axes.outputs)
    again_d = depths.live_pairs / depths.inputs - 1
    mine = workload.bytes / threads  # the same tasks fall to the same threads, call after call
    spanned = rows.spanned(cut.rows.block_rows)[1]
    again_tile = down.span * rows.down / (cut.config.tile_h * rows.up) - 1
    again_block = cut.rows.blocks * spanned / max(1, rows.inputs) - 1 if cut.rows.blocks > 1 else 0.0
    return (
        Traffic(bytes=source, held_bytes=mine),
        Traffic(bytes=2 * result, held_bytes=mine),  # a line that is stored is read first
        Traffic(bytes=result if work.reads_dy else 0.0, held_bytes=mine),
        # Planes that planes of the result share: the next ones, while they fit.
        Traffic(bytes=source * max(0.0, again_d), held_bytes=depths.taps * rows.inputs * row_bytes),
        # Rows that tiles share, for each channel that a group gives.
        Traffic(bytes=source * work.fan_out * max(0.0, again_tile), held_bytes=down.span * row_bytes),
        # Rows that tasks share: the next task, unless each goes through several planes first.
        Traffic(bytes=source * max(0.0, again_block), held_bytes=mine if cut.config.planes > 1 else mine / 8),
        scratch.traffic(lanes=cut.lanes, held_bytes=4.0 * cut.scratch_elements + source / groups),
    )


def _scratch(cut: GatherNchwCut, *, groups: int, tasks: int) -> ScratchWork:
    if cut.config.stage == "none":
        return ScratchWork()
    if cut.stages_span:
        fills = groups * cut.column_blocks
        return ScratchWork(scratches=tasks, fills=fills, copied=fills * cut.scratch_elements / cut.lanes)
    work, spanned = cut.work, cut.work.rows.spanned(cut.rows.block_rows)[1]
    return ScratchWork.of(
        work.columns,
        lanes=cut.lanes,
        scratches=tasks,
        fills=groups * cut.rows.blocks,
        rows_filled=work.fan_in * min(spanned, work.rows.inputs),
        rows_held=work.fan_in * spanned,
    )


def _shared_reads(cut: GatherNchwCut) -> float:
    """Vectors that are loaded for each product, with taps in loops: a turn of them shares what it reads."""
    taps, vectors = cut.work.columns.taps, cut.config.vectors_w
    apart = max(1, taps // loop_period(cut.work.columns, cut.lanes))
    return float((vectors + apart - 1) / (vectors * apart))


@dataclass(frozen=True, kw_only=True)
class _TilesAcross:
    """The tiles of a row."""

    tiles: int
    vectors: int
    """In all tiles; the next, in those at edges."""
    edge_vectors: int


@cache
def _across(columns: Axis, *, lanes: int, vectors_w: int, stage: str) -> _TilesAcross:
    cells = lanes * columns.down
    runs = columns.vector_runs(cells, vectors_w, is_padded=stage == "scratch")
    vectors = [(run.tiles * vector_count(run.width, cells), run.interior) for run in runs]
    return _TilesAcross(
        tiles=sum(run.tiles for run in runs),
        vectors=sum(count for count, _ in vectors),
        edge_vectors=sum(count for count, interior in vectors if not interior),
    )


def _interleaving(phases: int) -> int:
    """Instructions for each vector that is stored: shuffles, and one that clears its sum."""
    return min(2, phases) if phases <= MOST_AT_ONCE else 1 + shuffles_each(phases)


@cache
def _cell(columns: Axis) -> tuple[int, int]:
    """(columns that a cell reads, products of its phases)."""
    reads = columns.reads(columns.down)
    return len(reads), sum(map(len, reads.values()))


@cache
def _loops(rows: Axis, tile_h: int) -> int:
    """Loops over source rows of a tile."""
    return len(full_source_loops(rows, tile_h))
