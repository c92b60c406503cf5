"""Limits: how fast this CPU can copy and multiply, to compare measurements with.

They are measured in a process of its own, under the settings that kernels are timed under, and kept for each device.
Other work on the machine can only make a reading smaller, so the best of several readings is kept: a process measures
the quantities in turns, several times, and the first few runs measure again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dwconv import private_files, settings
from dwconv.build.wire import message
from dwconv.errors import NotKept
from dwconv.measure import memory
from dwconv.measure.process import IsolatedProcess
from dwconv.measure.timing import CpuClock
from dwconv.target import CpuTarget, Limits, MiB

ENOUGH_READINGS = 3
"""After so many undisturbed readings the limits are not measured again."""
EXCEEDED = 1.05
"""A kernel that is this many times as fast as the limit shows that the limit is wrong."""
_TURNS = 4
_TURN_S = 0.06  # for each quantity
_PATIENCE = 4  # times as long, if no run was undisturbed until then
_TIMEOUT_S = 60.0
_ACCUMULATORS = (8, 12)  # enough to hide the latency of a multiply-add, few enough not to spill


def with_limits(target: CpuTarget) -> CpuTarget:
    """``target`` with its limits: from the cache folder, or measured now, which takes a few seconds.

    Raises WorkerDied if the measuring process cannot start or ends."""
    if target.limits is not None:
        return target
    path = limits_path(target)
    kept = _read(path)
    if kept is None or kept.readings < ENOUGH_READINGS:
        reading = measure_limits(target)
        known = kept or Kept(limits=reading.limits, readings=0)
        kept = Kept(limits=_better(known.limits, reading.limits), readings=known.readings + (not reading.disturbed))
        _write(path, kept)
    return dataclasses.replace(target, limits=kept.limits)


def known_limits(target: CpuTarget) -> Limits | None:
    """The limits in the cache folder; None if there are none. Nothing is measured."""
    kept = _read(limits_path(target))
    return kept.limits if kept else None


def are_settled(target: CpuTarget) -> bool:
    """False if ``with_limits`` would measure."""
    kept = _read(limits_path(target))
    return kept is not None and kept.readings >= ENOUGH_READINGS


def doubt(target: CpuTarget) -> None:
    """Make the next runs measure the limits again: a kernel was faster than they allow."""
    kept = _read(limits_path(target))
    if kept is not None:
        _write(limits_path(target), dataclasses.replace(kept, readings=0))


def limits_path(target: CpuTarget) -> Path:
    """The file with the limits of a device."""
    return settings.cache_folder() / "limits" / f"{target.device}.json"


def measure_limits(target: CpuTarget) -> Reading:
    """Measure now."""
    meter = IsolatedProcess("dwconv.measure.limits:Meter", target, threads=target.threads)
    try:
        reading: Reading = meter.call(Gauge(), timeout_s=_TIMEOUT_S)
    finally:
        meter.kill()
    return reading


# -- on disk ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The best of all readings so far, and how many of them were undisturbed."""

    limits: Limits
    readings: int


def _better(first: Limits, second: Limits) -> Limits:
    """The larger of each quantity."""
    rates = ("memory_gb_per_s", "cache_gb_per_s", "cache_bytes", "peak_gflop_per_s")
    return dataclasses.replace(second, **{name: max(getattr(first, name), getattr(second, name)) for name in rates})


def _read(path: Path) -> Kept | None:
    """None if there is no file, or not a whole one."""
    try:
        kept = msgspec.json.decode(private_files.read(path) or b"", type=Kept)
    except msgspec.MsgspecError:
        return None
    limits = kept.limits
    rates = (limits.memory_gb_per_s, limits.cache_gb_per_s, limits.cache_bytes, limits.peak_gflop_per_s)
    sound = all(math.isfinite(rate) and rate > 0 for rate in rates)
    return kept if sound else None


def _write(path: Path, kept: Kept) -> None:
    """Write the file. If the folder cannot be written, the next run measures again."""
    with contextlib.suppress(NotKept):
        private_files.write(path, msgspec.json.encode(kept), durable=True)


# -- in the measuring process ----------------------------------------------------------------------------------------


@message
@dataclass(frozen=True, kw_only=True)
class Gauge:
    """Measure the limits."""


@message
@dataclass(frozen=True, kw_only=True)
class Reading:
    """A measurement of the limits; ``disturbed`` if the machine was too busy to trust it."""

    limits: Limits
    disturbed: bool


