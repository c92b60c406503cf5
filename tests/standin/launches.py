"""Checks every launch against the cubin, writes it to the journal, and computes it, now or at a replay.

A launch is checked against the parameters in the cubin, not against what dwconv believes: a pointer must lead to device
memory that holds the whole tensor. An artifact of several kernels is computed at its last kernel, when all its tensors
are known.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import threading
import traceback
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any

import torch

from dwconv.kernels.artifact import Argument, Artifact, Extent, Scalar
from dwconv.problems.workload import ITEMSIZE, Workload
from tests.standin.computing import compute
from tests.standin.cubin import Entry, entries
from tests.standin.device import STREAM_CAPTURE_IMPLICIT, Compute, Launch, device, driver, is_captured
from tests.standin.faults import Fault, fault_of, is_first_time
from tests.standin.graphs import Graph
from tests.standin.profiler import unprofiled

JOURNAL_VARIABLE = "STAND_IN_JOURNAL"
"""The environment variable that names the journal: a file with a line of JSON for every launch."""
NS_OF_A_LAUNCH, BYTES_PER_NS, NS_OF_A_CLASS, CLASSES = 200e3, 1000.0, 2e3, 16
"""A launch's time on the device's clock: made up, and different for different configurations."""
INVALID_VALUE, ILLEGAL_ADDRESS, OUT_OF_RESOURCES, UNKNOWN = 1, 700, 701, 999
ALIGNMENT_BYTES = 16
MOST_SHARED_BYTES, STATIC_SHARED_BYTES, REGISTERS_OF_A_BLOCK = 227 << 10, 48 << 10, 1 << 16
DEFAULT_RESERVED_BYTES = 1 << 10
"""Shared memory that CUDA reserves in every block; cubins include it."""


class Refused(Exception):
    """A launch that a GPU would refuse, or run wrongly."""


@dataclass
class _Loaded:
    """An artifact whose cubin the driver has loaded, and the arguments of its kernels so far, by thread."""

    artifact: Artifact
    entries: dict[str, Entry]
    passed: dict[int, _Passed] = field(default_factory=dict)
    at_sizes: dict[Workload, Artifact] = field(default_factory=dict)
    """Of a kernel of any size, what it is at those that it was launched with."""


@dataclass
class _Passed:
    artifact: Artifact
    """One of any size, at the size that its first kernel is launched with."""
    addresses: dict[str, int] = field(default_factory=dict)
    sizes: list[tuple[int, Extent]] = field(default_factory=list)
    """Grid sizes and numbers that depend on the batch, each with how it depends on it."""


_artifacts: dict[bytes, Artifact] = {}
_loaded: dict[int, _Loaded] = {}


def watch(launch: ModuleType) -> None:
    """Take note of artifacts when ``dwconv.kernels.launch`` loads them."""
    load: Callable[[Artifact], Any] = launch.load_cuda

    def load_cuda(artifact: Artifact) -> Any:
        _artifacts[bytes(artifact.cubin)] = artifact
        return load(artifact)

    launch.load_cuda = load_cuda  # type: ignore[attr-defined]
    driver().standin_compute_with(callback)


def _told(told: Any) -> int:
    """The status that cuLaunchKernel returns."""
    launch: Launch = told.contents
    try:
        return _take(launch)
    except Refused as refused:
        write_down(what="problem", reason=f"{launch.kernel.decode()}: {refused}")
        return INVALID_VALUE
    except BaseException:  # noqa: BLE001  C called this: nothing else would see it
        write_down(what="problem", reason=traceback.format_exc())
        return UNKNOWN


callback = Compute(_told)


def _take(launch: Launch) -> int:
    if launch.kernel == b"move_statistics":
        return _move_statistics(launch)
    loaded, kernel = _find(launch), launch.kernel.decode()
    position = _position(loaded.artifact, kernel)
    if position == 0:
        loaded.passed[threading.get_ident()] = _Passed(_at_size(launch, loaded))
    passed = loaded.passed.setdefault(threading.get_ident(), _Passed(loaded.artifact))
    artifact = passed.artifact
    fault = fault_of(artifact.candidate.config)
    capturing = device().standin_capturing()
    write_down(
        what="launch", kernel=kernel, template=artifact.candidate.config.template, config=artifact.candidate.config
        .to_dict(), workload=artifact.candidate.workload.key, stream=launch.stream, current=device().standin_stream(),
        captured=bool(capturing), thread=threading.get_ident(), grid=list(launch.grid), fault=fault,
    )  # fmt: skip
    if answer := _suffer(fault):
        return answer
    if answer := _check_stream(launch):
        return answer
    _check_block(launch, loaded.entries[kernel], artifact, position)
    _read_grid(launch, artifact, passed, position)
    moved = _read_arguments(launch, loaded, passed, position)
    own = zlib.crc32(str(artifact.candidate.config).encode()) % CLASSES
    ns = NS_OF_A_LAUNCH + own * NS_OF_A_CLASS + moved / BYTES_PER_NS
    device().standin_spend(ns)
    _now_or_at_a_replay(partial(device().standin_note, launch.kernel, ns))
    if position == len(artifact.launches) - 1:
        batch = _batch(artifact, passed)
        _check_memory(artifact, passed, batch)
        _run(artifact, passed, batch, wrong=fault == "wrong")
    return 0


class _Moving(ctypes.Structure):
    """``Moving`` of dwconv/native/statistics.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("mean", "variance", "of_mean", "of_variance", "batches")),
        ("momentum", ctypes.c_float),
        ("unbiased", ctypes.c_float),
        ("channels", ctypes.c_int64),
    )


