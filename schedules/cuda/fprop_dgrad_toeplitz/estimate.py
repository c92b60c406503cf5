"""The work of a warp of banded products, and so of a block, in plain integers. No TVM here."""

from __future__ import annotations

from functools import lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.fprop_dgrad_toeplitz.cut import ToeplitzCut
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, TURNS_UNROLLED, WARP
from dwconv.schedules.cuda.gpu.memory import sector_bytes
from dwconv.schedules.cuda.gpu.tensor_cores import COLUMNS, ROWS, UNIT, Moved, Sharing, StagedMaps, moved_pixels
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis

START = 60
"""Instructions with which a thread finds its place."""
TURN_INSTRUCTIONS = 12
"""To go on to the next kernel rows."""
COPY_INSTRUCTIONS = 4
"""To find out whether an image exists, and to copy a vector of it."""
ROW_INSTRUCTIONS = 6
"""To find out where a row comes from and whether it exists."""
BAND_INSTRUCTIONS = 6
"""To bring a weight to its place in a band."""
SCATTER_INSTRUCTIONS = 14
"""To load a weight, and to put it into a band and its copy."""
CLEAR_INSTRUCTIONS = 4
"""To put a vector of zeros."""
ROUND_INSTRUCTIONS = 2
"""To round two sums, and to store them in shared memory."""
OTHER_REGISTERS = 40
"""For addresses, tests and numbers of tiles."""
ROWS_AHEAD = 3
"""Source rows that the compiler loads ahead of their use in straight code."""


