"""What every rank did in the last step, as measured: gathered for a picture."""

from __future__ import annotations

import torch.distributed as dist

from dwconv.parallel.pipeline.pipeline import Pipeline
from dwconv.parallel.pipeline.running_stage import Span
from dwconv.parallel.planning.events import Event, What

_WHAT: dict[str, What] = {
    "forward": "forward",
    "backward": "backward",
    "dgrad": "dgrad",
    "wgrad": "wgrad",
    "gradients": "communication",
}


def measured_events(pipeline: Pipeline) -> tuple[Event, ...]:
    """The last step of all ranks, which began it together; on every rank. Waiting for another stage is idle time:
    when a message is on its way, PyTorch's pipelining does not tell."""
    times = pipeline.times
    mine = [_event(span, pipeline, since_s=times.started_s) for span in times.spans] if times else []
    everyone: list[list[Event]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, mine)
    return tuple(
        sorted((event for events in everyone for event in events), key=lambda each: (each.start_us, each.rank))
    )


def _event(span: Span, pipeline: Pipeline, *, since_s: float) -> Event:
    replicas, replica = pipeline.plan.stages[0].replicas, pipeline.mesh.get_local_rank("data")
    return Event(
        rank=dist.get_rank(),
        stage=span.stage,
        microbatch=None if span.microbatch is None else span.microbatch * replicas + replica,
        what=_WHAT[span.work],
        start_us=1e6 * (span.start_s - since_s),
        end_us=1e6 * (span.end_s - since_s),
        detail="gradients summed over replicas" if span.work == "gradients" else "",
    )
