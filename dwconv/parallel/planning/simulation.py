"""Simulate one training step of a plan, from the times of its layers and its link, without running anything.

    rank 0   F0 F1 F2 ·····  B0 F3 B1 …     a rank runs its passes in the order of the schedule, each as soon as its
    rank 1      F0 ·· B0 F1 …               input has come; sending and summing go on beside them

Every rank sends one thing at a time and receives one thing at a time, both beside computing. The gradients of a stage
are summed over its replicas, around a ring, as soon as the last of them is there. With one stage, which is plain data
parallelism, this happens in buckets while the backward pass of the last microbatch goes on. The optimizer's step is
left out: every rank takes it for its own parameters.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from dwconv.errors import NoPlan
from dwconv.parallel.planning.plan import (
    COPIES_OF_PARAMETERS,
    FREE_LINK,
    Action,
    Bucket,
    Plan,
    actions,
    buckets,
    place_of,
    stage_cost,
    sum_us,
    transfer_us,
)
from dwconv.parallel.planning.timeline import Event, What


@dataclass(frozen=True, kw_only=True)
class SimulatedStep:
    """One step, as computed."""

    events: tuple[Event, ...]
    """By start."""
    step_us: float
    bubble: float
    """The share of the ranks' time that they would be idle with a link that costs nothing."""
    exposed_communication_us: float
    """How much longer the step takes than with such a link."""
    memory_bytes: tuple[int, ...]
    """By rank, at its peak: parameters with gradients and momentum, and what is kept for the backward pass."""


def simulate(plan: Plan) -> SimulatedStep:
    """One step of ``plan``. Raises NoPlan for an unknown schedule."""
    ran, free = SimulatedRanks(plan), SimulatedRanks(dataclasses.replace(plan, link=FREE_LINK))
    ran.run()
    free.run()
    busy_us = sum(event.end_us - event.start_us for event in free.events)
    return SimulatedStep(
        events=tuple(sorted(ran.events, key=lambda event: (event.start_us, event.rank))),
        step_us=ran.now_us,
        bubble=max(0.0, 1 - busy_us / (free.now_us * plan.world)) if free.now_us else 0.0,
        exposed_communication_us=max(0.0, ran.now_us - free.now_us),
        memory_bytes=tuple(rank.peak_bytes for rank in ran.ranks),
    )


# -- the ranks and the messages between them, from one event to the next -----------------------------------------------


_MADE_BY: dict[str, tuple[What, ...]] = {
    "forward": ("forward",),
    "backward": ("dgrad", "wgrad"),
    "dgrad": ("dgrad",),
    "wgrad": ("wgrad",),
}


@dataclass(kw_only=True)
class _Rank:
    number: int
    group: int
    replica: int
    left: deque[Action]
    """Passes that it has still to run."""
    is_busy: bool = False
    held_bytes: int = 0
    peak_bytes: int = 0

    def hold(self, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)


@dataclass(frozen=True, kw_only=True)
class _Message:
    """Something on its way, from one rank to another or around several."""

    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    duration_us: float
    stage: int
    microbatch: int | None
    detail: str
    arrives: Callable[[], None]


class _Need(NamedTuple):
    """A pass waits for it: the activations or the gradients of a microbatch, from another rank."""

    what: str
    stage: int
    microbatch: int


