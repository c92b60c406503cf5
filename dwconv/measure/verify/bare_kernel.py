"""Tensors that show what a kernel did to memory: between guard bands, filled with patterns that no kernel computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from dwconv.kernels.artifact import Argument, Artifact
from dwconv.kernels.operand import alignment_bytes
from dwconv.measure.verify.cases import Case
from dwconv.problems.workload import IMAGES, Layout, Workload
from dwconv.system.memory import free_bytes
from dwconv.system.threads import on_threads

UNWRITTEN = {torch.float32: 0x7FC0DEAD, torch.float16: 0x7EAD, torch.bfloat16: 0x7FED}
"""The bits in results before a run. All three patterns here are NaNs, and all differ: a NaN that a kernel reads and
passes on keeps its bits, and a result computed from a stale workspace must not look unwritten."""
STALE = {torch.float32: 0x7FC0CAFE, torch.float16: 0x7ECA, torch.bfloat16: 0x7FCA}
"""The bits in workspaces before a run."""
_OUTSIDE = {torch.float32: 0x7FC0BEEF, torch.float16: 0x7EEB, torch.bfloat16: 0x7FEB}
_ANY_OTHER_TYPE = 0x5A
# Long enough for a whole row of most layers, a multiple of every alignment, and short enough for PyTorch to fill with
# one thread.
_GUARD_ELEMENTS = 31 << 10
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Guarded:
    """A tensor between two guard bands. It starts ``offset_bytes`` after the start of a cache line. Of a tensor of
    which the kernel gets a slice, ``part`` is that slice, and what is between is guarded as well."""

    def __init__(
        self,
        argument: Argument,
        *,
        batch: int,
        device: torch.device,
        offset_bytes: int = 0,
        slice_of: tuple[int, int] | None = None,
    ) -> None:
        """``slice_of``: the axis of which the kernel gets the first elements alone, and how many these are."""
        self.name = argument.name
        shape = argument.shape_at(batch)
        self._dtype: torch.dtype = getattr(torch, argument.dtype)
        before = _GUARD_ELEMENTS + offset_bytes // self._dtype.itemsize
        after = before + math.prod(shape)
        everything = torch.empty(after + _GUARD_ELEMENTS, dtype=self._dtype, device=device)
        self.tensor = everything[before:after].view(shape)
        bits = bits_of(everything)
        self._bands: tuple[torch.Tensor, ...] = (bits[:before], bits[after:])
        self.part = self.tensor
        if slice_of:
            axis, count = slice_of
            self.part = self.tensor.narrow(axis, 0, count)
            between = bits_of(self.tensor).narrow(axis, count, shape[axis] - count)
            self._bands = (*self._bands, between)
        for band in self._bands:
            band.fill_(self._pattern(_OUTSIDE))

    def fill(self, patterns: dict[torch.dtype, int]) -> None:
        bits_of(self.tensor).fill_(self._pattern(patterns))

    def count(self, patterns: dict[torch.dtype, int]) -> int:
        """How many elements hold exactly that pattern."""
        return int((bits_of(self.tensor) == self._pattern(patterns)).sum())

    def bands_are_whole(self) -> bool:
        return all(bool((band == self._pattern(_OUTSIDE)).all()) for band in self._bands)

    def _pattern(self, patterns: dict[torch.dtype, int]) -> int:
        return patterns.get(self._dtype, _ANY_OTHER_TYPE)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of ``tensor`` as whole numbers: a view."""
    return tensor.view(_BITS[tensor.dtype.itemsize])


def have_same_bits(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return all(
        one.dtype == other.dtype and torch.equal(bits_of(one), bits_of(other))
        for one, other in zip(some, others, strict=True)
    )


_STARTS = (1, 2, 4, 8)
"""How far tensors start after a cache line, in multiples of the least alignment, or of a float32 if that is more, but
for the first. Vectors may be loaded in another way at each."""


class LoadedKernel(Protocol):
    """A kernel that can be verified, such as dwconv.kernels.kernel.Kernel."""

    @property
    def artifact(self) -> Artifact: ...

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
    """How far the tensor of that number starts after a cache line; ``least``: the alignment that kernels need."""
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
