"""wgrad, NCHW, CPU.

Level one, `parallel="channels"`: a task owns one channel in all images, and there is nothing to add. Or
`parallel="planes"`: a task is one channel of one image; what the images give is then added in order.
Level two: `tile_h` rows × one vector of dy stay in registers, with the sums of `group_kh` × `group_kw` taps.
`stage`: `block_h` rows of x are read in place, or first copied to scratch memory, columns split by phase.

    x, kw columns on              dy                         registers
    ┌─────────────────┐           ┌────────────┐             ┌──────┬──────┬──────┐
    │ ░░░░░░░░        │           │ ▓▓▓▓▓▓▓▓   │             │ kw 0 │ kw 1 │ kw 2 │  group_kh × group_kw vectors of
    │ ░░░░░░░░        │     ×     │ ▓▓▓▓▓▓▓▓   │ tile_h ──►  ├──────┼──────┼──────┤  sums; their lanes are added up
    │ ░░░░░░░░        │           │            │             │      │      │      │  once, at the end
    │ ░░░░░░░░        │           │            │             └──────┴──────┴──────┘
    └─────────────────┘           └────────────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwconv.schedules.cpu import sizes
from dwconv.schedules.cpu.correlate_nchw_space import code_size, group_widths, tap_parts
from dwconv.schedules.cpu.gather_nchw_space import MOST_SCRATCH, lanes_along, misfit
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, divisors
from dwconv.schedules.taps import Axis
from dwconv.schedules.template import ScheduleTemplate
from dwconv.target import CpuTarget, Target
from dwconv.workload import Workload

if TYPE_CHECKING:
    from tvm import s_tir

NAME = "cpu.wgrad_nchw"


def space(workload: Workload, target: Target) -> ConfigSpace:
    assert isinstance(target, CpuTarget)
    rows, columns = Axis.of_convolution(workload, 0), Axis.of_convolution(workload, 1)
    lanes = lanes_along(columns.outputs, target)
    registers = sizes.sum_registers(target)
    small = rows.taps * columns.taps <= 81
    group_kw = group_widths(columns.taps, most=min(16, registers))
    few = workload.out_channels < 4 * target.threads
    return ConfigSpace(
        NAME,
        Knob("parallel", ["channels", "planes"]),
        Knob("stage", ["none", "scratch"]),
        Knob("block_h", [rows.outputs // part for part in divisors(rows.outputs, most=8)][::-1]),
        Knob("group_kh", range(1, min(rows.taps, 8) + 1)),
        Knob("group_kw", group_kw),
        Knob("tile_h", [size for size in (1, 2, 3, 4, 5, 6, 7, 8) if size <= rows.outputs]),
        *sizes.thread_knob(workload, target),
        rules=[
            Rule(
                f"more sums and dy than {registers + 4} registers",
                lambda config: (
                    config.group_kh * config.group_kw > registers
                    or config.group_kh * config.group_kw + config.tile_h > registers + 4
                ),
            ),
            Rule(
                "a tile is higher than its block",
                lambda config: config.tile_h > config.block_h,
            ),
            Rule(
                "rows in blocks save nothing where x is read in place, once",
                lambda config: (
                    config.stage == "none"
                    and config.block_h != rows.outputs
                    and tap_parts(rows.taps, columns.taps, config).one
                ),
            ),
            Rule(
                "too much scratch memory for a cache",
                lambda config: scratch_elements(rows, columns, config) > MOST_SCRATCH,
            ),
            Rule(
                "too much code: it takes long to compile",
                lambda config: code_size(rows, columns, config, lanes=lanes) > sizes.MOST_CODE,
            ),
        ],
        preferred={
            "threads": target.threads,
            "parallel": "planes" if few else "channels",
            "stage": "none" if small else "scratch",
            "block_h": rows.outputs,
            "group_kh": max(1, registers // group_kw[-1]),
            "group_kw": group_kw[-1],
            "tile_h": 4,
        },
    )


def scratch_elements(rows: Axis, columns: Axis, config: Config) -> int:
    """About how many floats of x a task holds in scratch memory."""
    return 0 if config.stage == "none" else rows.spanned(config.block_h)[1] * (columns.inputs + columns.taps)


def schedule(workload: Workload, config: Config, target: Target) -> s_tir.Schedule:
    """Parameters: x (n, C, H, W), dy (n, C·M, OH, OW), dw (C·M, KH, KW), dbias (C·M) if there is a bias and,
    for ``parallel="planes"``, workspace (n, C·M, KH, KW) and workspace_1 (n, C·M) for the bias."""
    from dwconv.schedules.cpu.correlate_nchw import schedule_correlation_nchw

    assert isinstance(target, CpuTarget)
    return schedule_correlation_nchw(workload, config, lanes=lanes_along(workload.output_size[1], target))


TEMPLATE = ScheduleTemplate(
    name=NAME, device="cpu", pass_="wgrad", layout="nchw", misfit=misfit, space=space, schedule=schedule
)
