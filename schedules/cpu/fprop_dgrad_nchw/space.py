"""The knobs of the NCHW gather, the rules that make a configuration illegal, and where a search starts. No TVM here."""

from __future__ import annotations

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.fprop_dgrad_nchw.cut import GatherNchwCut, spans_rows
from dwconv.schedules.cpu.shared.limits import (
    SMALL_KERNEL,
    TILE_WITHIN_BLOCK,
    WIDE_KERNEL,
    code_within_limit,
    column_lanes,
    scratch_within_cache,
    sum_registers,
    sums_in_registers,
    thread_knobs,
    vector_count,
)
from dwconv.schedules.cpu.shared.row_blocks import block_heights, preferred_width, tile_sizes, width_knob
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value


def gather_space(name: str, workload: Workload, target: CpuTarget) -> ConfigSpace:
    work = Gather.of(workload)
    rows = work.rows
    return ConfigSpace(
        name,
        Knob("stage", ["none"] if work.axes.is_3d else ["none", "scratch"]),
        Knob("planes", [1, 2, 4, 8, 16]),
        Knob("block_h", block_heights(rows.outputs, multiple=rows.down)),
        width_knob(work.axes),
        Knob("tile_h", tile_sizes((1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), rows)),
        Knob("vectors_w", [count for count in (1, 2, 3, 4, 7) if count <= row_vectors(work, target)]),
        Knob("unroll", unrolling(work)),
        *thread_knobs(workload, target),
        rules=gather_rules(work, target),
        preferred={
            "threads": target.threads,
            **preferred_staging(work),
            "block_h": preferred_block_h(work, batch=workload.batch * work.depths.outputs, threads=target.threads),
            **preferred_tile(work, target),
            **(preferred_row(work, workload, target) if work.axes.is_row else {}),
        },
    )


def unrolling(work: Gather) -> list[str]:
    """Which taps are unrolled: all, or those of a kernel row; of a wide kernel of a single row, some of it."""
    if work.rows.taps > 1:
        return ["taps", "kw"]
    return ["taps", "none"] if spans_rows(work) and work.columns.taps >= WIDE_KERNEL else ["taps"]


def row_vectors(work: Gather, target: CpuTarget) -> int:
    """Vectors of cells in a row."""
    cells = -(-work.columns.outputs // work.columns.down)
    return vector_count(cells, column_lanes(cells, target))


def gather_rules(work: Gather, target: CpuTarget) -> list[Rule]:
    def cut(config: Config) -> GatherNchwCut:
        return GatherNchwCut(work, config, target)

    return [
        TILE_WITHIN_BLOCK,
        Rule("taps in loops read scratch memory", lambda config: config.unroll == "none" and config.stage == "none"),
        Rule(
            "blocks of columns with a stride are read in place",
            lambda config: config.stage != "none" and cut(config).column_blocks > 1 and not spans_rows(work),
        ),
        Rule(
            "planes one after the other share nothing but scratch memory",
            lambda config: config.planes > 1 and config.stage == "none" and config.unroll == "taps",
        ),
        sums_in_registers(
            lambda config: cut(config).sums,
            registers=sum_registers(target),
            smallest_tile=work.rows.down * work.columns.down,
        ),
        scratch_within_cache(lambda config: cut(config).scratch_elements),
        code_within_limit(lambda config: cut(config).code_size),
    ]


def preferred_staging(work: Gather) -> dict[str, Value]:
    if work.axes.is_3d or work.rows.taps * work.columns.taps <= SMALL_KERNEL:
        return {"stage": "none", "planes": 1}
    return {"stage": "scratch", "planes": 4}


def preferred_block_h(work: Gather, *, batch: int, threads: int) -> int:
    """All rows, unless there are too few planes for the threads."""
    planes = batch * (work.channels // work.fan_out)
    blocks = max(1, -(-4 * threads // planes))
    return max(1, work.rows.outputs // blocks)


def preferred_row(work: Gather, workload: Workload, target: CpuTarget) -> dict[str, Value]:
    """Where images are single rows: of a wide kernel as many vectors side by side as find registers for what they read
    beside their sums."""
    planes = workload.batch * (work.channels // work.fan_out)
    block = {"block_w": preferred_width(work.axes, tasks=planes, threads=target.threads)}
    if "none" in unrolling(work):
        return {**block, "stage": "scratch", "planes": 1, "unroll": "none", "vectors_w": 7}
    return {**block, "stage": "none", "planes": 1, "unroll": "taps", "vectors_w": 4 if work.columns.up == 1 else 2}


def preferred_tile(work: Gather, target: CpuTarget) -> dict[str, Value]:
    """About four rows. All of them where they fit into registers, one vector each: then every row of the source is
    loaded once; several tiles would share weights, and spill them."""
    rows, columns = work.rows, work.columns
    tile_h = max(rows.down, 4 // rows.down * rows.down)
    whole = -(-rows.outputs // rows.down) * rows.down
    is_one_vector = row_vectors(work, target) == 1
    if is_one_vector and whole * columns.down <= sum_registers(target) and whole <= 14 // rows.up:
        tile_h = whole
    unroll = "taps" if rows.taps * columns.taps <= 25 else "kw"
    return {"tile_h": tile_h, "vectors_w": 2 if columns.up == 1 else 1, "unroll": unroll}
