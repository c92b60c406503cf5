"""The timeline of a simulated step, as a trace for chrome://tracing or Perfetto."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dwconv.system.new_file import replace_file

What = Literal["forward", "dgrad", "wgrad", "communication"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Microseconds count from the beginning of the step. What no event covers is idle time."""

    rank: int
    stage: int
    microbatch: int | None
    """Numbered over the whole batch; None for gradients that are summed over ranks."""
    what: What
    start_us: float
    end_us: float
    detail: str = ""
    """For people, such as ``activations to rank 2``."""

    @property
    def name(self) -> str:
        """For people."""
        return self.detail or f"{self.what} {self.microbatch}"


def write_timeline(events: Sequence[Event], path: Path) -> None:
    """Write the events: a process for each rank, with a thread that computes and one that sends."""
    replace_file(path, [json.dumps(trace(events)).encode()], durable=False)


def trace(events: Sequence[Event]) -> dict[str, Any]:
    """The events in Chrome's trace event format."""
    named: list[dict[str, Any]] = []
    for rank in sorted({event.rank for event in events}):
        stages = sorted({event.stage for event in events if event.rank == rank})
        name = f"rank {rank} · stage{'s' if len(stages) > 1 else ''} {', '.join(map(str, stages))}"
        named.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": name}})
        for thread, does in enumerate(("computes", "sends")):
            named.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": does}})
    shown = [
        {
            "ph": "X",
            "pid": event.rank,
            "tid": int(event.what == "communication"),
            "ts": event.start_us,
            "dur": event.end_us - event.start_us,
            "cat": event.what,
            "name": event.name,
            "args": {"stage": event.stage, "microbatch": event.microbatch},
        }
        for event in events
    ]
    return {"traceEvents": [*named, *shown], "displayTimeUnit": "ms"}
