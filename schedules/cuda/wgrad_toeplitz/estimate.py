"""The work of a block of diagonal sums, and of the kernel that adds parts, in plain integers. No TVM here."""

from __future__ import annotations

from dataclasses import replace

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.cost import BlockWork, adding_work
from dwconv.schedules.cuda.gpu.tensor_cores import (
    COLUMNS,
    PIXELS,
    PIXELS_AHEAD,
    ROWS,
    UNIT,
    Moved,
    StagedMaps,
    moved_pixels,
)
from dwconv.schedules.cuda.wgrad_toeplitz.cut import ToeplitzGradientCut
from dwconv.schedules.space import Config

START = 60
"""Instructions with which a thread finds its place."""
ITEM_INSTRUCTIONS = 30
"""To go on to the next images."""
TILE_INSTRUCTIONS = 14
"""To go on to the next columns."""
DIAGONAL_INSTRUCTIONS = 20
"""To find the weights of a kernel row, and to wait for all warps."""
COPY_INSTRUCTIONS = 4
"""To find out whether an image exists, and to copy a vector of it."""
ROW_INSTRUCTIONS = 6
"""To find out where a row comes from and whether it exists."""
PLACE_INSTRUCTIONS = 20
"""To find out which vectors of a row of pixels are there, and where they wait; or where a row goes."""
UNIT_INSTRUCTIONS = 1.5
"""To load 8 pixels as a matrix, perhaps with others, and to store them in maps."""
OTHER_REGISTERS = 40
"""For addresses, tests and numbers of tiles."""
ROWS_AHEAD = 3
"""Rows of x that the compiler loads ahead of their use in straight code."""


