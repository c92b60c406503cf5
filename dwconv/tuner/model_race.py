"""The race before a model's first step, on each device that it uses. The ranks of a distributed job choose alike:

    every rank      the workloads of its model, by device
    one a device    races what any of them needs; the others wait
    every rank      writes the records of the one to its own log, where that does not have it yet

Devices are distinguished by name, so on machines of several kinds there is one race for each kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
import torch.distributed as dist

from dwconv.dispatch import loaded_packs
from dwconv.dispatch.kernel_state import KernelState
from dwconv.dispatch.knowledge import measured
from dwconv.errors import BrokenInstallation, LogError
from dwconv.kernels.artifact import Artifact
from dwconv.problems.block import NOTHING
from dwconv.problems.target import Target, target_of
from dwconv.problems.workload import Workload
from dwconv.records.condense import condensed
from dwconv.records.database import Database
from dwconv.records.line import decode, encode
from dwconv.records.log import TuningLog, log_path
from dwconv.schedules.template import Candidate
from dwconv.system import cpu_facts
from dwconv.system.versions import check_can_build
from dwconv.tuner.expected_gain import MOST_STARTS
from dwconv.tuner.race import race
from dwconv.tuner.race_result import RaceProgress, RaceResult
from dwconv.tuner.race_state import RaceState
from dwconv.tuner.step_time import with_both_gradients

K = TypeVar("K")
T = TypeVar("T")
Counts = Mapping[Workload, int]
"""How often a step runs each workload."""
Race = Callable[[Target, Counts], RaceResult]
_MOST_BUILDERS = 24
"""More build sooner than one process measures."""


def are_several() -> bool:
    """True in a process of a distributed job."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def race_together(counts: Mapping[Target, Counts], *, race: Race) -> list[RaceResult]:
    """The result of the race for each of this rank's devices. Every rank has to call it; all wait for those that
    race."""
    mine = {target.device: dict(each) for target, each in counts.items()}
    of_ranks = gathered(mine)
    own: dict[str, tuple[RaceResult, tuple[bytes, ...]]] = {}
    """With the records that decide, one of each workload."""
    for target in counts:
        name = target.device
        leader = next(rank for rank, theirs in enumerate(of_ranks) if name in theirs)
        if leader == dist.get_rank():
            wanted = _union(theirs.get(name, {}) for theirs in of_ranks)
            result = race(target, wanted)
            own[name] = replace(result, records=()), _lines(wanted, name)
    of_leaders = {name: known for theirs in reversed(gathered(own)) for name, known in theirs.items()}
    return [
        of_leaders[target.device][0] if target.device in own else _written(*of_leaders[target.device], target)
        for target in counts
    ]


def gathered(value: dict[K, T]) -> list[dict[K, T]]:
    """The value of every rank. Every rank has to call it."""
    values: list[dict[K, T]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(values, value)
    return values


def _union(of_ranks: Iterable[Counts]) -> dict[Workload, int]:
    """What any of the ranks runs, and the most that one of them runs it."""
    union: dict[Workload, int] = {}
    for counts in of_ranks:
        for workload, count in counts.items():
            union[workload] = max(count, union.get(workload, 0))
    return union


def _lines(wanted: Counts, device: str) -> tuple[bytes, ...]:
    return tuple(
        encode(record)
        for record in condensed(Database.usual(), keep=1)
        if record.device == device and record.workload in wanted
    )


def _written(result: RaceResult, lines: tuple[bytes, ...], target: Target) -> RaceResult:
    """The result; with what this rank could not write to its own log as its problem."""
    try:
        has = {encode(record) for record in Database.usual() if record.device == target.device}
        if missing := [line for line in lines if line not in has]:
            log = TuningLog(log_path(target))
            with log.locked():
                for line in missing:
                    log.append(decode(line))
    except LogError as error:
        return replace(result, problem=result.problem or str(error))
    return result


def race_for(
    counts: Mapping[torch.device, Counts], *, seconds: float, state: KernelState | None = None
) -> list[RaceResult]:
    """Race the workloads of every device, and write what is measured to the user's own log: a result for each kind of
    device. ``seconds`` is for each of them. ``state``: what this process has learnt of its kernels.

    In a distributed job every rank has to call it. The results say what keeps it from racing; only ctrl-C is
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

    if are_several():
        return race_together(of_targets, race=race_one)
    return [race_one(target, wanted) for target, wanted in of_targets.items()]


def _race_one(target: Target, counts: Counts, *, gpu: int, seconds: float, state: KernelState | None) -> RaceResult:
    builders = None
    try:
        check_can_build()
    except BrokenInstallation as error:
        builders = _Packs(target)
        if not loaded_packs.are_for_every_layer(target):
            return _without_race(target, counts, problem=str(error))
    try:
        log = TuningLog(log_path(target))
    except LogError as error:
        return RaceResult(left=tuple(counts), problem=str(error))
    known = Database.usual().behind(loaded_packs.records(), loaded_packs.logs())
    if not seconds:
        return RaceState(counts, target, known=known, seconds=0.0, state=state).report()
    try:  # late: where kernels come from packs, psutil may be missing
        from dwconv.measure.build_worker import BUILD_FOR_RACE
        from dwconv.measure.runner import WorkerProcesses
    except ImportError as error:
        return _without_race(target, counts, problem=f"a race needs {error.name}; run: pip install {error.name}")

    jobs = min(cpu_facts.cores(), MOST_STARTS)
    if target.kind != "cpu":  # builds do not disturb its clock, so all comparisons are built as soon as they can be
        jobs = max(jobs, min(cpu_facts.cores() - 1, _MOST_BUILDERS))
    given = WorkerProcesses(
        target, jobs=jobs, build=BUILD_FOR_RACE, compiles_calls=False, gpu=gpu, builders=builders,
        kept=lambda candidate: loaded_packs.artifact_of(candidate, target),
    )  # fmt: skip
    with given as workers, RaceProgress() as progress:
        return race(
            counts, target, log=log, seconds=seconds, known=known, workers=workers, state=state, progress=progress
        )


class _Packs:
    """``ArtifactPool`` that take kernels from the packs that are loaded."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def start(self) -> None:
        pass

    def map(self, bodies: Sequence[Candidate], *, timeout_s: float) -> Iterator[tuple[int, Artifact]]:
        coming = iter(bodies)
        yield from self.stream(lambda: next(coming, None), timeout_s=timeout_s)

    def stream(
        self, next_body: Callable[[], Candidate | None], *, timeout_s: float, beside: object = None
    ) -> Iterator[tuple[int, Artifact]]:
        for position in itertools.count():
            if (candidate := next_body()) is None:
                return
            artifact = loaded_packs.artifact_of(candidate, self._target)
            assert artifact is not None, "a pack has all that is raced"
            yield position, artifact

    def kill(self) -> None:
        pass


def _without_race(target: Target, counts: Counts, *, problem: str) -> RaceResult:
    """The workloads that packs have, and those that are left."""
    known = [each for each in counts if any(measured(each, target, current=True))]
    left = tuple(each for each in counts if each not in known and each.block != NOTHING)
    return RaceResult(known=tuple(known), left=left, problem=problem if left else "")
