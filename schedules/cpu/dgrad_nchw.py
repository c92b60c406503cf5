"""dgrad, NCHW, CPU.

Level one: a task is `block_h` rows of `planes` planes of dx, one after the other; threads share the tasks out.
Level two: a register tile is `tile_h` rows × `vectors_w` vectors of columns × stride_w column phases, its sums in
registers. `stage`: rows of dy are read in place, or first copied to scratch memory with zeros at both sides.

    dx, stride 2, kernel 3      a row of the tile: two phases      stored interleaved
    ┌───┬───┬───┬───┬───┐       phase 0: columns 0 2 4 … tap 1     ┌───┬───┬───┬───┐
    │ 0 │ 1 │ 0 │ 1 │ … │  ──►  phase 1: columns 1 3 5 … taps  ──► │ 0 │ 1 │ 0 │ 1 │ …
    └───┴───┴───┴───┴───┘                0 and 2                   └───┴───┴───┴───┘
    In each phase neighbouring lanes meet neighbouring dy: 3 products a column pair where all taps of both are 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.schedules.cpu.gather_nchw_space import gather_space, misfit, work_lanes
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CpuTarget, Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cpu.dgrad_nchw"


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CpuTarget)
    return gather_space(NAME, Gather.of_input_gradient(workload), workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: dy (n, C·M, OH, OW), w (C·M, KH, KW), dx (n, C, H, W)."""
    from dwconv.schedules.cpu.gather_nchw import schedule_gather_nchw

    assert isinstance(target, CpuTarget)
    work = Gather.of_input_gradient(workload)
    return schedule_gather_nchw(work, config, lanes=work_lanes(work, target))


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cpu", pass_="dgrad", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
