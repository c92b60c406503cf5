"""Run a bare kernel on memory laid out to show its faults.

Results and workspaces are filled with NaNs and lie between guard bands; inputs lie between bands of NaN and are
compared afterwards; each starts where it may start, off a cache line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from dwconv.kernels.artifact import Argument, Artifact
from dwconv.kernels.kernel import alignment_bytes
from dwconv.measure.verify.cases import Case
from dwconv.measure.verify.guarded import STALE, UNWRITTEN, Guarded, have_same_bits
from dwconv.problems.workload import IMAGES, Layout, Workload
from dwconv.system.memory import free_bytes
from dwconv.system.threads import on_threads

_STARTS = (1, 2, 4, 8)
"""How far tensors start after a cache line, in multiples of the least alignment, or of a float32 if that is more, but
for the first. Vectors may be loaded in another way at each."""


class LoadedKernel(Protocol):
    """A kernel that can be verified, such as dwconv.kernels.kernel.Kernel."""

    artifact: Artifact

    def __call__(self, *inputs: torch.Tensor) -> Any: ...

    def run_into(
        self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], workspaces: Sequence[torch.Tensor]
    ) -> None: ...


class Bench:
    """A kernel with its arguments in its own layout, each between guard bands."""

    def __init__(self, kernel: LoadedKernel, case: Case, *, place: int = 0) -> None:
        """``place``: a number for where inputs and results start. At the first few all start alike, at different places
        of a cache line; then each of them elsewhere."""
        self._kernel, self._case = kernel, case
        artifact, device, batch = kernel.artifact, case.inputs[0].device, case.workload.batch
        self._layout = artifact.candidate.template.layout
        arguments = (*artifact.inputs, *artifact.results)
        least = alignment_bytes(artifact.kind, artifact.candidate.workload.dtype)
        tensors = [
            Guarded(
                argument, batch=batch, device=device, offset_bytes=_offset_bytes(place, number, least=least),
                slice_of=self._slice_of(argument),
            )
            for number, argument in enumerate(arguments)
        ]  # fmt: skip
        self._inputs, self._out = tensors[: len(artifact.inputs)], tensors[len(artifact.inputs) :]
        self._workspaces = [Guarded(argument, batch=batch, device=device) for argument in artifact.workspaces]
        for own, tensor in zip(self._inputs, case.inputs, strict=True):
            original = _in_kernel_order(tensor, name=own.name, layout=self._layout)
            own.part.view(original.shape).copy_(original)
        self.results = [
            _in_pytorch_order(own.tensor, name=own.name, layout=self._layout, workload=case.workload)
            for own in self._out
        ]
        """The results of the last run, in PyTorch's shapes."""

    def _slice_of(self, argument: Argument) -> tuple[int, int] | None:
        """The axis of the channels of x, and how many it has, if the kernel reads it as a slice."""
        axis = -1 if self._layout == "nhwc" else 1
        channels = self._case.workload.channels
        return (axis, channels) if argument.name == "x" and argument.shape[axis] != channels else None

    def run(self, *, threads: int | None = None) -> None:
        """Run it once. ``threads``: as many as the kernel runs on; by default PyTorch's number."""
        for result in self._out:
            result.fill(UNWRITTEN)
        for workspace in self._workspaces:
            workspace.fill(STALE)
        with on_threads(threads or torch.get_num_threads()):
            self._kernel.run_into(
                *([own.tensor for own in some] for some in (self._inputs, self._out, self._workspaces))
            )

    def fault(self) -> str | None:
        """A fault that the runs left in memory: outside of the tensors, in an input, or elements not written."""
        for own in (*self._inputs, *self._out, *self._workspaces):
            if not own.bands_are_whole():
                return f"guard band: it wrote outside {own.name}"
        if changed := self.changed_input(self._case.inputs):
            return f"input changed: {changed}"
        for own in self._out:
            if unwritten := own.count(UNWRITTEN):
                return f"not written: {unwritten} of {own.tensor.numel()} elements of {own.name}"
        return None

    def changed_input(self, given: Sequence[torch.Tensor]) -> str | None:
        """The name of an input that differs between the kernel's own copy and ``given``; None if all are the same."""
        for own, tensor in zip(self._inputs, given, strict=True):
            original = _in_kernel_order(tensor, name=own.name, layout=self._layout)
            if not have_same_bits([own.part.view(original.shape)], [original]):
                return own.name
        return None


def _offset_bytes(place: int, number: int, *, least: int) -> int:
    """How far the tensor of that number starts after a cache line; ``least``: the alignment that kernels ask for."""
    at = (place + place // len(_STARTS) * number) % len(_STARTS)
    return max(least, 4) * _STARTS[at] if at else least


def check_memory(artifact: Artifact, case: Case) -> None:
    """Raises MemoryError if a kernel needs more for this case than there is."""
    needed, free = artifact.bytes_at(case.workload.batch), free_bytes(case.inputs[0].device.type)
    if needed > free:
        raise MemoryError(f"it needs {needed / 2**30:.1f} GiB for its tensors, {free / 2**30:.1f} GiB are free")


def _in_kernel_order(tensor: torch.Tensor, *, name: str, layout: Layout) -> torch.Tensor:
    """A tensor of PyTorch's shape, viewed in the order that a kernel of that layout has in memory."""
    return tensor.movedim(1, -1) if layout == "nhwc" and name in IMAGES else tensor


def _in_pytorch_order(tensor: torch.Tensor, *, name: str, layout: Layout, workload: Workload) -> torch.Tensor:
    """A kernel's tensor, viewed in PyTorch's shape."""
    shape = workload.shape_of(name)
    if layout == "nhwc" and name in IMAGES:
        n, c, *size = shape
        return tensor.view(n, *size, c).movedim(-1, 1)
    return tensor.view(shape)
