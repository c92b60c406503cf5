"""Communication: how gradients get from rank to rank; and what is known of several ways, as measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dwconv.errors import InvalidChoice

Collective = Literal["all-reduce", "reduce-scatter", "reduce-broadcast"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
"""``all-reduce``: one collective. ``reduce-scatter``: each rank sums a part, then all gather the parts.
``reduce-broadcast``: one rank sums a bucket, and sends it to all; ranks take turns."""


@dataclass(frozen=True, kw_only=True)
class Communication:
    """One way. The default is what DistributedDataParallel does by itself."""

    collective: Collective = "all-reduce"
    bucket_mb: float | None = None
    """Gradients are sent together as soon as so many MiB are there. None: 1 MiB, then 25 at a time."""
    compressed: bool = False
    """Sent as bfloat16, and summed in it: 8 bits of each gradient are kept."""

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            raise InvalidChoice(f"collective={self.collective} is unknown; use one of {', '.join(COLLECTIVES)}")
        if self.bucket_mb is not None and not self.bucket_mb > 0:
            raise InvalidChoice(f"bucket_mb={self.bucket_mb} holds no gradient; give MiB above 0, such as 25")

    def __str__(self) -> str:
        return f"{self.collective}, {self.buckets}{', as bfloat16' if self.compressed else ''}"

    @property
    def buckets(self) -> str:
        """Their sizes, in words."""
        return "buckets of 1, then 25 MiB" if self.bucket_mb is None else f"buckets of {self.bucket_mb:g} MiB"


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Steps of one kind, each beside a step without communication. A step takes as long as on its slowest rank."""

    name: str
    communication: Communication | None
    """None: all gradients in one all-reduce after the backward pass."""
    step_us: float
    """In the median."""
    exposed_us: float
    """What a step takes longer than the one without communication beside it, in the median."""
    exposed_share: float
    """The same over the time of the step without communication. It compares what was measured at different moments, of
    a machine that other work makes slower at times."""
    exposed_quartiles_us: tuple[float, float]
    rounds: int


@dataclass(frozen=True, kw_only=True)
class CommunicationReport:
    """Which way a model's gradients take, and why. Prints as a table."""

    chosen: Communication
    reason: str
    world: int
    backend: str
    gradient_bytes: int
    local_us: float = 0.0
    """A step without communication; 0 if nothing was measured."""
    rows: tuple[StepTimes, ...] = ()
    """What was measured, in the order of the measurement; of the last round, where finalists met, last."""
    finals: tuple[StepTimes, ...] = ()
    """The best, measured once more, step by step beside the default."""
    left: tuple[Communication, ...] = ()
    """What was not measured, since time was up."""

    @property
    def exposed_us(self) -> float | None:
        """Exposed communication of a step by the chosen way; None if it was not measured."""
        known = [row.exposed_us for row in (*self.rows, *self.finals) if row.communication == self.chosen]
        return known[-1] if known else None

    @property
    def synchronous_us(self) -> float | None:
        """Exposed communication of a step that sends all gradients after its backward pass."""
        known = [row.exposed_us for row in self.rows if row.communication is None]
        return known[-1] if known else None

    def __str__(self) -> str:
        ranks = f"{self.world} rank{'s' if self.world > 1 else ''}"
        lines = [f"{ranks}, {self.backend}, {self.gradient_bytes / 2**20:.1f} MiB of gradients"]
        if self.rows:
            lines[0] += f"; a step without communication takes {self.local_us / 1e3:.1f} ms"
            lines.append(
                f"{'gradients are sent by':56} {'step ms':>8} {'exposed ms':>11} {'middle half':>15} {'steps':>6}"
            )
            lines += [_line(row) for row in self.rows]
        if self.finals:
            lines += ["measured once more, in turns:", *(_line(row) for row in self.finals)]
        if self.left:
            lines.append(f"not measured, since time was up: {_grouped(self.left)}")
        return "\n".join([*lines, f"chosen: {self.chosen} ({self.reason})"])


def _grouped(ways: tuple[Communication, ...]) -> str:
    """By bucket size, in one line."""
    by_size: dict[str, list[str]] = {}
    for way in ways:
        by_size.setdefault(way.buckets, []).append(f"{way.collective}{' as bfloat16' if way.compressed else ''}")
    return "; ".join(f"{buckets} by {', '.join(names)}" for buckets, names in by_size.items())


def _line(row: StepTimes) -> str:
    low_us, high_us = row.exposed_quartiles_us
    half = f"{low_us / 1e3:.1f} to {high_us / 1e3:.1f}"
    return f"{row.name:56} {row.step_us / 1e3:8.1f} {row.exposed_us / 1e3:11.1f} {half:>15} {row.rounds:6}"
