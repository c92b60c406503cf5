"""fprop, NCHW, CPU.

Level one: a task is `block_h` rows of `planes` planes, one after the other; tasks are shared out over the threads.
Level two: a register tile is `tile_h` rows × `vectors_w` vectors of neighbouring columns, its sums in registers.
`stage`: rows of x are read in place, or first copied to scratch memory with zeros at both sides. Where there is a
stride, columns are split by phase, in registers or when they are copied. `unroll`: all taps, or a kernel row's ("kw").

    plane                            register tile, tile_h = 3, vectors_w = 2, kernel column kw
    ┌──────┬────────────┬──────┐
    │ left │ interior:  │ right│     x, kw columns on     ▒▒▒▒▒▒▒▒ ▒▒▒▒▒▒▒▒   a loaded vector meets up to KH
    │ edge │ a loop of  │ edge │ ──► ────────────────►    ▒▒▒▒▒▒▒▒ ▒▒▒▒▒▒▒▒   rows of sums, each with another
    │      │ tiles      │      │     sums                 ▓▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓▓   weight, the same in all lanes
    └──────┴────────────┴──────┘                          16 lanes
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

NAME = "cpu.fprop_nchw"


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CpuTarget)
    return gather_space(NAME, Gather.of_convolution(workload), workload, target)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), w (C·M, KH, KW), bias (C·M) if it has one, y (n, C·M, OH, OW)."""
    from dwconv.schedules.cpu.gather_nchw import schedule_gather_nchw

    assert isinstance(target, CpuTarget)
    work = Gather.of_convolution(workload)
    return schedule_gather_nchw(work, config, lanes=work_lanes(work, target))


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cpu", pass_="fprop", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
