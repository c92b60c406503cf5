"""Ways: how gradients get from rank to rank, the measurements of several ways, and the hook that sends them.

    backward pass     bucket 0 full ─► first ──┐   bucket 1 full ─► first ──┐       goes on meanwhile
    a thread                                   └─► sum ─► second ─► done    └─► sum ─► second ─► done

A bucket of gradients is sent as soon as DistributedDataParallel has filled it. All ranks must call the collectives of a
group in one order. The first one of a bucket is called by the backward pass, which fills buckets in the same order
everywhere, in the group of the model. The second one, which has to wait for the first, is called by one thread, in the
order of the buckets, in a group of its own. On a GPU no thread is needed: there both are queued at once on the stream
of the group. That has not run on a GPU yet.

There is no ``from __future__ import annotations`` here: PyTorch compares the types of a hook, not their names.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

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
    """Gradients are sent together as soon as they are that many MiB. None: 1 MiB, then 25 at a time."""
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


# -- the communication hook --------------------------------------------------------------------------------------------


class GradientHook:
    """Sends what it is given by ``communication``, which may change between steps."""

    def __init__(self, group: dist.ProcessGroup, *, communication: Communication, timeout: timedelta) -> None:
        """Every rank of ``group`` has to make one at the same time. ``timeout``: of the second collectives."""
        self.communication = communication
        self._group = group
        self._world = dist.get_world_size(group)
        members: Sequence[int] = dist.get_process_group_ranks(group)
        self._second_group = dist.new_group(members, timeout=timeout, use_local_synchronization=True)
        self._members = members
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dwconv-gradients")

    def register(self, model: DistributedDataParallel) -> None:
        """The gradients of ``model`` go this way from now on."""
        model.register_comm_hook(self, _send)

    def send(self, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
        """The mean over the ranks, in the end."""
        gradients = bucket.buffer()
        lowered = self.communication.compressed and gradients.dtype is torch.float32
        sent = gradients.to(torch.bfloat16) if lowered else gradients
        sent.div_(self._world)
        if self.communication.collective == "all-reduce":
            return self._reduce_all(sent, gradients)
        if gradients.device.type != "cpu":
            return self._in_a_row(sent, gradients, root=bucket.index() % self._world)
        if self.communication.collective == "reduce-scatter":
            return self._scatter_and_gather(sent, gradients)
        return self._reduce_and_broadcast(sent, gradients, root=bucket.index() % self._world)

    def close(self) -> None:
        """Ends the thread and the group of the second collectives. Every rank has to call it at the same time."""
        self._thread.shutdown()
        dist.destroy_process_group(self._second_group)

    # -- the collectives -------------------------------------------------------------------------------------------

    def _reduce_all(self, sent: Tensor, gradients: Tensor) -> Future[Tensor]:
        work = dist.all_reduce(sent, group=self._group, async_op=True)
        assert work is not None
        return work.get_future().then(lambda done: _as_before(done.value()[0], gradients))

    def _scatter_and_gather(self, sent: Tensor, gradients: Tensor) -> Future[Tensor]:
        """gloo's own reduce-scatter is an all-reduce, of which most is thrown away. So each rank sends all others their
        parts, and adds up what it gets: in the order of the ranks, hence always to the same bits."""
        padded = _padded(sent, self._world)
        parts = torch.empty_like(padded)
        first = dist.all_to_all_single(parts, padded, group=self._group, async_op=True)
        assert first is not None

        def rest() -> Tensor:
            first.wait()
            own = parts.view(self._world, -1).sum(0)
            _gather(padded, own, group=self._second_group)
            return _as_before(padded[: sent.numel()], gradients)

        return self._after(rest)

    def _reduce_and_broadcast(self, sent: Tensor, gradients: Tensor, *, root: int) -> Future[Tensor]:
        first = dist.reduce(sent, self._members[root], group=self._group, async_op=True)
        assert first is not None

        def rest() -> Tensor:
            first.wait()
            dist.broadcast(sent, self._members[root], group=self._second_group)
            return _as_before(sent, gradients)

        return self._after(rest)

    def _in_a_row(self, sent: Tensor, gradients: Tensor, *, root: int) -> Future[Tensor]:
        """On a GPU: collectives of one group run one after the other, on a stream of the group."""
        if self.communication.collective == "reduce-scatter":
            padded = _padded(sent, self._world)
            own = padded.new_empty(padded.numel() // self._world)
            _scatter(own, padded, group=self._group)
            work = _gather(padded, own, group=self._group, async_op=True)
            result = padded[: sent.numel()]
        else:
            dist.reduce(sent, self._members[root], group=self._group, async_op=True)
            work = dist.broadcast(sent, self._members[root], group=self._group, async_op=True)
            result = sent
        assert work is not None
        return work.get_future().then(lambda _: _as_before(result, gradients))

    def _after(self, rest: Callable[[], Tensor]) -> Future[Tensor]:
        future: Future[Tensor] = Future()

        def finish() -> None:
            try:
                result = rest()
            except Exception as error:  # noqa: BLE001  raised again, by the backward pass
                future.set_exception(error)  # type: ignore[arg-type]
            else:
                future.set_result(result)

        self._thread.submit(finish)
        return future


def _send(state: GradientHook, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
    """As PyTorch takes a hook: a function with these names and types."""
    return state.send(bucket)


def _as_before(result: Tensor, gradients: Tensor) -> Tensor:
    """``result`` in the memory and the type of the gradients."""
    return gradients if result.data_ptr() == gradients.data_ptr() else gradients.copy_(result)


def _padded(sent: Tensor, world: int) -> Tensor:
    """With zeros at the end, so that every rank has as much of it."""
    missing = -sent.numel() % world
    return torch.cat([sent, sent.new_zeros(missing)]) if missing else sent


def _gather(whole: Tensor, part: Tensor, **how: Any) -> Any:
    """PyTorch 2.13 has a new name for it, and warns of the old one."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, part, **how)


def _scatter(part: Tensor, whole: Tensor, **how: Any) -> Any:
    """Likewise; returns before it is done."""
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return scatter(part, whole, async_op=True, **how)
