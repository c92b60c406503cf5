"""Products of small matrices on tensor cores: sums of 16 × 8, over 8 or 16 at a time, by a warp.

Source: PTX ISA, 'Matrix multiply-accumulate operation using mma instruction'. No TVM here."""

from __future__ import annotations

from collections.abc import Sequence

from dwconv.problems.workload import DType, Workload
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, BANKS, VECTOR_BYTES

ROWS, COLUMNS = 16, 8
"""Of a matrix of sums."""
UNIT = 8
"""Numbers of 16 bits in a row of the matrices that are loaded together: 16 bytes. A product sums over one unit, or
over two."""
MULTIPLIED: dict[DType, str] = {"float16": "f16", "bfloat16": "bf16"}
"""Types that are multiplied, as PTX names them. They are summed in float32."""

ONES: dict[DType, int] = {"float16": 0x3C00_3C00, "bfloat16": 0x3F80_3F80}
"""A word of two ones."""

LEAST_TAPS, MOST_TAPS = 5, 63
"""Columns of a kernel: below, there are more zeros than weights in a band; above, a band needs too many registers."""


def why_not_banded(workload: Workload) -> str | None:
    """Why its kernel rows cannot be bands in matrices; None if they can."""
    if workload.dtype not in MULTIPLIED:
        return f"tensor cores multiply {' and '.join(MULTIPLIED)}, it is {workload.dtype}"
    if workload.stride != (1, 1) or workload.dilation != (1, 1):
        return f"it is for stride and dilation 1, not {workload.stride} and {workload.dilation}"
    if workload.multiplier != 1:
        return f"every result comes from one channel, multiplier={workload.multiplier}"
    if not LEAST_TAPS <= workload.kernel[1] <= MOST_TAPS:
        return f"a kernel row has {LEAST_TAPS} to {MOST_TAPS} weights, not {workload.kernel[1]}"
    return None


def turns_of_rows(places: Sequence[int]) -> int:
    """The most turns of shared memory for 8 of the 16 rows of a matrix, which begin at units with these numbers. No two
    rows are one, even if only what is left over whole turns of the banks is known of their numbers."""
    units = BANKS * BANK_BYTES // VECTOR_BYTES
    met = [[place % units for place in half] for half in (places[:8], places[8:])]
    return max(banks.count(bank) for banks in met for bank in banks)
