"""Kernel: an artifact loaded into this process, called with PyTorch tensors.

``kernel(x, w)`` is what a user of the op gets: it takes tensors of PyTorch's shapes with any strides, allocates the
results, and copies where the kernel needs another layout. ``kernel.run_into`` is the bare call.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from dwconv.build.artifact import Artifact
from dwconv.errors import BuildError
from dwconv.workload import IMAGES, Layout, Workload

ALIGNMENT_BYTES = {"cpu": 4, "cuda": 16}
"""Where a tensor must start, by kind of kernel. A CPU loads vectors from anywhere: measured, a vector that lies across
two cache lines costs less than the copy that would align it. A GPU does not; a slice of a tensor may need a copy."""
# Indices inside a kernel are 32-bit.
MOST_ELEMENTS = 2**31 - 1

RawCall = Callable[..., Any]


class Kernel:
    """A built candidate, callable. Load one with ``Kernel.load``."""

    def __init__(self, artifact: Artifact, call: RawCall) -> None:
        self.artifact = artifact
        self.workload: Workload = artifact.candidate.workload
        self._call = call
        self._inputs, self._results = self.workload.inputs, self.workload.results
        self._shapes = {name: self.workload.shape_of(name) for name in (*self._inputs, *self._results)}
        self._workspaces = artifact.workspaces
        self._kernel_layout = artifact.candidate.template.layout
        self._channels_last = self._kernel_layout == "nhwc"
        self._alignment = ALIGNMENT_BYTES[artifact.kind]

    @classmethod
    def load(cls, artifact: Artifact) -> Kernel:
        """Raises BuildError if the machine code cannot be made or the device is not here."""
        if artifact.kind == "cpu":
            return cls(artifact, _load_cpu(artifact))
        from dwconv.build.launch import load_cuda

        return cls(artifact, load_cuda(artifact))

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """Run on tensors of PyTorch's shapes, ``Workload.shape_of``, at any batch.

        ``inputs`` are the workload's, in its order. Returns y or dx in the workload's layout, or dw contiguous, or
        (dw, dbias).
        """
        batch, like = inputs[0].shape[0], inputs[0]
        read = [self._to_kernel(tensor, name) for tensor, name in zip(inputs, self._inputs, strict=True)]
        results = [self._empty(name, batch, like) for name in self._results]
        written = [self._view(result, name) for result, name in zip(results, self._results, strict=True)]
        self._call(*read, *written, *self.empty_workspaces(batch, like.device))
        given = [self._to_workload(result, name) for result, name in zip(results, self._results, strict=True)]
        return given[0] if len(given) == 1 else tuple(given)

    def run_into(
        self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], workspaces: Sequence[torch.Tensor]
    ) -> None:
        """The bare call, on contiguous, aligned tensors of exactly the shapes in ``artifact.arguments``."""
        self._call(*inputs, *results, *workspaces)

    def empty_workspaces(self, batch: int, device: torch.device) -> list[torch.Tensor]:
        """Uninitialised scratch memory, as the kernel asks for it."""
        return [
            torch.empty(argument.shape_at(batch), dtype=getattr(torch, argument.dtype), device=device)
            for argument in self._workspaces
        ]

    # -- layout ------------------------------------------------------------------------------------------------

    def _empty(self, name: str, batch: int, like: torch.Tensor) -> torch.Tensor:
        shape = self._shapes[name]
        if name not in IMAGES:
            return torch.empty(shape, dtype=like.dtype, device=like.device)
        memory_format = torch.channels_last if self._channels_last else torch.contiguous_format
        return torch.empty((batch, *shape[1:]), dtype=like.dtype, device=like.device, memory_format=memory_format)

    def _to_kernel(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """``tensor`` as the kernel reads it: dense in the kernel's layout, aligned, viewed in the kernel's shape."""
        if tensor.numel() > MOST_ELEMENTS:
            raise BuildError(f"{name} has {tensor.numel()} elements; kernels index up to {MOST_ELEMENTS}")
        view = self._view(tensor, name)
        if not view.is_contiguous():
            view = view.contiguous()
        if view.data_ptr() % self._alignment:
            view = view.clone(memory_format=torch.contiguous_format)
        return view

    def _view(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        if name in IMAGES:
            return tensor.permute(0, 2, 3, 1) if self._channels_last else tensor
        if tensor.dim() == 1:
            return tensor
        return tensor.view(self.workload.weight_shape) if tensor.is_contiguous() else tensor.squeeze(1)

    def _to_workload(self, result: torch.Tensor, name: str) -> torch.Tensor:
        if name not in IMAGES or self.workload.layout == self._kernel_layout:
            return result
        wanted = torch.channels_last if self.workload.layout == "nhwc" else torch.contiguous_format
        return result.contiguous(memory_format=wanted)


def why_copied(tensor: torch.Tensor, *, layout: Layout, kind: str) -> str | None:
    """Why a ``kind`` of kernel that reads ``layout`` copies ``tensor`` before; None if it reads it where it lies."""
    lies = tensor.permute(0, 2, 3, 1) if layout == "nhwc" else tensor
    if not lies.is_contiguous():
        if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
            return "it is expanded, several of its elements are one in memory"
        if tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last):
            return f"the kernel reads {layout}, it lies as {'nchw' if layout == 'nhwc' else 'nhwc'}"
        return f"it does not lie densely as {layout}, as a slice or a transposed tensor does not"
    if tensor.data_ptr() % ALIGNMENT_BYTES[kind]:
        return f"it does not start at a multiple of {ALIGNMENT_BYTES[kind]} bytes"
    return None


_ANY_NUMBER = 2**31 - 1


def _load_cpu(artifact: Artifact) -> RawCall:
    """Machine code of a CPU artifact, run on PyTorch's OpenMP threads."""
    import tvm

    # A parallel loop of one turn is compiled to none: such a kernel has no threads to start.
    on_openmp = _openmp_is_here() and "@__TVMBackendParallelLaunch" in artifact.source
    with tempfile.TemporaryDirectory(prefix="dwconv-") as folder:
        path = Path(folder) / "kernel.ll"
        path.write_text(artifact.source + (_openmp_ir(most_threads=_most_threads(artifact)) if on_openmp else ""))
        try:
            module = tvm.get_global_func("ffi.Module.load_from_file.ll")(str(path), "ll")
        except RuntimeError as error:
            raise BuildError(f"LLVM cannot load the kernel of {artifact.candidate.config}: {error}") from error
    if on_openmp:
        module["use_openmp"]()
    main: RawCall = module["main"]  # keeps the module alive
    return main


def _most_threads(artifact: Artifact) -> int:
    """How many threads the configuration takes at most."""
    threads = artifact.candidate.config.to_dict().get("threads", _ANY_NUMBER)
    assert isinstance(threads, int)
    return threads


def _openmp_ir(*, most_threads: int) -> str:
    text = resources.files("dwconv.build").joinpath("openmp.ll").read_text()
    return f"{text}\n@dwconv.most_threads = internal constant i32 {most_threads}\n"


@cache
def _openmp_is_here() -> bool:
    """True if PyTorch brought an OpenMP runtime with GNU's entry points, as it does on Linux."""
    process = ctypes.CDLL(None)
    return all(hasattr(process, name) for name in ("GOMP_parallel", "omp_get_max_threads", "omp_in_parallel"))
