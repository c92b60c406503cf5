"""Shape: the form that a plan is to have, and the ranks that there are; the ways to divide them among stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from dwconv.errors import NoPlan
from dwconv.parallel.planning.pipeline_plan import Link, check_schedule

MICROBATCHES_A_RANK = 2
_INTERLEAVED_STAGES_A_RANK = 2
_ANY_SCHEDULE = ("1f1b", "gpipe", "interleaved", "zero-bubble")
"""Of schedules that are as fast, the first stays."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The requested form of a plan, and the ranks that there are."""

    world: int
    link: Link
    microbatches: int
    """All that the batch is cut into."""
    schedule: str | None = None
    """None for any."""
    stages: int | None = None
    """None for any number."""
    replicas: int | None = None
    """Of every stage; None for any, also for numbers that differ from stage to stage."""
    splits: bool = True
    """Whether backward passes can be split in two, as ``zero-bubble`` does. False leaves it out where any will do."""
    evenly: bool = False
    """Whether the microbatches share out evenly over the replicas of every stage, as ``sync_bn`` needs it."""
    memory_bytes: int | None = None
    """The memory of each rank; None if it does not matter."""

    def of_one_schedule(self) -> list[Shape]:
        """This shape with each schedule that it allows, and of which there is such a plan for some model. Raises NoPlan
        if there is none."""
        if self.schedule is not None:
            self._check()
            return [self]
        found: list[Shape] = []
        errors: list[NoPlan] = []
        for schedule in _ANY_SCHEDULE:
            shape = replace(self, schedule=schedule)
            if schedule == "zero-bubble" and not self.splits:
                continue
            if shape.stages_per_rank > 1 and self.stages == shape.stages_per_rank:  # of one rank, which is no pipeline
                continue
            try:
                shape._check()
                found.append(shape)
            except NoPlan as error:
                errors.append(error)
        if not found:
            raise errors[0]
        return found

    @property
    def stages_per_rank(self) -> int:
        """Two for ``interleaved``."""
        return _INTERLEAVED_STAGES_A_RANK if self.schedule == "interleaved" else 1

    def stage_counts(self) -> list[int]:
        """The numbers of stages for which there is a way to divide the ranks."""
        counts = [groups * self.stages_per_rank for groups in range(1, self.world + 1) if any(self.ways(groups))]
        return [count for count in counts if self.stages in (None, count)]

    def ways(self, groups: int) -> Iterator[tuple[int, ...]]:
        """The ways to divide the ranks among groups: the replicas of each. The first group shares the microbatches out
        evenly, and every rank has one."""
        evenly, left = divmod(self.world, groups)
        if self.replicas is not None or self.stages_per_rank > 1:
            is_one = not left and self.replicas in (None, evenly) and not self.microbatches % evenly
            yield from [(evenly,) * groups] if is_one else []
            return
        for ends in combinations(range(1, self.world), groups - 1):
            counts = tuple(last - first for first, last in pairwise((0, *ends, self.world)))
            if self.shares_out(counts):
                yield counts

    def allows_one_stage(self) -> bool:
        """Whether plain data parallelism is such a plan."""
        return self.stages in (None, 1) and self.replicas in (None, self.world)

    def shares_out(self, counts: Sequence[int]) -> bool:
        """Whether the microbatches do, over these replicas."""
        if min(counts) < 1 or max(counts) > self.microbatches:
            return False
        return not any(self.microbatches % count for count in (counts if self.evenly else counts[:1]))

    def check(self) -> None:
        """Raises NoPlan if no model whatever has such a plan."""
        self.of_one_schedule()

    def _check(self) -> None:
        assert self.schedule is not None
        check_schedule(self.schedule)
        if self.world < 1:
            raise NoPlan(f"world={self.world} is too small; use at least 1")
        if self.stages is None:
            return
        groups, left = divmod(self.stages, self.stages_per_rank)
        if left:
            raise NoPlan(f"stages={self.stages} are not {self.stages_per_rank} for each rank; use a multiple of it")
        if groups > self.world:
            raise NoPlan(f"world={self.world} is smaller than the {groups} stages; every stage needs a rank of its own")
        if not self.stage_counts():
            raise NoPlan(
                f"world={self.world} ranks do not share out over {groups} stages with {self.microbatches} "
                "microbatches; change one of them"
            )
