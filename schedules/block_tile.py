"""The block tile of the two-level schedule in NCHW, and how its input lies in shared memory. No TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwconv.schedules.two_level import spread_over_banks
from dwconv.workload import ITEMSIZE, Workload

COPIED_BYTES, LEAST_COPIED_BYTES = 16, 4
"""That cp.async moves at a time."""


@dataclass(frozen=True, kw_only=True)
class BlockTile:
    """Outputs of one block, (planes, rows, columns), and its threads on rows and on columns."""

    planes: int
    rows: int
    columns: int
    threads_h: int
    threads_w: int

    def patch(self, workload: Workload) -> tuple[int, int]:
        """(rows, columns ÷ stride) of padded input that the outputs of one plane read."""
        height = (self.rows - 1) * workload.stride[0] + workload.dilation[0] * (workload.kernel[0] - 1) + 1
        width = self.columns + workload.dilation[1] * (workload.kernel[1] - 1) // workload.stride[1]
        return height, width

    def turns(self, workload: Workload) -> tuple[int, int]:
        """How often the threads must move on to cover the patch, (down, across)."""
        height, width = self.patch(workload)
        return -(-height // self.threads_h), -(-width // self.threads_w)

    def row_words(self, workload: Workload) -> int:
        """From a staged row to the next: the words it holds, and a few more for the banks, whether threads read or
        fetch."""
        return spread_over_banks(
            workload.stride[1] * self.turns(workload)[1] * self.threads_w,
            threads=(self.threads_h, self.threads_w),
            words=((self._rows_apart(workload), 1), (1, 1)),
        )

    def plane_words(self, workload: Workload) -> int:
        """From a staged plane to the next, in the same way."""
        row = self.row_words(workload)
        return spread_over_banks(
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
        lanes = math.gcd(width, step, COPIED_BYTES // itemsize)
        return lanes if lanes * itemsize >= LEAST_COPIED_BYTES else 0

    def copied_patch(self, workload: Workload) -> tuple[int, int, int]:
        """(rows, vectors of a row, elements of the first vector that are not read) of one plane."""
        lanes = self.copy_lanes(workload)
        rows, columns = self.patch(workload)
        before = -workload.padding[1][0] % lanes
        return rows, -(-(before + columns) // lanes), before

    def copied_bytes(self, workload: Workload) -> int:
        """Of all planes of a block tile, at stride 1."""
        rows, vectors, _ = self.copied_patch(workload)
        return self.planes * rows * vectors * self.copy_lanes(workload) * ITEMSIZE[workload.dtype]

    def _rows_apart(self, workload: Workload) -> int:
        """Staged rows between what a thread reads and what the next thread down reads."""
        return self.rows // self.threads_h * workload.stride[0]


def round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