def block_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    """Every warp multiplies whole units, and reads a source row once in each turn."""
    cut = ToeplitzCut.of(workload, config)
    gather, itemsize = cut.gather, ITEMSIZE[cut.dtype]
    rows, columns = gather.rows, gather.columns
    warps, width = cut.threads // WARP, len(cut.units_of_warp)
    met = _rows_met(cut)
    pairs = met * sum(turn.count * sum(len(met) for _, met in cut.meetings(turn)) for turn in cut.turns)
    loaded = met * sum(turn.count * len(cut.meetings(turn)) for turn in cut.turns)
    weights = rows.taps * len(cut.band)
    staging, staged_lines, staged_turns = _staged(cut)
    source, results = _moved(cut)
    rounded = 2 * cut.tile_h * cut.tiles
    turns_of_loads = loaded * width * 2 * cut.source.turns_of_rows
    of_channel = pairs * cut.products + loaded * -(-width // 2) + weights + rounded * ROUND_INSTRUCTIONS
    of_channel += sum(turn.count for turn in cut.turns) * TURN_INSTRUCTIONS + staging
    channels = warps * cut.turns_c
    images = -(-workload.batch // cut.images)
    blocks = images * -(-gather.channels // cut.planes) * cut.blocks_h * cut.blocks_w
    source_bytes = workload.bytes - workload.batch * gather.channels * rows.outputs * columns.outputs * itemsize
    return BlockWork(
        blocks=blocks,
        threads=cut.threads,
        registers=registers_of(cut),
        shared_bytes=cut.shared_bytes,
        instructions=channels * of_channel + warps * (START + source.instructions + results.instructions),
        tensor_products=float(
            channels * pairs * sum(len(cut.units_of(tile)) for tile in range(cut.tiles)) * ROWS * COLUMNS * UNIT
        ),
        lines=source.lines + results.lines + channels * staged_lines,
        bank_turns=channels * (turns_of_loads + weights + rounded + staged_turns)
        + source.bank_turns
        + results.bank_turns,
        conflict_turns=channels * (turns_of_loads - loaded * width * 2),
        dram_bytes=float(workload.bytes),
        cache_bytes=max(blocks * source.moved_bytes, source_bytes) + blocks * results.moved_bytes,
        bytes_in_flight=min(source.moved_bytes, source.bytes_in_flight),
    )


def _staged(cut: ToeplitzCut) -> tuple[float, float, float]:
    """(instructions, lines, turns of shared memory) of a warp for its share of a channel's kernel rows."""
    if not cut.lean:  # every element of a row and of its copy, by a thread that finds out whether it is a weight
        elements = float(cut.band_sharing.parts * cut.band_sharing.turns)
        return elements * BAND_INSTRUCTIONS, elements, elements
    # Vectors of zeros, then every weight, which is loaded beside its neighbours.
    warps = cut.threads_of_channel // WARP
    weights = cut.weights_of_thread
    zeros = cut.kernel_elements * ITEMSIZE[cut.dtype] / LINE_BYTES / warps * cut.bands / cut.planes
    instructions = weights * SCATTER_INSTRUCTIONS + zeros / 4 * CLEAR_INSTRUCTIONS
    return instructions, 1.5 * weights, cut.weights_turns / warps + zeros  # half of a line, which begins anywhere


def _moved(cut: ToeplitzCut) -> tuple[Moved, Moved]:
    """The source and the results of a block: vectors of pixels, by all warps; or of rows, by those of each channel."""
    rows, columns, itemsize = cut.gather.rows, cut.gather.columns, ITEMSIZE[cut.dtype]
    held, width = min(len(cut.rows), rows.inputs), min(len(cut.units) * UNIT, columns.inputs)
    of_block = rows.outputs / cut.blocks_h * columns.outputs / cut.blocks_w
    if cut.channels_last:
        shape = {"images": cut.images, "groups": cut.maps.groups, "channels": cut.gather.channels}
        source = moved_pixels(cut.source_sharing, pixels=held * width, **shape)
        return source, moved_pixels(cut.result_sharing, pixels=of_block, **shape)

    def of_rows(sharing: Sharing, maps: StagedMaps, size: float) -> Moved:
        vectors, moved = sharing.parts * sharing.turns, cut.planes * cut.images * size
        issued = cut.threads // WARP * vectors * cut.images
        under_way = vectors if sharing.turns <= TURNS_UNROLLED else sharing.parts
        return Moved(
            instructions=vectors * (cut.images * COPY_INSTRUCTIONS + ROW_INSTRUCTIONS),
            moved_bytes=moved,
            lines=moved / LINE_BYTES + issued,
            bank_turns=issued * maps.lanes * itemsize / BANK_BYTES,
            bytes_in_flight=cut.threads * under_way * cut.images * maps.lanes * itemsize,
        )

    row_bytes = sector_bytes(width * itemsize, whole=cut.blocks_w == 1)
    source = of_rows(cut.source_sharing, cut.source, held * row_bytes)
    return source, of_rows(cut.result_sharing, cut.results, itemsize * of_block)


def _rows_met(cut: ToeplitzCut) -> float:
    """Of the rows of a source that the straight code has, those that it comes to: the others are padding."""
    rows = cut.gather.rows
    if cut.knows_padding or not cut.leaves_padding_out:
        return 1.0
    if cut.interleaved:
        starts = range(0, cut.blocks_h * cut.block_h, cut.warp_h)
        return _share_met(rows, cut.tile_h, cut.strips, starts, cut.live_rows)
    return rows.live_pairs / (rows.covered(cut.tile_h) * rows.taps)


@lru_cache(maxsize=256)
def _share_met(rows: Axis, tile_h: int, strips: int, starts: range, live_rows: range) -> float:
    """Of strips that take turns: of a warp at each of ``starts``."""
    meets = [rows.meets(out * strips, tap) for out in range(tile_h) for tap in range(rows.taps)]
    return sum(start + (at or 0) in live_rows for start in starts for at in meets) / (len(starts) * len(meets))


def code_size(cut: ToeplitzCut) -> int:
    return sum(sum(len(met) * cut.products + 2 for _, met in cut.meetings(turn)) for turn in cut.turns)


def registers_of(cut: ToeplitzCut) -> int:
    weights, row = cut.taps_h * len(cut.band), 2 * len(cut.units_of_warp)
    if cut.bands_in_turns:
        weights += cut.weights_of_thread
    return cut.tile_h * cut.tiles * 4 + weights + ROWS_AHEAD * row + OTHER_REGISTERS
