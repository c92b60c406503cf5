"""How a configuration cuts the output into block tiles, and how the input of one lies in shared memory. No TVM here.

axis of the output  ─►  block │ vthread │ thread │ register
index in the tile    =  (vthread · threads + thread) · registers + register
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu.hardware import LEAST_COPY_BYTES, VECTOR_BYTES
from dwconv.schedules.cuda.gpu.memory import spread_words
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
        AxisTile(threads=config.block_h // config.tile_h, registers=config.tile_h),
        AxisTile(vthreads=config.vthread_w, threads=config.threads_w, registers=config.tile_w),
    )


@dataclass(frozen=True, kw_only=True)
class BlockTile:
    """Outputs of one block, (planes, rows, columns), and its threads on rows and on columns."""

    planes: int
    rows: int
    columns: int
    threads_h: int
    threads_w: int

    @classmethod
    def of(cls, config: Config) -> BlockTile:
        planes, rows, columns = axis_tiles(config)
        return cls(
            planes=planes.block,
            rows=rows.block,
            columns=columns.block,
            threads_h=rows.threads,
            threads_w=columns.threads,
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
        return spread_words(
            workload.stride[1] * self.turns(workload)[1] * self.threads_w,
            threads=(self.threads_h, self.threads_w),
            words=((self._rows_apart(workload), 1), (1, 1)),
        )

    def plane_words(self, workload: Workload) -> int:
        row = self.row_words(workload)
        return spread_words(
            self.turns(workload)[0] * self.threads_h * row,
            threads=(self.planes, self.threads_h, self.threads_w),
            words=((1, self._rows_apart(workload) * row, 1), (1, row, 1)),
        )

    # -- copied as it lies, by cp.async ---------------------------------------------------------------------------

    def copy_lanes(self, workload: Workload) -> int:
        """Elements of a row copied at a time: 16 bytes, or less where vectors do not divide the row and the tile; 0
        where not even 4 bytes do, the least that cp.async can."""
        columns, width, itemsize = self.columns, workload.input_size[1], ITEMSIZE[workload.dtype]
        step = 0 if columns >= workload.output_size[1] else columns  # from a tile to the next
        lanes = math.gcd(width, step, VECTOR_BYTES // itemsize)
        return lanes if lanes * itemsize >= LEAST_COPY_BYTES else 0

    def copied_patch(self, workload: Workload) -> tuple[int, int, int]:
        """(rows, vectors of a row, elements of the first vector that are not read) of one plane."""
        lanes = self.copy_lanes(workload)
        rows, columns = self.patch(workload)
        before = -workload.padding[1][0] % lanes
        return rows, -(-(before + columns) // lanes), before

    def copied_bytes(self, workload: Workload) -> int:
        rows, vectors, _ = self.copied_patch(workload)
        return self.planes * rows * vectors * self.copy_lanes(workload) * ITEMSIZE[workload.dtype]

    def _rows_apart(self, workload: Workload) -> int:
        return self.rows // self.threads_h * workload.stride[0]


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
