"""Features: a workload, or a workload with a configuration, as numbers that trees can learn from.

They describe the problem and how it is cut, never the device: what is learnt on one is used on others.
"""

from __future__ import annotations

import math

from dwconv.problems.workload import ALL_PASSES, Workload
from dwconv.schedules.space import Config

_WORDS = ("none", "kw", "taps", "scratch", "images", "channels", "planes", "cached", "streamed", "group")
"""Values of knobs that are words; others are orders of loops, told apart by their letters."""


def of_workload(workload: Workload) -> list[float]:
    """The sizes, as powers of two, and what does not fill vectors."""
    (*depth_taps, kernel_h, kernel_w), (*depths, out_h, out_w) = workload.kernel, workload.output_size
    return [
        float(ALL_PASSES.index(workload.pass_)),
        float(workload.layout == "nhwc"),
        math.log2(kernel_h),
        math.log2(kernel_w),
        math.log2(math.prod(workload.kernel)),
        math.log2(math.prod(workload.stride)),
        math.log2(math.prod(workload.dilation)),
        math.log2(workload.multiplier),
        math.log2(workload.channels),
        float(workload.channels % 8 != 0),
        float(workload.channels % 16 != 0),
        math.log2(out_h),
        math.log2(out_w),
        out_w % 16 / 16,
        math.log2(workload.batch),
        math.log2(workload.bytes),
        math.log2(workload.flops),
        float(workload.padding[-1][0] != workload.padding[-1][1]),
        float(workload.bias),
        float(workload.dtype == "bfloat16"),
        float(workload.dtype == "float16"),
        math.log2(math.prod(depth_taps)),
        math.log2(math.prod(depths)),
    ]


def of_candidate(workload: Workload, config: Config, *, knobs: tuple[str, ...]) -> list[float]:
    """The workload's features, the template's ``knobs``, and how many tiles those make of the axis in their name, and
    what of the last tile is wasted. NaN for a knob that the configuration has not."""
    values = config.to_dict()
    *_, height, width = workload.result_size
    *_, kernel_h, kernel_w = workload.kernel
    extents = {"h": height, "w": width, "c": workload.out_channels, "kh": kernel_h, "kw": kernel_w}
    row = of_workload(workload)
    for name in knobs:
        value, extent = values.get(name), extents.get(name.rpartition("_")[2])
        row.append(_number(value))
        if extent is not None and isinstance(value, int) and value > 0:
            row += [math.log2(extent / value), -(-extent // value) * value / extent]
        elif extent is not None:
            row += [math.nan, math.nan]
    return row


def _number(value: int | str | None) -> float:
    if value is None:
        return math.nan
    if isinstance(value, int):
        return math.log2(value) if value > 0 else float(value - 1)
    return float(_WORDS.index(value)) if value in _WORDS else float(sum(map(ord, value[-1:])))
