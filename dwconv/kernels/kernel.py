"""Kernel: an artifact loaded into this process, called with PyTorch tensors.

``kernel(x, w)`` is the call for users: it takes tensors of PyTorch's shapes with any strides, allocates the results,
and copies where the kernel needs another layout. ``kernel.run_into`` is the bare call.

A training step makes about a hundred of these calls, so each is kept short. A kernel is called from C++ once that is
compiled (``dwconv.native``). Until then no views are made, and the kernel is given addresses: its shapes are known
since it was built.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from dwconv import native
from dwconv.errors import BuildError, InvalidWorkload
from dwconv.kernels.artifact import Artifact, size_names, times_and_over
from dwconv.kernels.operand import Operand, alignment_bytes, changed, freed
from dwconv.problems.workload import Sizes, Workload
from dwconv.system.forks import cached_property

RawCall = Callable[..., Any]
"""Takes the batch, then the addresses of ``artifact.arguments``; a CUDA kernel is launched on PyTorch's current device
and stream."""


class Kernel:
    """A built candidate, callable. Load one with ``Kernel.load``."""

    def __init__(
        self,
        artifact: Artifact,
        call: RawCall,
        *,
        code: Callable[[Any], Any] | None = None,
        device: str | None = None,
    ) -> None:
        """``code`` takes the compiled C++ module and returns the same as ``call`` for it. ``device``: where the tensors
        are, if not on the kind of device that the kernel was built for, as in a simulator."""
        self.any_size: AnySize | None = None
        """Of a kernel of any size, what it is at all of them."""
        self.artifact = artifact
        self._machine_code: tuple[RawCall, int] | None = None
        """What ``load_cpu`` gave."""
        self.workload: Workload = artifact.candidate.workload
        self._call = call
        self._device = device or artifact.kind
        self._is_cuda = self._device == "cuda"
        self._off_alignment = alignment_bytes(artifact.kind, self.workload.dtype) - 1
        self._inputs, self._results = (
            tuple(Operand.of(name, artifact, device=self._device) for name in names)
            for names in (self.workload.inputs, self.workload.results)
        )
        self._one = self._results[0] if len(self._results) == 1 else None
        self.x_pitch: int | None = next((each.pitch for each in self._inputs if each.name == "x"), None)
        """How many channels the tensor has of which it reads x as a slice, ``Workload.x_pitch``; 0 if x must be dense,
        None if it reads none."""
        self.is_direct = all(operand.format is operand.given for operand in (*self._inputs, *self._results))
        """True if inputs that are dense in the workload's layout, x but for its ``x_pitch``, can be passed as they
        are."""
        self._workspaces = artifact.workspaces
        self._scratch_at: dict[int, tuple[tuple[int, ...], int]] = {}
        self._code = code if self.is_direct else None
        self._native: Any | None = None
        self._like: Any = torch.empty(0, device=self._device) if self._code else None
        """On the device that the kernel is for."""
        # PyTorch prepares an op when it is first called. A fork that waited for this kernel must not find that half
        # done.
        torch.empty(0, device="cpu").new_empty_strided((0,), (1,))
        if self._code is not None and native.soon() is not None:
            _ = self.native  # what can go wrong with it goes wrong here, not in a call

    @classmethod
    def load(cls, artifact: Artifact) -> Kernel:
        """Load a built artifact into this process. Raises BuildError if the machine code cannot be made or the device
        is not here."""
        loaded = cls._loaded(artifact)
        workload = artifact.candidate.workload
        if not workload.any_size:
            return loaded(artifact)
        return AnySize(artifact, loaded).at(workload)

    @classmethod
    def _loaded(cls, artifact: Artifact) -> Callable[[Artifact], Kernel]:
        """The machine code of an artifact, as its kernel; one of any size, as that of any size."""
        if artifact.kind == "cpu":
            from dwconv.kernels.load_cpu import load_cpu

            call, entry = load_cpu(artifact)
            return lambda sized: cls.of_machine_code(sized, call, entry)
        from dwconv.kernels.launch import load_cuda

        launcher = load_cuda(artifact)

        def launched(sized: Artifact) -> Kernel:
            own = launcher.at(sized)
            return cls(sized, own, code=own.compiled)

        return launched

    @classmethod
    def of_machine_code(cls, artifact: Artifact, call: RawCall, entry: int) -> Kernel:
        """What ``load_cpu`` gave, at the size of ``artifact``."""
        sized, code = _at_sizes(call, entry, artifact.sizes)
        kernel = cls(artifact, sized, code=code)
        kernel._machine_code = call, entry
        return kernel

    def resized(self, workload: Workload) -> Kernel | None:
        """A kernel of any size on a CPU at the size of ``workload``, which is else the same: a training step may meet
        a new one, so nothing is made that depends on no size. None where all has to be made."""
        if self.any_size is None or self._machine_code is None:
            return None
        sizes = workload.image_sizes
        inputs, results = (
            tuple([each.at(workload) for each in operands]) for operands in (self._inputs, self._results)
        )
        call, code = _at_sizes(*self._machine_code, tuple([sizes[name] for name in self.any_size.names]))
        made = changed(
            self, workload=workload, _inputs=inputs, _results=results,
            _one=results[0] if self._one else None, _call=call, _code=code if self._code else None, _native=None,
            _workspaces=tuple([argument.at(sizes) for argument in self.any_size.artifact.workspaces]), _scratch_at={},
        )  # fmt: skip
        made.__dict__.pop("artifact", None)
        return made

    @cached_property
    def artifact(self) -> Artifact:
        """As it was built; one of any size, at the size of the workload."""
        assert self.any_size is not None, "others have it from the beginning"
        return self.any_size.artifact.at(self.workload)

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """Run on tensors of PyTorch's shapes, ``Workload.shape_of``, at any batch.

        ``inputs`` are the workload's, in its order. Returns y or dx in the workload's layout, or dw contiguous, or
        (dw, dbias).
        """
        compiled = self.native
        if compiled is not None and (given := native.run(compiled, *inputs)) is not None:
            return given
        batch = inputs[0].shape[0]
        read = [operand.dense(tensor, batch) for operand, tensor in zip(self._inputs, inputs, strict=True)]
        if self._is_cuda and any(tensor.device != read[0].device for tensor in read):
            devices = ", ".join(
                f"{each.name} on {tensor.device}" for each, tensor in zip(self._inputs, read, strict=True)
            )
            raise BuildError(f"one kernel, one device: {devices}")
        given = self.on_dense(*read)
        (operand, *_) = self._results
        return given if operand.given is operand.format else given.contiguous(memory_format=operand.given)

    def on_dense(self, *inputs: torch.Tensor) -> Any:
        """Run it on tensors that have the kernel's layout, shapes and dtype, and x its ``x_pitch``, on one device.
        Nothing of this is checked."""
        first = inputs[0]
        if self._is_cuda and first.get_device() != torch.cuda.current_device():
            with torch.cuda.device(first.device):
                return self.on_dense(*inputs)
        for tensor in inputs:
            if tensor.untyped_storage().nbytes() < tensor.nbytes:
                raise freed(tensor)
        batch = first.shape[0]
        result: Any
        if self._one is not None:
            one = self._one
            result = first.new_empty_strided((batch, *one.shape) if one.is_image else one.shape, one.strides)
            addresses = [*map(_ADDRESS, inputs), result.data_ptr()]
        else:
            result = tuple(operand.empty(batch, first) for operand in self._results)
            addresses = [*map(_ADDRESS, (*inputs, *result))]
        if functools.reduce(operator.or_, addresses) & self._off_alignment:
            return self(*inputs)
        self._call_at(addresses, batch, first)
        return result

    def into(self, result: torch.Tensor, *inputs: torch.Tensor) -> None:
        """Run it as ``on_dense``, and write to ``result``, which has the kernel's layout as well. For a CPU."""
        for tensor in inputs:
            if tensor.untyped_storage().nbytes() < tensor.nbytes:
                raise freed(tensor)
        addresses = [*map(_ADDRESS, (*inputs, result))]
        if functools.reduce(operator.or_, addresses) & self._off_alignment:
            result.copy_(self(*inputs))
        else:
            self._call_at(addresses, inputs[0].shape[0], result)

    def _call_at(self, addresses: list[int], batch: int, like: torch.Tensor) -> None:
        offsets, size_bytes = self._scratch_at.get(batch) or self._place_workspaces(batch)
        start, scratch = 0, None
        if size_bytes and self._is_cuda:  # kept until the kernel is queued: the stream then keeps the order
            scratch = like.new_empty(size_bytes, dtype=torch.uint8)
            start = scratch.data_ptr()
        elif size_bytes:
            start = _scratch(size_bytes)
        for offset in offsets:
            addresses.append(start + offset)
        self._call(batch, *addresses)

    def run_into(
        self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], workspaces: Sequence[torch.Tensor]
    ) -> None:
        """The bare call, on contiguous, aligned tensors of exactly the shapes in ``artifact.arguments``."""
        self._call(inputs[0].shape[0], *[tensor.data_ptr() for tensor in (*inputs, *results, *workspaces)])

    @property
    def native(self) -> Any | None:
        """This kernel for C++, from when that is compiled."""
        if self._native is None and self._code is not None and native.module is not None:
            with torch.cuda.device(self._like.device) if self._is_cuda else contextlib.nullcontext():
                self._native = self._for_native(native.soon(), self._code)
        return self._native

    def _for_native(self, compiled: Any, code: Callable[[Any], Any]) -> Any:
        workspaces = [
            compiled.Workspace(
                getattr(torch, argument.dtype).itemsize,
                [compiled.Size(*times_and_over(size)) for size in argument.shape],
            )
            for argument in self._workspaces
        ]
        inputs, results = (
            [
                compiled.Operand(each.is_image, each.any_shape, each.strides, each.dtype, each.format, each.pitch > 0)
                for each in operands
            ]
            for operands in (self._inputs, self._results)
        )
        return compiled.Kernel(self.workload.op, code(compiled), self._like, inputs, results, workspaces)

    # -- workspaces --------------------------------------------------------------------------------------------

    def _place_workspaces(self, batch: int) -> tuple[tuple[int, ...], int]:
        """The offset of each workspace, side by side, and the size of all together."""
        offsets, end = [], 0
        for argument in self._workspaces:
            offsets.append(end)
            size_bytes = math.prod(argument.shape_at(batch)) * getattr(torch, argument.dtype).itemsize
            end += -(-size_bytes // _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES
        if len(self._scratch_at) >= _MOST_BATCHES:
            self._scratch_at.clear()
        placed = self._scratch_at[batch] = (tuple(offsets), end)
        return placed


def _at_sizes(call: RawCall, entry: int, sizes: tuple[int, ...]) -> tuple[RawCall, Callable[[Any], Any] | None]:
    """Machine code that is given these behind the addresses, for Python and for C++."""
    sized: RawCall = (lambda batch, *addresses: call(batch, *addresses, *sizes)) if sizes else call
    return sized, (lambda compiled: compiled.MachineCode(entry, call, list(sizes))) if entry else None


_ADDRESS = torch.Tensor.data_ptr
_CACHE_LINE_BYTES = 128
"""The longest cache line of any device."""
_MOST_BATCHES = 1000


class _Scratch(threading.local):
    """Memory for the workspaces of the CPU kernels that one thread runs, one after the other: as much as the largest
    needed. It stays in the thread's caches."""

    def __init__(self) -> None:
        self._start, self._size_bytes = 0, 0

    def __call__(self, size_bytes: int) -> int:
        """The address of at least ``size_bytes``."""
        if size_bytes > self._size_bytes:
            self._memory = torch.empty(size_bytes, dtype=torch.uint8, device="cpu")  # PyTorch aligns it to a cache line
            self._start, self._size_bytes = self._memory.data_ptr(), size_bytes
        return self._start


_scratch = _Scratch()


# -- of any size ------------------------------------------------------------------------------------------------------

_SAMPLES = 8
_LANES = 16
"""Columns of a vector, at most: a tile is some of them where vectors are of columns."""
_TILES_AND_OFF = ((0, 1), (1, 0), (1, -1), (1, 1), (2, 0), (2, 1), (3, -1), (3, 2))
"""Of each sample, whole tiles along an axis and outputs more; of the other axis from the end."""


class AnySize:
    """What the kernels of a layer at all sizes have in common: machine code that takes the size with each call. On a
    GPU each has the blocks of its size."""

    def __init__(self, artifact: Artifact, loaded: Callable[[Artifact], Kernel]) -> None:
        """``loaded``: the machine code, as the kernel of an artifact of one size."""
        self.artifact = artifact
        """As it was built: with symbols for the sizes."""
        self.names = size_names(artifact.arguments)
        """What the machine code takes behind the addresses."""
        self._loaded = loaded
        self._first: Kernel | None = None

    def at(self, workload: Workload) -> Kernel:
        """The kernel at the size of ``workload``, which is else the same: no machine code is made."""
        kernel = self._first.resized(workload) if self._first else None
        if kernel is None:
            kernel = self._loaded(self.artifact.at(workload))
            kernel.any_size = self
            self._first = kernel
        return kernel

    def samples(self) -> Iterator[Kernel]:
        """The kernel at sizes that show whether it is right at all of them: those around the numbers of tiles by which
        it cuts an axis in another way, and the size that its configuration was chosen for. If it takes the channels,
        too, whole vectors of them and, on a CPU, one that overlaps the one before."""
        workload, config = self.artifact.candidate.workload, self.artifact.candidate.config.to_dict()
        lanes = self.artifact.least_channels if workload.any_channels else 0

        def channels(number: int) -> int:
            if self.artifact.kind == "cuda":
                return (number + 1) * lanes if lanes else workload.channels
            return (number + 2) * lanes // 2 + number % 2 if lanes else workload.channels

        tile_w = int(config.get("tile_w", int(config.get("vectors_w", 1)) * _LANES))
        tile_h = int(config.get("tile_h", config["block_h"] if workload.block else 1))
        for number in range(_SAMPLES):
            width, height = tile_w, tile_h
            if number % 2:  # on a GPU, tiles of a block
                width *= int(config.get("threads_w", 1)) * int(config.get("vthread_w", 1))
                height *= int(config.get("threads_h", 1))
            sizes = [max(1, tiles * width + off) for tiles, off in (_TILES_AND_OFF[number], _TILES_AND_OFF[-number])]
            outputs = (number % 3 + 1, 1 if workload.is_row else sizes[1] * height // width, sizes[0])
            with contextlib.suppress(InvalidWorkload):  # the kernel is larger than the padded image
                yield self.at(replace(workload, input_size=_size_of(workload, outputs), channels=channels(number)))
        yield self.at(workload)


def _size_of(workload: Workload, outputs: tuple[int, ...]) -> Sizes:
    """The input size at which the image that the kernel loops over has about ``outputs`` pixels along each axis."""
    steps = (1,) * workload.axes if workload.pass_ in ("dgrad", "backward") else workload.stride
    return tuple(max(1, out * step) for out, step in zip(outputs[-workload.axes :], steps, strict=True))
