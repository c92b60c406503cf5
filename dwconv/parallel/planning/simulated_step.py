"""Simulate one training step of a plan, from the times of its layers and its link, without running anything.

    rank 0   F0 F1 F2 ·····  B0 F3 B1 …     a rank runs its passes in the order of the schedule, each as soon as its
    rank 1      F0 ·· B0 F1 …               input has come; sending and summing go on beside them

A rank sends one thing at a time and receives one thing at a time, whichever its neighbour, both beside computing: all
its messages share its link. While it does both, they are as slow as the link then is. The gradients of a stage are
summed over its replicas, around a ring, in buckets: each as soon as the last replica has its gradients, while the
backward pass of the last microbatch goes on. The optimizer's step is left out: every rank takes it for its own
parameters.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from dwconv.errors import NoPlan
from dwconv.parallel.planning.pipeline_plan import (
    COPIES_OF_PARAMETERS,
    FREE_LINK,
    Action,
    Link,
    Plan,
    actions,
    bucket_sizes,
    crowding_us,
    stage_cost,
    sum_us,
    transfer_us,
)
from dwconv.parallel.planning.trace_events import Event, What


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


def simulate_step(plan: Plan) -> SimulatedStep:
    """One step of ``plan``. Raises NoPlan for an unknown schedule."""
    ran, free = SimulatedRanks(plan, plan.link), SimulatedRanks(plan, FREE_LINK)
    return SimulatedStep(
        events=tuple(sorted(ran.events, key=lambda event: (event.start_us, event.rank))),
        step_us=ran.end_us,
        bubble=max(0.0, 1 - free.busy_us / (free.end_us * plan.world)) if free.end_us else 0.0,
        exposed_communication_us=max(0.0, ran.end_us - free.end_us),
        memory_bytes=tuple(ran.peak_bytes),
    )


class _Input(NamedTuple):
    """A pass needs it from another stage: the activations or the gradients of a microbatch of the whole batch."""

    what: Literal["activations", "gradients"]
    stage: int
    microbatch: int


@dataclass(frozen=True, kw_only=True)
class _Message:
    """Something to send from one rank to another; or to sum, among all ranks of a group."""

    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    stage: int
    us: float
    """As long as nothing slows it down."""
    sends: _Input | None = None
    """None for a sum of gradients."""
    crowds: float = 0.0
    """The share of their computing speed that it takes from its ranks."""


@dataclass(kw_only=True)
class _UnderWay:
    """What takes some time: more of it while something slows it down."""

    left_us: float
    """At full speed, from the moment ``since_us`` on."""
    ends: Callable[[], None]
    since_us: float = 0.0
    speed: float | None = None
    """The share of the full one; None before it has begun."""
    number: int = -1
    """Of its end, among what happens."""


@dataclass(frozen=True, kw_only=True)
class _Transfer:
    """A message on its way."""

    message: _Message
    began_us: float
    going: _UnderWay


class SimulatedRanks:
    """One step of all ranks, from one moment to the next."""

    def __init__(self, plan: Plan, link: Link) -> None:
        self._plan, self._link = plan, link
        self._speed_at_once = link.both_ways_gb_s / link.gb_s if link.both_ways_gb_s else 1.0
        self._costs = [stage_cost(plan.layers, first=stage.first, last=stage.last) for stage in plan.stages]
        self._places = [(group, replica) for group in range(plan.groups) for replica in range(plan.counts[group])]
        self._left = [deque(actions(plan, *place)) for place in self._places]
        self._gradients_left = [
            Counter(action.stage for action in left if action.what in ("backward", "wgrad")) for left in self._left
        ]
        """By rank and stage, how many passes have still to give gradients of the parameters."""
        self._coming: list[tuple[float, int]] = []
        """By time, the numbers of what happens next."""
        self._happens: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()
        self._arrived: set[_Input] = set()
        self._ready: Counter[tuple[int, int]] = Counter()
        """By stage and layer, how many replicas have the gradients of the bucket that is full with this layer."""
        self._outbox: list[_Message] = []
        """In the order in which they became ready."""
        self._transfers: list[_Transfer] = []
        self._computing: dict[int, _UnderWay] = {}
        """By rank, the part of a pass."""
        self._sending: set[int] = set()
        self._receiving: set[int] = set()
        """The ranks that do."""
        self._idle_since_us = [0.0] * plan.world
        self.events: list[Event] = []
        self.end_us = self.busy_us = 0.0
        self.peak_bytes = [
            COPIES_OF_PARAMETERS * sum(cost.parameter_bytes for cost in self._costs[group :: plan.groups])
            for group, _ in self._places
        ]
        self._held_bytes = self.peak_bytes[:]
        self._run()

    def _run(self) -> None:
        for rank in range(self._plan.world):
            self._advance(rank)
        while self._coming:
            us, number = heapq.heappop(self._coming)
            if happens := self._happens.pop(number, None):
                self.end_us = us
                happens()
        if any(self._left):
            raise NoPlan(f"schedule={self._plan.schedule}: its ranks deadlock")

    def _at(self, us: float, happens: Callable[[], None]) -> int:
        """Its number, by which it can be dropped from ``_happens``."""
        number = next(self._numbers)
        self._happens[number] = happens
        heapq.heappush(self._coming, (us, number))
        return number

    def _go_on(self, what: _UnderWay, *, speed: float) -> None:
        """At this speed from now on."""
        if what.speed is not None:
            if speed == what.speed:
                return
            self._happens.pop(what.number, None)
            what.left_us = max(0.0, what.left_us - what.speed * (self.end_us - what.since_us))
        what.since_us, what.speed = self.end_us, speed
        if speed:
            what.number = self._at(self.end_us + what.left_us / speed, what.ends)

    # -- computing -----------------------------------------------------------------------------------------------------

    def _advance(self, rank: int) -> None:
        """Begin the next pass of a rank, if it is idle, and what the pass needs is there."""
        left = self._left[rank]
        if rank in self._computing or not left:
            return
        group, replica = self._places[rank]
        action, microbatch = left[0], self._plan.runs(group, replica)[left[0].microbatch]
        if not self._is_there(action, microbatch):
            return
        left.popleft()
        if self.end_us > self._idle_since_us[rank]:
            self._note(rank, action.stage, microbatch, "wait", self._idle_since_us[rank], self.end_us)
        self._compute(rank, action, microbatch)

    def _is_there(self, action: Action, microbatch: int) -> bool:
        """Whether the input of a pass has arrived, if it comes from another stage."""
        if action.what == "forward" and action.stage > 0:
            return _Input("activations", action.stage, microbatch) in self._arrived
        if action.what in ("backward", "dgrad") and action.stage + 1 < len(self._plan.stages):
            return _Input("gradients", action.stage, microbatch) in self._arrived
        return True

    def _compute(self, rank: int, action: Action, microbatch: int) -> None:
        if action.what == "forward":
            self._held_bytes[rank] += self._costs[action.stage].kept_bytes
            self.peak_bytes[rank] = max(self.peak_bytes[rank], self._held_bytes[rank])
        is_last = False
        if action.what in ("backward", "wgrad"):
            self._gradients_left[rank][action.stage] -= 1
            is_last = not self._gradients_left[rank][action.stage]
        self._compute_part(rank, action, microbatch, self._parts(action, in_buckets=is_last))

    def _compute_part(
        self, rank: int, action: Action, microbatch: int, parts: Iterator[tuple[What, float, int, int]]
    ) -> None:
        """The next of the parts that are left of a pass, and then the others."""
        part = next(parts, None)
        if part is None:
            self._finish(rank, action, microbatch)
            return
        what, us, layer, size_bytes = part
        began_us = self.end_us

        def ends() -> None:
            del self._computing[rank]
            self._note(rank, action.stage, microbatch, what, began_us, self.end_us)
            self.busy_us += us
            if size_bytes:
                self._join(action.stage, layer, size_bytes)
            self._compute_part(rank, action, microbatch, parts)

        self._computing[rank] = _UnderWay(left_us=us, ends=ends)
        self._go_on(self._computing[rank], speed=self._speed_of(rank))

    def _speed_of(self, rank: int) -> float:
        """Of what a rank computes: it takes part in one sum at a time."""
        return 1.0 - sum(each.message.crowds for each in self._transfers if rank in each.message.senders)

    def _finish(self, rank: int, action: Action, microbatch: int) -> None:
        stage, cost = action.stage, self._costs[action.stage]
        self._idle_since_us[rank] = self.end_us
        if action.what == "forward" and stage + 1 < len(self._plan.stages):
            self._send(rank, stage, _Input("activations", stage + 1, microbatch), cost.output_bytes)
        if action.what in ("backward", "dgrad") and stage:
            self._send(rank, stage, _Input("gradients", stage - 1, microbatch), cost.input_bytes)
        if action.what in ("backward", "wgrad"):
            self._held_bytes[rank] -= cost.kept_bytes
        self._advance(rank)

    def _parts(self, action: Action, *, in_buckets: bool) -> Iterator[tuple[What, float, int, int]]:
        """The parts of a pass, how long each takes, and the layer and the bytes of gradients that are summed from then
        on. ``in_buckets``: no other pass of this rank gives gradients of the stage's parameters."""
        cost, stage = self._costs[action.stage], self._plan.stages[action.stage]
        if in_buckets and stage.replicas > 1:
            own = self._plan.layers[stage.first : stage.last]
            for number, size_bytes in reversed([*enumerate(bucket_sizes(own))]):
                if action.what == "backward":
                    yield "dgrad", own[number].dgrad_us, number, 0
                split_us = own[number].split_us if action.what == "wgrad" and stage.first else 0.0
                yield "wgrad", own[number].wgrad_us + split_us, number, size_bytes
            return
        if action.what == "forward":
            yield "forward", cost.forward_us, 0, 0
        if action.what in ("backward", "dgrad"):
            yield "dgrad", cost.dgrad_us, 0, 0
        if action.what in ("backward", "wgrad"):
            yield "wgrad", cost.wgrad_us + (cost.split_us if action.what == "wgrad" else 0.0), 0, 0

    # -- communication -------------------------------------------------------------------------------------------------

    def _send(self, rank: int, stage: int, needed: _Input, size_bytes: int) -> None:
        receiver = self._plan.rank_of(needed.stage, needed.microbatch)
        if receiver == rank:
            self._arrived.add(needed)
            return
        us = transfer_us(self._link, size_bytes)
        self._post(_Message(senders=(rank,), receivers=(receiver,), stage=stage, us=us, sends=needed))

    def _join(self, stage: int, layer: int, size_bytes: int) -> None:
        """One more replica has the gradients of a bucket; with the last one they are summed."""
        replicas = self._plan.stages[stage].replicas
        self._ready[stage, layer] += 1
        if self._ready[stage, layer] == replicas:
            ranks = tuple(self._plan.ranks(stage % self._plan.groups))
            us = sum_us(self._link, size_bytes, ranks=replicas)
            taken_us = crowding_us(self._link, size_bytes, ranks=replicas)
            crowds = taken_us / us if taken_us else 0.0
            self._post(_Message(senders=ranks, receivers=ranks, stage=stage, us=us, crowds=crowds))

    def _post(self, message: _Message) -> None:
        self._outbox.append(message)
        self._send_what_can_go()

    def _send_what_can_go(self) -> None:
        for message in list(self._outbox):
            if self._sending.isdisjoint(message.senders) and self._receiving.isdisjoint(message.receivers):
                self._outbox.remove(message)
                self._sending.update(message.senders)
                self._receiving.update(message.receivers)
                going = _UnderWay(left_us=message.us, ends=partial(self._arrive, message))
                self._transfers.append(_Transfer(message=message, began_us=self.end_us, going=going))
        self._pace()

    def _pace(self) -> None:
        """Let everything go on at the speed that it has from now on."""
        for each in self._transfers:
            self._go_on(each.going, speed=self._speed(each.message))
        if self._link.crowding_us_a_mb:
            for rank, part in self._computing.items():
                self._go_on(part, speed=self._speed_of(rank))

    def _speed(self, message: _Message) -> float:
        """A sum counts as slow already: its ranks send and receive at once."""
        is_at_once = not (self._receiving.isdisjoint(message.senders) and self._sending.isdisjoint(message.receivers))
        return self._speed_at_once if is_at_once and message.sends is not None else 1.0

    def _arrive(self, message: _Message) -> None:
        arrived = next(each for each in self._transfers if each.message is message)
        self._transfers.remove(arrived)
        self._sending.difference_update(message.senders)
        self._receiving.difference_update(message.receivers)
        self._note_message(message, arrived.began_us)
        if message.sends is not None:
            self._arrived.add(message.sends)
            self._advance(message.receivers[0])
        self._send_what_can_go()

    # -- events --------------------------------------------------------------------------------------------------------

    def _note_message(self, message: _Message, began_us: float) -> None:
        """It arrives now."""
        if message.sends is None:
            for rank in message.senders:
                self._note(rank, message.stage, None, "reduce", began_us, self.end_us)
            return
        what, stage, microbatch = message.sends
        (sender,), (receiver,) = message.senders, message.receivers
        detail = f"{what} to rank {receiver}"
        self._note(sender, message.stage, microbatch, "send", began_us, self.end_us, detail=detail)
        detail = f"{what} from rank {sender}"
        self._note(receiver, stage, microbatch, "receive", began_us, self.end_us, detail=detail)

    def _note(
        self, rank: int, stage: int, microbatch: int | None, what: What,
        start_us: float, end_us: float, *, detail: str = "",
    ) -> None:  # fmt: skip
        self.events.append(
            Event(
                rank=rank, stage=stage, what=what, start_us=start_us, end_us=end_us, microbatch=microbatch,
                detail=detail,
            )
        )  # fmt: skip
