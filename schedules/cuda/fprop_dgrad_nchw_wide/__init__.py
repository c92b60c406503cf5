"""fprop and dgrad, NCHW, CUDA: rows in shared memory, one kernel row after the other, for wide kernels and large
strides.

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

dgrad: a thread owns as many rows as the stride, of `tile_w` neighbouring columns, a multiple of the stride: which taps
a position meets is decided when compiling. Of every row it goes through its own kernel rows that meet dy.
"""

from __future__ import annotations

from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_wide.cut import WideCut
from dwconv.schedules.cuda.fprop_dgrad_nchw_wide.estimate import block_work
from dwconv.schedules.cuda.fprop_dgrad_nchw_wide.space import row_misfit, row_space
from dwconv.schedules.cuda.gpu.cost import estimated, one_kernel
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.space import Config
from dwconv.schedules.template import family

# Parameters: x (n, C, H, W), w (C·M, KH, KW), perhaps bias (C·M), y (n, C·M, OH, OW); or dy, w, dx.


def schedule(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.fprop_dgrad_nchw_wide.kernel import schedule_rows

    return schedule_rows(WideCut.of(workload, config))


TEMPLATES = family(
    "cuda.{pass_}_nchw_wide",
    GATHERS,
    layout="nchw",
    misfit=row_misfit,
    space=row_space,
    **estimated(one_kernel(block_work)),
    schedule=schedule,
)
