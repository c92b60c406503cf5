"""Prices: a stage by its layers, and a message by its link."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dwconv.parallel.planning.plan import LayerCost, Link

FREE_LINK = Link(gb_s=math.inf, latency_us=0.0)
"""A link that costs nothing."""
COPIES_OF_PARAMETERS = 3
"""A rank holds three numbers for each parameter: the value, its gradient, and the momentum of the optimizer."""
BUCKET_BYTES = 25 * 2**20
"""Gradients that plain data parallelism sums at a time: DistributedDataParallel's own size."""
_BYTES_A_US = 1e3
"""At one gigabyte a second."""


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """One stage, for one microbatch."""

    forward_us: float
    dgrad_us: float
    wgrad_us: float
    input_bytes: int
    """Received from the stage before: nothing in the first one, which reads the data."""
    output_bytes: int
    kept_bytes: int
    """From the forward pass to the backward pass: what it received, and what its layers save."""
    parameter_bytes: int

    @property
    def compute_us(self) -> float:
        """All three passes."""
        return self.forward_us + self.dgrad_us + self.wgrad_us


def stage_cost(layers: Sequence[LayerCost], *, first: int, last: int) -> StageCost:
    """The cost of layers ``first`` to ``last``, ``last`` excluded."""
    own = layers[first:last]
    input_bytes = layers[first - 1].output_bytes if first else 0
    return StageCost(
        forward_us=sum(layer.forward_us for layer in own),
        dgrad_us=sum(layer.dgrad_us for layer in own),
        wgrad_us=sum(layer.wgrad_us for layer in own),
        input_bytes=input_bytes,
        output_bytes=own[-1].output_bytes,
        kept_bytes=input_bytes + sum(layer.saved_bytes for layer in own),
        parameter_bytes=sum(layer.parameter_bytes for layer in own),
    )


def transfer_us(link: Link, size_bytes: int) -> float:
    """The time from one rank to another."""
    return link.latency_us + size_bytes / (link.gb_s * _BYTES_A_US)


def sum_us(link: Link, size_bytes: float, *, ranks: int) -> float:
    """The time to sum over ``ranks`` what each of them has, around a ring: everybody sends and receives a share in each
    of 2 (ranks − 1) rounds."""
    rounds = 2 * (ranks - 1)
    return rounds * (link.latency_us + size_bytes / ranks / (link.gb_s * _BYTES_A_US))


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Gradients that are summed at a time."""

    ready_us: float
    """When they are there, from the beginning of the backward pass of the last microbatch."""
    size_bytes: int


def buckets(layers: Sequence[LayerCost]) -> list[Bucket]:
    """The buckets of plain data parallelism, which fill from the last layer to the first."""
    found: list[Bucket] = []
    passed_us, waiting_bytes = 0.0, 0
    for layer in reversed(layers):
        passed_us += layer.dgrad_us + layer.wgrad_us
        waiting_bytes += layer.parameter_bytes
        if waiting_bytes >= BUCKET_BYTES:
            found.append(Bucket(ready_us=passed_us, size_bytes=waiting_bytes))
            waiting_bytes = 0
    if waiting_bytes:
        found.append(Bucket(ready_us=passed_us, size_bytes=waiting_bytes))
    return found
