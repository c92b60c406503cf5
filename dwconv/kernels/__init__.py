"""From a candidate to a kernel that PyTorch tensors can be passed to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dwconv.kernels.artifact import Artifact
    from dwconv.problems.target import Target
    from dwconv.schedules.template import Candidate


def build(candidate: Candidate, target: Target) -> Artifact:
    """Schedule, lower and compile. Raises InvalidConfig or BuildError, BrokenInstallation without TVM."""
    from dwconv.problems.target import CpuTarget
    from dwconv.system.versions import check_can_build

    check_can_build()
    if isinstance(target, CpuTarget):
        from dwconv.kernels.cpu import build_cpu

        return build_cpu(candidate, target)
    from dwconv.kernels.cuda import build_cuda

    return build_cuda(candidate, target)
