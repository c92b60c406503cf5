"""The device that a process measures on: its clock, making it ready, and whether it still works."""

from __future__ import annotations

import torch

from dwconv import native, settings
from dwconv.measure.clock.cuda_clock import CudaClock, leave_default_stream
from dwconv.measure.clock.timing import Clock, CpuClock
from dwconv.problems.target import Target
from dwconv.system.versions import can_build


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
        native.leave_out("compiling it takes half a minute, and the clock of a GPU does not see how long a call takes")
    elif compiles_calls:
        native.native(limit_s=0.8 * settings.WORKER_START_TIMEOUT_S)
    elif native.native(may_compile=False) is None:
        native.leave_out("it is not compiled yet, and nobody waits for it here")


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