def _move_statistics(launch: Launch) -> int:
    """The one kernel that is of no artifact: dwconv/native/statistics.cu."""
    if answer := _check_stream(launch):
        return answer
    (size,) = entries(ctypes.string_at(launch.image, launch.image_bytes))["move_statistics"].parameter_bytes
    if size != 2 * ctypes.sizeof(_Moving):
        raise Refused(f"its argument has {size} bytes in the cubin")
    given = (_Moving * 2).from_buffer_copy(ctypes.string_at(launch.arguments[0], size))
    norms = list(given)[: launch.grid[1]]
    for norm in norms:
        if norm.channels > launch.grid[0] * launch.block[0]:
            raise Refused(f"{launch.grid[0]} blocks for {norm.channels} channels")
        for address in (norm.mean, norm.variance, norm.of_mean, norm.of_variance):
            if device().standin_bytes_from(address) < 4 * norm.channels:
                raise Refused(f"statistics of {norm.channels} channels are not in the device's memory")
    device().standin_spend(NS_OF_A_CLASS)
    write_down(what="statistics", grid=list(launch.grid), captured=Graph.captured is not None)
    _now_or_at_a_replay(partial(unprofiled, _compute_statistics, norms))
    return 0


def _compute_statistics(norms: Sequence[_Moving]) -> None:
    def floats(address: int, count: int) -> torch.Tensor:
        return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)

    with torch.inference_mode():
        for norm in norms:
            mean, variance, of_mean, of_variance = (
                floats(each, norm.channels) for each in (norm.mean, norm.variance, norm.of_mean, norm.of_variance)
            )
            mean.lerp_(of_mean, norm.momentum)
            variance.lerp_(of_variance * norm.unbiased, norm.momentum)
            if norm.batches:
                ctypes.c_int64.from_address(norm.batches).value += 1


def _check_stream(launch: Launch) -> int:
    """The status that a wrong stream leads to; 0 if the launch goes on."""
    if launch.stream != device().standin_stream():
        raise Refused(f"stream {launch.stream:#x} is not the current one, {device().standin_stream():#x}")
    if device().standin_capturing() and not is_captured():
        device().standin_spoil_capture()
        return STREAM_CAPTURE_IMPLICIT
    return 0


def _suffer(fault: Fault | None) -> int:
    """The status that a fault leads to; 0 if the launch goes on."""
    if fault == "launch":
        return OUT_OF_RESOURCES
    if fault == "sticky":  # the launch itself returns before anything happens
        driver().standin_break(ILLEGAL_ADDRESS)
    elif fault == "memory" or (fault == "crowd" and is_first_time(fault)):
        device().standin_refuse_memory()
    return 0


def _run(artifact: Artifact, passed: _Passed, batch: int, *, wrong: bool) -> None:
    addresses = dict(passed.addresses)
    run = partial(unprofiled, compute, artifact, addresses, batch, wrong=wrong)
    again = partial(_replay, run, artifact, _Passed(artifact, addresses), batch)
    _now_or_at_a_replay(run if Graph.captured is None else again)


def _replay(run: Callable[[], object], artifact: Artifact, passed: _Passed, batch: int) -> None:
    try:
        _check_memory(artifact, passed, batch)
    except Refused as refused:
        write_down(what="problem", reason=f"replayed when memory was freed: {refused}")
        raise torch.AcceleratorError(f"CUDA error: {refused}") from None
    run()


def _now_or_at_a_replay(run: Callable[[], object]) -> None:
    if Graph.captured is not None:
        Graph.captured.launches.append((device().standin_captured_steps(), run))
    else:
        run()


# -- what a GPU would see --------------------------------------------------------------------------------------------


def _find(launch: Launch) -> _Loaded:
    found = _loaded.get(launch.image)
    if found is None:
        cubin = ctypes.string_at(launch.image, launch.image_bytes)
        artifact = next((each for known, each in _artifacts.items() if known[: len(cubin)] == cubin), None)
        if artifact is None:
            raise Refused("its cubin is of no artifact that was loaded")
        found = _loaded[launch.image] = _Loaded(artifact, entries(cubin))
    return found


