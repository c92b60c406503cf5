"""Sending: the hook of DistributedDataParallel by which gradients take a way, and the times of its collectives.

    backward pass     bucket 0 full ─► first ──┐   bucket 1 full ─► first ──┐       goes on meanwhile
    lane                                       └─► sum ─► second ─► done    └─► sum ─► second ─► done

A bucket of gradients is sent as soon as DistributedDataParallel has filled it. All ranks must call the collectives of a
group in one order. The first one of a bucket is called by the backward pass, which fills buckets in the same order
everywhere, in the group of the model. The second one, which has to wait for the first, is called by one thread, in the
order of the buckets, in another group of the same ranks: a lane. On a GPU there is no lane: both are queued at once on
the stream of the group. That has not run on a GPU yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary, finalize

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from dwconv.errors import InvalidChoice
from dwconv.parallel.data.bucket_spans import BucketSpans
from dwconv.parallel.data.ways import Communication
from dwconv.parallel.lost_ranks import made_in_time

_WITH_TWO = ("reduce-scatter", "reduce-broadcast")
_EXACT_STEPS = 2
"""Before PowerSGD begins: after the first one DistributedDataParallel makes other buckets."""
_ABOVE_0 = 1e-8
"""For PowerSGD, of gradients that are 0."""


def wrapped(
    model: nn.Module, way: Communication, *, spans: BucketSpans | None = None, **options: Any
) -> DistributedDataParallel:
    """``model`` on every rank, its gradients sent this way. ``spans``: to note when buckets are sent. ``options`` are
    DistributedDataParallel's."""
    found = DistributedDataParallel(model, bucket_cap_mb=way.bucket_mb, **options)
    if way.compression or way.collective != "all-reduce" or spans is not None:
        lane = _lane_of(found.process_group) if _needs_lane(way, next(model.parameters()).device) else None
        hook = _Hook(found.process_group, way, lane=lane, spans=spans)
        found.register_comm_hook(hook, lambda state, bucket: state.send(bucket))
    return found


def sender(group: dist.ProcessGroup, way: Communication, *, device: torch.device) -> Callable[[Any], Future[Tensor]]:
    """A function that sends buckets of gradients on ``device`` this way, and promises the mean over ``group``, in their
    memory. Buckets have ``buffer``, ``index`` and ``is_last``, as those of DistributedDataParallel. Every rank of
    ``group`` has to call this, and then the function, in one order. Raises InvalidChoice for PowerSGD, which needs
    gradients one by one."""
    if way.powersgd_rank is not None:
        raise InvalidChoice(f"powersgd_rank={way.powersgd_rank} is for DistributedDataParallel; give another way")
    lane = _lane_of(group) if _needs_lane(way, device) else None
    return _Hook(group, way, lane=lane, spans=None).send


def _needs_lane(way: Communication, device: torch.device) -> bool:
    """True where a collective has to wait for another."""
    return device.type == "cpu" and (way.powersgd_rank is not None or way.collective in _WITH_TWO)


# -- lanes -------------------------------------------------------------------------------------------------------------


