"""How fast this CPU can copy and multiply: the limits that measurements are held against.

Measured once for each device in a process of its own, under the settings that kernels are timed under, and kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from dwconv import settings
from dwconv.build.wire import message
from dwconv.measure.process import IsolatedProcess
from dwconv.measure.timing import CpuClock, Lap
from dwconv.target import CpuTarget, Limits, MiB

_MEASURING_S = 0.25  # for each of the quantities
_PATIENCE = 4  # times as long, if nothing has run undisturbed until then
_TIMEOUT_S = 60.0
_UNKNOWN_CACHE_BYTES = 8 * MiB
_ACCUMULATORS = (8, 12)  # enough to hide the latency of a multiply-add, and not so many that they spill


def with_limits(target: CpuTarget) -> CpuTarget:
    """``target`` with its limits: known from the cache folder, or measured now, which takes a few seconds.

    Raises WorkerDied if the measuring process cannot start or ends."""
    if target.limits is not None:
        return target
    path = limits_path(target)
    limits = _read(path)
    if limits is None:
        reading = measure_limits(target)
        limits = reading.limits
        if not reading.disturbed:
            _write(path, limits)
    return dataclasses.replace(target, limits=limits)


def limits_path(target: CpuTarget) -> Path:
    """Where the limits of a device are kept."""
    return settings.cache_folder() / "limits" / f"{target.device}.json"


def measure_limits(target: CpuTarget) -> Reading:
    """Measure now."""
    meter = IsolatedProcess("dwconv.measure.limits:Meter", target, threads=target.threads)
    try:
        reading: Reading = meter.call(Gauge(), timeout_s=_TIMEOUT_S)
    finally:
        meter.kill()
    return reading


def cache_bytes() -> int:
    """Size of the last-level cache, as Linux tells it; a guess elsewhere."""
    sizes = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        with contextlib.suppress(OSError, ValueError):
            size = re.fullmatch(r"(\d+)([KM]?)", (index / "size").read_text().strip())
            if size:
                level = int((index / "level").read_text())
                sizes[level] = int(size[1]) * {"": 1, "K": 1024, "M": MiB}[size[2]]
    return sizes[max(sizes)] if sizes else _UNKNOWN_CACHE_BYTES


# -- on disk ---------------------------------------------------------------------------------------------------------


def _read(path: Path) -> Limits | None:
    """None if there is no file, or not a whole one."""
    try:
        limits = msgspec.json.decode(path.read_bytes(), type=Limits)
    except (OSError, msgspec.MsgspecError):
        return None
    return limits if all(math.isfinite(value) and value > 0 for value in dataclasses.astuple(limits)) else None


def _write(path: Path, limits: Limits) -> None:
    """All of it or nothing; a folder that cannot be written only means measuring again."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(msgspec.json.encode(limits))
                file.flush()
                Path(file.name).replace(path)
            except OSError:
                Path(file.name).unlink()
                raise


# -- in the measuring process ----------------------------------------------------------------------------------------


@message
@dataclass(frozen=True, kw_only=True)
class Gauge:
    """Measure the limits."""


@message
@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was measured; ``disturbed`` if the machine was so busy that it is not worth keeping."""

    limits: Limits
    disturbed: bool


class Meter:
    """Handler of the measuring process."""

    def __init__(self, target: CpuTarget) -> None:
        import torch

        torch.set_num_threads(target.threads)
        self._target = target

    def __call__(self, _: Gauge) -> Reading:
        watch = _Stopwatch()
        cache = cache_bytes()
        memory = min(max(8 * cache, 256 * MiB), 1024 * MiB, psutil.virtual_memory().available // 4)
        limits = Limits(
            memory_gb_per_s=_copy_gb_per_s(memory, watch),
            cache_gb_per_s=_copy_gb_per_s(min(cache // 3, 16 * MiB), watch),
            cache_bytes=cache,
            peak_gflop_per_s=max(_convolution_gflop_per_s(watch), _multiply_add_gflop_per_s(self._target, watch)),
        )
        return Reading(limits=limits, disturbed=watch.disturbed)


def _copy_gb_per_s(working_set_bytes: int, watch: _Stopwatch) -> float:
    """Bytes read and written, of a source and a destination that together fill the working set."""
    import torch

    source = torch.zeros(working_set_bytes // 2, dtype=torch.uint8)
    destination = torch.zeros_like(source)
    return working_set_bytes / watch.least_s(lambda: destination.copy_(source)) / 1e9


def _convolution_gflop_per_s(watch: _Stopwatch) -> float:
    """A pointwise convolution, the best that a library gets out of this CPU."""
    import torch
    import torch.nn.functional as F

    batch, channels, size = 4, 256, 32
    x = torch.randn(batch, channels, size, size).contiguous(memory_format=torch.channels_last)
    w = torch.randn(channels, channels, 1, 1).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        return 2 * batch * size**2 * channels**2 / watch.least_s(lambda: F.conv2d(x, w)) / 1e9


def _multiply_add_gflop_per_s(target: CpuTarget, watch: _Stopwatch) -> float:
    """Multiply-adds on registers and nothing else, in all threads."""
    import torch

    lanes, turns = target.lanes(), 20_000
    operands, results = torch.full((2, lanes), 0.5), torch.empty(target.threads, max(_ACCUMULATORS), lanes)
    best = 0.0
    for accumulators in _ACCUMULATORS:
        run = _multiply_add_kernel(target, accumulators=accumulators, turns=turns)
        operations = 2 * accumulators * lanes * turns * target.threads
        best = max(best, operations / watch.least_s(lambda run=run: run(operands, results)) / 1e9)  # type: ignore[misc]
    return best


def _multiply_add_kernel(target: CpuTarget, *, accumulators: int, turns: int) -> Callable[..., object]:
    """Each thread: ``accumulators`` vectors, each multiplied and added to ``turns`` times."""
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
    """Finds the shortest of many runs: a limit is what undisturbed hardware reaches."""

    def __init__(self) -> None:
        self._clock = CpuClock()
        self.disturbed = False
        """True once there was something to measure that no run went through undisturbed."""

    def least_s(self, call: Callable[[], object]) -> float:
        call()
        laps: list[Lap] = []
        started = time.perf_counter()
        while (taken_s := time.perf_counter() - started) < _MEASURING_S or (
            taken_s < _PATIENCE * _MEASURING_S and all(lap.disturbed for lap in laps)
        ):
            laps.append(self._clock.lap(call, times=1))
        self.disturbed |= all(lap.disturbed for lap in laps)
        return min(lap.seconds for lap in laps)