def _at_size(launch: Launch, loaded: _Loaded) -> Artifact:
    """The artifact at the size that its kernel is given; as it is, if it is built for one."""
    artifact, workload = loaded.artifact, loaded.artifact.candidate.workload
    if not workload.any_size:
        return artifact
    listed = artifact.launches[0].arguments
    told = {
        argument.name: int.from_bytes(ctypes.string_at(launch.arguments[number], 4), "little")
        for number, argument in enumerate(listed)
        if isinstance(argument, Scalar)
    }
    names = "dhw"[-workload.axes :]
    size = tuple(told.get(name, known) for name, known in zip(names, workload.input_size, strict=True))
    sized = replace(workload, input_size=size, channels=told.get("c", workload.channels))
    if any(value != sized.image_sizes.get(name, value) for name, value in told.items()):
        raise Refused(f"the sizes {told} are of no image")
    return loaded.at_sizes.setdefault(sized, artifact.at(sized))


def _position(artifact: Artifact, kernel: str) -> int:
    return next(i for i, each in enumerate(artifact.launches) if each.kernel == kernel)


def _check_block(launch: Launch, entry: Entry, artifact: Artifact, position: int) -> None:
    listed = artifact.launches[position]
    if (tuple(launch.block), launch.shared_bytes) != (listed.block, listed.shared_bytes):
        raise Refused(f"a block of {list(launch.block)} with {launch.shared_bytes} bytes, not as it is listed")
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    shared = entry.shared_bytes + launch.shared_bytes
    if threads > entry.most_threads:
        raise Refused(f"{threads} threads, compiled for {entry.most_threads}")
    if shared > MOST_SHARED_BYTES or (shared > STATIC_SHARED_BYTES and launch.shared_allowed < launch.shared_bytes):
        raise Refused(f"{shared} bytes of shared memory, {launch.shared_allowed} allowed")
    if entry.registers * threads > REGISTERS_OF_A_BLOCK:
        raise Refused(f"{entry.registers} registers in each of {threads} threads")
    told = artifact.kernel_resources[launch.kernel.decode()]
    if told["shared_bytes"] not in (shared, shared - DEFAULT_RESERVED_BYTES):
        raise Refused(f"its resources say {told['shared_bytes']} bytes of shared memory, it takes {shared}")


def _read_arguments(launch: Launch, loaded: _Loaded, passed: _Passed, position: int) -> float:
    """Record the kernel's arguments; return the number of bytes behind its pointers, as far as known."""
    listed = passed.artifact.launches[position]
    sizes = loaded.entries[listed.kernel].parameter_bytes
    if len(sizes) != len(listed.arguments):
        raise Refused(f"{len(listed.arguments)} arguments are listed, the cubin has {len(sizes)}")
    moved = 0.0
    for number, (size, argument) in enumerate(zip(sizes, listed.arguments, strict=True)):
        value = int.from_bytes(ctypes.string_at(launch.arguments[number], size), "little")
        if size != (4 if isinstance(argument, Scalar) else 8):
            raise Refused(f"{argument.name} has {size} bytes in the cubin")
        if isinstance(argument, Scalar):
            if isinstance(argument.value, Extent):
                passed.sizes.append((value, argument.value))
            continue
        if passed.addresses.setdefault(argument.name, value) != value:
            raise Refused(f"{argument.name} is another one for each kernel")
        if value % ALIGNMENT_BYTES:
            raise Refused(f"{argument.name} does not start at a multiple of {ALIGNMENT_BYTES} bytes")
        moved += _bytes(argument, passed.artifact.candidate.workload.batch)
    return moved


def _bytes(argument: Argument, batch: int) -> int:
    return math.prod(argument.shape_at(batch)) * ITEMSIZE.get(argument.dtype, 4)


def _read_grid(launch: Launch, artifact: Artifact, passed: _Passed, position: int) -> None:
    listed = artifact.launches[position]
    for size, wanted in zip(launch.grid, listed.grid, strict=True):
        if isinstance(wanted, Extent):
            passed.sizes.append((size, wanted))
        elif size != wanted:
            raise Refused(f"a grid of {list(launch.grid)}, not of {listed.grid}")


def _batch(artifact: Artifact, passed: _Passed) -> int:
    """The one batch size that fits all these sizes."""
    if not passed.sizes:
        return artifact.candidate.workload.batch
    value, extent = max(passed.sizes, key=lambda each: each[1].times / each[1].over)
    most = value * extent.over // extent.times
    batches = range(max(1, most - extent.over), most + 1)
    fitting = [n for n in batches if all(each.at(n) == size for size, each in passed.sizes)]
    if len(fitting) != 1:
        raise Refused(f"{fitting or 'no batch'} may have the sizes {passed.sizes}")
    return fitting[0]


def _check_memory(artifact: Artifact, passed: _Passed, batch: int) -> None:
    for argument in artifact.arguments:
        address = passed.addresses.get(argument.name)
        if address is None:
            raise Refused(f"{argument.name} is passed to no kernel")
        if (there := device().standin_bytes_from(address)) < (needed := _bytes(argument, batch)):
            raise Refused(f"{argument.name} needs {needed} bytes at batch {batch}, the device has {there} there")


def write_down(**line: Any) -> None:
    if path := os.environ.get(JOURNAL_VARIABLE):
        with open(path, "a") as file:  # noqa: PTH123  one write, whole lines: many processes write
            file.write(json.dumps({"pid": os.getpid(), **line}) + "\n")
