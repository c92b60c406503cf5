"""The race before a model's first step, on each device that it uses, together with the other ranks of a
distributed job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from dwconv.dispatch import packed
from dwconv.dispatch.decide import target_of
from dwconv.dispatch.kernel_state import KernelState
from dwconv.dispatch.knowledge import measured
from dwconv.errors import BrokenInstallation, LogError
from dwconv.kernels.artifact import Artifact
from dwconv.problems.block import NOTHING
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.schedules.template import Candidate
from dwconv.system.versions import check_can_build
from dwconv.tuner.expected_gain import MOST_STARTS, with_both_gradients
from dwconv.tuner.race import ranks
from dwconv.tuner.race.race_result import RaceResult
from dwconv.tuner.race.ranks import Counts


def race_for(
    counts: Mapping[torch.device, Counts], *, seconds: float, state: KernelState | None = None
) -> list[RaceResult]:
    """Race the workloads of every device, and write what is measured to the user's own log: a result for each kind of
    device. ``seconds`` is for each of them. ``state``:
    what this process has learnt of its kernels.

    In a distributed job every rank has to call it. Whatever keeps it from racing is told by the results; only ctrl-C is
    raised."""
    of_targets: dict[Target, dict[Workload, int]] = {}
    gpus: dict[Target, int] = {}
    for device, workloads in counts.items():
        target = target_of(device)
        gpus.setdefault(target, device.index or 0)
        of_target = of_targets.setdefault(target, {})
        for workload, count in workloads.items():
            of_target[workload] = of_target.get(workload, 0) + count
    of_targets = {target: with_both_gradients(wanted, target) for target, wanted in of_targets.items()}

    def race_one(target: Target, wanted: Counts) -> RaceResult:
        return _race_one(target, wanted, gpu=gpus[target], seconds=seconds, state=state)

    if ranks.are_several():
        return ranks.race_together(of_targets, race=race_one)
    return [race_one(target, wanted) for target, wanted in of_targets.items()]


def _race_one(target: Target, counts: Counts, *, gpu: int, seconds: float, state: KernelState | None) -> RaceResult:
    builders = None
    try:
        check_can_build()
    except BrokenInstallation as error:
        builders = _Packs(target)
        if not packed.are_for_every_layer():
            return _without_race(target, counts, problem=str(error))
    try:
        log = TuningLog(log_path(target))
    except LogError as error:
        return RaceResult(left=tuple(counts), problem=str(error))
    try:  # late: where kernels come from packs, psutil and rich may be missing
        from dwconv.measure.building import BUILD_CACHED
        from dwconv.measure.clock import contention
        from dwconv.measure.runner import Workers
        from dwconv.tuner.race.race import race
        from dwconv.tuner.race.race_progress import RaceProgress
    except ImportError as error:
        return _without_race(target, counts, problem=f"a race needs {error.name}; run: pip install {error.name}")

    known = Database.usual().behind(packed.records(), packed.logs())
    jobs = min(contention.cores(), MOST_STARTS)
    with (
        Workers(target, jobs=jobs, build=BUILD_CACHED, compiles_calls=False, gpu=gpu, builders=builders) as workers,
        RaceProgress() as progress,
    ):
        return race(
            counts, target, log=log, seconds=seconds, known=known, workers=workers, state=state, progress=progress
        )


class _Packs:
    """``Builders`` that take kernels from the packs that are loaded."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def start(self) -> None:
        pass

    def map(self, bodies: Sequence[Candidate], *, timeout_s: float) -> Iterator[tuple[int, Artifact]]:
        for position, candidate in enumerate(bodies):
            artifact = packed.artifact_of(candidate, self._target)
            assert artifact is not None, "a pack has all that is raced"
            yield position, artifact

    def kill(self) -> None:
        pass


def _without_race(target: Target, counts: Counts, *, problem: str) -> RaceResult:
    """The workloads that packs tell of, and those that are left."""
    known = [each for each in counts if any(measured(each, target, current=True))]
    left = tuple(each for each in counts if each not in known and each.block != NOTHING)
    return RaceResult(known=tuple(known), left=left, problem=problem if left else "")
