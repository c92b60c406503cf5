"""Turns: steps of several kinds, one after the other on all ranks at once, timed by the slowest rank."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist

Step = Callable[[], object]


def take_turns(
    steps: Mapping[str, Step], *, rounds: int, group: dist.ProcessGroup, device: torch.device
) -> dict[str, list[float]]:
    """The seconds of ``rounds`` steps of each kind, the same on every rank. In a round each kind comes once, in an
    order that changes from round to round; a step begins on all ranks together. Every rank has to call it."""
    names = list(steps)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            seconds[name].append(_seconds(steps[name], group=group, device=device))
    return dict(zip(names, slowest([seconds[name] for name in names], group=group, device=device), strict=True))


def slowest(seconds: Sequence[Sequence[float]], *, group: dist.ProcessGroup, device: torch.device) -> list[list[float]]:
    """Each of these numbers as it is on the rank where it is the largest."""
    numbers = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=group)
    found: list[list[float]] = numbers.tolist()
    return found


def longer_by_us(seconds: Sequence[float], than: Sequence[float]) -> tuple[float, float, float]:
    """How much longer, round by round: lower quartile, median and upper quartile."""
    apart_us = [(one - other) * 1e6 for one, other in zip(seconds, than, strict=True)]
    low, middle, high = statistics.quantiles(apart_us, n=4, method="inclusive")
    return low, middle, high


def _seconds(step: Step, *, group: dist.ProcessGroup, device: torch.device) -> float:
    _until_done(device)
    dist.barrier(group=group)
    started = time.perf_counter()
    step()
    _until_done(device)
    return time.perf_counter() - started


def _until_done(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