def block_works(workload: Workload, config: Config, target: CudaTarget) -> list[BlockWork]:
    cut = ToeplitzGradientCut.of(workload, config)
    blocks = cut.channel_blocks * cut.split_n * cut.blocks_kh
    items = -(-workload.batch // cut.images) * cut.blocks_h
    turns = -(-items // cut.split_n)
    pairs = sum(len(met) for _, met in cut.meetings)
    tiles = cut.products_w / cut.warps_w
    pairs_met = sum(len(met) for _, met in cut.pairs_met)
    units = len(cut.band) - cut.has_odd_unit
    of_x, of_dy = len(cut.meetings) * units + len(cut.pairs_met) * 2, cut.tile_h * cut.units_w
    loads, turns_of_loads = of_x + of_dy, 2 * (of_x * cut.x.turns_of_rows + of_dy * cut.dy.turns_of_rows)
    products = (pairs * cut.matrices + pairs_met + cut.tile_h * workload.bias) * cut.units_w
    issued_of_tile = products + loads * 0.6 + TILE_INSTRUCTIONS
    brought = _brought_ahead if cut.pipeline > 1 else _copied_pixels if cut.channels_last else _copied
    through_registers = brought is _copied_pixels
    copies = [brought(held, cut) for held in (cut.x, cut.dy)]
    stored = len(cut.band) * cut.units_w * 2
    weights = cut.planes * cut.warps_kh * cut.columns.taps  # of a kernel row of each group
    added = -(-weights // hardware.WARP) / cut.warps * cut.tile_w * cut.warps_w
    diagonals = cut.group_kh * (stored + 2 * added + DIAGONAL_INSTRUCTIONS)
    copied = sum(each.instructions for each in copies)
    issued = turns * (tiles * issued_of_tile + copied + ITEM_INSTRUCTIONS) + diagonals + START
    read = sum(each.moved_bytes for each in copies)
    work = BlockWork(
        blocks=blocks,
        threads=cut.threads,
        registers=registers_of(cut),
        shared_bytes=cut.shared_bytes,
        instructions=cut.warps * issued,
        tensor_products=float(cut.warps * turns * tiles * products * ROWS * COLUMNS * ROWS),
        lines=turns * sum(each.lines for each in copies),
        bank_turns=cut.warps * (turns * tiles * turns_of_loads + cut.group_kh * (stored + added))
        + turns * sum(each.bank_turns for each in copies),
        conflict_turns=float(cut.warps * turns * tiles * (turns_of_loads - 2 * loads)),
        dram_bytes=float(workload.bytes),
        cache_bytes=blocks * turns * read,
        bytes_in_flight=min(read, (max if through_registers else sum)(each.bytes_in_flight for each in copies)),
        waits=turns if cut.pipeline == 1 else 1,
        loads_ahead=cut.pipeline > 1 and turns > 1,
    )
    return [work] if cut.split_n == 1 else [work, adding_work(parts=cut.split_n, results=cut.results, target=target)]


def _copied(held: StagedMaps, cut: ToeplitzGradientCut) -> Moved:
    sharing, itemsize = held.sharing(cut.threads), ITEMSIZE[cut.dtype]
    vectors = sharing.parts * sharing.turns
    at_a_time = vectors if sharing.turns <= hardware.TURNS_UNROLLED else sharing.parts
    read = float(cut.images * min(len(held.rows), held.height) * held.width * itemsize)
    return Moved(
        instructions=vectors * (cut.images * COPY_INSTRUCTIONS + ROW_INSTRUCTIONS),
        moved_bytes=read,
        lines=1.5 * read / hardware.LINE_BYTES,
        bank_turns=2 * read / (hardware.BANKS * hardware.BANK_BYTES),
        bytes_in_flight=float(cut.threads * at_a_time * cut.images * held.lanes * itemsize),
    )


def _copied_pixels(held: StagedMaps, cut: ToeplitzGradientCut) -> Moved:
    groups = cut.maps(held).groups
    sharing = held.sharing_of_pixels(cut.threads, groups=groups, with_pads=True)
    pixels = min(len(held.rows), held.height) * held.width
    moved = moved_pixels(sharing, images=cut.images, groups=groups, channels=cut.workload.channels, pixels=pixels)
    of_pair = float(cut.threads * min(cut.images, PIXELS_AHEAD) * PIXELS * hardware.VECTOR_BYTES)
    return replace(moved, bytes_in_flight=of_pair)


def _brought_ahead(held: StagedMaps, cut: ToeplitzGradientCut) -> Moved:
    """In vectors of pixels, which wait until warps take them apart, a unit of 8 at a time."""
    laid, itemsize = cut.waiting(held), ITEMSIZE[cut.dtype]
    copied, apart = laid.sharing(cut.threads), laid.sharing_of_warps(cut.warps)
    pixels, read_bytes = min(len(held.rows), held.height) * held.width, laid.groups * UNIT * itemsize
    units = cut.images * len(laid.rows) * len(laid.units) * laid.groups
    lines = cut.images * pixels * min(1.0, cut.workload.channels * itemsize / hardware.LINE_BYTES)
    copy_instructions = copied.parts * copied.turns * (cut.images * COPY_INSTRUCTIONS + PLACE_INSTRUCTIONS)
    apart_instructions = cut.images * len(laid.units) * UNIT_INSTRUCTIONS + PLACE_INSTRUCTIONS
    return Moved(
        instructions=copy_instructions + apart.parts * apart.turns * apart_instructions,
        moved_bytes=float(cut.images * pixels * max(read_bytes, hardware.SECTOR_BYTES)),
        lines=lines,
        bank_turns=3.0 * units,  # copied, loaded, and stored in maps
        bytes_in_flight=float(units * UNIT * UNIT * itemsize),
    )


def code_size(cut: ToeplitzGradientCut) -> int:
    products = sum(len(met) * cut.matrices * cut.units_w + 2 for _, met in cut.meetings)
    products += sum(len(met) * cut.units_w + 2 for _, met in cut.pairs_met)
    return products + cut.group_kh * (2 * len(cut.band) * cut.units_w + 20)


def registers_of(cut: ToeplitzGradientCut) -> int:
    pairs = -(-cut.group_kh // 2) if cut.has_odd_unit else 0
    sums = (cut.group_kh * cut.matrices + pairs) * cut.units_w + cut.workload.bias
    return sums * 4 + cut.tile_h * 2 * cut.units_w + ROWS_AHEAD * 2 * len(cut.band) + OTHER_REGISTERS
