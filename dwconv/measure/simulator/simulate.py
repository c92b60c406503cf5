"""An artifact -> a verdict.

A workload that is too large to be simulated whole is simulated with the same configuration on fewer channels.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from dwconv.errors import InvalidConfig
from dwconv.kernels.artifact import Artifact, Extent
from dwconv.kernels.cpu_build import describe
from dwconv.kernels.cuda_build import lower
from dwconv.kernels.entry import message
from dwconv.kernels.kernel import Kernel
from dwconv.measure.simulator.machine import COUNTED_BLOCKS, SimulatedGpu, SimulatorReport
from dwconv.measure.verify.cases import Case, make_case
from dwconv.measure.verify.verify import verify_runs
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.records.record import Verdict
from dwconv.schedules.template import Candidate

MOST_PRODUCTS = 6_000_000
"""Multiplications of a run: about a quarter of a second."""
MOST_OF_TWO_IMAGES = 32_000_000
"""The limit where two whole images need no more: it costs half a second more, and the very code runs that a GPU would
run."""

_CHANNELS_OF_A_TILE = 64


def products(workload: Workload) -> int:
    return workload.flops // 2


def smaller(candidate: Candidate, target: CudaTarget) -> Candidate:
    """The candidate's configuration on as many channels as MOST_PRODUCTS allows for two images, or on the fewest for
    which it is legal. Rows, columns and all else stay: kernels go wrong at the edges."""
    workload = candidate.workload
    a_channel = max(1, products(workload.with_batch(2)) // workload.channels)
    room = max(1, MOST_PRODUCTS // a_channel)
    legal = candidate
    for channels in _fewer(workload.channels):
        small = dataclasses.replace(workload, channels=channels)
        if candidate.template.misfit(small, target) is not None:
            continue
        try:
            config = candidate.template.space(small, target).check(candidate.config.to_dict())
        except InvalidConfig:
            continue
        legal = Candidate(small, config)
        if channels <= room:
            break
    return legal


def _fewer(channels: int) -> Iterator[int]:
    """Numbers of channels to try, in falling order: divisors, and those with the same rest in a tile."""
    tried = {channels // parts for parts in range(2, channels + 1) if channels % parts == 0}
    tried |= set(range(channels % _CHANNELS_OF_A_TILE, channels, _CHANNELS_OF_A_TILE))
    tried |= {1 << power for power in range(channels.bit_length()) if 1 << power < channels}
    yield from sorted(tried - {0}, reverse=True)


def source_only(candidate: Candidate, target: CudaTarget) -> Artifact:
    """The artifact that ``build`` returns, without machine code."""
    function = candidate.schedule(target).mod["main"]
    arguments = tuple(describe(buffer) for buffer in function.params)
    source, launches = lower(function, arguments, arch=target.arch)
    return Artifact(candidate=candidate, kind="cuda", source=source, arguments=arguments, launches=launches)


message(Verdict)

# Sums over images are the same for a few as for many.
_IMAGES = 4


def simulate(artifact: Artifact, target: CudaTarget, *, folder: Path) -> Verdict:
    """Run all of a small workload, or a few of its images. If the images are too large, run a few blocks, spread over
    the grid, to look for faults; then run the same configuration on fewer channels, to verify it.

    Raises BuildError for a source that cannot be simulated, BrokenInstallation without g++."""
    workload = artifact.candidate.workload
    if batch := _batch(workload):
        return verified(artifact, workload.with_batch(batch), folder=folder)[0]
    verdict = _sampled(artifact, folder=folder)
    if not verdict.right:
        return verdict
    small = smaller(artifact.candidate, target)
    whole = source_only(small, target) if small != artifact.candidate else artifact
    return verified(whole, small.workload.with_batch(_batch(small.workload) or 1), folder=folder)[0]


def _batch(workload: Workload) -> int:
    """How many images to simulate: as many as run quickly, up to the workload's batch, and at least two if possible, to
    see faults between images; 0 if even two are too large."""
    of_one = max(1, products(workload.with_batch(1)))
    two = min(2, workload.batch)
    if two * of_one > MOST_OF_TWO_IMAGES:
        return 0
    return max(two, min(workload.batch, MOST_PRODUCTS // of_one))


def verified(artifact: Artifact, workload: Workload, *, folder: Path) -> tuple[Verdict, SimulatorReport]:
    """Run all of it, and judge it as any other kernel is judged. A fault alone makes it wrong. One of any size runs at
    that of the workload."""
    artifact = artifact.at(workload) if workload.any_size else artifact
    with SimulatedGpu(artifact, folder=folder) as machine:
        verdict = verify_runs(Kernel(artifact, machine, device="cpu"), _case(workload))
        assert machine.report is not None
        return _with_faults(verdict, machine.report), machine.report


@lru_cache(maxsize=4)
def _case(workload: Workload) -> Case:
    return make_case(workload, data="integers")


def _sampled(artifact: Artifact, *, folder: Path) -> Verdict:
    batch = min(artifact.candidate.workload.batch, _IMAGES)
    launch = artifact.launches[0]
    blocks = math.prod(size.at(batch) if isinstance(size, Extent) else size for size in launch.grid)
    of_a_block = max(1, products(artifact.candidate.workload.with_batch(batch)) // blocks)
    with SimulatedGpu(artifact, folder=folder) as machine:
        report = machine.sample(batch=batch, most_blocks=max(2, min(COUNTED_BLOCKS, MOST_PRODUCTS // of_a_block)))
    return _with_faults(Verdict(right=True, max_error=0.0, allowed_error=0.0), report)


def _with_faults(verdict: Verdict, report: SimulatorReport) -> Verdict:
    if report.clean:
        return verdict
    reason = str(report.faults[0])
    return Verdict(right=False, max_error=verdict.max_error, allowed_error=verdict.allowed_error, reason=reason)
