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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from dwconv import native
from dwconv.errors import BuildError, InvalidCall
from dwconv.kernels.artifact import Artifact, times_and_over
from dwconv.problems.problem import memory_format
from dwconv.problems.workload import IMAGES, ITEMSIZE, DType, Layout, Workload, by
from dwconv.system.forks import cached_property

if TYPE_CHECKING:
    from dwconv.kernels.any_size import AnySize

# Indices inside a kernel are 32-bit.
MOST_ELEMENTS = 2**31 - 1


def alignment_bytes(kind: str, dtype: DType) -> int:
    """Where a tensor must start, by kind of kernel. A CPU loads vectors from any address: measured, a vector across two
    cache lines costs less than the copy that would align it. A GPU cannot, so a slice of a tensor may need a copy."""
    return 16 if kind == "cuda" else ITEMSIZE[dtype]


Made = TypeVar("Made")
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
            tuple(_Operand.of(name, artifact, device=self._device) for name in names)
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
        torch.empty(0).new_empty_strided((0,), (1,))
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
        from dwconv.kernels.any_size import AnySize

        return AnySize(artifact, loaded).at(workload)

    @classmethod
    def _loaded(cls, artifact: Artifact) -> Callable[[Artifact], Kernel]:
        """The machine code of an artifact, as its kernel; one of any size, as that of any size."""
        if artifact.kind == "cpu":
            from dwconv.kernels.load import load_cpu

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
        made = _changed(
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
        """The same for tensors that have the kernel's layout, shapes and dtype, and x its ``x_pitch``, on one device.
        Nothing of this is checked."""
        first = inputs[0]
        if self._is_cuda and first.get_device() != torch.cuda.current_device():
            with torch.cuda.device(first.device):
                return self.on_dense(*inputs)
        for tensor in inputs:
            if tensor.untyped_storage().nbytes() < tensor.nbytes:
                raise _freed(tensor)
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
        offsets, size_bytes = self._scratch_at.get(batch) or self._place_workspaces(batch)
        start, scratch = 0, None
        if size_bytes and self._is_cuda:  # kept until the kernel is queued: the stream then keeps the order
            scratch = first.new_empty(size_bytes, dtype=torch.uint8)
            start = scratch.data_ptr()
        elif size_bytes:
            start = _scratch(size_bytes)
        for offset in offsets:
            addresses.append(start + offset)
        self._call(batch, *addresses)
        return result

    def run_into(
        self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], workspaces: Sequence[torch.Tensor]
    ) -> None:
        """The bare call, on contiguous, aligned tensors of exactly the shapes in ``artifact.arguments``."""
        self._call(inputs[0].shape[0], *[tensor.data_ptr() for tensor in (*inputs, *results, *workspaces)])

    @property
    def native(self) -> Any | None:
        """The same kernel for C++, from when that is compiled."""
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


def _changed(of: Made, **fields: Any) -> Made:
    """The same with other fields, which nothing checks again."""
    made: Made = object.__new__(type(of))
    made.__dict__.update(of.__dict__, **fields)
    return made


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
            self._memory = torch.empty(size_bytes, dtype=torch.uint8)  # PyTorch aligns it to a cache line
            self._start, self._size_bytes = self._memory.data_ptr(), size_bytes
        return self._start


_scratch = _Scratch()


