"""The device that a process measures on: its clock, making it ready, and whether it still works.

How long a call takes a GPU: many are captured in a CUDA graph, which is replayed between two CUDA events.

    the first calls       on a side stream: they compile, choose algorithms, allocate
    capture               COUNT calls ──► one graph
    a lap                 event ─ replay ─ replay ─ … ─ event, on the device's own clock

A backward pass runs on the stream of its forward pass, whatever stream is current, and no capture holds what runs on
another stream than its own. So a process that measures leaves the default stream, which cannot be captured
(``leave_default_stream``), and captures on its current one.

A call costs the host 5 to 50 µs, and many kernels run for less: launched one by one, all of them would seem to take as
long as Python does. A graph launches its kernels without Python.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dwconv import native, settings
from dwconv.errors import CannotBeCaptured
from dwconv.kernels.cpu_build import telling_line
from dwconv.measure.clock.timing import Call, Clock, CpuClock, Effort, InTurn, Lap
from dwconv.problems.target import Target
from dwconv.system.versions import can_build

_MOST_CALLS = 20
_ENOUGH_S = 0.004
"""Calls that together take longer than this are not captured in one graph."""
_FIRST_CALLS = 3
_LEAST_ROUNDS = 5


def leave_default_stream() -> None:
    """From now on this thread uses a stream of its own, which can be captured."""
    if torch.cuda.current_stream() == torch.cuda.default_stream():
        torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]


class CudaClock:
    """Times calls on PyTorch's current device and stream."""

    def __init__(self) -> None:
        self._pool: Any = None

    def ready(self, call: Call) -> Captured:
        """The call, captured in a graph. Raises CannotBeCaptured, and the call's own errors."""
        if isinstance(call, Captured):
            return call
        stream = torch.cuda.current_stream()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            for _ in range(_FIRST_CALLS):
                call()
            seconds = _seconds(call, times=_FIRST_CALLS)
        stream.wait_stream(side)
        turns = call.turns if isinstance(call, InTurn) else 1
        count = max(turns, min(_MOST_CALLS, math.ceil(_ENOUGH_S / max(seconds, 1e-7))))
        return Captured(graph=self._capture(call, count=count), count=count, call=call)

    def lap(self, call: Call, *, times: int) -> Lap:
        captured = self.ready(call)
        replays = math.ceil(times / captured.count)
        seconds = _seconds(captured.graph.replay, times=replays) / captured.count
        return Lap(seconds=seconds * times)

    def enough(self, effort: Effort) -> Effort:
        """Work on the host does not reach the device: on an H200, rounds of 2 ms differ by 0.1 to 0.5 %."""
        return dataclasses.replace(
            effort, round_s=effort.round_s / 2, rounds=max(_LEAST_ROUNDS, effort.rounds // 3), patience_s=0.0
        )

    def overall(self) -> Callable[[], float]:
        return lambda: 0.0

    def _capture(self, call: Call, *, count: int) -> torch.cuda.CUDAGraph:
        """Capture ``count`` calls. All graphs share their memory, since nothing reads their results."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        own = None if stream == torch.cuda.default_stream() else stream
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=own, capture_error_mode="thread_local"):
                for _ in range(count):
                    call()
        except RuntimeError as error:
            self._pool = None  # a capture that failed goes on recording to it
            raise CannotBeCaptured(f"it cannot be captured in a CUDA graph: {telling_line(error)}") from error
        finally:
            torch.cuda.set_stream(stream)  # a capture that failed leaves its own stream current
        return graph


@dataclass(frozen=True, kw_only=True)
class Captured:
    """``count`` calls in a graph. Called, it runs them all."""

    graph: torch.cuda.CUDAGraph
    count: int
    call: Call
    """Kept alive, with the tensors that it reads."""

    def __call__(self) -> None:
        self.graph.replay()


def _seconds(call: Call, *, times: int) -> float:
    """The time of one call, by the device's clock, of ``times`` calls in a row."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    taken_ms: float = start.elapsed_time(end)
    return taken_ms / 1e3 / times


def clock_of(target: Target) -> Clock:
    """Times calls on the target."""
    return CudaClock() if target.kind == "cuda" else CpuClock()


def get_ready(target: Target, *, compiles_calls: bool = True) -> None:
    """Import and compile the code that loads kernels, which takes seconds the first time in a process. Calls bypass
    Python; where that is not compiled yet, only with ``compiles_calls``."""
    if can_build():
        import tvm  # noqa: F401

    if target.kind != "cpu":
        leave_default_stream()
        native.leave_out("compiling it takes half a minute, and the clock of a GPU does not time the call")
    elif compiles_calls:
        native.native(limit_s=0.8 * settings.WORKER_START_TIMEOUT_S)
    elif native.native(may_compile=False) is None:
        native.leave_out("it is not compiled yet")


def synchronize(target: Target) -> None:
    """Wait until the device has finished its work; raises its error."""
    if target.kind == "cuda":
        torch.cuda.synchronize()


def is_lost(target: Target) -> bool:
    """True if this process can no longer use the device: after an illegal access every CUDA call fails."""
    try:
        synchronize(target)
    except RuntimeError:
        return True
    return False
