"""Staged rows, NCHW, CUDA, for wide kernels and large strides: one kernel row after the other, from shared memory.

fprop

Level one: a block is `planes` planes × `threads_h` rows × `threads_w` · `tile_w` columns. It holds the rows of x that
they read, and their kernels, in shared memory, in float32, fetched in vectors of 16 bytes.
Level two: a thread owns `tile_w` neighbouring columns of a row. It goes down the kernel rows that meet the image, and
adds each to all its sums at once: tile_w · KW products for tile_w + 2 · KW words of shared memory. Where one thread has
a whole row of the map, columns in the padding are not multiplied either.

    shared memory                                    a thread at kernel row kh
    ┌───────────┐ ┌───────────┐                      x row h + kh   [· · · ·│· · · ·│· · · ·│· · · ·]
    │ x plane 0 │ │ x plane 1 │  …                   w row kh       [· · · ·│· · ·]
    ├───────────┤ ├───────────┤           ──►                          ╲ ╲ ╲ ╲
    │  w 0      │ │  w 1      │                      sums           [ a  b  c  d  e  f  g ]     one row of y
    └───────────┘ └───────────┘                                         tile_w
    neighbouring threads have neighbouring planes, which lie in different banks

dgrad

Level one: a block is `planes` planes × `threads_h` tiles of rows × `threads_w` · `tile_w` columns of dx. It holds the
rows of dy that they read, and their kernels, in shared memory, in float32, fetched in vectors of 16 bytes.
Level two: a thread owns as many rows as the stride, of `tile_w` neighbouring columns, a multiple of the stride: which
taps a position meets is decided when compiling. Of every row it goes through its own kernel rows that meet dy, and adds
each to all its sums at once.

    dx, stride 2                 what row a meets              what row b meets
    ┌─────────┐                  kernel rows 1, 3, 5, …        kernel rows 0, 2, 4, …
    │ a a a a │  one thread,     ┌──────────────────┐          ┌──────────────────┐
    │ b b b b │  tile_w = 4      │ dy row (a+P−kh)/2│          │ dy row (b+P−kh)/2│      with columns in the same way:
    └─────────┘                  └──────────────────┘          └──────────────────┘      half of the taps each
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.cost import one_kernel_us
from dwconv.schedules.cuda.staged_rows.cut import Cut
from dwconv.schedules.cuda.staged_rows.estimate import block_work
from dwconv.schedules.cuda.staged_rows.space import row_misfit, row_space
from dwconv.schedules.gather_family import gather_family
from dwconv.schedules.space import Config

if TYPE_CHECKING:
    from tvm import s_tir


def schedule(workload: Workload, config: Config, target: CudaTarget) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), w (C·M, KH, KW), perhaps bias (C·M), y (n, C·M, OH, OW); or dy, w, dx."""
    from dwconv.schedules.cuda.staged_rows.kernel import schedule_rows

    return schedule_rows(Cut.of(workload, config))


TEMPLATES = gather_family(
    "cuda",
    "nchw_wide",
    layout="nchw",
    misfit=row_misfit,
    space=row_space,
    estimate_us=one_kernel_us(block_work),
    schedule=schedule,
)
