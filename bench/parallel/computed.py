"""What GPUs would give: computed by the simulator from layer times of this machine, and a link that is stated."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from bench.parallel.case import Case
from dwconv.parallel.planning.compare import propose
from dwconv.parallel.planning.partition import Cluster, Shape
from dwconv.parallel.planning.plan import LayerCost, Link

WORLDS = (4, 8)
_MICROBATCHES_A_RANK = 4
_SCHEDULE = "zero-bubble"


@dataclass(frozen=True, kw_only=True)
class Computed:
    """Two plans of one case on so many GPUs, neither of which ran."""

    network: str
    images: str
    world: int
    batch: int
    data_parallel_ms: float
    pipeline_ms: float
    """Of the best pipeline."""
    pipeline: str
    bubble: float

    @property
    def ratio(self) -> float:
        """How many times as fast the pipeline is."""
        return self.data_parallel_ms / self.pipeline_ms


def computed(case: Case, layers: Sequence[LayerCost], *, link: Link, faster: float) -> list[Computed]:
    """By layers that take ``faster`` times less time than here. The batch grows with the GPUs."""
    on_gpu = [
        dataclasses.replace(
            layer,
            forward_us=layer.forward_us / faster,
            dgrad_us=layer.dgrad_us / faster,
            wgrad_us=layer.wgrad_us / faster,
        )
        for layer in layers
    ]
    found = []
    for world in WORLDS:
        microbatches = _MICROBATCHES_A_RANK * world
        proposal = propose(
            on_gpu, Cluster(world=world, link=link), Shape(microbatches=microbatches, schedule=_SCHEDULE)
        )
        plain = proposal.data_parallel
        best = next((each for each in proposal.candidates if not each.is_data_parallel), None)
        if plain is None or best is None:
            continue
        found.append(
            Computed(
                network=case.network,
                images=case.images.name,
                world=world,
                batch=microbatches * case.batch // case.microbatches,
                data_parallel_ms=plain.step.step_us / 1e3,
                pipeline_ms=best.step.step_us / 1e3,
                pipeline=best.name,
                bubble=best.step.bubble,
            )
        )
    return found


def table_of_computed(rows: Sequence[Computed], *, faster: float, gb_s: float) -> str:
    """As text."""
    lines = [
        "",
        f"computed, not measured: GPUs {faster:g} times as fast as a thread here, a link of {gb_s:g} GB/s each way, "
        f"{_SCHEDULE}",
        f"{'network':10} {'images':12} {'GPUs':>4} {'batch':>5} {'data parallel ms':>16} {'pipeline ms':>11} "
        f"{'×':>5} {'bubble':>6}  pipeline",
    ]
    lines += [
        f"{row.network:10} {row.images:12} {row.world:4} {row.batch:5} {row.data_parallel_ms:16.2f} "
        f"{row.pipeline_ms:11.2f} {row.ratio:5.2f} {row.bubble:6.0%}  {row.pipeline}"
        for row in rows
    ]
    return "\n".join(lines)
