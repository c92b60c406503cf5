"""What no family offers: configurations that cannot be fast, and straight code that takes too long to compile.

Beyond a limit of straight code, compiling takes too long for a search, and the code leaves the instruction cache. Each
family counts its code before anything is built. The seconds are NVRTC 13's for sm_90 at the limit, on one core of a
Xeon with AVX-512: 0.2 to 0.65 ms an instruction, medians of up to 9 candidates.
"""

from __future__ import annotations

from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.hardware import MOST_BLOCKS_Z
from dwconv.schedules.gather import Gather

LEAST_THREADS = 32
"""Threads of a block: a warp."""
MOST_PADDED = 1.3
"""Results computed over results wanted."""
MOST_IMAGES = 64
"""Shares of the images, in a weight gradient."""
MOST_WORKSPACE_BYTES = 64 << 20
"""Partial sums of a weight gradient."""

# -- straight code -------------------------------------------------------------------------------------------------

TURNS_UNROLLED = 16
"""Turns in which threads move data together: more are a loop."""
BLOCK_TILE = 1300
"""Multiply-adds and weights: 2.8 s."""
GLOBAL_STRIP = 1700
"""Instructions: 0.7 s."""
RESIDENT_PLANES = 2400
"""Instructions: 1.3 s."""
STAGED_ROWS = 1500
"""Instructions in the loop over kernel rows: 0.8 s."""
TOEPLITZ_ROWS = 900
"""Products of matrices: 1.5 s."""
TOEPLITZ_GRADIENT = 900
"""The same, and what adds up diagonals: 1.5 s."""
CHANNELS_LAST = 3600
"""Multiply-adds and loads: 1.0 s."""
WEIGHT_GRADIENT = 1600
"""Multiply-adds: 1.5 s."""
BACKWARD_PLANES = 2800
"""Instructions: about 1.2 s, with what comes before NVRTC."""
WEIGHT_GRADIENT_PLANES = 2600
"""Instructions: 2.7 s."""


def grid_misfit(workload: Workload, gather: Gather) -> str | None:
    """Why a gather's kernel of any size, whose grid has planes and rows on its axes, cannot run so many; None if it
    can."""
    most = max(workload.batch * gather.depths.outputs, gather.rows.outputs)
    if workload.any_size and most > MOST_BLOCKS_Z:
        return f"a grid of blocks has at most {MOST_BLOCKS_Z} of {most} images, or rows"
    return None
