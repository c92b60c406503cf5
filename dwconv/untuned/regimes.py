"""Regimes: workloads that want the same configurations, told by a template, the width of the
numbers, and a few classes of sizes."""

from __future__ import annotations

from dwconv.problems.workload import Workload

_SMALL_FLOPS = 4_000_000
"""A pass of fewer takes some tens of microseconds: how many threads run it is a question."""
_LARGE_BYTES = 16 << 20
"""A pass of more waits for memory, or for the last level of the caches."""


def regimes(template: str, workload: Workload) -> tuple[str, ...]:
    """The regimes of a template that a workload belongs to, the narrowest first; the last is the whole of the
    template, for numbers of that width."""
    whole = template if workload.dtype == "float32" else f"{template} 16-bit"
    kernel = f"{whole} kernel {_kernel(workload)}"
    strided = f"{kernel} {'dense' if workload.stride == (1, 1) else 'strided'}"
    return f"{strided} {_size(workload)}", strided, kernel, whole


def _kernel(workload: Workload) -> str:
    height, width = workload.kernel
    if min(height, width) == 1:
        return "row" if height == 1 else "column"
    largest = max(height, width)
    return next((f"to {most}" for most in (3, 5, 7, 15) if largest <= most), "large")


def _size(workload: Workload) -> str:
    if workload.flops <= _SMALL_FLOPS:
        return "small"
    return "large" if workload.bytes > _LARGE_BYTES else "medium"
