"""Training on several devices: data and gradients move while others are computed; layers spread over pipeline stages.

    with dwconv.parallel.ranks() as rank:                     # joins the job that torchrun started
        model = data_parallel(model, example)                 # gradients are sent in the fastest way measured
        print(communication(model))                           # which, and why
        batches = prefetch(loader, rank.device)               # loaded, and copied, ahead of the step
        ...
        print(batches.report())                               # how long steps waited

    with dwconv.parallel.ranks() as rank:
        plan = plan_for_ranks(model, batch, schedule="zero-bubble")              # layers are timed, and cut into stages
        pipeline = Pipeline(model, plan, loss=cross_entropy, example=batch)
        loss = pipeline.step(batch, target)                                      # gradients of one process

Nothing in the rest of dwconv imports this package. PyTorch comes with the first name used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwconv.parallel.batch_norm import sync_bn as sync_bn
    from dwconv.parallel.data.prefetching import prefetch as prefetch
    from dwconv.parallel.data.replicas import communication as communication
    from dwconv.parallel.data.replicas import data_parallel as data_parallel
    from dwconv.parallel.data.ways import Communication as Communication
    from dwconv.parallel.joining import Rank as Rank
    from dwconv.parallel.joining import ranks as ranks
    from dwconv.parallel.joining import run as run
    from dwconv.parallel.pipeline.pipeline import Pipeline as Pipeline
    from dwconv.parallel.planning.for_ranks import plan_for_ranks as plan_for_ranks

_HOMES = {
    "Communication": "data.ways",
    "Pipeline": "pipeline.pipeline",
    "Rank": "joining",
    "communication": "data.replicas",
    "data_parallel": "data.replicas",
    "plan_for_ranks": "planning.for_ranks",
    "prefetch": "data.prefetching",
    "ranks": "joining",
    "run": "joining",
    "sync_bn": "batch_norm",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = globals()[name] = getattr(import_module(f"dwconv.parallel.{_HOMES[name]}"), name)
        return found
    raise AttributeError(f"module 'dwconv.parallel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
