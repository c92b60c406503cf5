"""Layers with times that tests can compute with, and plans of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dwconv.parallel.planning.plan import FREE_LINK, LayerCost, Link, Plan, Stage


def layer(
    *,
    name: str = "layer",
    forward_us: float = 100.0,
    dgrad_us: float = 100.0,
    wgrad_us: float = 100.0,
    output_bytes: int = 1000,
    saved_bytes: int = 500,
    parameter_bytes: int = 40,
) -> LayerCost:
    return LayerCost(
        name=name, forward_us=forward_us, dgrad_us=dgrad_us, wgrad_us=wgrad_us, output_bytes=output_bytes,
        saved_bytes=saved_bytes, parameter_bytes=parameter_bytes,
    )  # fmt: skip


def plan(
    layers: Sequence[LayerCost],
    *,
    replicas: Sequence[int] | None = None,
    microbatches: int = 4,
    schedule: str = "1f1b",
    link: Link = FREE_LINK,
    stages_per_rank: int = 1,
) -> Plan:
    """Every layer is a stage."""
    return Plan(
        layers=tuple(layers),
        stages=tuple(
            Stage(first=number, last=number + 1, replicas=count)
            for number, count in enumerate(replicas or [1] * len(layers))
        ),
        microbatches=microbatches,
        schedule=schedule,
        link=link,
        stages_per_rank=stages_per_rank,
    )


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
