"""Simulate one training step of a plan, from the times of its layers and its link, without running anything.

    rank 0   F0 F1 F2 ·····  B0 F3 B1 …     a rank runs its passes in the order of the schedule, each as soon as its
    rank 1      F0 ·· B0 F1 …               input has come; sending and summing go on beside them

A rank sends one thing at a time and receives one thing at a time, whichever its neighbour, both beside computing: all
its messages share its link. The gradients of a stage are summed over its replicas, around a ring, as soon as the last
of them is there. With one stage, which is plain data parallelism, this happens in buckets while the backward pass of
the last microbatch goes on. All replicas of a stage do the same at the same time. The optimizer's step is left out:
every rank takes it for its own parameters.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from dwconv.errors import NoPlan
from dwconv.parallel.planning.plan import (
    COPIES_OF_PARAMETERS,
    FREE_LINK,
    Action,
    Link,
    Plan,
    actions,
    bucket_sizes,
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
    ran, free = _Step(plan, plan.link), _Step(plan, FREE_LINK)
    return SimulatedStep(
        events=tuple(sorted(ran.events, key=lambda event: (event.start_us, event.rank))),
        step_us=ran.end_us,
        bubble=max(0.0, 1 - free.busy_us / (free.end_us * plan.groups)) if free.end_us else 0.0,
        exposed_communication_us=max(0.0, ran.end_us - free.end_us),
        memory_bytes=tuple(peak for peak in ran.peak_bytes for _ in range(plan.replicas)),
    )


class _Input(NamedTuple):
    """A pass needs it from another stage: the activations or the gradients of a microbatch."""

    what: Literal["activations", "gradients"]
    stage: int
    microbatch: int


@dataclass(frozen=True, kw_only=True)
class _Message:
    """Something to send, from one group to another; of a sum both are the same."""

    sender: int
    receiver: int
    stage: int
    us: float
    sends: _Input | None = None
    """None for a sum of gradients."""


class _Step:
    """One step of the first replica of each group of ranks, from one moment to the next."""

    def __init__(self, plan: Plan, link: Link) -> None:
        self._plan, self._link = plan, link
        self._costs = [stage_cost(plan.layers, first=stage.first, last=stage.last) for stage in plan.stages]
        self._left = [deque(actions(plan, group)) for group in range(plan.groups)]
        self._coming: list[tuple[float, int, Callable[[], None]]] = []
        """By time, what happens next."""
        self._order = itertools.count()
        self._arrived: set[_Input] = set()
        self._outbox: list[_Message] = []
        """In the order in which they became ready."""
        self._computing: set[int] = set()
        self._sending: set[int] = set()
        self._receiving: set[int] = set()
        """The groups that do."""
        self.events: list[Event] = []
        self.end_us = self.busy_us = 0.0
        self.peak_bytes = [
            COPIES_OF_PARAMETERS * sum(cost.parameter_bytes for cost in self._costs[group :: plan.groups])
            for group in range(plan.groups)
        ]
        self._held_bytes = self.peak_bytes[:]
        self._run()

    def _run(self) -> None:
        for group in range(self._plan.groups):
            self._advance(group)
        while self._coming:
            self.end_us, _, happens = heapq.heappop(self._coming)
            happens()
        if any(self._left):
            raise NoPlan(f"schedule={self._plan.schedule}: its ranks deadlock")

    def _at(self, us: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._coming, (us, next(self._order), happens))

    # -- computing -----------------------------------------------------------------------------------------------------

    def _advance(self, group: int) -> None:
        """Begin the next pass of a group, if it is idle, and what the pass needs is there."""
        left = self._left[group]
        if group in self._computing or not left or not self._is_there(left[0]):
            return
        action = left.popleft()
        is_last = not any(each.stage == action.stage and each.what != "forward" for each in left)
        self._computing.add(group)
        self._compute(group, action, is_last=is_last)

    def _is_there(self, action: Action) -> bool:
        """Whether the input of a pass has arrived, if it comes from another stage."""
        if action.what == "forward" and action.stage > 0:
            return _Input("activations", action.stage, action.microbatch) in self._arrived
        if action.what in ("backward", "dgrad") and action.stage + 1 < len(self._plan.stages):
            return _Input("gradients", action.stage, action.microbatch) in self._arrived
        return True

    def _compute(self, group: int, action: Action, *, is_last: bool) -> None:
        """``is_last``: no other pass of this rank gives gradients of the stage's parameters."""
        if action.what == "forward":
            self._held_bytes[group] += self._costs[action.stage].kept_bytes
            self.peak_bytes[group] = max(self.peak_bytes[group], self._held_bytes[group])
        at_us = self.end_us
        in_buckets = len(self._plan.stages) == 1 and action.what == "backward" and is_last
        for what, us, size_bytes in self._parts(action, in_buckets=in_buckets):
            self._note(group, action.stage, action.microbatch, what, at_us, at_us + us)
            self.busy_us += us
            at_us += us
            if size_bytes:
                self._at(at_us, partial(self._sum, group, action.stage, size_bytes))
        self._at(at_us, partial(self._finish, group, action, sums=is_last and not in_buckets))

    def _finish(self, group: int, action: Action, *, sums: bool) -> None:
        stage, cost = action.stage, self._costs[action.stage]
        self._computing.remove(group)
        if action.what == "forward" and stage + 1 < len(self._plan.stages):
            self._send(group, stage, _Input("activations", stage + 1, action.microbatch), cost.output_bytes)
        if action.what in ("backward", "dgrad") and stage:
            self._send(group, stage, _Input("gradients", stage - 1, action.microbatch), cost.input_bytes)
        if action.what in ("backward", "wgrad"):
            self._held_bytes[group] -= cost.kept_bytes
            if sums:
                self._sum(group, stage, cost.parameter_bytes)
        self._advance(group)

    def _parts(self, action: Action, *, in_buckets: bool) -> Iterator[tuple[What, float, int]]:
        """The parts of a pass, how long each takes, and the bytes of gradients that are summed from then on."""
        cost = self._costs[action.stage]
        if in_buckets:
            for layer, size_bytes in reversed([*zip(self._plan.layers, bucket_sizes(self._plan.layers), strict=True)]):
                yield "dgrad", layer.dgrad_us, 0
                yield "wgrad", layer.wgrad_us, size_bytes
            return
        if action.what == "forward":
            yield "forward", cost.forward_us, 0
        if action.what in ("backward", "dgrad"):
            yield "dgrad", cost.dgrad_us, 0
        if action.what in ("backward", "wgrad"):
            yield "wgrad", cost.wgrad_us, 0

    # -- communication -------------------------------------------------------------------------------------------------

    def _send(self, group: int, stage: int, needed: _Input, size_bytes: int) -> None:
        receiver = needed.stage % self._plan.groups
        if receiver == group:
            self._arrived.add(needed)
            return
        us = transfer_us(self._link, size_bytes)
        self._post(_Message(sender=group, receiver=receiver, stage=stage, us=us, sends=needed))

    def _sum(self, group: int, stage: int, size_bytes: int) -> None:
        if self._plan.replicas > 1 and size_bytes:
            us = sum_us(self._link, size_bytes, ranks=self._plan.replicas)
            self._post(_Message(sender=group, receiver=group, stage=stage, us=us))

    def _post(self, message: _Message) -> None:
        self._outbox.append(message)
        self._send_what_can_go()

    def _send_what_can_go(self) -> None:
        for message in list(self._outbox):
            if message.sender not in self._sending and message.receiver not in self._receiving:
                self._outbox.remove(message)
                self._sending.add(message.sender)
                self._receiving.add(message.receiver)
                sends, ends_us = message.sends, self.end_us + message.us
                microbatch = None if sends is None else sends.microbatch
                self._note(
                    message.sender, message.stage, microbatch, "communication", self.end_us, ends_us, sends=sends
                )
                self._at(ends_us, partial(self._arrive, message))

    def _arrive(self, message: _Message) -> None:
        self._sending.remove(message.sender)
        self._receiving.remove(message.receiver)
        if message.sends is not None:
            self._arrived.add(message.sends)
            self._advance(message.receiver)
        self._send_what_can_go()

    def _note(
        self, group: int, stage: int, microbatch: int | None, what: What,
        start_us: float, end_us: float, *, sends: _Input | None = None,
    ) -> None:  # fmt: skip
        """An event of each replica."""
        replicas = self._plan.replicas
        for replica in range(replicas):
            detail = ""
            if what == "communication":
                detail = f"sum of gradients over {replicas} ranks"
            if sends is not None:
                detail = f"{sends.what} to rank {sends.stage % self._plan.groups * replicas + replica}"
            self.events.append(
                Event(
                    rank=group * replicas + replica, stage=stage, what=what, start_us=start_us, end_us=end_us,
                    microbatch=None if microbatch is None else microbatch * replicas + replica, detail=detail,
                )
            )  # fmt: skip
