"""A convolution and the LayerNorm of each pixel over its channels, in training, NHWC, CPU.

Level one: forward, a task is `block_h` rows of one image, backward as many rows of dx; it goes down them in strips of
`strip_h` rows, and what is between the convolution and the norm stays in the cache meanwhile.
Level two: the tiles of fprop, dgrad (`tile_h` × `tile_w` × `vectors_c`, in `order`, by `unroll`) and wgrad (`group_kh`
kernel rows, `dy_w` dy, in `dy_order`); for the norm some pixels at a time, each over all of its channels.

    forward                                        backward, a strip
    x              y: a task                z      dz, y           g: an image            dx         strip_h
    ┌─────────┐    ┌────────┬──┬───────┐           ┌─────────┐     ┌────────────────┐ ─►  ┌──────────────────┐
    │ block_h │ ─► │ tiles  │▓▓│       │ ─► rows   │ strip_h │ ─►  │ rows from      │     │ dgrad's tiles    │
    ├─────────┤    │ of fprop: all rows│    of y   └─────────┘     │ strips before  │     └──────────────────┘
    │         │    └────────┴──┴───────┘           new rows        ├────────────────┤ ─►  partial sums of dw,
    └─────────┘                                    of g            │ new rows       │     of the task
                                                   x ───────────►  └────────────────┘
"""

from __future__ import annotations

from dwconv.problems.workload import BLOCK_PASSES
from dwconv.schedules.cpu.layer_norm_nhwc.estimate import estimate_us
from dwconv.schedules.cpu.layer_norm_nhwc.space import layer_norm_space, why_unfit
from dwconv.schedules.template import family

TEMPLATES = family(
    "cpu.layer_norm_{pass_}_nhwc",
    BLOCK_PASSES,
    layout="nhwc",
    any_size=True,
    misfit=why_unfit,
    space=layer_norm_space,
    kernel=f"{__name__}.kernel",
    estimate_us=estimate_us,
)