class SendingLane:
    """A thread, and a group of the same ranks, for collectives that wait for others. Every rank of ``group`` has to
    make one at the same time."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = _same_ranks_again(group)
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: a collective that waits for a rank which never comes must not keep the process from ending.
        threading.Thread(target=_run_in_order, args=(self._given,), name="dwconv-gradients", daemon=True).start()
        finalize(self, self._given.put, None)

    @property
    def is_open(self) -> bool:
        """False once its group has ended, as all do with their job."""
        try:
            return bool(dist.get_process_group_ranks(self.group))
        except KeyError:
            return False

    def run(self, rest: Callable[[], Tensor]) -> Future[Tensor]:
        """What ``rest`` gives once it is through, after all that was given before. An error is raised again by the
        backward pass."""
        promised: Future[_Ended] = Future()
        found = promised.then(_result_of)
        self._given.put(partial(_end, promised, rest))
        return found


def _run_in_order(given: SimpleQueue[Callable[[], None] | None]) -> None:
    """Until there is None."""
    while (rest := given.get()) is not None:
        rest()
        del rest  # it has the gradients of a bucket


def _same_ranks_again(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """A new group of gloo, as ``dist.new_group`` makes one, but by its ranks alone, and of a name that never was.

    ``new_group`` makes a name from the ranks and from how many groups a process has. Ranks that have different numbers
    of groups would wait for each other by different names. And a name comes again once a group has ended: in the store
    there are still the addresses of that one, which a rank that is early takes for those of the new one."""
    cpu, name = torch.device("cpu"), [f"dwconv lane {uuid4().hex}"]
    dist.broadcast_object_list(name, group=group, group_src=0, device=cpu)
    members, store = dist.get_process_group_ranks(group), distributed_c10d._get_default_store()
    timeout = group._get_backend(cpu).options._timeout
    make = partial(
        distributed_c10d._new_process_group_helper, len(members), members.index(dist.get_rank()), members,
        dist.Backend("gloo"), store, name[0],  # type: ignore[arg-type]
        timeout=timeout,
    )  # fmt: skip
    own, _ = made_in_time(make, timeout_s=timeout.total_seconds())
    distributed_c10d._world.pg_group_ranks[own] = {rank: place for place, rank in enumerate(members)}
    return own


_lanes: WeakKeyDictionary[dist.ProcessGroup, SendingLane] = WeakKeyDictionary()


def _lane_of(group: dist.ProcessGroup) -> SendingLane:
    """All models of a group share one: their backward passes come in the same order on every rank."""
    if group not in _lanes or not _lanes[group].is_open:
        _lanes[group] = SendingLane(group)
    return _lanes[group]


class _Ended(NamedTuple):
    """What a future has in the end. One that is given an exception is a tensor's for DistributedDataParallel."""

    result: Tensor | None
    error: BaseException | None = None


def _end(promised: Future[_Ended], rest: Callable[[], Tensor]) -> None:
    try:
        with torch.no_grad():
            ended = _Ended(rest())
    except BaseException as error:  # noqa: BLE001  raised again
        ended = _Ended(None, error)
    promised.set_result(ended)


def _keep(promised: Future[_Ended], coming: Future[Tensor]) -> None:
    _end(promised, coming.value)


def _result_of(promised: Future[_Ended]) -> Tensor:
    result, error = promised.value()
    if error is not None:
        raise error
    assert result is not None
    return result


# -- the communication hook --------------------------------------------------------------------------------------------


