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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.kernels.artifact import Argument
from dwconv.kernels.cpu_build import llvm_target, pass_context
from dwconv.kernels.load_cpu import load_ir
from dwconv.measure.clock.timing import CpuClock
from dwconv.measure.limits import LimitsReading
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
_UNROLLED = 4
_LINE_FLOATS = 32
"""Two cache lines of 64 bytes: threads that write that far apart do not disturb each other."""


class Meter:
    """Handler of the measuring process: any request is answered with LimitsReading."""

    def __init__(self, target: CpuTarget) -> None:
        torch.set_num_threads(target.threads)
        self._target = target
        self._level_bytes = level_bytes(target)
        self._rates = self._make_rates()

    def __call__(self, _: None) -> LimitsReading:
        clock, extra_s = CpuClock(), _EXTRA_S
        least_s = dict.fromkeys(self._rates, math.inf)
        uncontended = dict.fromkeys(self._rates, False)
        for name, rate in list(self._rates.items()) * _TURNS:
            started, taken_s, is_uncontended = time.perf_counter(), 0.0, False
            while taken_s < _TURN_S or (not is_uncontended and taken_s < _TURN_S + extra_s):
                lap = clock.lap(rate.call, times=1)
                is_uncontended |= not lap.contended
                least_s[name] = min(least_s[name], lap.seconds)
                taken_s = time.perf_counter() - started
            extra_s = max(0.0, extra_s - max(0.0, taken_s - _TURN_S))
            uncontended[name] |= is_uncontended
        reached = {name: rate.work / least_s[name] / 1e9 for name, rate in self._rates.items()}
        peaks = ("convolution", "thread", *map(_multiply_add, _ACCUMULATORS))
        region_us = _region_us(least_s["region"] - least_s["no region"])
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
            region_us=region_us if uncontended["region"] and uncontended["no region"] else 0.0,
        )
        return LimitsReading(limits=limits, contended=not all(uncontended.values()))

    def _make_rates(self) -> dict[str, _Rate]:
        """What is measured; each of the calls is compiled here, so that no reading waits for it."""
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
    turns = max(1, _COPIED_BYTES // level_bytes)
    call, moved_bytes = copies(target, working_set_bytes=level_bytes // 2, turns=turns)
    return _Rate(call=call, work=moved_bytes)


def _convolution() -> _Rate:
    """A pointwise convolution, the most that a library gets out of this CPU."""
    batch, channels, size = 4, 256, 32
    x = torch.randn(batch, channels, size, size).contiguous(memory_format=torch.channels_last)
    w = torch.randn(channels, channels, 1, 1).contiguous(memory_format=torch.channels_last)
    return _Rate(call=lambda: F.conv2d(x, w), work=2 * batch * size**2 * channels**2)


# -- the kernels that it measures with, built as candidates are ------------------------------------------------------


def multiply_add(target: CpuTarget, *, accumulators: int, threads: int, turns: int) -> Callable[[], object]:
    """A call in which each of ``threads`` threads does ``turns`` multiply-adds to each of ``accumulators`` vectors."""
    lanes = target.lanes()
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        operands = T.arg("operands", T.buffer((2, lanes), "float32", align=4))
        results = T.arg("results", T.buffer((threads, max(_ACCUMULATORS), lanes), "float32", align=4))
        for thread in _parallel(threads):
            factor, term = (T.bind(_load(operands, i, _vector(0, lanes))) for i in (0, 1))
            sums = [T.alloc_buffer((lanes,), "float32", scope="local") for _ in range(accumulators)]
            for i, total in enumerate(sums):
                T.buffer_store(total, tirx.Broadcast(tirx.FloatImm("float32", i), lanes), [_vector(0, lanes)])
            with T.serial(0, turns):
                for total in sums:
                    T.buffer_store(total, _load(total, _vector(0, lanes)) * factor + term, [_vector(0, lanes)])
            for i, total in enumerate(sums):
                T.buffer_store(results, _load(total, _vector(0, lanes)), [thread, i, _vector(0, lanes)])
    tensors = torch.full((2, lanes), 0.5), torch.empty(threads, max(_ACCUMULATORS), lanes)
    return _on_openmp(builder, target, tensors={"operands": tensors[0], "results": tensors[1]})


def copies(target: CpuTarget, *, working_set_bytes: int, turns: int) -> tuple[Callable[[], object], int]:
    """A call in which one thread copies one half of a working set to the other and back, ``turns`` times; and the bytes
    that it reads and writes. It adds a little to what it copies: no compiler can leave a copy out."""
    lanes = target.lanes()
    step = _UNROLLED * lanes
    count = max(1, working_set_bytes // (2 * 4 * step)) * step
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"tirx.noalias": True})
        here, there = (T.arg(name, T.buffer((count,), "float32", align=4)) for name in ("here", "there"))
        little = tirx.Broadcast(tirx.FloatImm("float32", 1.0), lanes)
        with T.serial(0, turns):
            for source, result in ((here, there), (there, here)):
                with T.serial(0, count // step) as at:
                    for number in range(_UNROLLED):
                        vector = _vector(at * step + number * lanes, lanes)
                        T.buffer_store(result, _load(source, vector) + little, [vector])
    tensors = {"here": torch.zeros(count), "there": torch.zeros(count)}
    return _on_openmp(builder, target, tensors=tensors), turns * 2 * 2 * 4 * count


def region(target: CpuTarget, *, most_threads: int) -> Callable[[], object]:
    """A call that starts a parallel region of ``most_threads`` threads, for as many tasks as ``target`` has threads:
    each writes a number."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        numbers = T.arg("numbers", T.buffer((target.threads * _LINE_FLOATS,), "float32", align=4))
        for task in _parallel(target.threads):
            T.buffer_store(numbers, tirx.FloatImm("float32", 1.0), [task * _LINE_FLOATS])
    tensors = {"numbers": torch.zeros(target.threads * _LINE_FLOATS)}
    return _on_openmp(builder, target, tensors=tensors, most_threads=most_threads)


def _on_openmp(
    builder: Any, target: CpuTarget, *, tensors: dict[str, torch.Tensor], most_threads: int | None = None
) -> Callable[[], object]:
    """A call of the program on ``tensors``, with the threads that kernels run on."""
    with pass_context():
        library = tvm.compile(tvm.IRModule({"main": builder.get()}), target=llvm_target(target))
    arguments = tuple(Argument(name, "float32", tuple(tensor.shape)) for name, tensor in tensors.items())
    call, _entry = load_ir(library.mod.inspect_source("ll"), arguments, most_threads=most_threads)
    return lambda: call(1, *[tensor.data_ptr() for tensor in tensors.values()])


def _parallel(count: int) -> Iterator[Any]:
    with T.parallel(count) as index:
        yield index


def _vector(first: Any, lanes: int) -> Any:
    return tirx.Ramp(tirx.IntImm("int32", first) if isinstance(first, int) else first, tirx.IntImm("int32", 1), lanes)


def _load(buffer: Any, *indices: Any) -> Any:
    return tirx.BufferLoad(buffer, [tirx.IntImm("int32", at) if isinstance(at, int) else at for at in indices])
