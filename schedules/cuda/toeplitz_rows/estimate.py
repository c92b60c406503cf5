"""The work of a warp of banded products, and so of a block, in plain integers. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, LINE_BYTES, TURNS_UNROLLED, WARP, occupancy
from dwconv.schedules.cuda.gpu.memory import sector_bytes
from dwconv.schedules.cuda.gpu.tensor_cores import COLUMNS, ROWS, UNIT, PixelWork
from dwconv.schedules.cuda.toeplitz_rows.cut import ToeplitzCut
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
    staged = (_scattered if cut.lean else _banded)(cut)
    moved = (_moved_pixels if cut.channels_last else _moved_rows)(cut)
    rounded = 2 * cut.tile_h * cut.tiles
    of_channel = pairs * cut.products + loaded * -(-width // 2) + weights + rounded * ROUND_INSTRUCTIONS
    of_channel += sum(turn.count for turn in cut.turns) * TURN_INSTRUCTIONS + staged.instructions
    channels = warps * cut.turns_c
    images = -(-workload.batch // cut.images)
    blocks = images * -(-gather.channels // cut.planes) * cut.blocks_h * cut.blocks_w
    source_bytes = workload.bytes - workload.batch * gather.channels * rows.outputs * columns.outputs * itemsize
    return BlockWork(
        blocks=blocks,
        threads=cut.threads,
        registers=registers_of(cut),
        shared_bytes=cut.shared_bytes,
        instructions=channels * of_channel + warps * (START + moved.instructions),
        fma=0.0,
        tensor_products=float(
            channels * pairs * sum(len(cut.units_of(tile)) for tile in range(cut.tiles)) * ROWS * COLUMNS * UNIT
        ),
        lines=moved.lines + channels * staged.lines,
        bank_turns=channels * (loaded * width * 2 * cut.source.turns_of_rows + weights + rounded + staged.bank_turns)
        + moved.bank_turns,
        dram_bytes=float(workload.bytes),
        cache_bytes=max(blocks * moved.read_bytes, source_bytes) + blocks * moved.written_bytes,
        bytes_in_flight=min(moved.read_bytes, moved.bytes_in_flight),
    )


@dataclass(frozen=True, kw_only=True)
class _Staged:
    """What it takes a warp to bring its share of a channel's kernel rows."""

    instructions: float
    lines: float
    bank_turns: float


def _banded(cut: ToeplitzCut) -> _Staged:
    """Every element of a row and of its copy, by a thread that finds out whether it is a weight."""
    elements = float(cut.band_sharing.parts * cut.band_sharing.turns)
    return _Staged(instructions=elements * BAND_INSTRUCTIONS, lines=elements, bank_turns=elements)


def _scattered(cut: ToeplitzCut) -> _Staged:
    """Vectors of zeros, then every weight, which is loaded beside its neighbours."""
    warps = cut.threads_of_channel // WARP
    weights = cut.weights_of_thread
    zeros = cut.kernel_elements * ITEMSIZE[cut.dtype] / LINE_BYTES / warps * cut.bands / cut.planes
    return _Staged(
        instructions=weights * SCATTER_INSTRUCTIONS + zeros / 4 * CLEAR_INSTRUCTIONS,
        lines=1.5 * weights,  # half of a line, which begins anywhere
        bank_turns=cut.weights_turns / warps + zeros,
    )


@dataclass(frozen=True, kw_only=True)
class _Moved:
    """What it takes a block to bring its source and to write its results."""

    instructions: float
    """Of a warp."""
    read_bytes: float
    written_bytes: float
    lines: float
    bank_turns: float
    bytes_in_flight: float


def _moved_rows(cut: ToeplitzCut) -> _Moved:
    """Vectors of rows, by the warps of each channel."""
    rows, columns, itemsize = cut.gather.rows, cut.gather.columns, ITEMSIZE[cut.dtype]
    source, results, warps = cut.source_sharing, cut.result_sharing, cut.threads // WARP
    copied, written = (each.parts * each.turns for each in (source, results))
    row_bytes = sector_bytes(min(len(cut.units) * UNIT, columns.inputs) * itemsize, whole=cut.blocks_w == 1)
    read = cut.planes * cut.images * min(len(cut.rows), rows.inputs) * row_bytes
    result = cut.planes * cut.images * itemsize * rows.outputs / cut.blocks_h * columns.outputs / cut.blocks_w
    under_way = copied if source.turns <= TURNS_UNROLLED else source.parts
    in_vectors = copied * cut.source.lanes + written * cut.results.lanes
    return _Moved(
        instructions=(copied + written) * (cut.images * COPY_INSTRUCTIONS + ROW_INSTRUCTIONS),
        read_bytes=read,
        written_bytes=result,
        lines=(read + result) / LINE_BYTES + warps * (copied + written) * cut.images,
        bank_turns=warps * cut.images * in_vectors * itemsize / BANK_BYTES,
        bytes_in_flight=cut.threads * under_way * cut.images * cut.source.lanes * itemsize,
    )


def _moved_pixels(cut: ToeplitzCut) -> _Moved:
    """Vectors of pixels, by all warps."""
    rows, columns = cut.gather.rows, cut.gather.columns
    source, results = (
        PixelWork(sharing=sharing, images=cut.images, groups=cut.maps.groups, channels=cut.gather.channels)
        for sharing in (cut.source_sharing, cut.result_sharing)
    )
    read = min(len(cut.rows), rows.inputs) * min(len(cut.units) * UNIT, columns.inputs)
    written = rows.outputs / cut.blocks_h * columns.outputs / cut.blocks_w
    return _Moved(
        instructions=source.instructions + results.instructions,
        read_bytes=source.moved_bytes(read),
        written_bytes=results.moved_bytes(written),
        lines=source.lines(read) + results.lines(written),
        bank_turns=source.bank_turns + results.bank_turns,
        bytes_in_flight=source.bytes_in_flight,
    )


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


def blocks_at_a_time(cut: ToeplitzCut, target: CudaTarget) -> int:
    """Blocks on an SM by its threads, its shared memory, and the registers that a thread should need; at least 1."""
    held = occupancy(threads=cut.threads, registers=registers_of(cut), shared_bytes=cut.shared_bytes, target=target)
    return max(1, held.blocks_per_sm)


def code_size(cut: ToeplitzCut) -> int:
    """About how many instructions are straight code: those of all turns, each once."""
    return sum(sum(len(met) * cut.products + 2 for _, met in cut.meetings(turn)) for turn in cut.turns)


def registers_of(cut: ToeplitzCut) -> int:
    """About how many a thread needs: sums, kernel rows of a turn, source rows under way."""
    weights, row = cut.taps_h * len(cut.band), 2 * len(cut.units_of_warp)
    if cut.bands_in_turns:
        weights += cut.weights_of_thread
    return cut.tile_h * cut.tiles * 4 + weights + ROWS_AHEAD * row + OTHER_REGISTERS
