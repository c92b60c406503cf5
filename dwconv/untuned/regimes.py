"""Regimes: workloads that want the same configurations, told by a template, the sort of workload, and a few classes of
sizes."""

from __future__ import annotations

import math

from dwconv.problems.workload import Workload

_SMALL_FLOPS = 4_000_000
"""A pass of fewer takes some tens of microseconds: how many threads run it is a question."""
_LARGE_BYTES = 16 << 20
"""A pass of more waits for memory, or for the last level of the caches."""


def regimes(template: str, workload: Workload) -> tuple[str, ...]:
    """The regimes of a template that a workload belongs to, the narrowest first; the last is the whole of the
    template, for workloads of that sort. What is best for images is not for single rows; an epilogue changes
    nothing."""
    sort = sort_of(workload.with_epilogue("none"))
    whole = " ".join([template, *["1-D"] * workload.is_row, *sort.split()])
    kernel = f"{whole} kernel {_kernel(workload)}"
    strided = f"{kernel} {'dense' if set(workload.stride) == {1} else 'strided'}"
    return f"{strided} {_size(workload)}", strided, kernel, whole


def sort_of(workload: Workload) -> str:
    """What is learnt apart from the rest: ``3-D``, ``16-bit``, ``3-D 16-bit``, each perhaps with an epilogue; empty for
    float32 in 1-D and 2-D without one."""
    words = ["3-D"] * (workload.axes == 3) + ["16-bit"] * (workload.dtype != "float32")
    return " ".join(words + [workload.epilogue] * (workload.epilogue != "none"))


def _kernel(workload: Workload) -> str:
    *depth, height, width = workload.kernel
    deep = "deep " if math.prod(depth) > 1 else ""
    if min(height, width) == 1:
        return f"{deep}row" if height == 1 else f"{deep}column"
    largest = max(height, width)
    return deep + next((f"to {most}" for most in (3, 5, 7, 15) if largest <= most), "large")


def _size(workload: Workload) -> str:
    if workload.flops <= _SMALL_FLOPS:
        return "small"
    return "large" if workload.bytes > _LARGE_BYTES else "medium"
