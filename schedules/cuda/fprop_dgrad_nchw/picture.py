"""A configuration of block tiles as a picture: both levels, what one thread owns, the halo, and the banks that a warp
reads. Plain integers, no TVM here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw.cut import AxisTile, BlockTile, axis_tiles
from dwconv.schedules.cuda.fprop_dgrad_nchw.estimate import staged_bytes
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, BANKS, SHARED_LANES, WARP
from dwconv.schedules.cuda.gpu.memory import threads_places, turns_of_threads
from dwconv.schedules.space import Config

MOST_BOXES, MOST_CELLS = 4, 8
"""Block tiles and threads of an axis that are drawn; of more the first ones, and the last."""


def tiling(workload: Workload, config: Config) -> str:
    """``workload`` is an fprop."""
    parts = (_blocks, _threads, _one_thread, _input)
    return "\n\n".join("\n".join(line.rstrip() for line in part(workload, config)) for part in parts)


# -- level 1 -----------------------------------------------------------------------------------------------------------


def _blocks(workload: Workload, config: Config) -> Iterator[str]:
    sizes = (workload.out_channels, *workload.output_size)
    cut = [tile.block for tile in axis_tiles(config)]
    planes, down, across = (-(-size // part) for size, part in zip(sizes, cut, strict=True))
    yield f"level 1: block tiles of {cut[0]} {_of('plane', cut[0])} × {cut[1]} rows × {cut[2]} columns of the output"
    columns, rows = _shown(across, MOST_BOXES), _shown(down, MOST_BOXES)
    width = 10
    tops = "┬".join("─" * width for _ in columns)
    yield f"    ┌{tops}┐"
    for at, row in enumerate(rows):
        cells = [_name(row, column, across) for column in columns]
        yield "    │" + "│".join(f"{cell:^{width}}" for cell in cells) + "│"
        if at < len(rows) - 1:
            yield "    ├" + "┼".join("─" * width for _ in columns) + "┤"
    yield "    └" + "┴".join("─" * width for _ in columns) + "┘"
    yield f"    {sizes[1]} × {sizes[2]} outputs of a plane: {down} × {across} tiles; {planes} groups of planes"
    tiles = workload.batch * planes * down * across
    turns = "one tile each" if config.turns == 1 else f"{config.turns} tiles each, one after the other"
    images = f"{workload.batch} {_of('image', workload.batch)}"
    yield f"    {tiles} tiles of {images}; {tiles // config.turns} blocks, {turns}"


def _name(row: int | None, column: int | None, across: int) -> str:
    return "…" if row is None or column is None else f"tile {row * across + column}"


def _shown(count: int, most: int) -> list[int | None]:
    """Numbers to draw of so many; None for those left out."""
    return list(range(count)) if count <= most else [*range(max(1, most - 2)), None, count - 1]


# -- level 2 -----------------------------------------------------------------------------------------------------------


def _threads(workload: Workload, config: Config) -> Iterator[str]:
    planes, rows, columns = axis_tiles(config)
    threads = planes.threads * rows.threads * columns.threads
    yield (
        f"level 2: {threads} threads, {planes.threads} × {rows.threads} × {columns.threads} on planes, rows and "
        f"columns; {rows.vthreads} × {columns.vthreads} virtual threads each"
    )
    across = list(_pieces(columns))
    yield "     columns " + " ".join(f"{piece.label:^7}" for piece in across)
    for down in _pieces(rows):
        cells = (_owner(down, piece, columns.threads) for piece in across)
        yield f"  rows {down.label:>5} " + " ".join(f"{cell:^7}" for cell in cells)
    yield "    t0, t1, …: threads of the first plane" + (
        "; t0', t0\", …: their next virtual threads" if rows.vthreads * columns.vthreads > 1 else ""
    )


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """Neighbouring elements of an axis that one thread owns, or those of several threads that are not drawn."""

    first: int
    last: int
    thread: int | None
    vthread: int

    @property
    def label(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


def _owner(down: _Piece, across: _Piece, threads_w: int) -> str:
    if down.thread is None or across.thread is None:
        return "…"
    marks = {0: "", 1: "'", 2: '"'}
    turn = down.vthread + across.vthread
    return f"t{down.thread * threads_w + across.thread}{marks.get(turn, f'+{turn}')}"


def _pieces(axis: AxisTile) -> Iterator[_Piece]:
    for vthread in range(axis.vthreads):
        shown = _shown(
            axis.threads, MOST_CELLS // axis.vthreads if axis.threads * axis.vthreads > MOST_CELLS else MOST_CELLS
        )
        start = vthread * axis.threads
        for at, thread in enumerate(shown):
            first = start + (at if thread is None else thread)
            last = start + (axis.threads - 2 if thread is None else thread)
            yield _Piece(
                first=first * axis.registers, last=(last + 1) * axis.registers - 1, thread=thread, vthread=vthread
            )


# -- one thread --------------------------------------------------------------------------------------------------------


def _one_thread(workload: Workload, config: Config) -> Iterator[str]:
    _, rows, columns = axis_tiles(config)
    down, across = _owned(rows), _owned(columns)
    count = len(down) * len(across)
    yield f"thread 0 owns {count} outputs, in registers: rows {_listed(down)}; columns {_listed(across)}"
    if columns.vthreads > 1:
        apart = columns.threads * columns.registers
        yield f"    thread 1 has the columns beside; virtual threads are {apart} columns apart"


def _owned(axis: AxisTile) -> list[int]:
    step = axis.threads * axis.registers
    return [vthread * step + register for vthread in range(axis.vthreads) for register in range(axis.registers)]


def _listed(numbers: Sequence[int]) -> str:
    words = [str(number) for number in numbers]
    return ", ".join(words if len(words) <= MOST_CELLS else [*words[: MOST_CELLS - 2], "…", words[-1]])


# -- the input, and the banks ------------------------------------------------------------------------------------------


def _input(workload: Workload, config: Config) -> Iterator[str]:
    tile = BlockTile.of(config)
    rows, columns = tile.patch(workload)
    columns *= workload.stride[1]
    reach = [dilation * (size - 1) for dilation, size in zip(workload.dilation, workload.kernel, strict=True)]
    yield f"input: {rows} × {columns} of a plane, of them a halo of {reach[0]} rows and {reach[1]} columns"
    if config.stage != "shared":
        yield "    read from global memory by each thread, for its own outputs: no shared memory, no banks"
        return
    how = "fetched by all threads together, in float32"
    if config.pipeline > 1:
        vector = tile.copy_lanes(workload) * ITEMSIZE[workload.dtype]
        how = f"copied ahead, {vector} bytes at a time, to {config.pipeline} buffers"
    yield f"    staged once in shared memory, {how}: {staged_bytes(workload, config)} bytes"
    (row, plane), itemsize, lanes = tile.staged_apart(workload)
    yield f"    {row} elements from a row to the next; padding: {config.padding}"
    threads = tile.planes, tile.threads_h, tile.threads_w
    down, across = tile.reads_apart(workload)
    places = threads_places(threads, apart=(plane, down * row, across))[:WARP]
    words = max(1, lanes * itemsize // BANK_BYTES)
    banks = [place * itemsize // BANK_BYTES % BANKS for place in places]
    read = f"{words} words from a bank on" if words > 1 else "a word"
    yield f"    banks that the lanes of the first warp read, {read}:"
    for first in range(0, len(banks), 16):
        yield f"      lane {first:2}: " + " ".join(f"{bank:2}" for bank in banks[first : first + 16])
    turns = turns_of_threads(places, itemsize=itemsize, lanes=lanes)
    degree = turns.taken / turns.least
    together = f", {WARP // words} lanes at a time" if words == SHARED_LANES else ""
    yield f"    {degree:.1f} transactions a request{together}" + ("" if degree > 1 else ": no bank conflict")


def _of(name: str, count: int) -> str:
    return name if count == 1 else f"{name}s"
