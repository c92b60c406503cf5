"""Layers with times that tests can compute with, and plans of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise

from dwconv.parallel.planning.pipeline_plan import FREE_LINK, LayerCost, Link, Plan, Stage

_US = {"forward_us": 100.0, "dgrad_us": 100.0, "wgrad_us": 100.0}
_BYTES = {"output_bytes": 1000, "saved_bytes": 500, "parameter_bytes": 40}


def layer(*, name: str = "layer", **change: float) -> LayerCost:
    return LayerCost(**{"name": name, **_US, **_BYTES, **change})


def plan(layers: Sequence[LayerCost], *, replicas: int | Sequence[int] = 1, link: Link = FREE_LINK, **change) -> Plan:
    """Every layer is a stage. ``replicas``: of all of them, or of each."""
    counts = [replicas] * len(layers) if isinstance(replicas, int) else replicas
    stages = tuple(Stage(first=number, last=number + 1, replicas=count) for number, count in enumerate(counts))
    how = {"microbatches": 4, "schedule": "1f1b", **change}
    return Plan(layers=tuple(layers), stages=stages, link=link, **how)


def plan_of(
    ends: Sequence[int], *, schedule: str = "gpipe", replicas: int = 1, microbatches: int = 4, stages_per_rank: int = 1
) -> Plan:
    """Stages that end at the layers ``ends``, of which the last is the number of layers; what they cost is all one."""
    return Plan(
        layers=(layer(),) * ends[-1],
        stages=tuple(Stage(first=first, last=last, replicas=replicas) for first, last in pairwise([0, *ends])),
        microbatches=microbatches,
        schedule=schedule,
        link=Link(gb_s=1.0, latency_us=1.0),
        stages_per_rank=stages_per_rank,
    )


def uneven(ends: Sequence[int], replicas: Sequence[int], *, schedule: str = "1f1b", microbatches: int = 4) -> Plan:
    """As ``plan_of``, with these replicas of each stage."""
    made = plan_of(ends, schedule=schedule, microbatches=microbatches)
    stages = tuple(
        dataclasses.replace(stage, replicas=count) for stage, count in zip(made.stages, replicas, strict=True)
    )
    return dataclasses.replace(made, stages=stages)
