"""A block in training, NHWC, CUDA: act2(norm2(conv(act1(norm1(x))))) and its gradients; norms are BatchNorms with the
statistics of the batch.

Level one: a block of threads owns `threads_h` × `threads_w` tiles side by side, then those below, down the images: one
of `split` shares of them, in `threads_c` vectors of channels. What the convolution reads, `act1(norm1(x))` or the
gradient of y, it stages in shared memory with its halo, and zeros around. Kernels that go from pixel to pixel have
`parts` parts of all pixels, `threads_p` of them side by side.
Level two: a thread owns `tile_h` × `tile_w` pixels of `vector_c` channels, its sums in registers; those of weights and
statistics stay there through all of its tiles. `blocks_per_sm`: how many registers it may have.

    x                      patch, zeros around         y                     forward: 5 passes over memory
    ┌─────────────────┐    ┌───────────────┐           ┌──────┬──────┐       x · x y · y z
    │ norm1, act1 of  │ ─► │ 0 0 0 0 0 0 0 │  taps     │ t 0  │ t 1  │       backward: 9
    │ a tile and its  │    │ 0 ░ ░ ░ ░ ░ ░ │ ─►        ├──────┼──────┤       dz y · dz y x dx · dx x dx
    │ halo            │    │ 0 ░ ░ ░ ░ ░ ░ │           │ t 2  │ t 3  │       Between kernels, at each ·, another one
    └─────────────────┘    └───────────────┘           └──────┴──────┘       adds the parts' sums up.
"""

from __future__ import annotations

from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import BLOCK_PASSES, Workload
from dwconv.schedules.cuda.block_nhwc.cut import BlockCut
from dwconv.schedules.cuda.block_nhwc.estimate import block_works
from dwconv.schedules.cuda.block_nhwc.space import block_space, why_unfit
from dwconv.schedules.cuda.gpu.cost import estimated
from dwconv.schedules.space import Config
from dwconv.schedules.template import family


def schedule(workload: Workload, config: Config, target: CudaTarget) -> Any:
    cut = BlockCut.of(workload, config)
    if cut.is_forward:
        from dwconv.schedules.cuda.block_nhwc.forward import schedule_forward

        return schedule_forward(cut)
    from dwconv.schedules.cuda.block_nhwc.backward import schedule_backward

    return schedule_backward(cut)


TEMPLATES = family(
    "cuda.block_{pass_}_nhwc",
    BLOCK_PASSES,
    layout="nhwc",
    misfit=why_unfit,
    space=block_space,
    **estimated(lambda workload, config, target: block_works(BlockCut.of(workload, config), target)),
    schedule=schedule,
)
