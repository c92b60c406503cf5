"""How a configuration cuts the output into block tiles, and how the input of one lies in shared memory. No TVM here.

axis of the output  ─►  block │ vthread │ thread │ register
index in the tile    =  (vthread · threads + thread) · registers + register
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, BANKS, LEAST_COPY_BYTES, VECTOR_BYTES
from dwconv.schedules.cuda.gpu.memory import spread_words, threads_places, turns_of_threads
from dwconv.schedules.space import Config


@dataclass(frozen=True, kw_only=True)
class AxisTile:
    """How one axis of a block tile is cut."""

    vthreads: int = 1
    threads: int = 1
    registers: int = 1
    """Neighbouring elements that one (virtual) thread owns."""

    @property
    def block(self) -> int:
        return self.vthreads * self.threads * self.registers


def axis_tiles(config: Config) -> tuple[AxisTile, AxisTile, AxisTile]:
    return (
        AxisTile(threads=config.planes),
        AxisTile(
            vthreads=config.vthread_h,
            threads=config.block_h // (config.vthread_h * config.tile_h),
            registers=config.tile_h,
        ),
        AxisTile(vthreads=config.vthread_w, threads=config.threads_w, registers=config.tile_w),
    )


@dataclass(frozen=True, kw_only=True)
class BlockTile:
    """Outputs of one block, (planes, rows, columns), its threads on rows and on columns, and the neighbouring outputs
    that each of them has."""

    planes: int
    rows: int
    columns: int
    threads_h: int
    threads_w: int
    tile_h: int = 1
    tile_w: int = 1
    copies_ahead: bool = False
    """Whether the patch is copied by cp.async; else threads fetch it, as words of float32."""
    padding: str = "fetched"
    """Which staged rows and planes have room after them, so that threads meet in fewer banks: those that threads fetch,
    those that are copied ahead, or none."""

    @classmethod
    def of(cls, config: Config) -> BlockTile:
        planes, rows, columns = axis_tiles(config)
        return cls(
            planes=planes.block,
            rows=rows.block,
            columns=columns.block,
            threads_h=rows.threads,
            threads_w=columns.threads,
            tile_h=rows.registers,
            tile_w=columns.registers,
            copies_ahead=config.pipeline > 1,
            padding=config.padding,
        )

    def patch(self, workload: Workload) -> tuple[int, int]:
        """(rows, columns ÷ stride) of padded input that the outputs of one plane read."""
        height = (self.rows - 1) * workload.stride[0] + workload.dilation[0] * (workload.kernel[0] - 1) + 1
        width = self.columns + workload.dilation[1] * (workload.kernel[1] - 1) // workload.stride[1]
        return height, width

    def turns(self, workload: Workload) -> tuple[int, int]:
        height, width = self.patch(workload)
        return -(-height // self.threads_h), -(-width // self.threads_w)

    def row_words(self, workload: Workload) -> int:
        """From a staged row to the next: the words it holds, and a few more for the banks, whether threads read or
        fetch."""
        held = workload.stride[1] * self.turns(workload)[1] * self.threads_w
        if self.padding != "fetched":
            return held
        return spread_words(
            held,
            threads=(self.threads_h, self.threads_w),
            words=((self._rows_apart(workload), 1), (1, 1)),
        )

    def plane_words(self, workload: Workload) -> int:
        row = self.row_words(workload)
        held = self.turns(workload)[0] * self.threads_h * row
        if self.padding != "fetched":
            return held
        return spread_words(
            held,
            threads=(self.planes, self.threads_h, self.threads_w),
            words=((1, self._rows_apart(workload) * row, 1), (1, row, 1)),
        )

    # -- copied as it lies, by cp.async ---------------------------------------------------------------------------

    def copy_lanes(self, workload: Workload) -> int:
        """Elements of a row copied at a time: 16 bytes, or less where vectors do not divide the row and the tile; 0
        where not even 4 bytes do, the least that cp.async can."""
        columns, width, itemsize = self.columns, workload.input_size[1], ITEMSIZE[workload.dtype]
        step = 0 if columns >= workload.output_size[1] else columns * workload.stride[1]  # from a tile to the next
        lanes = math.gcd(width, step, VECTOR_BYTES // itemsize)
        return lanes if lanes * itemsize >= LEAST_COPY_BYTES else 0

    def copied_patch(self, workload: Workload) -> tuple[int, int, int]:
        """(rows, vectors of a row, elements of the first vector that are not read) of one plane."""
        lanes = self.copy_lanes(workload)
        rows, _ = self.patch(workload)
        before = -workload.padding[1][0] % lanes
        return rows, -(-(before + columns_of(workload, outputs=self.columns)) // lanes), before

    def read_lanes(self, workload: Workload) -> int:
        """Elements of a copied row that a thread reads at a time: whole vectors, if it has neighbouring outputs."""
        return self.copy_lanes(workload) if self.tile_w > 1 else 1

    def reads_apart(self, workload: Workload) -> tuple[int, int]:
        """Rows and columns of the patch, as it is staged, from what a thread reads for a tap to what the next one
        does."""
        columns = self.tile_w * workload.stride[1] if self.copies_ahead else self.tile_w
        return self._rows_apart(workload), columns

    def copied_apart(self, workload: Workload) -> tuple[int, int]:
        """Elements from a copied row to the next, and from a plane to the next: whole vectors, and a few more for the
        banks."""
        rows, vectors, _ = self.copied_patch(workload)
        lanes = self.copy_lanes(workload)
        if self.padding != "copied":
            return vectors * lanes, rows * vectors * lanes
        return spread_copies(
            vectors * lanes,
            rows,
            threads=(self.planes, self.threads_h, self.threads_w),
            steps=self.reads_apart(workload),
            unit=lanes,
            lanes=self.read_lanes(workload),
            itemsize=ITEMSIZE[workload.dtype],
        )

    def staged_apart(self, workload: Workload) -> tuple[tuple[int, int], int, int]:
        """Elements from a staged row, and from a plane, to the next; bytes of an element; how many a thread reads at a
        time."""
        if self.copies_ahead:
            return self.copied_apart(workload), ITEMSIZE[workload.dtype], self.read_lanes(workload)
        return (self.row_words(workload), self.plane_words(workload)), BANK_BYTES, 1

    def copied_bytes(self, workload: Workload) -> int:
        return self.planes * self.copied_apart(workload)[1] * ITEMSIZE[workload.dtype]

    def _rows_apart(self, workload: Workload) -> int:
        return self.tile_h * workload.stride[0]


def columns_of(workload: Workload, *, outputs: int) -> int:
    """Columns of the input that so many neighbouring outputs of a row read."""
    return (outputs - 1) * workload.stride[1] + workload.dilation[1] * (workload.kernel[1] - 1) + 1


@lru_cache(maxsize=4096)
def spread_copies(
    row: int,
    rows: int,
    *,
    threads: tuple[int, int, int],
    steps: tuple[int, int],
    unit: int,
    lanes: int,
    itemsize: int,
) -> tuple[int, int]:
    """Elements from a row of so many to the next, and from a plane of so many ``rows`` to the next, with which the
    threads, on planes, rows and columns, meet in the fewest banks; of equals the least. Threads of neighbouring rows
    and columns read ``lanes`` elements each, ``steps`` rows and columns apart; all begins at multiples of ``unit``."""
    around = BANKS * BANK_BYTES // itemsize

    def best(tried: Iterable[tuple[int, int]]) -> tuple[int, int]:
        found, taken = (0, 0), math.inf
        for row, plane in tried:
            places = threads_places(threads, apart=(plane, steps[0] * row, steps[1]))
            turns = turns_of_threads(places, itemsize=itemsize, lanes=lanes)
            if turns.taken < taken:
                found, taken = (row, plane), turns.taken
            if turns.taken <= turns.least:
                break
        return found

    row, plane = best((apart, rows * apart) for apart in range(row, row + around, unit))
    return best((row, apart) for apart in range(plane, plane + around, unit))


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
