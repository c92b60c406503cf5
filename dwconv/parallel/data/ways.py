"""Ways to send gradients from rank to rank, and what was measured of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dwconv.errors import InvalidChoice
from dwconv.system import given

Collective = Literal["all-reduce", "reduce-scatter", "reduce-broadcast", "redundant", "after-backward"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)


@dataclass(frozen=True, kw_only=True)
class Communication:
    """One way. The default is what DistributedDataParallel does by itself."""

    collective: Collective = "all-reduce"
    """``all-reduce``: one collective. ``reduce-scatter``: each rank sums a part, then all gather the parts.
    ``reduce-broadcast``: one rank sums a bucket and sends it to all; ranks take turns. ``redundant``: all gather the
    gradients, and each rank sums all of them by itself: one round, and the same work on every rank. ``after-backward``:
    all-reduce, but of all buckets after the backward pass, so that nothing hides it."""
    bucket_mb: float | None = None
    """Gradients are sent together as soon as they are that many MiB. None: 1 MiB, then 25 at a time."""
    compressed: bool = False
    """Sent as bfloat16, and summed in it: 8 bits of each gradient are kept."""
    powersgd_rank: int | None = None
    """By PyTorch's PowerSGD, as two matrices of this rank for each gradient. The error goes into the next step. None:
    the gradients themselves."""

    def __post_init__(self) -> None:
        given.flag("compressed", self.compressed)
        if self.collective not in COLLECTIVES:
            raise InvalidChoice(
                f"collective={given.shown(self.collective)} is unknown; use one of {', '.join(COLLECTIVES)}"
            )
        if self.bucket_mb is not None and not given.number("bucket_mb", self.bucket_mb, way_out="give MiB") > 0:
            raise InvalidChoice(f"bucket_mb={self.bucket_mb} holds no gradient; give MiB above 0, such as 25")
        if self.powersgd_rank is not None:
            given.whole("powersgd_rank", self.powersgd_rank, least=1)
            if self.compressed or self.collective != "all-reduce":
                raise InvalidChoice(
                    f"powersgd_rank={self.powersgd_rank} sends its matrices by all-reduce, in float32; leave out "
                    "collective and compressed"
                )

    def __str__(self) -> str:
        buckets = "buckets of 1, then 25 MiB" if self.bucket_mb is None else f"buckets of {self.bucket_mb:g} MiB"
        of = "" if self.collective == "all-reduce" else f"{self.collective}, "
        return f"{of}{buckets}{self.compression and f', as {self.compression}'}"

    @property
    def compression(self) -> str:
        """What changes the gradients, in words; empty if nothing does."""
        if self.powersgd_rank is not None:
            return f"PowerSGD of rank {self.powersgd_rank}"
        return "bfloat16" if self.compressed else ""

    def sent_bytes(self, gradient_bytes: int, *, world: int) -> float:
        """What a rank sends in a step, on average over the ranks, by gloo's algorithms: rings, and for a broadcast a
        tree. ``gradient_bytes``: of all gradients together, compressed."""
        others = (world - 1) / world * gradient_bytes
        if self.collective == "redundant":
            return world * others
        if self.collective == "reduce-broadcast":  # a reduction also collects the parts on one rank
            return others * (2 + 1 / world)
        return 2 * others


@dataclass(frozen=True, kw_only=True)
class WayTimes:
    """Steps of one way, each beside a step without communication. A step takes as long as on its slowest rank. All are
    medians."""

    communication: Communication
    step_us: float
    exposed_us: float
    """What a step takes longer than the one without communication beside it."""
    exposed_share: float
    """``exposed_us`` over the time of the step without communication. It compares what was measured at different
    moments, of a machine that other work makes slower at times."""
    rounds: int
    transfer_us: float | None = None
    """The time in a step in which gradients were on their way: from the moment that the last rank sent a bucket, to the
    sum; on average over the ranks. None where it was not measured: in finals, and on GPUs."""
    waiting_us: float | None = None
    """The time in which nothing was on its way, but this rank had sent a bucket which another had not; on the rank that
    waits longest."""
    sent_bytes: float | None = None
    """By a rank in a step, on average, as the sizes of the collectives have it."""


@dataclass(frozen=True, kw_only=True)
class CommunicationReport:
    """Which way a model's gradients take, and why. Prints as a table."""

    chosen: Communication
    reason: str
    world: int
    gradient_bytes: int
    local_us: float = 0.0
    """A step without communication; 0 if nothing was measured."""
    rows: tuple[WayTimes, ...] = ()
    """What was measured, in the order of the measurement."""
    finals: tuple[WayTimes, ...] = ()
    """The best, measured once more, step by step beside the default."""
    left: tuple[Communication, ...] = ()
    """What was not measured, since time was up."""

    def __str__(self) -> str:
        ranks = f"{self.world} rank{'s' if self.world > 1 else ''}"
        lines = [f"{ranks}, {self.gradient_bytes / 2**20:.1f} MiB of gradients"]
        if self.rows:
            lines[0] += f"; a step without communication takes {self.local_us / 1e3:.1f} ms"
            lines.append(_HEAD)
            lines += map(_line, self.rows)
        if self.finals:
            lines += ["measured once more, in turns:", *map(_line, self.finals)]
        if self.left:
            lines.append(f"not measured, since time was up: {'; '.join(map(str, self.left))}")
        return "\n".join([*lines, f"chosen: {self.chosen} ({self.reason})"])


_HEAD = (
    f"{'gradients are sent in':51} {'step ms':>8} {'exposed ms':>11} {'transfer ms':>12} {'waiting ms':>11} "
    f"{'sent MiB':>9} {'steps':>6}"
)


def _line(row: WayTimes) -> str:
    return (
        f"{row.communication!s:51} {row.step_us / 1e3:8.1f} {row.exposed_us / 1e3:11.1f} "
        f"{_or_blank(row.transfer_us, by=1e3):>12} {_or_blank(row.waiting_us, by=1e3):>11} "
        f"{_or_blank(row.sent_bytes, by=2**20):>9} {row.rounds:6}"
    )


def _or_blank(value: float | None, *, by: float) -> str:
    return "" if value is None else f"{value / by:.1f}"
