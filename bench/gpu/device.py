"""Requests of ``bench cuda`` to its device, except for the clock; the same on a CPU, where tests run it."""

from __future__ import annotations

import time

import torch

from dwconv.measure.clock.device import get_ready, synchronize
from dwconv.measure.clock.timing import Call
from dwconv.problems.target import Target


def warm_up(target: Target) -> None:
    """Use the device once: the first time in a process takes seconds. Raises the device's error."""
    get_ready(target)
    torch.zeros(1, device=target.kind)
    synchronize(target)


def host_us(call: Call, *, target: Target, calls: int = 200) -> float:
    """Microseconds that a call takes on the host, without waiting for the device."""
    for _ in range(10):
        call()
    synchronize(target)
    started_s = time.perf_counter()
    for _ in range(calls):
        call()
    taken_s = time.perf_counter() - started_s
    synchronize(target)
    return taken_s / max(1, calls) * 1e6
