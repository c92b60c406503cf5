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

from typing import TYPE_CHECKING

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.weight_gradient_nhwc.cut import WeightCut
from dwconv.schedules.cpu.weight_gradient_nhwc.estimate import estimate_us
from dwconv.schedules.cpu.weight_gradient_nhwc.space import weight_gradient_space
from dwconv.schedules.space import Config
from dwconv.schedules.template import family

if TYPE_CHECKING:
    from tvm import s_tir


def schedule(workload: Workload, config: Config, target: CpuTarget) -> s_tir.Schedule:
    """x (n, H, W, C), dy (n, OH, OW, C·M), dw (C·M, KH, KW), dbias (C·M) if there is a bias and, for
    ``parallel="images"``, workspace (tasks, KH · KW and one more for dbias, C·M in whole vectors)."""
    from dwconv.schedules.cpu.weight_gradient_nhwc.kernel import schedule_weight_gradient

    return schedule_weight_gradient(workload, WeightCut.of(workload, config, target))


TEMPLATES = family(
    "cpu.wgrad_nhwc",
    ["wgrad"],
    layout="nhwc",
    most_axes=3,
    any_size=True,
    any_channels=True,
    space=weight_gradient_space,
    schedule=schedule,
    estimate_us=estimate_us,
)
