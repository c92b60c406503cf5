"""wgrad, NHWC, CPU.

Level one, `parallel="images"`: `tasks` tasks share out the blocks of `block_h` rows of all images; each sums up all
weights into its own part of the workspace, and the parts are then added in order. Or `parallel="channels"`: a task
owns `vectors_c` vectors of channels in all images, and there is nothing to add.
Level two: `group_kh` kernel rows × as many kernel columns as fit are summed in registers, `tile_h` rows × `tile_w`
columns at a time, along the rows or down a strip of columns (`order`): then what kernel rows share stays in the
first-level cache. Lines may be prefetched some rows ahead (`prefetch`). In 1-D blocks are `block_w` columns of single
rows, and the groups of a wide kernel may be a loop (`unroll="group"`).

    x                            dy                    registers: group_kh × KW × vectors_c sums
    ┌─────────────────┐          ┌────────────┐        ┌──────┬──────┬──────┐
    │ ░░░░░░░         │          │            │        │ kw 0 │ kw 1 │ kw 2 │   each dy of a tile is loaded once,
    │ ░░░░░░░  rows   │    ×     │ ▓▓▓▓▓ row  │   ──►  ├──────┼──────┼──────┤   each x once a tile: it meets up to
    │ ░░░░░░░         │          │ tile_w     │        │      │      │      │   min(tile_w, KW) dy
    └─────────────────┘          └────────────┘        └──────┴──────┴──────┘
"""

from __future__ import annotations

from dwconv.schedules.cpu.wgrad_nhwc.estimate import estimate_us
from dwconv.schedules.cpu.wgrad_nhwc.space import weight_gradient_space
from dwconv.schedules.template import family

TEMPLATES = family(
    "cpu.wgrad_nhwc",
    ["wgrad"],
    layout="nhwc",
    most_axes=3,
    any_size=True,
    any_channels=True,
    space=weight_gradient_space,
    kernel=f"{__name__}.kernel",
    estimate_us=estimate_us,
)
