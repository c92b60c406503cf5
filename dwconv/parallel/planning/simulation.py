"""Simulate one training step of a plan, from the times of its layers and its link, without running anything.

    rank 0   F0 F1 F2 ·····  B0 F3 B1 …     a rank runs its passes in the order of the schedule, each as soon as its
    rank 1      F0 ·· B0 F1 …               input has come; sending and summing go on beside them

From one rank to another one message goes at a time, beside computing. The gradients of a stage are summed over its
replicas, around a ring, as soon as the last of them is there. With one stage, which is plain data parallelism, this
happens in buckets while the backward pass of the last microbatch goes on. All replicas of a stage do the same at the
same time. The optimizer's step is left out: every rank takes it for its own parameters.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
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


class _Step:
    """One step of the first replica of each group of ranks."""

    def __init__(self, plan: Plan, link: Link) -> None:
        self._plan, self._link = plan, link
        self._costs = [stage_cost(plan.layers, first=stage.first, last=stage.last) for stage in plan.stages]
        self._arrives_us: dict[_Input, float] = {}
        self._computes_until_us = [0.0] * plan.groups
        self._sends_until_us: defaultdict[tuple[int, int], float] = defaultdict(float)
        """By sending and receiving group; of sums both are the same."""
        self.events: list[Event] = []
        self.end_us = self.busy_us = 0.0
        self.peak_bytes = [
            COPIES_OF_PARAMETERS * sum(cost.parameter_bytes for cost in self._costs[group :: plan.groups])
            for group in range(plan.groups)
        ]
        self._held_bytes = self.peak_bytes[:]
        self._run()

    def _run(self) -> None:
        left = [deque(actions(self._plan, group)) for group in range(self._plan.groups)]
        moved = True
        while moved:
            moved = False
            for group, passes in enumerate(left):
                while passes and (ready_us := self._ready_us(passes[0])) is not None:
                    action = passes.popleft()
                    is_last = not any(each.stage == action.stage and each.what != "forward" for each in passes)
                    self._compute(group, action, ready_us, is_last=is_last)
                    moved = True
        if any(left):
            raise NoPlan(f"schedule={self._plan.schedule}: its ranks deadlock")

    # -- computing -----------------------------------------------------------------------------------------------------

    def _ready_us(self, action: Action) -> float | None:
        """When the input of a pass is there; None while that is not known."""
        if action.what == "forward" and action.stage > 0:
            return self._arrives_us.get(_Input("activations", action.stage, action.microbatch))
        if action.what in ("backward", "dgrad") and action.stage + 1 < len(self._plan.stages):
            return self._arrives_us.get(_Input("gradients", action.stage, action.microbatch))
        return 0.0

    def _compute(self, group: int, action: Action, ready_us: float, *, is_last: bool) -> None:
        """``is_last``: no other pass of this rank gives gradients of the stage's parameters."""
        stage, cost = action.stage, self._costs[action.stage]
        if action.what == "forward":
            self._held_bytes[group] += cost.kept_bytes
            self.peak_bytes[group] = max(self.peak_bytes[group], self._held_bytes[group])
        at_us = max(self._computes_until_us[group], ready_us)
        in_buckets = len(self._plan.stages) == 1 and action.what == "backward" and is_last
        for what, us, size_bytes in self._parts(action, in_buckets=in_buckets):
            self._note(group, stage, action.microbatch, what, at_us, at_us + us)
            self.busy_us += us
            at_us += us
            if size_bytes:
                self._sum(group, stage, at_us, size_bytes)
        self._computes_until_us[group] = at_us
        self.end_us = max(self.end_us, at_us)
        if action.what == "forward" and stage + 1 < len(self._plan.stages):
            self._send(group, _Input("activations", stage + 1, action.microbatch), at_us, cost.output_bytes)
        if action.what in ("backward", "dgrad") and stage:
            self._send(group, _Input("gradients", stage - 1, action.microbatch), at_us, cost.input_bytes)
        if action.what in ("backward", "wgrad"):
            self._held_bytes[group] -= cost.kept_bytes
            if is_last and not in_buckets:
                self._sum(group, stage, at_us, cost.parameter_bytes)

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

    def _send(self, group: int, needed: _Input, at_us: float, size_bytes: int) -> None:
        receiver = needed.stage % self._plan.groups
        if receiver != group:
            start_us = max(at_us, self._sends_until_us[group, receiver])
            at_us = self._sends_until_us[group, receiver] = start_us + transfer_us(self._link, size_bytes)
            stage = needed.stage + (1 if needed.what == "gradients" else -1)
            self._note(group, stage, needed.microbatch, "communication", start_us, at_us, sends=needed)
        self._arrives_us[needed] = at_us

    def _sum(self, group: int, stage: int, at_us: float, size_bytes: int) -> None:
        if self._plan.replicas == 1 or not size_bytes:
            return
        start_us = max(at_us, self._sends_until_us[group, group])
        end_us = start_us + sum_us(self._link, size_bytes, ranks=self._plan.replicas)
        self._sends_until_us[group, group] = end_us
        self.end_us = max(self.end_us, end_us)
        self._note(group, stage, None, "communication", start_us, end_us)

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