class Meter:
    """Handler of the measuring process."""

    def __init__(self, target: CpuTarget) -> None:
        import torch

        torch.set_num_threads(target.threads)
        self._target = target

    def __call__(self, _: Gauge) -> Reading:
        cache = self._target.cache_bytes
        copied = min(max(8 * cache, 256 * MiB), 1024 * MiB, memory.available_bytes() // 4)
        rates = {
            "memory": _copy(copied),
            "cache": _copy(min(cache // 3, 16 * MiB)),
            "convolution": _convolution(),
            **{f"multiply-add {count}": _multiply_add(self._target, accumulators=count) for count in _ACCUMULATORS},
        }
        stopwatches = {name: _Stopwatch(rate.call) for name, rate in rates.items()}
        for _turn in range(_TURNS):
            for stopwatch in stopwatches.values():
                stopwatch.run()
        reached = {name: rate.work / stopwatches[name].least_s / 1e9 for name, rate in rates.items()}
        limits = Limits(
            memory_gb_per_s=reached.pop("memory"),
            cache_gb_per_s=reached.pop("cache"),
            cache_bytes=cache,
            peak_gflop_per_s=max(reached.values()),
        )
        return Reading(limits=limits, disturbed=any(stopwatch.disturbed for stopwatch in stopwatches.values()))


@dataclass(frozen=True, kw_only=True)
class _Rate:
    """A call, and how many bytes it moves or operations it does."""

    call: Callable[[], object]
    work: int


def _copy(working_set_bytes: int) -> _Rate:
    """Copy a source to a destination that together fill the working set; counts bytes read and written."""
    import torch

    source = torch.zeros(working_set_bytes // 2, dtype=torch.uint8)
    destination = torch.zeros_like(source)
    return _Rate(call=lambda: destination.copy_(source), work=working_set_bytes)


def _convolution() -> _Rate:
    """A pointwise convolution, the most that a library gets out of this CPU."""
    import torch
    import torch.nn.functional as F

    batch, channels, size = 4, 256, 32
    x = torch.randn(batch, channels, size, size).contiguous(memory_format=torch.channels_last)
    w = torch.randn(channels, channels, 1, 1).contiguous(memory_format=torch.channels_last)
    return _Rate(call=lambda: F.conv2d(x, w), work=2 * batch * size**2 * channels**2)


def _multiply_add(target: CpuTarget, *, accumulators: int) -> _Rate:
    """Multiply-adds on registers alone, in all threads."""
    import torch

    lanes, turns = target.lanes(), 20_000
    operands, results = torch.full((2, lanes), 0.5), torch.empty(target.threads, max(_ACCUMULATORS), lanes)
    kernel = _multiply_add_kernel(target, accumulators=accumulators, turns=turns)
    return _Rate(call=lambda: kernel(operands, results), work=2 * accumulators * lanes * turns * target.threads)


def _multiply_add_kernel(target: CpuTarget, *, accumulators: int, turns: int) -> Callable[..., object]:
    """A kernel in which each thread does ``turns`` multiply-adds to each of ``accumulators`` vectors."""
    import tvm
    from tvm import tirx
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    from dwconv.build.cpu import llvm_target, pass_context

    lanes = target.lanes()
    vector = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), lanes)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        operands = T.arg("operands", T.buffer((2, lanes), "float32", align=4))
        results = T.arg("results", T.buffer((target.threads, max(_ACCUMULATORS), lanes), "float32", align=4))
        with T.parallel(target.threads) as thread:
            factor, term = (T.bind(tirx.BufferLoad(operands, [tirx.IntImm("int32", i), vector])) for i in (0, 1))
            sums = [T.alloc_buffer((lanes,), "float32", scope="local") for _ in range(accumulators)]
            for i, total in enumerate(sums):
                T.buffer_store(total, tirx.Broadcast(tirx.FloatImm("float32", i), lanes), [vector])
            with T.serial(0, turns):
                for total in sums:
                    T.buffer_store(total, tirx.BufferLoad(total, [vector]) * factor + term, [vector])
            for i, total in enumerate(sums):
                T.buffer_store(results, tirx.BufferLoad(total, [vector]), [thread, i, vector])
    with pass_context():
        library = tvm.compile(tvm.IRModule({"main": builder.get()}), target=llvm_target(target))
    main: Callable[..., object] = library["main"]
    return main


class _Stopwatch:
    """Finds the shortest of many runs of a call, since a limit is the speed of undisturbed hardware."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._clock = CpuClock()
        self.least_s = math.inf
        self.disturbed = True
        """True until one run was undisturbed."""

    def run(self) -> None:
        """Take a turn of many runs; it lasts longer if all of them are disturbed."""
        self._call()
        started = time.perf_counter()
        calm = False
        while (taken_s := time.perf_counter() - started) < _TURN_S or (taken_s < _PATIENCE * _TURN_S and not calm):
            lap = self._clock.lap(self._call, times=1)
            calm |= not lap.disturbed
            self.least_s = min(self.least_s, lap.seconds)
        self.disturbed &= not calm
