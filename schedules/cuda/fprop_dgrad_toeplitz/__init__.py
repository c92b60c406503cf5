"""Banded matrices of weights, CUDA, for wide kernels in 16 bits: products of small matrices on tensor cores.

fprop

Level one: a block is `planes` channels × `images` images × `warps_h` times 16 / `images` strips of `tile_h` rows ×
`warps_w` · `tile_w` columns. It holds the rows of x that they read, and the kernel rows, in shared memory, in 16 bits.
Level two: row m of a product is one strip of one image, and a warp goes down the `tile_h` rows of all 16 at once, in
`tile_w` / 8 products side by side. 16 rows of x times a kernel row, written as a band, are added to 16 rows of y.

    x, one row of 16 strips         a kernel row, as a band         sums, of row r of the strips
    unit 0  unit 1  unit 2            8 columns of y                  8 columns of y
    ┌───────┬───────┬───────┐       ┌─────────────────┐             ┌──────────────────┐
    │ row s of strip 0      │       │ d               │             │ row r, strip 0   │
    │ row s of strip 1      │   ×   │ c d             │     +=      │ row r, strip 1   │      s = r + kh
    │ …                     │       │ b c d           │             │ …                │
    │ row s of strip 15     │       │ a b c d …       │             │ row r, strip 15  │
    └───────┴───────┴───────┘       └─────────────────┘             └──────────────────┘
    loaded once, for all r and      zeros where a column does       in registers
    kh that meet there              not reach

dgrad

Level one: a block is `planes` channels × `images` images × `warps_h` times 16 / `images` strips of `tile_h` rows ×
`warps_w` · `tile_w` columns of dx. It holds the rows of dy that they read, and the kernel rows, in the same way.
Level two: the same products, of dy and kernel rows that are turned round: s = r − kh, and a band that falls.

With `tiles_w` above 1 a row of a product is one of so many tiles of 8 columns side by side, too: strips are fewer and
longer, and a row is loaded for more rows of the result. With `interleave` strips take turns at rows, so that the rows
of a product are neighbours: what is padding for all of them is not multiplied. In NHWC a block has 8 to 64 `planes`,
one vector of each pixel or more, and `warps_c` of them at a time. Its threads take the vectors apart on their way to
shared memory, map by map, and put them together again for the result.
"""

from __future__ import annotations

from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import LAYOUTS, Workload
from dwconv.schedules.cuda.fprop_dgrad_toeplitz.cut import ToeplitzCut
from dwconv.schedules.cuda.fprop_dgrad_toeplitz.estimate import block_work, registers_of
from dwconv.schedules.cuda.fprop_dgrad_toeplitz.space import toeplitz_misfit, toeplitz_space
from dwconv.schedules.cuda.gpu.cost import estimated, one_kernel
from dwconv.schedules.cuda.gpu.hardware import blocks_at_a_time
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.space import Config
from dwconv.schedules.template import family


def schedule(workload: Workload, config: Config, target: CudaTarget) -> Any:
    from dwconv.schedules.cuda.fprop_dgrad_toeplitz.kernel import schedule_products

    cut = ToeplitzCut.of(workload, config)
    return schedule_products(cut, at_a_time=blocks_at_a_time(cut, registers_of(cut), target))


TEMPLATES = tuple(
    template
    for layout in LAYOUTS
    for template in family(
        f"cuda.{{pass_}}_{layout}_toeplitz",
        GATHERS,
        layout=layout,
        spreads_nan=True,
        misfit=toeplitz_misfit,
        space=toeplitz_space,
        **estimated(one_kernel(block_work)),
        schedule=schedule,
    )
)
