"""A plan of pipeline × data parallelism, as plain data: contiguous stages of layers, and how many ranks run each.

It knows neither torch nor a clock: partitions can be computed, tested and simulated for any number of devices.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One layer of the sequence that a model is cut into, for one microbatch."""

    name: str
    forward_us: float
    dgrad_us: float
    wgrad_us: float
    """Gradients of its parameters; 0 for a layer without parameters."""
    output_bytes: int
    """The result, which the next layer reads: sent between ranks where a stage ends here; its gradient, as large, comes
    back."""
    saved_bytes: int
    """Kept from the forward pass of one microbatch for its backward pass."""
    parameter_bytes: int


@dataclass(frozen=True, kw_only=True)
class Link:
    """A connection between two ranks."""

    gb_s: float
    """Bandwidth in 10⁹ bytes a second, each way."""
    latency_us: float


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Layers ``first`` to ``last`` (``last`` excluded), run by ``replicas`` ranks that share out the batch."""

    first: int
    last: int
    replicas: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Stages that together hold every layer once, in order."""

    layers: tuple[LayerCost, ...]
    stages: tuple[Stage, ...]
    microbatches: int
    """Microbatches a rank's share of the batch is cut into; where replicas differ, a rank's of the first stage."""
    schedule: str
    """``gpipe``, ``1f1b``, ``interleaved`` or ``zero-bubble``; with one stage it does not matter."""
    link: Link
    stages_per_rank: int = 1
    """More than one for ``interleaved``: of p groups of ranks, group g runs the stages g, g + p, g + 2p, …; their
    replicas are the same ranks."""

    @property
    def groups(self) -> int:
        """Groups of ranks, each of which runs the same stages: as many as stages if a rank runs one."""
        return len(self.stages) // self.stages_per_rank

    @property
    def world(self) -> int:
        """Ranks in all."""
        return sum(stage.replicas for stage in self.stages[: self.groups])

    @property
    def is_even(self) -> bool:
        """True if every stage has as many replicas, as a DeviceMesh pipeline × data has: it can be run."""
        return len({stage.replicas for stage in self.stages}) == 1
