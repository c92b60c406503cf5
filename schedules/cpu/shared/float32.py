"""The type that the CPU kernels compute in. No TVM here."""

from __future__ import annotations

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload


def float32_misfit(workload: Workload, _: CpuTarget) -> str | None:
    """Why a workload's type rules it out; None if it does not."""
    return None if workload.dtype == "float32" else f"it computes float32, not {workload.dtype}"
