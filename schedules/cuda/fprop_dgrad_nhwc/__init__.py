"""Strips of pixels, NHWC, CUDA.

In 3-D a strip is of one plane of the result: a loop goes over the taps along the depth that meet a plane of the source,
and does with each of them what is drawn here.

fprop

Level one: a block owns `threads_h` × `threads_w` × `vthread_w` strips of one image, in `threads_c` vectors of channels;
their input is read straight from memory, or staged in shared memory with its halo (`stage`).
Level two: virtual thread by virtual thread, a thread owns a strip of `tile_h` rows × `tile_w` columns × `vector_c`
channels, its sums in registers.
`weights`: in registers, or in shared memory for all threads. `unroll`: all taps, or those of a kernel row ("kw").

    image             block tile                      strip: what one thread owns
    ┌───────┬───┐     ┌──────┬──────┬─ threads_w      ┌────┬────┬────┬────┐
    │ block │   │     │ t 0  │ t 32 │        tile_h   │ vv │ vv │ vv │ vv │  vv: a vector of channels, 16 bytes of
    ├───────┼───┤ ──► ├──────┼──────┤   ──►           ├────┼────┼────┼────┤  memory; each x is loaded once, and added
    │       │   │     │ t 64 │ t 96 │ × threads_c     │ vv │ vv │ vv │ vv │  to all sums that it meets
    └───────┴───┘     └─ threads_h ─┘   neighbours    └────┴────┴────┴────┘
                                                              tile_w

dgrad

Level one: a block owns `threads_h` × `threads_w` × `vthread_w` strips of one image of dx, in `threads_c` vectors of
channels; what it needs of dy is read straight from memory, or staged in shared memory with its halo (`stage`).
Level two: a thread owns a strip of `tile_h` rows × `tile_w` columns × `vector_c` channels, its sums in registers.
Strips are multiples of the stride: each of their positions has its own taps, the same in every strip, and no others.

    dx, stride 2, kernel 3          strip, tile_h = tile_w = 2
    ┌────┬────┬────┬────┐           ┌──────────────┬──────────────┐
    │ a b│ a b│ a b│ a b│           │ a: tap 1,1   │ b: taps 1,0  │      dy meets each tap of each position in its
    │ c d│ c d│ c d│ c d│    ──►    │              │     and 1,2  │      phase: 1 + 2 + 2 + 4 = 9 products for four
    ├────┼────┼────┼────┤           ├──────────────┼──────────────┤      dx, decided when compiling: no modulo, no
    │ a b│ a b│ a b│ a b│           │ c: taps 0,1  │ d: taps 0,0  │      atomics, no tap that meets nothing
    │ c d│ c d│ c d│ c d│           │     and 2,1  │ 0,2 2,0 2,2  │
    └────┴────┴────┴────┘           └──────────────┴──────────────┘
"""

from __future__ import annotations

from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.fprop_dgrad_nhwc.cut import ChannelsLastCut
from dwconv.schedules.cuda.fprop_dgrad_nhwc.estimate import block_work
from dwconv.schedules.cuda.fprop_dgrad_nhwc.space import strip_misfit, strip_space
from dwconv.schedules.cuda.gpu.cost import estimated, one_kernel
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.space import Config
from dwconv.schedules.template import family


def schedule(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.fprop_dgrad_nhwc.kernel import schedule_strips

    return schedule_strips(workload, ChannelsLastCut.of(workload, config))


TEMPLATES = family(
    "cuda.{pass_}_nhwc",
    GATHERS,
    layout="nhwc",
    most_axes=3,
    any_size=True,
    any_channels=True,
    misfit=strip_misfit,
    space=strip_space,
    **estimated(one_kernel(block_work)),
    schedule=schedule,
)
