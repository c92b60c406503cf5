"""Ways to send gradients from rank to rank, and what was measured of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from dwconv.errors import InvalidChoice
from dwconv.system import given


@dataclass(frozen=True, kw_only=True)
class Communication:
    """One way. The default is what DistributedDataParallel does by itself."""

    bucket_mb: float | None = None
    """Gradients are sent together as soon as they are that many MiB. None: 1 MiB, then 25 at a time."""
    compressed: bool = False
    """Sent as bfloat16, and summed in it: 8 bits of each gradient are kept."""

    def __post_init__(self) -> None:
        given.flag("compressed", self.compressed)
        if self.bucket_mb is not None and not given.number("bucket_mb", self.bucket_mb, way_out="give MiB") > 0:
            raise InvalidChoice(f"bucket_mb={self.bucket_mb} holds no gradient; give MiB above 0, such as 25")

    def __str__(self) -> str:
        buckets = "buckets of 1, then 25 MiB" if self.bucket_mb is None else f"buckets of {self.bucket_mb:g} MiB"
        return f"{buckets}, as bfloat16" if self.compressed else buckets

    def wrapped(self, model: nn.Module, **options: Any) -> DistributedDataParallel:
        """``model`` on every rank, its gradients sent this way. ``options`` are DistributedDataParallel's."""
        found = DistributedDataParallel(model, bucket_cap_mb=self.bucket_mb, **options)
        if self.compressed:  # by its own name PyTorch takes the hook for NCCL alone; gloo sums bfloat16, too
            found.register_comm_hook(found.process_group, lambda group, bucket: bf16_compress_hook(group, bucket))
        return found


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Steps of one way, each beside a step without communication. A step takes as long as on its slowest rank. All are
    medians."""

    communication: Communication
    step_us: float
    exposed_us: float
    """What a step takes longer than the one without communication beside it."""
    exposed_share: float
    """The same over the time of the step without communication. It compares what was measured at different moments, of
    a machine that other work makes slower at times."""
    rounds: int


@dataclass(frozen=True, kw_only=True)
class CommunicationReport:
    """Which way a model's gradients take, and why. Prints as a table."""

    chosen: Communication
    reason: str
    world: int
    gradient_bytes: int
    local_us: float = 0.0
    """A step without communication; 0 if nothing was measured."""
    rows: tuple[StepTimes, ...] = ()
    """What was measured, in the order of the measurement."""
    finals: tuple[StepTimes, ...] = ()
    """The best, measured once more, step by step beside the default."""
    left: tuple[Communication, ...] = ()
    """What was not measured, since time was up."""

    def __str__(self) -> str:
        ranks = f"{self.world} rank{'s' if self.world > 1 else ''}"
        lines = [f"{ranks}, {self.gradient_bytes / 2**20:.1f} MiB of gradients"]
        if self.rows:
            lines[0] += f"; a step without communication takes {self.local_us / 1e3:.1f} ms"
            lines.append(f"{'gradients are sent in':40} {'step ms':>8} {'exposed ms':>11} {'steps':>6}")
            lines += map(_line, self.rows)
        if self.finals:
            lines += ["measured once more, in turns:", *map(_line, self.finals)]
        if self.left:
            lines.append(f"not measured, since time was up: {'; '.join(map(str, self.left))}")
        return "\n".join([*lines, f"chosen: {self.chosen} ({self.reason})"])


def _line(row: StepTimes) -> str:
    return f"{row.communication!s:40} {row.step_us / 1e3:8.1f} {row.exposed_us / 1e3:11.1f} {row.rounds:6}"