class SimulatedRanks:
    """``run`` takes one step; afterwards ``now_us`` is its time."""

    def __init__(self, plan: Plan) -> None:
        self.now_us = 0.0
        self.events: list[Event] = []
        self._plan = plan
        self._sums_in_buckets = len(plan.stages) == 1 and plan.schedule != "zero-bubble"
        self._costs = [stage_cost(plan.layers, first=stage.first, last=stage.last) for stage in plan.stages]
        self.ranks: list[_Rank] = []
        self._first_rank: list[int] = []
        """By group of ranks."""
        self._gradients_left: Counter[tuple[int, int]] = Counter()
        """By rank and stage, how many passes have still to give gradients of the parameters."""
        for group in range(plan.groups):
            self._first_rank.append(len(self.ranks))
            for replica in range(plan.stages[group].replicas):
                self._add_rank(group=group, replica=replica)
        self._coming: list[tuple[float, int, Callable[[], None]]] = []
        """By time, what happens next."""
        self._order = itertools.count()
        self._arrived: set[_Need] = set()
        self._outbox: list[_Message] = []
        self._sending: set[int] = set()
        self._receiving: set[int] = set()
        self._ready: Counter[tuple[int, int]] = Counter()
        """By stage and bucket, how many replicas have its gradients."""

    def _add_rank(self, *, group: int, replica: int) -> None:
        plan = self._plan
        order = actions(plan.schedule, place_of(plan, group=group, replica=replica))
        rank = _Rank(number=len(self.ranks), group=group, replica=replica, left=deque(order))
        self.ranks.append(rank)
        for stage in range(group, len(plan.stages), plan.groups):
            rank.hold(COPIES_OF_PARAMETERS * self._costs[stage].parameter_bytes)
        for action in order:
            if action.what in ("backward", "wgrad"):
                self._gradients_left[rank.number, action.stage] += 1

    def run(self) -> None:
        """Raises NoPlan if ranks wait for each other for ever."""
        for rank in self.ranks:
            self._advance(rank)
        while self._coming:
            self.now_us, _, happens = heapq.heappop(self._coming)
            happens()
        if any(rank.left for rank in self.ranks):
            raise NoPlan(f"schedule={self._plan.schedule}: its ranks deadlock with these replicas")

    def _after(self, wait_us: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._coming, (self.now_us + wait_us, next(self._order), happens))

    # -- computing -----------------------------------------------------------------------------------------------------

    def _advance(self, rank: _Rank) -> None:
        """Begin the next pass of a rank, if it is idle and what the pass needs is there."""
        if rank.is_busy or not rank.left:
            return
        action = rank.left[0]
        microbatch = action.microbatch * self._plan.stages[action.stage].replicas + rank.replica
        need = self._need(action, microbatch)
        if need is not None and need not in self._arrived:
            return
        rank.left.popleft()
        rank.is_busy = True
        if action.what == "forward":
            rank.hold(self._costs[action.stage].kept_bytes)
        duration_us = self._record(rank, action, microbatch)
        if action.what in ("backward", "wgrad"):
            self._gradients_left[rank.number, action.stage] -= 1
            if not self._gradients_left[rank.number, action.stage]:
                self._announce_gradients(action.stage, duration_us)
        self._after(duration_us, lambda: self._finish(rank, action, microbatch))

    def _need(self, action: Action, microbatch: int) -> _Need | None:
        is_first, is_last = action.stage == 0, action.stage == len(self._plan.stages) - 1
        if action.what == "wgrad" or (is_first if action.what == "forward" else is_last):
            return None
        what = "activations" if action.what == "forward" else "gradients"
        return _Need(what=what, stage=action.stage, microbatch=microbatch)

    def _record(self, rank: _Rank, action: Action, microbatch: int) -> float:
        """Record the events of a pass that begins now; how long it takes."""
        start_us = self.now_us
        for what, us in self._parts(action):
            event = Event(
                rank=rank.number,
                stage=action.stage,
                microbatch=microbatch,
                what=what,
                start_us=start_us,
                end_us=start_us + us,
            )
            self.events.append(event)
            start_us = event.end_us
        return start_us - self.now_us

    def _parts(self, action: Action) -> Iterator[tuple[What, float]]:
        """The parts of a pass, and how long each takes."""
        cost = self._costs[action.stage]
        if action.what == "backward" and self._sums_in_buckets:  # layer by layer, as buckets fill
            for layer in reversed(self._plan.layers):
                yield "dgrad", layer.dgrad_us
                yield "wgrad", layer.wgrad_us
            return
        times_us = {"forward": cost.forward_us, "dgrad": cost.dgrad_us, "wgrad": cost.wgrad_us}
        for what in _MADE_BY[action.what]:
            yield what, times_us[what]

    def _finish(self, rank: _Rank, action: Action, microbatch: int) -> None:
        rank.is_busy = False
        stage, cost = action.stage, self._costs[action.stage]
        if action.what == "forward" and stage + 1 < len(self._plan.stages):
            need = _Need(what="activations", stage=stage + 1, microbatch=microbatch)
            self._send(rank, need, size_bytes=cost.output_bytes)
        elif action.what in ("backward", "dgrad") and stage:
            need = _Need(what="gradients", stage=stage - 1, microbatch=microbatch)
            self._send(rank, need, size_bytes=cost.input_bytes)
        if action.what in ("backward", "wgrad"):
            rank.hold(-cost.kept_bytes)
        self._advance(rank)

    # -- communication -------------------------------------------------------------------------------------------------

    def _send(self, rank: _Rank, need: _Need, *, size_bytes: int) -> None:
        group = need.stage % self._plan.groups
        receiver = self.ranks[self._first_rank[group] + need.microbatch % self._plan.stages[need.stage].replicas]

        def arrives() -> None:
            self._arrived.add(need)
            self._advance(receiver)

        if receiver is rank:
            arrives()
            return
        self._post(
            _Message(
                senders=(rank.number,),
                receivers=(receiver.number,),
                duration_us=transfer_us(self._plan.link, size_bytes),
                stage=need.stage + (1 if need.what == "gradients" else -1),
                microbatch=need.microbatch,
                detail=f"{need.what} to rank {receiver.number}",
                arrives=arrives,
            )
        )

    def _announce_gradients(self, stage: int, duration_us: float) -> None:
        """The backward pass of the last microbatch of a stage begins on one rank."""
        if self._plan.stages[stage].replicas == 1:
            return
        if self._sums_in_buckets:
            ready = buckets(self._plan.layers)
        else:
            ready = [Bucket(ready_us=duration_us, size_bytes=self._costs[stage].parameter_bytes)]
        for number, bucket in enumerate(ready):
            self._after(bucket.ready_us, partial(self._join, stage, number, bucket))

    def _join(self, stage: int, number: int, bucket: Bucket) -> None:
        """One more replica has the gradients of a bucket; with the last one they are summed."""
        replicas = self._plan.stages[stage].replicas
        self._ready[stage, number] += 1
        if self._ready[stage, number] < replicas or not bucket.size_bytes:
            return
        first = self._first_rank[stage % self._plan.groups]
        ranks = tuple(range(first, first + replicas))
        self._post(
            _Message(
                senders=ranks,
                receivers=ranks,
                duration_us=sum_us(self._plan.link, bucket.size_bytes, ranks=replicas),
                stage=stage,
                microbatch=None,
                detail=f"sum of gradients over {replicas} ranks",
                arrives=lambda: None,
            )
        )

    def _post(self, message: _Message) -> None:
        self._outbox.append(message)
        self._send_what_can_go()

    def _send_what_can_go(self) -> None:
        for message in list(self._outbox):
            if self._sending.isdisjoint(message.senders) and self._receiving.isdisjoint(message.receivers):
                self._outbox.remove(message)
                self._begin(message)

    def _begin(self, message: _Message) -> None:
        self._sending.update(message.senders)
        self._receiving.update(message.receivers)
        if message.duration_us:
            for sender in message.senders:
                self.events.append(
                    Event(
                        rank=sender,
                        stage=message.stage,
                        microbatch=message.microbatch,
                        what="communication",
                        start_us=self.now_us,
                        end_us=self.now_us + message.duration_us,
                        detail=message.detail,
                    )
                )
        self._after(message.duration_us, lambda: self._end(message))

    def _end(self, message: _Message) -> None:
        self._sending.difference_update(message.senders)
        self._receiving.difference_update(message.receivers)
        message.arrives()
        self._send_what_can_go()
