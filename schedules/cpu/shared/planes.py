"""Which workloads and which tiles the NCHW kernels can take. No TVM here."""

from __future__ import annotations

from collections.abc import Callable

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config, Rule
from dwconv.schedules.taps import WIDTH, Axis

WIDEST_KERNEL = 128
"""Kernel columns are unrolled; beyond this width that is too much code."""

WIDEST_ROW = 256
"""Those of a kernel of one row, without a stride, may be a loop."""

LARGEST_STRIDE = 4
"""Columns are interleaved from so many phases at most."""

MOST_SCRATCH = 1 << 18
"""Floats of scratch memory of a task: half of what the second-level cache of most machines holds."""

SMALL_KERNEL = 81
"""Up to this number of taps a search starts from rows read in place; larger kernels read each row so often that it is
copied first."""


MASKED_BYTES = 32
"""From these vectors on, AVX2, loads of float32 have masks; from twice as long ones, AVX-512, those of 16 bits."""


def plane_misfit(workload: Workload, target: CpuTarget) -> str | None:
    """Why the NCHW templates of the CPU cannot run a workload; None if they can."""
    if workload.layout != "nchw":
        return f"it is for nchw, the workload is {workload.layout}"
    widest = WIDEST_ROW if workload.is_row and workload.stride[WIDTH] == 1 else WIDEST_KERNEL
    if workload.kernel[WIDTH] > widest:
        return f"kernel_w={workload.kernel[WIDTH]} is beyond {widest}"
    if workload.stride[WIDTH] > LARGEST_STRIDE:
        return f"stride_w={workload.stride[WIDTH]} is beyond {LARGEST_STRIDE}"
    if workload.any_size and target.vector_bytes < (MASKED_BYTES if workload.dtype == "float32" else 2 * MASKED_BYTES):
        return f"at edges of any size it masks loads of {workload.dtype}, for which the processor has no instruction"
    return None


def loads_per_read(columns: Axis, *, stage: str) -> int:
    """Instructions that load a vector of columns: with a stride, read in place, it is shuffled out of several."""
    return 2 * columns.up if stage == "none" and columns.up > 1 else 1


def scratch_within_cache(scratch_elements: Callable[[Config], int]) -> Rule:
    """``scratch_elements``: floats that a task holds in scratch memory, about."""
    return Rule("too much scratch memory for a cache", lambda config: scratch_elements(config) > MOST_SCRATCH)
