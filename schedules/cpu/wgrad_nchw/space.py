"""The knobs of the NCHW weight gradient, the rules that make a configuration illegal, and where a search starts. No
TVM here."""

from __future__ import annotations

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.shared.limits import (
    SMALL_KERNEL,
    TILE_WITHIN_BLOCK,
    WIDE_KERNEL,
    code_within_limit,
    scratch_within_cache,
    sum_registers,
    thread_knobs,
)
from dwconv.schedules.cpu.shared.row_blocks import preferred_width, width_knob
from dwconv.schedules.cpu.shared.weight_gradient import WeightGradient
from dwconv.schedules.cpu.wgrad_nchw.cut import WgradNchwCut
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value, divisors


def weight_gradient_space(name: str, workload: Workload, target: CpuTarget) -> ConfigSpace:
    work, registers = WeightGradient.of(workload), sum_registers(target)
    rows, columns = work.rows, work.columns
    is_small = rows.taps * columns.taps <= SMALL_KERNEL
    widths = group_widths(columns.taps, most=min(16, registers))
    return ConfigSpace(
        name,
        Knob("parallel", ["channels", "planes"]),
        Knob("stage", ["none", "scratch"]),
        Knob("block_h", [rows.outputs // part for part in divisors(rows.outputs, most=8)][::-1]),
        width_knob(work.axes),
        Knob("group_kh", range(1, min(rows.taps, 8) + 1)),
        Knob("group_kw", widths),
        Knob("tile_h", [size for size in (1, 2, 3, 4, 5, 6, 7, 8) if size <= rows.outputs]),
        Knob("unroll", ["kw", "group"] if has_groups(work) else [], absent="kw"),
        *thread_knobs(workload, target),
        rules=weight_gradient_rules(work, target),
        preferred={
            "threads": target.threads,
            "parallel": "planes" if work.channels < 4 * target.threads else "channels",
            "stage": "none" if is_small else "scratch",
            "block_h": rows.outputs,
            "group_kh": max(1, registers // widths[-1]),
            "group_kw": widths[-1],
            "tile_h": 4,
            **(preferred_row(work, workload, target) if work.axes.is_row else {}),
        },
    )


def preferred_row(work: WeightGradient, workload: Workload, target: CpuTarget) -> dict[str, Value]:
    """Where images are single rows: in blocks, unless there are channels for all threads."""
    columns, tasks = work.columns.outputs, workload.batch * work.channels
    by_planes = work.channels < 4 * target.threads
    width = preferred_width(work.axes, tasks=tasks, threads=target.threads) if by_planes else columns
    if not has_groups(work):
        return {"block_w": width}
    return {"block_w": width, "stage": "none", "unroll": "group" if work.columns.taps >= MANY_TAPS else "kw"}


MANY_TAPS = 64
"""From so many on, a kernel of one row starts from groups in a loop: unrolled, they are long code."""


def has_groups(work: WeightGradient) -> bool:
    """Whether groups of kernel columns may be a loop: those of a wide kernel of a single row, without a stride."""
    return work.axes.is_row and work.columns.up == 1 and work.columns.taps >= WIDE_KERNEL


def group_widths(taps_w: int, *, most: int) -> list[int]:
    """Kernel columns of a group: all, or equal parts of them, up to ``most``."""
    parts = range(1, taps_w + 1)
    return sorted({-(-taps_w // part) for part in parts if -(-taps_w // part) <= most})


def weight_gradient_rules(work: WeightGradient, target: CpuTarget) -> list[Rule]:
    def cut(config: Config) -> WgradNchwCut:
        return WgradNchwCut(work, config, target)

    registers, taps_w = sum_registers(target), work.columns.taps
    return [
        Rule(
            f"more sums and dy than {registers + 4} registers",
            lambda config: (
                config.group_kh * config.group_kw > registers
                or config.group_kh * config.group_kw + config.tile_h > registers + 4
            ),
        ),
        TILE_WITHIN_BLOCK,
        Rule(
            "tasks that own channels make no partial sums and no blocks of columns",
            lambda config: config.parallel == "channels" and cut(config).column_blocks > 1,
        ),
        Rule(
            "more partial sums than dy has numbers",
            lambda config: cut(config).column_blocks > 1 and cut(config).column_blocks * taps_w > work.columns.outputs,
        ),
        Rule(
            "blocks of columns, and groups of taps in a loop, read x in place",
            lambda config: config.stage != "none" and (cut(config).column_blocks > 1 or cut(config).unroll == "group"),
        ),
        Rule(
            "rows in blocks save nothing where x is read in place, once",
            lambda config: config.stage == "none" and config.block_h != work.rows.outputs and cut(config).is_one_group,
        ),
        scratch_within_cache(lambda config: cut(config).scratch_elements),
        code_within_limit(lambda config: cut(config).code_size),
    ]
