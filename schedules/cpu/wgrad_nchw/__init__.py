"""wgrad, NCHW, CPU.

Level one, `parallel="channels"`: a task owns one channel in all images, and there is nothing to add. Or
`parallel="planes"`: a task is one channel of one image; what the images give is then added in order.
Level two: `tile_h` rows × one vector of dy stay in registers, with the sums of `group_kh` × `group_kw` taps.
`stage`: `block_h` rows of x are read in place, or first copied to scratch memory, columns split by phase.
In 1-D a task by planes is `block_w` columns of a single row, and the groups of a wide kernel may be a loop
(`unroll="group"`).

    x, kw columns on              dy                         registers
    ┌─────────────────┐           ┌────────────┐             ┌──────┬──────┬──────┐
    │ ░░░░░░░░        │           │ ▓▓▓▓▓▓▓▓   │             │ kw 0 │ kw 1 │ kw 2 │  group_kh × group_kw vectors of
    │ ░░░░░░░░        │     ×     │ ▓▓▓▓▓▓▓▓   │ tile_h ──►  ├──────┼──────┼──────┤  sums; their lanes are added up
    │ ░░░░░░░░        │           │            │             │      │      │      │  once, at the end
    │ ░░░░░░░░        │           │            │             └──────┴──────┴──────┘
    └─────────────────┘           └────────────┘
"""

from __future__ import annotations

from dwconv.schedules.cpu.shared.limits import plane_misfit
from dwconv.schedules.cpu.wgrad_nchw.estimate import estimate_us
from dwconv.schedules.cpu.wgrad_nchw.space import weight_gradient_space
from dwconv.schedules.template import family

TEMPLATES = family(
    "cpu.wgrad_nchw",
    ["wgrad"],
    layout="nchw",
    most_axes=3,
    any_size=True,
    any_channels=True,
    misfit=plane_misfit,
    space=weight_gradient_space,
    kernel=f"{__name__}.kernel",
    estimate_us=estimate_us,
    version=2,
)
