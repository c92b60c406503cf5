"""Diagonal sums, CUDA, for wide kernels in 16 bits: products of small matrices on tensor cores.

wgrad

Level one: a block is a channel and every `split_n`-th group of `images` images. Of each it holds strips of `tile_h`
rows of dy, and the rows of x that they meet, in shared memory, in 16 bits.
Level two: a product sums over 16 rows, each of one strip of one image, or `tiles_w` times 8 columns of it: columns of x
times 8 columns of dy. Every warp has some columns, and some kernel rows, of which it keeps the sums; a weight is a
diagonal of them, added up at the end.

    x, row s of 16 strips         dy, row r of 16 strips        sums, for kernel row kh = s − r
      strips, or tiles of them      8 columns                     8 columns of dy
    ┌──────────────────┐          ┌──────────────────┐          ┌──────────────────┐
    │ columns of x     │          │ strip 0          │          │ 0                │     kw = column of x −
    │                  │    ×     │ strip 1          │    +=    │ 1 0              │          column of dy
    │                  │          │ …                │          │ 2 1 0            │
    │                  │          │ strip 15         │          │ … 2 1 0          │     dw[kh, kw]: a diagonal
    └──────────────────┘          └──────────────────┘          └──────────────────┘
    loaded once, for all r        loaded once, for all s        in registers

A matrix is 16 columns of x. Where 8 columns of dy meet an odd number of units of 8 columns, the last one is multiplied
together with that of the next row: the same row of dy meets it at the next kernel row. With a `tile_w` of 16, for maps
of up to 16 columns, a product has the whole row of dy, and x has nothing beside the map.

Where there is a bias, its gradient is dy times ones. The partial sums of the shares are added up by a second kernel,
always in their order. In NHWC a block has 8 or 16 channels, `planes`: its threads take the vectors of a pixel apart on
their way to shared memory, map by map. Many kernel rows are shared out to `blocks_kh` blocks. With a `pipeline` of 2
the pixels of the next group are copied to shared memory while one is multiplied, and warps take them apart there:

    copied: pixels of item i + 1      ◄── while item i is multiplied
      8 pixels × 8 channels  ── loaded as a matrix, turned ──►  8 maps: item i + 1, when i is done
"""

from __future__ import annotations

from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import LAYOUTS, Workload
from dwconv.schedules.cuda.gpu.cost import estimated
from dwconv.schedules.cuda.gpu.hardware import blocks_at_a_time
from dwconv.schedules.cuda.wgrad_toeplitz.cut import ToeplitzGradientCut
from dwconv.schedules.cuda.wgrad_toeplitz.estimate import block_works, registers_of
from dwconv.schedules.cuda.wgrad_toeplitz.space import gradient_misfit, gradient_space
from dwconv.schedules.space import Config
from dwconv.schedules.template import family


def schedule(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.wgrad_toeplitz.kernel import schedule_diagonals

    cut = ToeplitzGradientCut.of(workload, config)
    return schedule_diagonals(cut, at_a_time=blocks_at_a_time(cut, registers_of(cut), target))


TEMPLATES = tuple(
    template
    for layout in LAYOUTS
    for template in family(
        f"cuda.wgrad_{layout}_toeplitz",
        ["wgrad"],
        layout=layout,
        misfit=gradient_misfit,
        space=gradient_space,
        **estimated(block_works),
        schedule=schedule,
    )
)
