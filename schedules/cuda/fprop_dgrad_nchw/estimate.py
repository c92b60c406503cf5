"""The work of a block of the two-level partition, in plain integers. No TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw.cut import BlockTile, axis_tiles, columns_of
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import (
    BANK_BYTES,
    LINE_BYTES,
    REGISTERS_PER_UNIT,
    SHARED_LANES,
    WARP,
    compiled_registers,
    registers_left,
)
from dwconv.schedules.cuda.gpu.memory import Turns, lines_of_warp, sector_bytes, threads_places, turns_of_threads
from dwconv.schedules.space import Config

FETCH_INSTRUCTIONS = 6
"""To find out where an element of a staged patch comes from, and whether it exists."""
COPY_INSTRUCTIONS, DIVISION = 12, 11
"""To find a vector that is copied ahead, and to divide by a number that is no power of two. Source: counted in
the machine code of 5 kernels for sm_90: 10 to 13 without a division, 29 and 38 with two."""
START = 40
"""Instructions with which a thread finds its place."""
LOADS_IN_FLIGHT = 12
"""Loads of one thread while it stages: enough for a busy SM to have the 50 KB on their way that saturate the memory."""
OTHER_REGISTERS = 24
"""For addresses, counters and the values in flight."""


@dataclass(frozen=True, kw_only=True)
class _Reads:
    """How the input reaches the threads of a block, for one block tile."""

    instructions: float
    """Instructions of a thread."""
    lines: float
    bank_turns: float = 0.0
    conflict_turns: float = 0.0
    """Of them, by bank conflicts."""
    bytes_in_flight: float


def block_work(workload: Workload, config: Config, target: CudaTarget) -> BlockWork:
    """``workload`` is an fprop."""
    tile, itemsize = BlockTile.of(config), ITEMSIZE[workload.dtype]
    sizes = zip((workload.out_channels, *workload.output_size), (tile.planes, tile.rows, tile.columns), strict=True)
    tiles = workload.batch * math.prod(-(-size // part) for size, part in sizes)
    threads = tile.planes * tile.threads_h * tile.threads_w
    warps = -(-threads // WARP)
    outputs, taps = outputs_of(config), math.prod(workload.kernel)
    reads = _staged(workload, config, tile, threads) if config.stage == "shared" else _direct(workload, config, tile)
    converted = 0.75 * outputs if itemsize == 2 else 0.0
    fma, stores = float(outputs * taps), outputs / stored_lanes(workload, config)
    instructions = fma + taps + reads.instructions + stores + converted
    written = float(workload.batch * workload.out_channels * math.prod(workload.output_size) * itemsize)
    patch_h, patch_w = tile.patch(workload)
    planes = -(-tile.planes // workload.multiplier)
    row = min(patch_w * workload.stride[1], workload.input_size[1]) * itemsize
    row = sector_bytes(row, whole=tile.columns >= workload.output_size[1])
    read = float(tiles * planes * min(patch_h, workload.input_size[0]) * row)
    lines = warps * stores * lines_of_warp(tile.threads_w, config.tile_w * itemsize)
    lines += warps * taps * _lines_of_weights(workload, tile)
    return BlockWork(
        blocks=-(-tiles // config.turns),
        threads=threads,
        registers=_registers(workload, config, threads, target),
        shared_bytes=staged_bytes(workload, config) if config.stage == "shared" else 0,
        instructions=warps * (config.turns * instructions + START),
        fma=config.turns * warps * fma,
        lines=config.turns * (lines + reads.lines),
        bank_turns=config.turns * reads.bank_turns,
        conflict_turns=config.turns * reads.conflict_turns,
        dram_bytes=float(workload.bytes),
        cache_bytes=max(read, workload.bytes - written) + written,
        bytes_in_flight=reads.bytes_in_flight,
        loads_ahead=config.pipeline > 1,
    )


def _lines_of_weights(workload: Workload, tile: BlockTile) -> float:
    """Lines that a warp requests to have a weight of each of its planes."""
    planes = min(tile.planes, max(1.0, WARP / (tile.threads_h * tile.threads_w)))
    apart = math.prod(workload.kernel) * ITEMSIZE[workload.dtype]
    return min(planes, 1 + (planes - 1) * apart / LINE_BYTES)


def stored_lanes(workload: Workload, config: Config) -> int:
    """Neighbouring outputs of a thread that it stores at a time: up to 16 bytes, where no tile is cut off; casts are
    stored one by one."""
    columns = axis_tiles(config)[-1].block
    whole = workload.output_size[1] % columns == 0 and workload.dtype == "float32"
    return math.gcd(config.tile_w, SHARED_LANES) if whole else 1


def _registers(workload: Workload, config: Config, threads: int, target: CudaTarget) -> int:
    """In straight code ptxas moves loads far ahead of their use, if it has the registers."""
    needed = registers_of(workload, config)
    if config.stage == "registers" or config.unroll == "row":
        wanted = compiled_registers(needed, target)
    else:
        wanted = min(target.registers_per_thread, needed + math.prod(workload.kernel))
    if not config.blocks_per_sm:
        return wanted
    allowed = registers_left(target, threads=threads, blocks=config.blocks_per_sm)
    return min(allowed, -(-wanted // REGISTERS_PER_UNIT) * REGISTERS_PER_UNIT)


def _direct(workload: Workload, config: Config, tile: BlockTile) -> _Reads:
    itemsize = ITEMSIZE[workload.dtype]
    words, threads = patch_words(workload, config), tile.planes * tile.threads_h * tile.threads_w
    apart = config.tile_w * workload.stride[1] * itemsize
    return _Reads(
        instructions=2 * words + (0.75 * words if itemsize == 2 else 0),
        lines=-(-threads // WARP) * words * lines_of_warp(tile.threads_w, apart),
        bytes_in_flight=float(threads * words * itemsize),
    )


def _staged(workload: Workload, config: Config, tile: BlockTile, threads: int) -> _Reads:
    itemsize = ITEMSIZE[workload.dtype]
    rows, columns = tile.patch(workload)
    planes = -(-tile.planes // workload.multiplier)
    fetched = planes * rows * columns * workload.stride[1]
    lanes = tile.copy_lanes(workload) if config.pipeline > 1 else 1
    moves = fetched / lanes / threads
    rows_read = (config.tile_h - 1) * workload.stride[0] + workload.dilation[0] * (workload.kernel[0] - 1) + 1
    if config.unroll == "row" or rows_read > config.tile_h * workload.kernel[0]:
        rows_read = config.tile_h * workload.kernel[0]
    read = config.vthread_h * config.vthread_w * rows_read * reads_of_row(workload, config)
    wide = tile.read_lanes(workload) if config.pipeline > 1 else 1
    converted = 0.75 * (fetched / threads if config.pipeline == 1 else read * wide) if itemsize == 2 else 0.0
    in_flight = (config.pipeline - 1) * fetched if config.pipeline > 1 else min(fetched, LOADS_IN_FLIGHT * threads)
    found_out = _copy_instructions(workload, tile) if config.pipeline > 1 else FETCH_INSTRUCTIONS + 2
    warps = -(-threads // WARP)
    stored, loaded = _turns_of_fetch(workload, config, tile), _turns_of_read(workload, config, tile)
    return _Reads(
        instructions=found_out * moves + read + converted,
        lines=warps * moves * _lines_of_move(workload, tile, lanes, columns=columns * workload.stride[1]),
        bank_turns=warps * (moves * stored.taken + read * loaded.taken),
        conflict_turns=warps * (moves * (stored.taken - stored.least) + read * (loaded.taken - loaded.least)),
        bytes_in_flight=float(in_flight * itemsize),
    )


def _copy_instructions(workload: Workload, tile: BlockTile) -> int:
    """A thread divides by the vectors of a row, and where the block has several planes, by those of a plane."""
    rows, vectors, _ = tile.copied_patch(workload)
    divided = [vectors, *([rows * vectors] if tile.planes > 1 else [])]
    return COPY_INSTRUCTIONS + DIVISION * sum(count & (count - 1) > 0 for count in divided)


def _lines_of_move(workload: Workload, tile: BlockTile, lanes: int, *, columns: int) -> float:
    """Lines that a warp requests to stage so many elements a thread, of rows of so many ``columns``, padding included.
    Rows that are copied as a whole go on in the next."""
    itemsize, width = ITEMSIZE[workload.dtype], workload.input_size[1]
    if tile.copies_ahead and tile.columns >= workload.output_size[1]:
        return 1 + (WARP * lanes * itemsize * min(1.0, width / columns) - 1) / LINE_BYTES
    return lines_of_warp(columns // lanes or 1, lanes * itemsize)


def _turns_of_fetch(workload: Workload, config: Config, tile: BlockTile) -> Turns:
    """Of the threads that put an element of the input in its place; or a vector, one beside the other, row after
    row."""
    if config.pipeline > 1:
        rows, vectors, _ = tile.copied_patch(workload)
        lanes, (row, plane) = tile.copy_lanes(workload), tile.copied_apart(workload)
        places = threads_places((tile.planes, rows, vectors), apart=(plane, row, lanes))
        return turns_of_threads(places, itemsize=ITEMSIZE[workload.dtype], lanes=lanes)
    threads = -(-tile.planes // workload.multiplier), tile.threads_h, tile.threads_w
    apart = tile.plane_words(workload), tile.row_words(workload), 1
    return turns_of_threads(threads_places(threads, apart=apart), itemsize=BANK_BYTES)


def _turns_of_read(workload: Workload, config: Config, tile: BlockTile) -> Turns:
    """Of the threads that read an input element, or a vector, for the same tap."""
    (row, plane), itemsize, lanes = tile.staged_apart(workload)
    multiplier = min(workload.multiplier, tile.planes)  # so many read the same plane
    threads = tile.planes // multiplier, multiplier, tile.threads_h, tile.threads_w
    rows, columns = tile.reads_apart(workload)
    apart = plane, 0, rows * row, columns
    return turns_of_threads(threads_places(threads, apart=apart), itemsize=itemsize, lanes=lanes)


# -- what one thread has ---------------------------------------------------------------------------------------------


def outputs_of(config: Config) -> int:
    return int(config.tile_h * config.vthread_h * config.vthread_w * config.tile_w)


def reads_of_row(workload: Workload, config: Config) -> int:
    """Loads from a row in shared memory for the neighbouring outputs of one virtual thread: an element for each tap, or
    the vectors that hold them all."""
    if config.tile_w == 1:
        return workload.kernel[1]
    tile = BlockTile.of(config)
    first, lanes = tile.copied_patch(workload)[2], tile.copy_lanes(workload)
    return (first + columns_of(workload, outputs=config.tile_w) - 1) // lanes + 1


def registers_of(workload: Workload, config: Config) -> int:
    return outputs_of(config) + patch_words(workload, config) + OTHER_REGISTERS


def registers_in_all(workload: Workload, config: Config) -> int:
    """With the rows of vectors that straight code keeps for the next kernel rows."""
    keeps = config.tile_w > 1 and config.stage == "shared" and config.unroll == "kernel"
    kept = (config.tile_h - 1) * workload.stride[0] if keeps else 0
    row = reads_of_row(workload, config) * BlockTile.of(config).copy_lanes(workload) if kept else 0
    return registers_of(workload, config) + kept * row


def patch_words(workload: Workload, config: Config) -> int:
    """Input words a thread holds: what it fetches at a time, or the patch of its own outputs."""
    if config.stage == "shared":
        if config.tile_w > 1:  # a row of vectors, and the weights that meet it
            row = reads_of_row(workload, config) * BlockTile.of(config).copy_lanes(workload)
            return row + 2 * workload.kernel[1]
        return max(LOADS_IN_FLIGHT, workload.kernel[1])
    kernel, stride, dilation = workload.kernel, workload.stride, workload.dilation
    height = (config.tile_h - 1) * stride[0] + dilation[0] * (kernel[0] - 1) + 1
    width = (config.tile_w - 1) * stride[1] + dilation[1] * (kernel[1] - 1) + 1
    return int(height * width)


STAGED_BYTES = 4
"""Bytes of an element that threads stage: float32."""


def staged_bytes(workload: Workload, config: Config) -> int:
    tile = BlockTile.of(config)
    if config.pipeline > 1:
        return int(config.pipeline * tile.copied_bytes(workload))
    planes = -(-config.planes // workload.multiplier)
    return planes * tile.plane_words(workload) * STAGED_BYTES
