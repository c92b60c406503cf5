"""The knobs of a convolution with its LayerNorm, the rules that make a configuration illegal, and where a search
starts. No TVM here."""

from __future__ import annotations

import math
from collections.abc import Callable

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.fprop_dgrad_nhwc.space import ORDERS, TILE_WIDTHS, gather_rules, preferred_tile, unrolling
from dwconv.schedules.cpu.layer_norm_nhwc.cut import LayerNormCut, gather_config, weight_config
from dwconv.schedules.cpu.shared.limits import code_within_limit, thread_knobs
from dwconv.schedules.cpu.shared.row_blocks import block_heights, preferred_block, tile_sizes
from dwconv.schedules.cpu.shared.weight_gradient import WeightGradient
from dwconv.schedules.cpu.wgrad_nhwc.space import preferred_tile as preferred_taps
from dwconv.schedules.cpu.wgrad_nhwc.space import weight_gradient_rules
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, Value

DY_WIDTHS = (1, 2, 3, 4, 7, 8, 14)
MOST_GRADIENT_BYTES = 1 << 26
"""Of the gradient of an image of y, which every thread holds."""


def why_unfit(workload: Workload, target: CpuTarget) -> str | None:
    assert workload.block is not None
    if not workload.block.layer_norm:
        return "it is for a LayerNorm after the convolution"
    if workload.multiplier > 1:
        return "blocks have no channel multiplier"
    held_bytes = 4 * workload.channels * math.prod(workload.output_size)
    if workload.pass_ == "backward" and held_bytes > MOST_GRADIENT_BYTES:
        return f"the gradient of an image takes {held_bytes} bytes, more than the {MOST_GRADIENT_BYTES} of a thread"
    return None


def layer_norm_space(name: str, workload: Workload, target: CpuTarget) -> ConfigSpace:
    return (_forward_space if workload.pass_ == "forward" else _backward_space)(name, workload, target)


def _forward_space(name: str, workload: Workload, target: CpuTarget) -> ConfigSpace:
    work = Gather.of(workload.convolution("fprop"))
    rows = work.rows.outputs
    return ConfigSpace(
        name,
        Knob("block_h", block_heights(rows)),
        *_tile_knobs(work),
        *thread_knobs(workload, target),
        rules=_rules_of_tiles(work, workload, target),
        preferred={
            "threads": target.threads,
            "block_h": preferred_block(rows, batch=workload.batch, threads=target.threads),
            **_preferred_tile(work, target),
        },
    )


def _backward_space(name: str, workload: Workload, target: CpuTarget) -> ConfigSpace:
    work, taps = Gather.of(workload.convolution("dgrad")), WeightGradient.of(workload.convolution("wgrad"))
    rows, dy = work.rows, taps.columns.outputs
    by_image = workload.batch >= 2 * target.threads
    block_h = rows.outputs if by_image else preferred_block(rows.outputs, batch=workload.batch, threads=target.threads)
    weights = preferred_taps(taps, target)
    return ConfigSpace(
        name,
        Knob("block_h", block_heights(rows.outputs, multiple=rows.down)),
        Knob("strip_h", block_heights(rows.outputs, multiple=rows.down)),
        *_tile_knobs(work),
        Knob("group_kh", range(1, min(taps.rows.taps, 7) + 1)),
        Knob("dy_w", [size for size in DY_WIDTHS if size <= dy]),
        Knob("dy_order", ["hw", "wh"]),
        *thread_knobs(workload, target),
        rules=[
            Rule("a strip is higher than its block", lambda config: config.strip_h > config.block_h),
            *_rules_of_tiles(work, workload, target),
            *(
                _of(rule, lambda config: weight_config(workload, config))
                for rule in weight_gradient_rules(taps, target)
            ),
            code_within_limit(lambda config: _code_size(LayerNormCut(workload, config, target))),
        ],
        preferred={
            "threads": target.threads,
            "block_h": block_h,
            "strip_h": min(block_h, 14),
            **_preferred_tile(work, target),
            "group_kh": weights["group_kh"],
            "dy_w": weights["tile_w"],
            "dy_order": weights["order"],
        },
    )


def _tile_knobs(work: Gather) -> list[Knob]:
    return [
        Knob("tile_h", tile_sizes((1, 2, 3, 4), work.rows)),
        Knob("tile_w", tile_sizes(TILE_WIDTHS, work.columns)),
        Knob("vectors_c", [1, 2, 3, 4]),
        Knob("order", ORDERS),
        Knob("unroll", unrolling(work)),
    ]


def _rules_of_tiles(work: Gather, workload: Workload, target: CpuTarget) -> list[Rule]:
    return [_of(rule, lambda config: gather_config(workload, config)) for rule in gather_rules(work, target)]


def _of(rule: Rule, config_of: Callable[[Config], Config]) -> Rule:
    """The rule of another family."""
    return Rule(rule.reason, lambda config: rule.broken(config_of(config)))


def _preferred_tile(work: Gather, target: CpuTarget) -> dict[str, Value]:
    """Those of the pass alone, rows outermost: a task has all channels."""
    tile = preferred_tile(work, target)
    return {**tile, "order": "hwc" if tile["order"] == "wch" else "hcw"}


def _code_size(cut: LayerNormCut) -> int:
    return cut.gather.code_size + cut.weights.code_size
