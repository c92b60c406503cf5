"""fprop and dgrad, NCHW, CPU.

Level one: a task is `block_h` rows of `planes` planes, one after the other; tasks are shared out over the threads.
Level two: a register tile is `tile_h` rows × `vectors_w` vectors of neighbouring columns × stride_w column phases of a
strided gradient, its sums in registers.
`stage`: rows of the source are read in place, or first copied to scratch memory with zeros at both sides. Where there
is a stride, columns are split by phase, in registers or when they are copied. `unroll`: all taps, or those of a kernel
row ("kw"). In 3-D each tile sums over the planes of the source that it meets, rows read in place. In 1-D a task is
`block_w` columns of a single row; of a wide kernel, taps whole vectors apart are unrolled ("none"): what one of them
reads for a vector of results the next reads for its neighbour.

fprop:

    plane                            register tile, tile_h = 3, vectors_w = 2, kernel column kw
    ┌──────┬────────────┬──────┐
    │ left │ interior:  │ right│     x, kw columns on     ▒▒▒▒▒▒▒▒ ▒▒▒▒▒▒▒▒   a loaded vector meets up to KH
    │ edge │ a loop of  │ edge │ ──► ────────────────►    ▒▒▒▒▒▒▒▒ ▒▒▒▒▒▒▒▒   rows of sums, each with another
    │      │ tiles      │      │     sums                 ▓▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓▓   weight, the same in all lanes
    └──────┴────────────┴──────┘                          16 lanes

dgrad, the same on dx:

    dx, stride 2, kernel 3      a row of the tile: two phases      stored interleaved
    ┌───┬───┬───┬───┬───┐       phase 0: columns 0 2 4 … tap 1     ┌───┬───┬───┬───┐
    │ 0 │ 1 │ 0 │ 1 │ … │  ──►  phase 1: columns 1 3 5 … taps  ──► │ 0 │ 1 │ 0 │ 1 │ …
    └───┴───┴───┴───┴───┘                0 and 2                   └───┴───┴───┴───┘
    In each phase neighbouring lanes meet neighbouring dy: 3 products a column pair where all taps of both are 6.
"""

from __future__ import annotations

from dwconv.schedules.cpu.fprop_dgrad_nchw.estimate import estimate_us
from dwconv.schedules.cpu.fprop_dgrad_nchw.space import gather_space
from dwconv.schedules.cpu.shared.limits import plane_misfit
from dwconv.schedules.gather import GATHERS
from dwconv.schedules.template import family

TEMPLATES = family(
    "cpu.{pass_}_nchw",
    GATHERS,
    layout="nchw",
    most_axes=3,
    activates=True,
    any_size=True,
    any_channels=True,
    misfit=plane_misfit,
    space=gather_space,
    kernel=f"{__name__}.kernel",
    estimate_us=estimate_us,
)
