"""Launch a CUDA artifact on PyTorch's current device and stream, through the driver API.

A training step makes about a hundred launches, and many kernels are shorter than a slow call. So all that is fixed
beforehand is packed beforehand, once for each batch size:

    values       x  w  y  workspace0  n     a call writes the addresses; the sizes are there
                 ▲  ▲  ▲  ▲           ▲
    parameters   └──┴──┴──┴───────────┘     of each launch: where in ``values`` its arguments are

Tested against a stand-in for the driver, and on an H200.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from dwconv import native
from dwconv.errors import BrokenInstallation, BuildError, NoDevice
from dwconv.kernels.artifact import Artifact, Extent, Launch, Scalar, at_batch, times_and_over
from dwconv.kernels.nvrtc import compile_cubin
from dwconv.system import versions

_MOST_PACKED = 1000
"""Batch sizes and devices to remember at a time, in each thread."""


def load_cuda(artifact: Artifact) -> Launcher:
    """A function of the batch size and of the addresses of ``artifact.arguments``, on PyTorch's current device.

    It launches on PyTorch's current stream and returns at once. Raises NoDevice without a GPU, BuildError if the driver
    refuses the cubin: it is loaded now, before anything relies on it.
    """
    if not torch.cuda.is_available():
        raise NoDevice(f"{artifact.candidate.workload.key} is built for a GPU; this machine has none")
    launcher = Launcher(artifact)
    launcher.load(torch.cuda.current_device())
    return launcher


@dataclass(frozen=True)
class _LoadedModule:
    """The artifact's kernels on one device; ``module`` keeps them alive, in the device's primary ``context``, which is
    PyTorch's."""

    context: Any
    module: Any
    functions: tuple[Any, ...]


@dataclass(frozen=True)
class _Packed:
    """All launches of a call at one batch size on one device, but for the addresses."""

    context: ctypes.c_void_p
    values: Any
    launches: tuple[tuple[Any, ...], ...]
    """The arguments of each launch before the stream, and those after it."""
    parameters: tuple[Any, ...]
    """The arrays that the launches point to, kept alive."""


class _OfThread(threading.local):
    """Packed launches of one thread: two threads must not write their addresses to the same place."""

    def __init__(self) -> None:
        self.packed: dict[tuple[int, int], _Packed] = {}


class Launcher:
    """A CUDA artifact, loaded: called with the batch size and addresses. ``load_cuda`` makes it."""

    def __init__(self, artifact: Artifact, *, on_device: dict[int, _LoadedModule] | None = None) -> None:
        self._artifact = artifact
        self._count = len(artifact.arguments)
        _, self._set_context, self._launch = _entries()
        self._on_device: dict[int, _LoadedModule] = {} if on_device is None else on_device
        self._of_thread = _OfThread()

    def at(self, artifact: Artifact) -> Launcher:
        """This cubin, launched as for a size of a kernel of any size."""
        return self if artifact is self._artifact else Launcher(artifact, on_device=self._on_device)

    def __call__(self, batch: int, *addresses: int) -> None:
        device = torch.cuda.current_device()
        packed = self._of_thread.packed.get((device, batch)) or self._pack(device, batch)
        packed.values[: self._count] = addresses
        # The current context is per thread; autograd's threads have none before their first call of the CUDA runtime.
        status = self._set_context(packed.context)
        stream = ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(device))
        for before, after in packed.launches:
            status = status or self._launch(*before, stream, *after)
        if status:
            self._check((_driver().CUresult(status),))

    def compiled(self, module: Any) -> Any:
        """A launcher for ``module``, the compiled C++, on the device that is current now."""
        device = torch.cuda.current_device()
        loaded = self._on_device.get(device) or self.load(device)
        positions = {argument.name: position for position, argument in enumerate(self._artifact.arguments)}

        def size(given: int | Extent) -> Any:
            return module.Size(*times_and_over(given))

        launches = [
            module.Launch(
                int(function), [size(each) for each in launch.grid], launch.block, launch.shared_bytes,
                [
                    module.LaunchArgument(-1, size(each.value)) if isinstance(each, Scalar) else
                    module.LaunchArgument(positions[each.name], size(0))
                    for each in launch.arguments
                ],
            )
            for launch, function in zip(self._artifact.launches, loaded.functions, strict=True)
        ]  # fmt: skip
        return module.Launches(_driver_for(module, device, loaded.context), launches, self)

    def _pack(self, device: int, batch: int) -> _Packed:
        loaded = self._on_device.get(device) or self.load(device)
        artifact = self._artifact
        positions = {argument.name: position for position, argument in enumerate(artifact.arguments)}
        sizes = [each for launch in artifact.launches for each in launch.arguments if isinstance(each, Scalar)]
        # Eight bytes each: an address fills them, a 32-bit size is the lower half (little-endian).
        values = (ctypes.c_uint64 * (self._count + len(sizes)))()
        for position, size in enumerate(sizes, start=self._count):
            values[position] = at_batch(size.value, batch)
        start, next_size = ctypes.addressof(values), self._count
        launches, parameters = [], []
        for launch, function in zip(artifact.launches, loaded.functions, strict=True) if batch else ():
            places = []
            for argument in launch.arguments:
                if isinstance(argument, Scalar):
                    places.append(next_size)
                    next_size += 1
                else:
                    places.append(positions[argument.name])
            parameters.append((ctypes.c_void_p * len(places))(*(start + 8 * place for place in places)))
            launches.append(((ctypes.c_void_p(int(function)), *_dimensions(launch, batch)), (parameters[-1], None)))
        if len(self._of_thread.packed) >= _MOST_PACKED:
            self._of_thread.packed.clear()
        packed = self._of_thread.packed[device, batch] = _Packed(
            ctypes.c_void_p(int(loaded.context)), values, tuple(launches), tuple(parameters)
        )
        return packed

    def load(self, device: int) -> _LoadedModule:
        """Load the cubin into the device's primary context. Raises BuildError."""
        launches, config = self._artifact.launches, self._artifact.candidate.config
        loaded = _load(self._artifact.cubin, [launch.kernel for launch in launches], device=device, named=str(config))
        for launch, function in zip(launches, loaded.functions, strict=True):
            if launch.shared_bytes:  # more than 48 KB, static memory included, must be requested
                driver = _driver()
                attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                _value(driver.cuFuncSetAttribute(function, attribute, launch.shared_bytes), str(config))
        self._on_device[device] = loaded
        return loaded

    def _check(self, answer: tuple[Any, ...]) -> Any:
        return _value(answer, str(self._artifact.candidate.config))


