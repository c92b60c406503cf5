"""Layers with times that tests can compute with, and plans of them."""

from __future__ import annotations

from collections.abc import Sequence

from dwconv.parallel.planning.plan import LayerCost, Link, Plan, Stage
from dwconv.parallel.planning.prices import FREE_LINK


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
        name=name,
        forward_us=forward_us,
        dgrad_us=dgrad_us,
        wgrad_us=wgrad_us,
        output_bytes=output_bytes,
        saved_bytes=saved_bytes,
        parameter_bytes=parameter_bytes,
    )


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
