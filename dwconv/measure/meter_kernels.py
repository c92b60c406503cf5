"""The kernels that the limits of a CPU are measured with, built as candidates are: multiply-adds on registers, copies
within a level of the caches, and a parallel region with nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.kernels.artifact import Argument
from dwconv.kernels.cpu import llvm_target, pass_context
from dwconv.kernels.load import load_ir
from dwconv.problems.target import CpuTarget

MOST_ACCUMULATORS = 12
_UNROLLED = 4
_LINE_FLOATS = 32
"""Two cache lines of 64 bytes: threads that write that far apart do not disturb each other."""


def multiply_add(target: CpuTarget, *, accumulators: int, threads: int, turns: int) -> Callable[[], object]:
    """A call in which each of ``threads`` threads does ``turns`` multiply-adds to each of ``accumulators`` vectors."""
    lanes = target.lanes()
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        operands = T.arg("operands", T.buffer((2, lanes), "float32", align=4))
        results = T.arg("results", T.buffer((threads, MOST_ACCUMULATORS, lanes), "float32", align=4))
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
    tensors = torch.full((2, lanes), 0.5), torch.empty(threads, MOST_ACCUMULATORS, lanes)
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
