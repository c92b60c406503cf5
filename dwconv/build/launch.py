"""Run a CUDA artifact on PyTorch's tensors, device and current stream, through the driver API.

Not yet run on a GPU: tested against a stand-in for the driver.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dwconv.build.artifact import Argument, Artifact, Extent, Launch, Scalar
from dwconv.errors import BrokenInstallation, BuildError, NoDevice

VECTOR_BYTES = 16
"""The widest load of a kernel: every tensor must start at a multiple of it."""


def load_cuda(artifact: Artifact) -> Callable[..., None]:
    """A function of the artifact's tensors, in the order of ``artifact.arguments``, contiguous, all on one GPU.

    It launches on PyTorch's current stream of that GPU and returns at once. Raises NoDevice without a GPU.
    """
    if not torch.cuda.is_available():
        raise NoDevice(f"{artifact.candidate.workload.key} is built for a GPU, and there is none in this machine")
    return _Launcher(artifact)


@dataclass(frozen=True)
class _Loaded:
    """The artifact's kernels on one device; ``module`` keeps them alive, in the device's primary ``context``, which is
    PyTorch's."""

    context: Any
    module: Any
    functions: tuple[Any, ...]


class _Launcher:
    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._driver = _driver()
        self._on_device: dict[int, _Loaded] = {}

    def __call__(self, *tensors: torch.Tensor) -> None:
        artifact = self._artifact
        batch = batch_of(artifact.arguments, tensors)
        if batch == 0:
            return
        pointers = {
            argument.name: tensor.data_ptr() for argument, tensor in zip(artifact.arguments, tensors, strict=True)
        }
        device = tensors[0].device
        with torch.cuda.device(device):
            loaded = self._on_device.get(device.index) or self._load(device.index)
            # A context is a thread's own: autograd's threads have none before their first call of the CUDA runtime, and
            # torch.cuda.device makes no call where its device is the current one.
            self._check(self._driver.cuCtxSetCurrent(loaded.context))
            stream = torch.cuda.current_stream(device).cuda_stream
            for launch, function in zip(artifact.launches, loaded.functions, strict=True):
                self._launch(launch, function, batch=batch, pointers=pointers, stream=stream)

    def _load(self, device: int) -> _Loaded:
        """Load the cubin into the device's primary context."""
        context = self._check(self._driver.cuDevicePrimaryCtxRetain(self._check(self._driver.cuDeviceGet(device))))
        self._check(self._driver.cuCtxSetCurrent(context))
        module = self._check(self._driver.cuModuleLoadData(self._artifact.cubin))
        functions = []
        for launch in self._artifact.launches:
            function = self._check(self._driver.cuModuleGetFunction(module, launch.kernel.encode()))
            if launch.shared_bytes:  # without asking there are 48 KB, less what is static
                attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self._check(self._driver.cuFuncSetAttribute(function, attribute, launch.shared_bytes))
            functions.append(function)
        loaded = _Loaded(context, module, tuple(functions))
        self._on_device[device] = loaded
        return loaded

    def _launch(self, launch: Launch, function: Any, *, batch: int, pointers: dict[str, int], stream: int) -> None:
        values = [
            argument.value.at(batch) if isinstance(argument, Scalar) else pointers[argument.name]
            for argument in launch.arguments
        ]
        # Eight bytes each: a pointer fills them, a 32-bit size is the lower half (little-endian).
        packed = (ctypes.c_uint64 * len(values))(*values)
        start = ctypes.addressof(packed)
        addresses = (ctypes.c_void_p * len(values))(*(start + 8 * i for i in range(len(values))))
        grid = (size.at(batch) if isinstance(size, Extent) else size for size in launch.grid)
        self._check(
            self._driver.cuLaunchKernel(
                function, *grid, *launch.block, launch.shared_bytes, stream, ctypes.addressof(addresses), 0
            )
        )

    def _check(self, answer: tuple[Any, ...]) -> Any:
        """The value of a driver call, which answers (status, value…)."""
        status, *values = answer
        if status.value:
            raise BuildError(f"CUDA driver: {status.name} for {self._artifact.candidate.config}")
        return values[0] if values else None


def batch_of(arguments: tuple[Argument, ...], tensors: tuple[torch.Tensor, ...]) -> int:
    """The batch size the tensors agree on. Raises BuildError for one of another size, device or alignment."""
    if len(tensors) != len(arguments):
        raise BuildError(f"{len(tensors)} tensors for {len(arguments)} arguments")
    batch = None
    for argument, tensor in zip(arguments, tensors, strict=True):
        if batch is None and any(isinstance(size, Extent) for size in argument.shape):
            batch = tensor.numel() // math.prod(argument.shape_at(1))
    if batch is None:
        raise BuildError("no tensor tells the batch size")
    for argument, tensor in zip(arguments, tensors, strict=True):
        wanted = argument.shape_at(batch)
        if tensor.numel() != math.prod(wanted) or not tensor.is_contiguous():
            raise BuildError(f"{argument.name} is {tuple(tensor.shape)}, not a contiguous {wanted}")
        if tensor.device != tensors[0].device:
            raise BuildError(f"{argument.name} is on {tensor.device}, not on {tensors[0].device}")
        if tensor.data_ptr() % VECTOR_BYTES:
            raise BuildError(f"{argument.name} does not start at a multiple of {VECTOR_BYTES} bytes; clone it")
    return batch


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise BrokenInstallation(f"running on a GPU needs {error.name}; run: pip install 'dwconv[cuda]'") from error
    return driver
