"""From a candidate to a kernel that PyTorch tensors can be passed to."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dwconv.kernels.artifact import Artifact
    from dwconv.problems.target import CpuTarget, Target
    from dwconv.schedules.template import Candidate


@lru_cache(maxsize=4096)
def compiled_for(candidate: Candidate, target: CpuTarget) -> CpuTarget:
    """What a kernel for ``target`` is compiled for: one for every layer for all CPUs with these vectors, as their pack
    has it, if its configuration is legal there."""
    from dwconv.errors import InvalidConfig
    from dwconv.problems.target import pack_target
    from dwconv.schedules.template import fitting

    workload, config = candidate.workload, candidate.config
    packed = pack_target(target) if workload.any_channels and target.present else None
    if packed is None:
        return target
    try:
        fitting(config.template, workload, packed).space(workload, packed).check(config.to_dict())
    except InvalidConfig:
        return target
    return packed


def build(candidate: Candidate, target: Target) -> Artifact:
    """Schedule, lower and compile. Raises InvalidConfig or BuildError, BrokenInstallation without TVM."""
    from dwconv.problems.target import CpuTarget, compiled_for_gpu
    from dwconv.system.versions import check_can_build

    check_can_build()
    if isinstance(target, CpuTarget):
        from dwconv.kernels.cpu_build import build_cpu

        return build_cpu(candidate, compiled_for(candidate, target))
    from dwconv.kernels.cuda_build import build_cuda

    return build_cuda(candidate, compiled_for_gpu(target))
