"""fprop and dgrad, NCHW, CUDA: a thread owns rows of neighbouring columns. Templates differ in where its source lies.

nchw_strip: straight from global memory, for kernels up to about 9 × 9
----------------------------------------------------------------------

In 3-D a strip is of one plane of the result: a loop goes over the taps along the depth that meet a plane of the source,
and does with each of them what is drawn here.

fprop

Level one: a block is `planes` planes × `threads_h` · `tile_h` rows × `threads_w` · `tile_w` columns.
Level two: a thread owns a strip, `tile_h` rows of `tile_w` neighbouring columns: one aligned vector. It reads each row
of its input once, `rows_ahead` rows before it multiplies it into the up to KH rows of sums that it meets.

    plane OH × OW                 block                          what one thread does
    ┌─────────────────┐           ┌────┬────┬────┬────┐          x      ·│· · · ·│·     rows in order: a vector, and the
    │                 │  tile_h   │ t0 │ t1 │ t2 │ t3 │                 │· · · ·│      columns beside it that it meets
    │    `planes` of  │    ──►    │    │    │    │    │    ──►   sums    │a a a a│      KH rows at a time: others are
    │    them         │           ├────┼────┼────┼────┤                 │b b b b│      stored, or not yet begun
    │                 │           │ t4 │ t5 │ t6 │ t7 │          y      [ o o o o ]    one vector store a row
    └─────────────────┘           └────┴────┴────┴────┘
                                   tile_w

dgrad

Level one: a block is `planes` planes of dx × `threads_h` · `tile_h` rows × `threads_w` · `tile_w` columns.
Level two: a thread owns a strip, `tile_h` rows of `tile_w` neighbouring columns, both multiples of the stride: then
which taps a position meets does not depend on the tile. All are decided when compiling, and there are no others.

    dx, stride 2, kernel 3         strip of one thread, 4 × 4      what it meets (tap row, tap column)
    ┌────┬────┬────┬────┐          ┌─────────┐
    │ t0 │ t1 │ t2 │ t3 │          │ a b a b │                   a: (1,1)                one dy, one tap
    ├────┼────┼────┼────┤   ──►    │ c d c d │            ──►    b: (1,0) (1,2)          two
    │ t4 │ t5 │ t6 │ t7 │          │ a b a b │                   c: (0,1) (2,1)          two
    └────┴────┴────┴────┘          │ c d c d │                   d: (0,0) (0,2) (2,0) (2,2)
                                   └─────────┘                   9 products for four dx, not 36

nchw_wide: rows in shared memory, one kernel row after the other, for wide kernels and large strides
----------------------------------------------------------------------------------------------------

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

nchw_plane: whole planes in shared memory, for small maps, whose rows are too short for vectors of their own
------------------------------------------------------------------------------------------------------------

fprop

Level one: a block is `planes` planes, one piece of memory. It is copied into shared memory in vectors of 16 bytes, by
all threads alike, wherever planes and rows begin; so are the results on their way out.
Level two: a thread owns `tile_h` rows of `tile_w` columns (often a whole plane) of `thread_planes` planes.

    x, as it lies               block, in shared memory            what one thread does
    ┌────────────────┐          ┌─────────┬─────────┬───           x     · · · · · · ·    rows in order, in vectors
    │ planes 0 … p−1 │          │ plane 0 │ plane 1 │ …                  · · · · · · ·
    ├────────────────┤   ──►    │ t0      │ t2      │       ──►    sums  a a a a a a a    KH rows at a time; taps
    │ planes p … 2p−1│          │ t1      │ t3      │                    b b b b b b b    in the padding left out
    └────────────────┘          └─────────┴─────────┴───           y     o o o o o o o    to shared memory, then out as
                                 odd pitch: no bank twice                                 it came: one piece

dgrad: tiles are multiples of the stride: which taps a position meets is decided when compiling, and a row of dy is read
once for all rows of dx that it meets.
"""

from __future__ import annotations

from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gather_nchw.cut import PlanesCut, RowsCut, StripCut
from dwconv.schedules.cuda.gather_nchw.estimate import plane_registers, planes_work, rows_work, strips_work
from dwconv.schedules.cuda.gather_nchw.plane_space import plane_misfit, plane_space
from dwconv.schedules.cuda.gather_nchw.space import row_misfit, row_space, strip_misfit, strip_space
from dwconv.schedules.cuda.gpu.cost import estimated, one_kernel
from dwconv.schedules.cuda.gpu.hardware import blocks_at_a_time
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.space import Config
from dwconv.schedules.template import family

# Parameters of each: x (n, C, H, W), w (C·M, KH, KW), perhaps bias (C·M), y (n, C·M, OH, OW); or dy, w, dx; in 3-D with
# depths before heights.


def strips(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.gather_nchw.strips import schedule_strips

    return schedule_strips(workload, StripCut.of(workload, config))


def rows(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.gather_nchw.rows import schedule_rows

    return schedule_rows(RowsCut.of(workload, config))


def planes(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.gather_nchw.planes import schedule_planes

    cut = PlanesCut.of(workload, config)
    return schedule_planes(cut, at_a_time=blocks_at_a_time(cut, plane_registers(cut), target))


TEMPLATES = (
    *family(
        "cuda.{pass_}_nchw_strip",
        GATHERS,
        layout="nchw",
        most_axes=3,
        any_size=True,
        any_channels=True,
        misfit=strip_misfit,
        space=strip_space,
        **estimated(one_kernel(strips_work)),
        schedule=strips,
    ),
    *family(
        "cuda.{pass_}_nchw_wide",
        GATHERS,
        layout="nchw",
        misfit=row_misfit,
        space=row_space,
        **estimated(one_kernel(rows_work)),
        schedule=rows,
    ),
    *family(
        "cuda.{pass_}_nchw_plane",
        GATHERS,
        layout="nchw",
        misfit=plane_misfit,
        space=plane_space,
        **estimated(one_kernel(planes_work)),
        schedule=planes,
    ),
)
