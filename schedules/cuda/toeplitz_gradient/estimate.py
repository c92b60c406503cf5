"""The work of a block of diagonal sums, and of the kernel that adds parts, in plain integers. No TVM here."""

from __future__ import annotations

from dataclasses import dataclass

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu.code_limits import TURNS_UNROLLED
from dwconv.schedules.cuda.gpu.cost import BlockWork
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, BANKS, LINE_BYTES
from dwconv.schedules.cuda.gpu.occupancy import occupancy
from dwconv.schedules.cuda.gpu.split_sum import adding_work
from dwconv.schedules.cuda.gpu.staged_maps import PixelWork, StagedMaps
from dwconv.schedules.cuda.gpu.tensor_cores import COLUMNS, ROWS
from dwconv.schedules.cuda.toeplitz_gradient.cut import Cut
from dwconv.schedules.space import Config

START = 60
"""Instructions with which a thread finds its place."""
ITEM_INSTRUCTIONS = 30
"""To go on to the next images."""
TILE_INSTRUCTIONS = 14
"""To go on to the next columns."""
COPY_INSTRUCTIONS = 4
"""To find out whether an image exists, and to copy a vector of it."""
ROW_INSTRUCTIONS = 6
"""To find out where a row comes from and whether it exists."""
OTHER_REGISTERS = 40
"""For addresses, tests and numbers of tiles."""
ROWS_AHEAD = 3
"""Rows of x that the compiler loads ahead of their use in straight code."""


def block_works(workload: Workload, config: Config, target: CudaTarget) -> list[BlockWork]:
    """Of the products, and of the sum of their parts."""
    cut = Cut.of(workload, config)
    blocks = cut.channel_blocks * cut.split_n * cut.blocks_kh
    items = -(-workload.batch // cut.images) * cut.blocks_h
    turns = -(-items // cut.split_n)
    pairs = sum(len(met) for _, met in cut.meetings)
    tiles = cut.tiles / cut.warps_w
    loads = len(cut.meetings) * len(cut.band) + cut.tile_h
    products = pairs * cut.matrices + cut.tile_h * workload.bias
    issued_of_tile = products + loads * 0.6 + TILE_INSTRUCTIONS
    copies = [(_copied_pixels if cut.channels_last else _copied)(held, cut) for held in (cut.x, cut.dy)]
    diagonals = cut.group_kh * (cut.matrices * 4 + 8 * cut.warps_w * 2 + 20)
    copied = sum(each.instructions for each in copies)
    issued = turns * (tiles * issued_of_tile + copied + ITEM_INSTRUCTIONS) + diagonals + START
    read = sum(each.read_bytes for each in copies)
    work = BlockWork(
        blocks=blocks,
        threads=cut.threads,
        registers=registers_of(cut),
        shared_bytes=cut.shared_bytes,
        instructions=cut.warps * issued,
        fma=0.0,
        tensor_products=float(cut.warps * turns * tiles * products * ROWS * COLUMNS * ROWS),
        lines=turns * sum(each.lines for each in copies),
        bank_turns=cut.warps * (turns * tiles * loads * 2 + diagonals)
        + turns * sum(each.bank_turns for each in copies),
        dram_bytes=float(workload.bytes),
        cache_bytes=blocks * turns * read,
        bytes_in_flight=min(read, sum(each.bytes_in_flight for each in copies)),
        waits=turns,
    )
    return [work] if cut.split_n == 1 else [work, adding_work(parts=cut.split_n, results=cut.results, target=target)]


@dataclass(frozen=True, kw_only=True)
class _Copied:
    """What it takes a block to bring x or dy of an item."""

    instructions: float
    """Of a warp."""
    read_bytes: float
    lines: float
    bank_turns: float
    bytes_in_flight: float


def _copied(held: StagedMaps, cut: Cut) -> _Copied:
    """In vectors of rows."""
    sharing, itemsize = held.sharing(cut.threads), ITEMSIZE[cut.dtype]
    vectors = sharing.parts * sharing.turns
    at_a_time = vectors if sharing.turns <= TURNS_UNROLLED else sharing.parts
    read = float(cut.images * min(len(held.rows), held.height) * held.width * itemsize)
    return _Copied(
        instructions=vectors * (cut.images * COPY_INSTRUCTIONS + ROW_INSTRUCTIONS),
        read_bytes=read,
        lines=1.5 * read / LINE_BYTES,
        bank_turns=2 * read / (BANKS * BANK_BYTES),
        bytes_in_flight=float(cut.threads * at_a_time * cut.images * held.lanes * itemsize),
    )


def _copied_pixels(held: StagedMaps, cut: Cut) -> _Copied:
    """In vectors of pixels."""
    groups = cut.maps(held).groups
    sharing = held.sharing_of_pixels(cut.threads, groups=groups, with_pads=True)
    work = PixelWork(sharing=sharing, images=cut.images, groups=groups, channels=cut.workload.channels)
    pixels = min(len(held.rows), held.height) * held.width
    return _Copied(
        instructions=work.instructions,
        read_bytes=work.moved_bytes(pixels),
        lines=work.lines(pixels),
        bank_turns=work.bank_turns,
        bytes_in_flight=work.bytes_in_flight,
    )


def blocks_at_a_time(cut: Cut, target: CudaTarget) -> int:
    """Blocks on an SM by its threads, its shared memory, and the registers that a thread should need; at least 1."""
    held = occupancy(threads=cut.threads, registers=registers_of(cut), shared_bytes=cut.shared_bytes, target=target)
    return max(1, held.blocks_per_sm)


def code_size(cut: Cut) -> int:
    """About how many instructions are straight code: those of a tile, and of the diagonals."""
    return sum(len(met) * cut.matrices + 2 for _, met in cut.meetings) + cut.group_kh * (4 * cut.matrices + 20)


def registers_of(cut: Cut) -> int:
    """About how many a thread needs: sums, dy of a tile, rows of x under way."""
    sums = (cut.group_kh * cut.matrices + cut.workload.bias) * 4
    return sums + cut.tile_h * 2 + ROWS_AHEAD * 2 * len(cut.band) + OTHER_REGISTERS
