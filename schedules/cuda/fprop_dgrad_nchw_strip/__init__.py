"""fprop and dgrad, NCHW, CUDA: strips straight from global memory, for kernels up to about 9 × 9.

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
"""

from __future__ import annotations

from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.fprop_dgrad_nchw_strip.cut import StripCut
from dwconv.schedules.cuda.fprop_dgrad_nchw_strip.estimate import block_work
from dwconv.schedules.cuda.fprop_dgrad_nchw_strip.space import strip_misfit, strip_space
from dwconv.schedules.cuda.gpu.cost import estimated, one_kernel
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.space import Config
from dwconv.schedules.template import family

# Parameters: x (n, C, H, W), w (C·M, KH, KW), perhaps bias (C·M), y (n, C·M, OH, OW); or dy, w, dx; in 3-D with depths
# before heights.


def schedule(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.fprop_dgrad_nchw_strip.kernel import schedule_strips

    return schedule_strips(workload, StripCut.of(workload, config))


TEMPLATES = family(
    "cuda.{pass_}_nchw_strip",
    GATHERS,
    layout="nchw",
    most_axes=3,
    any_size=True,
    any_channels=True,
    misfit=strip_misfit,
    space=strip_space,
    **estimated(one_kernel(block_work)),
    schedule=schedule,
)
