"""What ``bench cuda`` asks of the device it runs on: few functions, the same on a CPU, where tests run them."""

from __future__ import annotations

import time

import torch

from dwconv import native, settings
from dwconv.measure.cuda_clock import CudaClock
from dwconv.measure.timing import Call, Clock, CpuClock
from dwconv.target import Target


def clock_of(target: Target) -> Clock:
    """Times calls on the target."""
    return CudaClock() if target.kind == "cuda" else CpuClock()


def cache_bytes(target: Target) -> int:
    """Size of the last cache before the memory."""
    return target.limits.cache_bytes if target.kind == "cuda" else target.cache_bytes


def warm_up(target: Target) -> None:
    """Make the device and what loads kernels ready, which takes seconds at its first use in a process; raises the
    device's error."""
    import tvm  # noqa: F401

    if target.kind == "cpu":  # the short way of calls is compiled the first time
        native.native(limit_s=0.8 * settings.WORKER_START_TIMEOUT_S)
    else:
        native.leave_out("compiling it takes half a minute, and the clock of a GPU does not see how long a call takes")
    torch.zeros(1, device=target.kind)
    synchronize(target)


def synchronize(target: Target) -> None:
    """Wait until the device has done what it was given; raises its error."""
    if target.kind == "cuda":
        torch.cuda.synchronize()


def host_us(call: Call, *, target: Target, calls: int = 200) -> float:
    """What a call takes the caller, who does not wait for the device."""
    for _ in range(10):
        call()
    synchronize(target)
    started_s = time.perf_counter()
    for _ in range(calls):
        call()
    taken_s = time.perf_counter() - started_s
    synchronize(target)
    return taken_s / max(1, calls) * 1e6
