"""The timeline of a step, simulated or measured, as a trace for chrome://tracing or Perfetto."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dwconv.system.new_file import replace_file

What = Literal["forward", "backward", "dgrad", "wgrad", "wait", "send", "receive", "reduce"]
"""``backward``: dgrad and wgrad in one, where they were not timed apart. ``wait``: for what another rank has to send.
``reduce``: gradients are summed over replicas."""
_THREADS = {"computes": ("forward", "backward", "dgrad", "wgrad", "wait"), "sends": ("send",),
            "receives": ("receive",), "reduces": ("reduce",)}  # fmt: skip
_THREAD_OF = {what: number for number, does in enumerate(_THREADS.values()) for what in does}


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
        if self.what == "reduce":
            return "sum of gradients"
        return self.detail or f"{self.what} {'gradients' if self.microbatch is None else self.microbatch}"


def write_timeline(steps: Mapping[str, Sequence[Event]], path: Path) -> None:
    """Write the events of steps by name, such as ``simulated``: a process for each rank of each, with threads that
    compute, send, receive and reduce."""
    replace_file(path, [json.dumps(trace(steps)).encode()], durable=False)


def trace(steps: Mapping[str, Sequence[Event]]) -> dict[str, Any]:
    """The events in Chrome's trace event format. The processes of a rank in several steps stand together."""
    named: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for number, (step, events) in enumerate(steps.items()):
        for rank in sorted({event.rank for event in events}):
            stages = sorted({event.stage for event in events if event.rank == rank})
            name = f"rank {rank} · stage{'s' if len(stages) > 1 else ''} {', '.join(map(str, stages))} · {step}"
            pid = rank * len(steps) + number
            named.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
            named.append({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}})
            for thread, does in enumerate(_THREADS):
                named.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "args": {"name": does}})
        shown += [
            {
                "ph": "X",
                "pid": event.rank * len(steps) + number,
                "tid": _THREAD_OF[event.what],
                "ts": event.start_us,
                "dur": event.end_us - event.start_us,
                "cat": event.what,
                "name": event.name,
                "args": {"stage": event.stage, "microbatch": event.microbatch},
            }
            for event in events
        ]
    return {"traceEvents": [*named, *shown], "displayTimeUnit": "ms"}
