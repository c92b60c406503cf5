"""fprop and dgrad, NHWC, CPU.

Level one: a task is `block_h` rows of one image, in `block_c` channels; tasks are shared out over the threads.
Level two: a register tile is `tile_h` rows × `tile_w` columns × `vectors_c` vectors of channels, its sums in registers.
Between the two, tiles follow each other in `order`. `unroll`: all taps, those of a kernel row ("kw"), or none.
Columns of a tile may lie a wide dilation apart (`tile_step`; apart.py draws it), so that taps share what they read.
A result too large for the caches may go past them (`store`). In 1-D a task is `block_w` columns of a single row.
In 3-D a task takes rows of one plane, and each tile sums over the planes of the source that it meets.

fprop:

    image             task                               register tile
    ┌─────────┐       ┌──────┬───────────────┬───────┐          ┌───────┬───────┬───────┐
    │ block_h │       │ left │ interior: a   │ right │   tile_h │ v0 v1 │ v0 v1 │ v0 v1 │  v: a vector of channels;
    ├─────────┤  ──►  │ edge │ loop of tiles │ edge  │   ──►    ├───────┼───────┼───────┤  each x is loaded once, and
    │ block_h │       ├──────┼───────────────┼───────┤          │ v0 v1 │ v0 v1 │ v0 v1 │  added to all sums it meets
    └─────────┘       └──────┴───────────────┴───────┘          └───────┴───────┴───────┘
                                                                         tile_w

dgrad, the same on dx. Tiles are multiples of the stride: each of their positions has its own taps, the same in every
tile, and no others.

    dx, stride 2, kernel 3          register tile, tile_h = tile_w = 2
    ┌────┬────┬────┬────┐           ┌──────────────┬──────────────┐
    │ a b│ a b│ a b│ a b│           │ a: tap 1,1   │ b: taps 1,0  │      dy meets each tap of each position in its
    │ c d│ c d│ c d│ c d│    ──►    │              │     and 1,2  │      phase: 1 + 2 + 2 + 4 = 9 products for four
    ├────┼────┼────┼────┤           ├──────────────┼──────────────┤      dx, where all taps in all phases are 36
    │ a b│ a b│ a b│ a b│           │ c: taps 0,1  │ d: taps 0,0  │
    │ c d│ c d│ c d│ c d│           │     and 2,1  │ 0,2 2,0 2,2  │
    └────┴────┴────┴────┘           └──────────────┴──────────────┘
"""

from __future__ import annotations

from dwconv.schedules.cpu.fprop_dgrad_nhwc.estimate import estimate_us
from dwconv.schedules.cpu.fprop_dgrad_nhwc.space import gather_space
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.template import family

TEMPLATES = family(
    "cpu.{pass_}_nhwc",
    GATHERS,
    layout="nhwc",
    most_axes=3,
    activates=True,
    any_size=True,
    any_channels=True,
    space=gather_space,
    kernel=f"{__name__}.kernel",
    estimate_us=estimate_us,
)