def statistics_kernel(module: Any, device: torch.device) -> Any | None:
    """The kernel of ``native/statistics.cu`` for ``module``, the compiled C++; None where it cannot be compiled, and
    PyTorch's ops do the same."""
    with torch.cuda.device(device):
        index = torch.cuda.current_device()
        try:
            loaded = _statistics(index)
        except (BrokenInstallation, BuildError):
            return None
        return module.StatisticsKernel(_driver_for(module, index, loaded.context), int(loaded.functions[0]), loaded)


_STATISTICS_THREADS = 128


def launch_statistics(norms: ctypes.Array[Any], *, count: int, channels: int) -> None:
    """Launch the same kernel on PyTorch's current device and stream without the compiled C++, as ``statistics.h`` does.
    ``norms``: two of its ``Moving``, of which the first ``count`` move; ``channels``: the most of one. Raises
    BrokenInstallation, BuildError."""
    device = torch.cuda.current_device()
    loaded = _statistics(device)
    _, set_context, launch = _entries()
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(norms))
    shape = (-(-channels // _STATISTICS_THREADS), count, 1, _STATISTICS_THREADS, 1, 1, 0)
    stream = ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(device))
    status = set_context(ctypes.c_void_p(int(loaded.context)))
    status = status or launch(ctypes.c_void_p(int(loaded.functions[0])), *shape, stream, parameters, None)
    if status:
        _value((_driver().CUresult(status),), "running statistics")


@cache
def _statistics(device: int) -> _LoadedModule:
    """Raises BrokenInstallation, BuildError."""
    source = Path(native.__file__).with_name("statistics.cu").read_text(encoding="utf-8")
    major, minor = torch.cuda.get_device_capability(device)
    cubin = compile_cubin(source, arch=f"sm_{major}{minor}").cubin
    return _load(cubin, ["move_statistics"], device=device, named="running statistics")


def _load(cubin: bytes, kernels: Sequence[str], *, device: int, named: str) -> _LoadedModule:
    """Raises BuildError."""
    driver = _driver()
    context = _value(driver.cuDevicePrimaryCtxRetain(_value(driver.cuDeviceGet(device), named)), named)
    _value(driver.cuCtxSetCurrent(context), named)
    status, *loaded_module = driver.cuModuleLoadData(cubin)
    if status.value:
        raise BuildError(f"CUDA driver: {status.name} for {named}{_too_old(driver)}")
    (module,) = loaded_module
    functions = (_value(driver.cuModuleGetFunction(module, kernel.encode()), named) for kernel in kernels)
    return _LoadedModule(context, module, tuple(functions))


def _value(answer: tuple[Any, ...], named: str) -> Any:
    """The value of a driver call, which answers (status, value…). Raises BuildError."""
    status, *values = answer
    if status.value:
        raise BuildError(f"CUDA driver: {status.name} for {named}")
    return values[0] if values else None


def _driver_for(module: Any, device: int, context: Any) -> Any:
    """The driver for ``module``, the compiled C++."""
    addresses = (ctypes.cast(entry, ctypes.c_void_p).value for entry in _entries())
    raw_stream = partial(torch._C._cuda_getCurrentRawStream, device)
    return module.Driver(*addresses, int(context), raw_stream)


def _dimensions(launch: Launch, batch: int) -> tuple[int, ...]:
    """Grid, block, and bytes of shared memory."""
    grid = (at_batch(size, batch) for size in launch.grid)
    return (*grid, *launch.block, launch.shared_bytes)


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise BrokenInstallation(f"running on a GPU needs {error.name}; run: {versions.install_cuda()}") from None
    return driver


def _too_old(driver: Any) -> str:
    """Why the driver refuses all that is compiled here, with the way out; empty if it is new enough. A cubin needs a
    driver of its own major version of CUDA, or a later one."""
    status, *version = driver.cuDriverGetVersion()
    here, needed = (0 if status.value else version[0] // 1000), driver.CUDA_VERSION // 1000
    if not 0 < here < needed:
        return ""
    instead = f", or install PyTorch for CUDA {here}, then 'dwconv[cuda{here}]'" if here == 12 else ""
    return f"; the driver is for CUDA {here}, kernels are compiled for CUDA {needed}: update the driver{instead}"


@cache
def _entries() -> tuple[Any, Any, Any]:
    """cuCtxGetCurrent, cuCtxSetCurrent and cuLaunchKernel, called through ctypes: the Python bindings add 10 µs a call.

    ctypes releases the interpreter lock, since a launch waits where the stream is full. Argument types are not
    declared: calls then take half the time, pointers are passed as pointers, and all else is an int in C, too."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoDevice(f"the driver of the GPU cannot be loaded: {error}") from None
    return library.cuCtxGetCurrent, library.cuCtxSetCurrent, library.cuLaunchKernel