@dataclass(frozen=True, kw_only=True)
class _Operand:
    """A tensor that a kernel reads or writes, with its layout there; shapes are PyTorch's."""

    name: str
    is_image: bool
    shape: tuple[int, ...]
    """Without the batch, if it is an image."""
    strides: tuple[int, ...]
    """With the batch."""
    pitch: int
    """Channels of the dense tensor of which this one is a slice; 0 if it is dense itself."""
    format: torch.memory_format
    given: torch.memory_format
    """The memory format that the user gets."""
    dtype: torch.dtype
    device: str
    """The type of device that the tensor must be on."""
    alignment: int

    @classmethod
    def of(cls, name: str, artifact: Artifact, *, device: str) -> _Operand:
        workload, is_image = artifact.candidate.workload, name in IMAGES
        shape, pitch = workload.shape_of(name), _pitch_of(name, artifact)
        held = (shape[0], pitch, *shape[2:]) if pitch else shape
        format = given = torch.contiguous_format
        if is_image:
            format = memory_format(artifact.candidate.template.layout, axes=workload.axes)
            given = memory_format(workload.layout, axes=workload.axes)
        return cls(
            name=name,
            is_image=is_image,
            shape=shape[1:] if is_image else shape,
            strides=torch.empty(held, device="meta", memory_format=format).stride(),
            pitch=pitch,
            format=format,
            given=given,
            dtype=getattr(torch, workload.dtype_of(name)),
            device=device,
            alignment=alignment_bytes(artifact.kind, workload.dtype_of(name)),
        )

    def at(self, workload: Workload) -> _Operand:
        """The same of a workload that is of another size, or number of channels."""
        shape = workload.shape_of(self.name)
        if not self.is_image:
            return self if shape == self.shape else _changed(self, shape=shape, strides=_dense(shape))
        layout: Layout = "nchw" if self.format is torch.contiguous_format else "nhwc"
        held = (1, self.pitch or shape[1], *shape[2:])
        return _changed(self, shape=shape[1:], strides=dense_strides(held, layout=layout))

    @property
    def any_shape(self) -> tuple[int, ...]:
        """The shape; for an image, with a batch of 1 as a placeholder."""
        return (1, *self.shape) if self.is_image else self.shape

    def dense(self, tensor: torch.Tensor, batch: int) -> torch.Tensor:
        """``tensor`` as the kernel can read it: a copy if it has another layout or is not aligned."""
        elements = tensor.numel()
        indexed = batch * self.strides[0] if self.pitch else elements
        shape = (batch, *self.shape) if self.is_image else self.shape
        if tensor.shape != shape or indexed > MOST_ELEMENTS:
            raise InvalidCall(
                f"{self.name} has the shape {by(tensor.shape)}, not {by(shape)}, or more than the {MOST_ELEMENTS} "
                "elements that kernels can index"
            )
        if tensor.dtype is not self.dtype:
            raise InvalidCall(f"{self.name} is {tensor.dtype}, not {self.dtype}")
        if tensor.device.type != self.device:
            raise InvalidCall(f"{self.name} is on {tensor.device}, not on a {self.device}")
        if elements and not tensor.untyped_storage().nbytes():
            raise _freed(tensor)
        if self.pitch:
            is_read = self._is_slice(tensor) and tensor.data_ptr() % self.alignment == 0
            return tensor if is_read else self.empty(batch, tensor).copy_(tensor)
        if not tensor.is_contiguous(memory_format=self.format):
            tensor = tensor.contiguous(memory_format=self.format)
        if tensor.data_ptr() % self.alignment:
            tensor = tensor.clone(memory_format=self.format)
        return tensor

    def _is_slice(self, tensor: torch.Tensor) -> bool:
        """True if it has the strides that a kernel with a pitch reads."""
        if tensor.shape[1:] != self.shape:
            return False
        strides = zip(tensor.shape, tensor.stride(), self.strides, strict=True)
        return all(size == 1 or stride == own for size, stride, own in strides)

    def empty(self, batch: int, like: torch.Tensor) -> torch.Tensor:
        shape = (batch, *self.shape) if self.is_image else self.shape
        return like.new_empty_strided(shape, self.strides, dtype=self.dtype)


def dense_strides(shape: Sequence[int], *, layout: Layout) -> tuple[int, ...]:
    """Those of a dense image, (N, C, H, W) or (N, C, D, H, W), in ``layout``."""
    if layout == "nchw":
        return _dense(shape)
    batch, channels, *size = shape
    batch_stride, *strides, last = _dense((batch, *size, channels))
    return (batch_stride, last, *strides)


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides))


def _freed(tensor: torch.Tensor) -> InvalidCall:
    """The error for memory that was given back, as FSDP does between two uses of a weight."""
    return InvalidCall(
        f"a tensor of {by(tensor.shape)} has no memory: its storage was freed or made smaller; bring it back before "
        "the call, and before its gradient"
    )


def _pitch_of(name: str, artifact: Artifact) -> int:
    """Of a tensor, as the kernel was built: a template need not heed the workload's pitch."""
    if name != "x" or not artifact.candidate.workload.x_pitch:
        return 0
    (argument,) = (each for each in artifact.inputs if each.name == name)
    held = argument.shape[-1 if artifact.candidate.template.layout == "nhwc" else 1]
    return artifact.candidate.workload.x_pitch if held == artifact.candidate.workload.x_pitch else 0


def x_pitch_of(x: torch.Tensor, *, layout: Layout) -> int:
    """``Workload.x_pitch`` of an image, (N, C, H, W) or (N, C, D, H, W), that is in memory a slice of the channels of a
    dense tensor of ``layout``; 0 if it is dense, or has other strides."""
    if x.is_contiguous(memory_format=memory_format(layout, axes=x.dim() - 2)):
        return 0
    in_memory, inner = (x.movedim(1, -1), 1) if layout == "nhwc" else (x, x.dim() - 1)
    axes = [*zip(in_memory.shape, in_memory.stride(), strict=True)][::-1]
    elements = 1  # within what a slice has of its tensor in one piece
    for size, stride in axes[:inner]:
        if size > 1 and stride != elements:
            return 0
        elements *= size
    unit, pitch = elements // x.shape[1], None
    for size, stride in axes[inner:]:
        if size > 1:
            pitch = stride // unit if pitch is None else pitch
            if stride != unit * pitch:
                return 0
        unit *= size
    return pitch if pitch is not None and pitch > x.shape[1] and unit * pitch <= MOST_ELEMENTS else 0


def why_copied(tensor: torch.Tensor, *, layout: Layout, alignment: int) -> str | None:
    """Why a kernel that reads ``layout``, and tensors of that alignment, copies ``tensor`` first; None if it needs no
    copy."""
    in_memory = tensor.movedim(1, -1) if layout == "nhwc" else tensor
    if not in_memory.is_contiguous():
        if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
            return "it is expanded, several of its elements are one in memory"
        if tensor.is_contiguous() or tensor.movedim(1, -1).is_contiguous():
            return f"the kernel reads {layout}, the tensor is {'nchw' if layout == 'nhwc' else 'nhwc'}"
        return f"it is not dense in {layout}, such as a slice or a transposed tensor"
    if tensor.data_ptr() % alignment:
        return f"it does not start at a multiple of {alignment} bytes"
    return None
