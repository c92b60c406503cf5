"""The estimated cost of a block, from plain integers. No TVM here."""

from __future__ import annotations

import math

from dwconv.problems.block import Activation
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cpu.block_nhwc.cut import FusedBlockCut
from dwconv.schedules.cpu.shared.cost import ACTIVATED, CpuWork, Traffic, conversions, folded, largest_share, price
from dwconv.schedules.cpu.shared.limits import CACHE_LINE_BYTES, threads_of, vector_registers
from dwconv.schedules.space import Config

APPLIED: dict[Activation, float] = {
    "identity": 0.0, "relu": 1.0, "relu6": 2.0, "hardswish": 4.0, "silu": ACTIVATED["silu"], "gelu": 40.0,
}  # fmt: skip
"""Instructions of an activation for a vector, about; and, the next, of the activation and its derivative."""
DIFFERENTIATED: dict[Activation, float] = {
    "identity": 0.0, "relu": 2.0, "relu6": 5.0, "hardswish": 9.0, "silu": ACTIVATED["silu_gradient"], "gelu": 64.0,
}  # fmt: skip


def estimate_us(workload: Workload, config: Config, target: CpuTarget) -> float:
    return price(cpu_work(workload, config, target), target)


def cpu_work(workload: Workload, config: Config, target: CpuTarget) -> CpuWork:
    cut = FusedBlockCut(workload, config, target)
    rows, across, columns, block = cut.along, cut.across, cut.axes.columns, cut.block
    is_forward, vectors = workload.pass_ != "backward", cut.vectors
    learns1, learns2 = cut.learns
    each = float(workload.batch * vectors)
    x, y = (each * math.prod(size) for size in (workload.input_size, workload.output_size))  # in vectors
    tiles_w = [(count, size) for _, count, size in cut.column_tiles]
    met = rows.live_pairs * across.live_pairs
    reads = each * met * sum(count * len(columns.reads(size)) for count, size in tiles_w)
    products = each * met * sum(count * sum(map(len, columns.reads(size).values())) for count, size in tiles_w)
    tiles = each * rows.outputs * across.outputs * sum(count for count, _ in tiles_w)
    taps = each * met * sum(count for count, _ in tiles_w) * columns.taps
    halo = 1 + (cut.results.blocks - 1) * max(0, cut.ring.rows - rows.up) / max(1, rows.inputs)
    ringed = halo * (x if is_forward else y)
    # What goes from pixel to pixel: sums before a norm, and what is made of its statistics.
    again = 1 if cut.of_images and not is_forward else 0  # statistics are computed again
    if is_forward:
        swept = 2 * (x if learns1 else 0) + (y if learns2 else 0)
        activated = ringed * APPLIED[block.act1] + (y * APPLIED[block.act2] if block.norm2 else 0)
        written = y * (2 if {"y", "z"} <= {*workload.results} else 1)
        loads, stores, widened = reads + taps + swept, ringed + written, ringed + swept
    else:
        swept = ((2 + again) * y if learns2 else 0) + ((2 + again) * x if learns1 else 0)
        activated = x * DIFFERENTIATED[block.act1] + (ringed + y * learns2) * DIFFERENTIATED[block.act2] * (
            block.norm2 is not None
        )
        written = x * (2 if learns1 else 1)
        loads, stores = reads + 3 * taps + swept + 2 * ringed + x, ringed + taps + written
        widened = ringed * (2 if block.kept else 1) + x + swept
        products *= 2
    lines = 1 + (ITEMSIZE[workload.dtype] * cut.lanes / CACHE_LINE_BYTES if workload.channels % cut.lanes else 0.0)
    threads, tasks = threads_of(config, target), workload.batch * cut.results.blocks * cut.channel_blocks
    regions, share = 1 + 2 * learns1 + 2 * learns2, largest_share(tasks, threads)
    if cut.takes_images:
        regions, share = 1, largest_share(workload.batch, threads)
    elif cut.of_images:
        regions = workload.batch * (regions + again * (learns1 + learns2))
        share = largest_share(tasks // workload.batch, threads)
    return CpuWork(
        tasks=tasks,
        threads=threads,
        share=share,
        tiles=tiles,
        multiply_adds=products + 2 * swept + 2 * ringed + (y if is_forward and block.norm2 and not learns2 else 0.0),
        loads=loads * lines,
        stores=stores * lines,
        others=activated + 3 * tiles + conversions(workload.dtype, loaded=widened, stored=written),
        turns=tiles + each * met * sum(count for count, _ in tiles_w),
        live=(cut.sums + 2) / vector_registers(target),
        chain=float(columns.taps * rows.taps * across.taps) / (rows.down * across.down * columns.down),
        traffic=_traffic(cut, threads=threads),
        scratches=2 * tasks,
        alone_slots=1.5 * workload.channels * math.prod(workload.kernel),
        regions=regions,
    )


def _traffic(cut: FusedBlockCut, *, threads: int) -> tuple[Traffic, ...]:
    workload, (learns1, learns2) = cut.workload, cut.learns
    itemsize = float(ITEMSIZE[workload.dtype])
    of_x, of_y = (
        itemsize * workload.batch * workload.channels * math.prod(size)
        for size in (workload.input_size, workload.output_size)
    )
    mine = workload.bytes / threads
    run = itemsize * cut.lanes * (cut.block_vectors if cut.config.order == "wc" else 1)
    fold = folded(ITEMSIZE[workload.dtype] * workload.channels, run)
    row = itemsize * cut.lanes * cut.block_vectors * cut.axes.columns.inputs * fold

    # What a thread goes through before statistics are known: its share of all images, or of one, or a whole one.
    parts = (workload.batch * (1 if cut.takes_images else threads)) if cut.of_images else threads
    x_held, y_held = of_x / parts, of_y / parts

    def moved(size: float, held: float) -> Traffic:
        return Traffic(bytes=size, held_bytes=held, run_bytes=run, neighbour_bytes=0.0 if run > 256 else row)

    ringed = (of_y if workload.pass_ == "backward" else of_x) * 4 / itemsize  # in float32
    ring = Traffic(bytes=2 * ringed, held_bytes=float(cut.ring_bytes))
    if workload.pass_ != "backward":
        found = [moved(of_x, mine), moved(2 * of_y, mine), ring]
        found += [moved(of_x, x_held)] if learns1 else []
        found += [moved(of_y, y_held), moved(2 * of_y, y_held if cut.of_images else mine)] if learns2 else []
        found += [moved(2 * of_y, mine)] if {"y", "z"} <= {*workload.results} and not learns2 else []
        return tuple(found)
    found = [moved(of_y, mine), moved(of_x, mine), moved(2 * of_x, mine), ring]
    found += [moved(of_y, mine)] if cut.block.kept else []
    again = 1 if cut.of_images else 0
    found += [moved((2 + again) * of_y, 2 * y_held)] if learns2 else []
    found += [moved((3 + again) * of_x, 2 * x_held)] if learns1 else []
    return tuple(found)