class _Hook:
    """Sends buckets of one model."""

    def __init__(
        self, group: dist.ProcessGroup, way: Communication, *, lane: SendingLane | None, spans: BucketSpans | None
    ) -> None:
        self._group, self._way, self._lane, self._spans = group, way, lane, spans
        self._world = dist.get_world_size(group)
        self._members: Sequence[int] = dist.get_process_group_ranks(group)
        self._held: list[tuple[Tensor, Tensor, Future[_Ended]]] = []
        """With ``after-backward``: what is sent, the gradients, and what was promised."""
        self._factors = None
        if way.powersgd_rank is not None:
            self._factors = PowerSGDState(
                group if lane is None else lane.group,
                matrix_approximation_rank=way.powersgd_rank,
                start_powerSGD_iter=_EXACT_STEPS,
                orthogonalization_epsilon=_ABOVE_0,
            )

    def __deepcopy__(self, _: dict[int, Any]) -> _Hook:
        """A copy of a DistributedDataParallel lists its hooks, but sends as PyTorch does."""
        return self

    def send(self, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
        """The mean over the ranks, in the end."""
        gradients = bucket.buffer()
        if self._factors is not None:
            return self._noted(self._as_factors(self._factors, bucket))
        sent = gradients.to(torch.bfloat16) if self._way.compressed else gradients
        sent.div_(self._world)
        if self._way.collective == "after-backward":
            return self._hold(sent, gradients, bucket)
        return self._noted(self._by_collective(sent, gradients, root=bucket.index() % self._world))

    def _noted(self, coming: Future[Tensor]) -> Future[Tensor]:
        return coming if self._spans is None else self._spans.note(coming)

    def _by_collective(self, sent: Tensor, gradients: Tensor, *, root: int) -> Future[Tensor]:
        if self._way.collective == "all-reduce":
            return self._reduce_all(sent, gradients)
        if self._way.collective == "redundant":
            return self._gather_all(sent, gradients)
        if self._lane is None:
            return self._in_a_row(sent, gradients, root=root)
        if self._way.collective == "reduce-scatter":
            return self._scatter_and_gather(sent, gradients, self._lane)
        return self._reduce_and_broadcast(sent, gradients, self._lane, root=root)

    # -- the collectives -------------------------------------------------------------------------------------------

    def _reduce_all(self, sent: Tensor, gradients: Tensor) -> Future[Tensor]:
        work = dist.all_reduce(sent, group=self._group, async_op=True)
        return work.get_future().then(lambda done: _as_before(done.value()[0], gradients))

    def _gather_all(self, sent: Tensor, gradients: Tensor) -> Future[Tensor]:
        """Each rank adds up in the order of the ranks, hence to the same bits."""
        everyones = sent.new_empty(self._world * sent.numel())

        def rest(done: Future[Any]) -> Tensor:
            done.value()  # raises what went wrong
            return _as_before(everyones.view(self._world, -1).sum(0), gradients)

        return _gather(everyones, sent, group=self._group, async_op=True).get_future().then(rest)

    def _hold(self, sent: Tensor, gradients: Tensor, bucket: Any) -> Future[Tensor]:
        """Until the last bucket is full."""
        if bucket.index() == 0:
            self._held.clear()  # of a backward pass that failed
        on: list[int | str | torch.device] = [] if gradients.device.type == "cpu" else [gradients.device]
        promised: Future[_Ended] = Future(devices=on)
        self._held.append((sent, gradients, promised))
        if bucket.is_last():
            for each in self._held:
                coming = self._noted(self._reduce_all(each[0], each[1]))
                coming.then(partial(_keep, each[2]))
            self._held.clear()
        return promised.then(_result_of)

    def _scatter_and_gather(self, sent: Tensor, gradients: Tensor, lane: SendingLane) -> Future[Tensor]:
        """gloo's own reduce-scatter is an all-reduce, of which most is thrown away. So each rank sends all others their
        parts, and adds up what it gets: in the order of the ranks, hence always to the same bits."""
        padded = _padded(sent, self._world)
        parts = torch.empty_like(padded)
        first = dist.all_to_all_single(parts, padded, group=self._group, async_op=True)

        def rest() -> Tensor:
            first.wait()
            own = parts.view(self._world, -1).sum(0)
            _gather(padded, own, group=lane.group)
            return _as_before(padded[: sent.numel()], gradients)

        return lane.run(rest)

    def _reduce_and_broadcast(self, sent: Tensor, gradients: Tensor, lane: SendingLane, *, root: int) -> Future[Tensor]:
        first = dist.reduce(sent, self._members[root], group=self._group, async_op=True)

        def rest() -> Tensor:
            first.wait()
            dist.broadcast(sent, self._members[root], group=lane.group)
            return _as_before(sent, gradients)

        return lane.run(rest)

    def _in_a_row(self, sent: Tensor, gradients: Tensor, *, root: int) -> Future[Tensor]:
        """On a GPU: collectives of one group run one after the other, on a stream of the group."""
        if self._way.collective == "reduce-scatter":
            padded = _padded(sent, self._world)
            own = padded.new_empty(padded.numel() // self._world)
            _scatter(own, padded, group=self._group)
            work = _gather(padded, own, group=self._group, async_op=True)
            result = padded[: sent.numel()]
        else:
            dist.reduce(sent, self._members[root], group=self._group, async_op=True)
            work = dist.broadcast(sent, self._members[root], group=self._group, async_op=True)
            result = sent
        return work.get_future().then(lambda _: _as_before(result, gradients))

    def _as_factors(self, state: PowerSGDState, bucket: Any) -> Future[Tensor]:
        """PyTorch's hook calls collectives when others are done, in any order of buckets. In a lane it has one bucket
        at a time, so that ranks do not differ."""
        if self._lane is None:
            return powerSGD_hook(state, bucket)
        return self._lane.run(lambda: powerSGD_hook(state, bucket).wait())


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
