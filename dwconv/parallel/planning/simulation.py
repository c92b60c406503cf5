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
from dataclasses import dataclass

from dwconv.parallel.planning.events import Event
from dwconv.parallel.planning.plan import Plan
from dwconv.parallel.planning.prices import FREE_LINK
from dwconv.parallel.planning.simulated_ranks import SimulatedRanks


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
    """By rank, at its peak: parameters with gradients and momentum, and what waits for the backward pass."""


def simulate(plan: Plan) -> SimulatedStep:
    """One step of ``plan``. Raises NoPlan for an unknown schedule."""
    ran, free = _run(plan), _run(dataclasses.replace(plan, link=FREE_LINK))
    busy_us = sum(event.end_us - event.start_us for event in free.events)
    return SimulatedStep(
        events=tuple(sorted(ran.events, key=lambda event: (event.start_us, event.rank))),
        step_us=ran.now_us,
        bubble=max(0.0, 1 - busy_us / (free.now_us * plan.world)) if free.now_us else 0.0,
        exposed_communication_us=max(0.0, ran.now_us - free.now_us),
        memory_bytes=tuple(rank.peak_bytes for rank in ran.ranks),
    )


def _run(plan: Plan) -> SimulatedRanks:
    ranks = SimulatedRanks(plan)
    ranks.run()
    return ranks
