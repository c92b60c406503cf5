"""Plans whose layers cost nothing, for what does not depend on times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dwconv.parallel.planning.plan import LayerCost, Link, Plan, Stage


def plan_of(
    ends: Sequence[int],
    *,
    schedule: str = "gpipe",
    replicas: int = 1,
    microbatches: int = 4,
    stages_per_rank: int = 1,
) -> Plan:
    """Stages that end at the layers ``ends``, of which the last is the number of layers."""
    layers = tuple(
        LayerCost(
            name=f"layer{number}",
            forward_us=1.0,
            dgrad_us=1.0,
            wgrad_us=1.0,
            output_bytes=1,
            saved_bytes=1,
            parameter_bytes=1,
        )
        for number in range(ends[-1])
    )
    return Plan(
        layers=layers,
        stages=tuple(Stage(first=first, last=last, replicas=replicas) for first, last in pairwise([0, *ends])),
        microbatches=microbatches,
        schedule=schedule,
        link=Link(gb_s=1.0, latency_us=1.0),
        stages_per_rank=stages_per_rank,
    )
