"""Inside the measuring process: one reading of the limits of this CPU.

    memory, cache     copies by all threads: far more than the caches hold; a third of what the last level does
    levels            copies by one thread, in half of each level of the caches
    peak, thread      multiply-adds on registers, in all threads and in one; and a pointwise convolution of PyTorch's
    region            an empty parallel region by all threads, less the same by one

All are measured in turns, several times, within about a second. The shortest run of each counts: a limit is the speed
of uncontended hardware. On a busy machine a first reading is used all the same. All threads then do no less than one,
and a region whose every run was contended, in which threads wait for a core, counts as not measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dwconv.kernels.entry import message
from dwconv.measure.clock.timing import CpuClock
from dwconv.problems.target import CacheLevel, CpuTarget, Limits
from dwconv.system import cpu_facts, memory
from dwconv.system.cpu_facts import MiB

_TURNS = 4
_TURN_S = 0.015
"""For each quantity."""
_EXTRA_S = 0.5
"""Extra time in all, for quantities of which no run was uncontended."""
_ACCUMULATORS = (8, 12)
"""Enough to hide the latency of a multiply-add, few enough not to spill."""
_MULTIPLY_ADD_TURNS = 20_000
_LONGEST_REGION_S = 1e-3
_COPIED_BYTES = 8 * MiB
"""Read and written in a call that copies within the caches: it takes some tenths of a millisecond."""


@message
@dataclass(frozen=True, kw_only=True)
class Gauge:
    """Measure the limits."""


@message
@dataclass(frozen=True, kw_only=True)
class Reading:
    """A measurement of the limits; ``contended`` if the machine was too busy to trust it."""

    limits: Limits
    contended: bool


class Meter:
    """Handler of the measuring process."""

    def __init__(self, target: CpuTarget) -> None:
        torch.set_num_threads(target.threads)
        self._target = target
        self._level_bytes = level_bytes(target)
        self._rates = self._make_rates()

    def __call__(self, _: Gauge) -> Reading:
        clock, extra = CpuClock(), _Extra(seconds=_EXTRA_S)
        stopwatches = {name: _Stopwatch(rate.call, clock=clock, extra=extra) for name, rate in self._rates.items()}
        for _turn in range(_TURNS):
            for stopwatch in stopwatches.values():
                stopwatch.run()
        least_s = {name: stopwatch.least_s for name, stopwatch in stopwatches.items()}
        reached = {name: rate.work / least_s[name] / 1e9 for name, rate in self._rates.items()}
        peaks = ("convolution", "thread", *map(_multiply_add, _ACCUMULATORS))
        together = not (stopwatches["region"].contended or stopwatches["no region"].contended)
        limits = Limits(
            memory_gb_per_s=reached["memory"],
            cache_gb_per_s=max(reached["cache"], reached[_level(len(self._level_bytes) - 1)]),
            cache_bytes=self._target.cache_bytes,
            peak_gflop_per_s=max(reached[name] for name in peaks),
            thread_gflop_per_s=reached["thread"],
            levels=tuple(
                CacheLevel(bytes=size, gb_per_s=reached[_level(number)])
                for number, size in enumerate(self._level_bytes)
            ),
            region_us=_region_us(least_s["region"] - least_s["no region"]) if together else 0.0,
        )
        return Reading(limits=limits, contended=any(stopwatch.contended for stopwatch in stopwatches.values()))

    def _make_rates(self) -> dict[str, _Rate]:
        """What is measured; each of the calls is compiled here, so that no reading waits for it."""
        from dwconv.measure.meter_kernels import multiply_add, region

        target, threads = self._target, self._target.threads

        def adding(accumulators: int, *, threads: int) -> _Rate:
            call = multiply_add(target, accumulators=accumulators, threads=threads, turns=_MULTIPLY_ADD_TURNS)
            return _Rate(call=call, work=2 * accumulators * target.lanes() * _MULTIPLY_ADD_TURNS * threads)

        return {
            "memory": _copy(_memory_bytes(target)),
            "cache": _copy(min(target.cache_bytes // 3, 16 * MiB)),
            **{_level(number): _copy_within(size, target) for number, size in enumerate(self._level_bytes)},
            "convolution": _convolution(),
            **{_multiply_add(count): adding(count, threads=threads) for count in _ACCUMULATORS},
            "thread": adding(max(_ACCUMULATORS), threads=1),
            "region": _Rate(call=region(target, most_threads=threads)),
            "no region": _Rate(call=region(target, most_threads=1)),
        }


def _level(number: int) -> str:
    return f"level {number}"


def _multiply_add(accumulators: int) -> str:
    return f"multiply-add {accumulators}"


def level_bytes(target: CpuTarget) -> tuple[int, ...]:
    """What a thread has of each level of the caches, the nearest first. Of the last one it has an equal share; where
    that is no more than the level before, a thread finds nothing in it that is not there already."""
    inner = cpu_facts.inner_cache_bytes()
    share = min(target.cache_bytes // target.threads, cpu_facts.MOST_PER_CPU)
    return (*inner, share) if share > inner[-1] else inner


def _region_us(seconds: float) -> float:
    """0 for what is no measurement: threads that spin or wake start within microseconds, wherever they are."""
    return seconds * 1e6 if 0 < seconds < _LONGEST_REGION_S else 0.0


@dataclass(frozen=True, kw_only=True)
class _Rate:
    """A call, and how many bytes it moves or operations it does."""

    call: Callable[[], object]
    work: int = 0


def _memory_bytes(target: CpuTarget) -> int:
    """A working set of which little is found in the caches, others' included."""
    caches = target.cache_bytes + target.others_cache_bytes
    return min(max(4 * caches, 256 * MiB), 512 * MiB, memory.available_bytes() // 4)


def _copy(working_set_bytes: int) -> _Rate:
    """Copy a source to a destination that together fill the working set; counts bytes read and written."""
    source = torch.zeros(max(1, working_set_bytes // 2), dtype=torch.uint8)
    destination = torch.zeros_like(source)
    return _Rate(call=lambda: destination.copy_(source), work=working_set_bytes)


def _copy_within(level_bytes: int, target: CpuTarget) -> _Rate:
    """Copy within half of a level of the caches, in one thread."""
    from dwconv.measure.meter_kernels import copies

    turns = max(1, _COPIED_BYTES // level_bytes)
    call, moved_bytes = copies(target, working_set_bytes=level_bytes // 2, turns=turns)
    return _Rate(call=call, work=moved_bytes)


def _convolution() -> _Rate:
    """A pointwise convolution, the most that a library gets out of this CPU."""
    import torch.nn.functional as F

    batch, channels, size = 4, 256, 32
    x = torch.randn(batch, channels, size, size).contiguous(memory_format=torch.channels_last)
    w = torch.randn(channels, channels, 1, 1).contiguous(memory_format=torch.channels_last)
    return _Rate(call=lambda: F.conv2d(x, w), work=2 * batch * size**2 * channels**2)


@dataclass(kw_only=True)
class _Extra:
    """Time that stopwatches share."""

    seconds: float


class _Stopwatch:
    """Finds the shortest of many runs of a call."""

    def __init__(self, call: Callable[[], object], *, clock: CpuClock, extra: _Extra) -> None:
        self._call = call
        self._clock = clock
        self._extra = extra
        self.least_s = math.inf
        self.contended = True
        """True until one run was uncontended."""

    def run(self) -> None:
        """Take a turn of many runs, or of one long one; it lasts longer, while there is extra time, if all of them are
        disturbed."""
        started, taken_s, calm = time.perf_counter(), 0.0, False
        while taken_s < _TURN_S or (not calm and taken_s < _TURN_S + self._extra.seconds):
            lap = self._clock.lap(self._call, times=1)
            calm |= not lap.contended
            self.least_s = min(self.least_s, lap.seconds)
            taken_s = time.perf_counter() - started
        self._extra.seconds = max(0.0, self._extra.seconds - max(0.0, taken_s - _TURN_S))
        self.contended &= not calm
