"""BucketSpans: when the buckets of a step were sent and summed, and how much of the step that took.

rank 0   ─────●━━━━━━━━━━━━━━●───     ●: a bucket is sent here, and its sum is here
rank 1   ──────────●━━━━━━━━━●───     from the later ● on it is on its way; before, rank 0 waits for rank 1
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future


class BucketSpan(NamedTuple):
    """Of one bucket, in seconds."""

    sent_s: float
    summed_s: float


@dataclass(kw_only=True)
class BucketSpans:
    """Of the buckets of some steps on this rank, by steps, in the order in which they are sent."""

    steps: list[list[BucketSpan]] = field(default_factory=list)
    began_s: list[float] = field(default_factory=list)

    def begin(self) -> None:
        """A step begins. What is sent before the first is not noted."""
        self.steps.append([])
        self.began_s.append(time.perf_counter())

    def note(self, coming: Future[Tensor]) -> Future[Tensor]:
        """A bucket was sent just now, and ``coming`` is its sum: as before, noted when it is there."""
        if not self.steps:
            return coming
        step, number, sent_s = self.steps[-1], len(self.steps[-1]), time.perf_counter()
        step.append(BucketSpan(sent_s, sent_s))

        def arrived(future: Future[Tensor]) -> Tensor:
            step[number] = BucketSpan(sent_s, time.perf_counter())
            return future.value()

        return coming.then(arrived)


class InAStep(NamedTuple):
    """Medians over steps."""

    transfer_s: float
    """In which something was on its way; on average over the ranks."""
    waiting_s: float
    """In which nothing was, but this rank had sent a bucket which another had not; on the rank that waits longest."""


def in_a_step(spans: BucketSpans, group: dist.ProcessGroup) -> InAStep:
    """From as many steps on every rank of ``group``; each has to call it."""
    mine = (machine(), spans.steps, spans.began_s)
    everyones: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyones, mine, group=group)
    machines, steps, began_s = zip(*everyones, strict=True)
    has_one_clock = machines[0] and len({*machines}) == 1
    return medians(steps if has_one_clock else [_since(*each) for each in zip(steps, began_s, strict=True)])


def machine() -> str:
    """Which has one clock since it was started; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        return ""


def _since(steps: Sequence[Sequence[BucketSpan]], began_s: Sequence[float]) -> list[list[BucketSpan]]:
    """From the beginning of each step on."""
    return [
        [BucketSpan(sent_s - began, summed_s - began) for sent_s, summed_s in buckets]
        for buckets, began in zip(steps, began_s, strict=True)
    ]


def medians(everyones: Sequence[Sequence[Sequence[BucketSpan]]]) -> InAStep:
    """By rank, step and bucket: as many of each on all ranks."""
    transfers, waits = [], []
    for ranks in zip(*everyones, strict=True):
        last_s = [max(bucket.sent_s for bucket in buckets) for buckets in zip(*ranks, strict=True)]
        transfers.append(statistics.mean(_transfer_s(buckets, last_s) for buckets in ranks))
        waits.append(max(_covered_s(buckets) - _transfer_s(buckets, last_s) for buckets in ranks))
    return InAStep(statistics.median(transfers), statistics.median(waits))


def _transfer_s(buckets: Sequence[BucketSpan], last_s: Sequence[float]) -> float:
    pairs = zip(buckets, last_s, strict=True)
    return _covered_s(BucketSpan(max(bucket.sent_s, last), bucket.summed_s) for bucket, last in pairs)


def _covered_s(spans: Iterable[BucketSpan]) -> float:
    """By at least one of them."""
    covered_s, until_s = 0.0, float("-inf")
    for sent_s, summed_s in sorted(spans):
        covered_s += max(0.0, summed_s - max(sent_s, until_s))
        until_s = max(until_s, summed_s)
    return covered_s
