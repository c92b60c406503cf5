"""Operands: a tensor that a kernel reads or writes, with its layout there, and whether PyTorch's tensors have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from dwconv.errors import InvalidCall
from dwconv.kernels.artifact import Artifact
from dwconv.problems.problem import memory_format
from dwconv.problems.workload import IMAGES, ITEMSIZE, DType, Layout, Workload, by

# Indices inside a kernel are 32-bit.
MOST_ELEMENTS = 2**31 - 1


def alignment_bytes(kind: str, dtype: DType) -> int:
    """Where a tensor must start, by kind of kernel. A CPU loads vectors from any address: measured, a vector across two
    cache lines costs less than the copy that would align it. A GPU cannot, so a slice of a tensor may need a copy."""
    return 16 if kind == "cuda" else ITEMSIZE[dtype]


@dataclass(frozen=True, kw_only=True)
class Operand:
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
    def of(cls, name: str, artifact: Artifact, *, device: str) -> Operand:
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

    def at(self, workload: Workload) -> Operand:
        """The operand of a workload that is of another size, or number of channels."""
        shape = workload.shape_of(self.name)
        if not self.is_image:
            return self if shape == self.shape else changed(self, shape=shape, strides=_dense(shape))
        layout: Layout = "nchw" if self.format is torch.contiguous_format else "nhwc"
        held = (1, self.pitch or shape[1], *shape[2:])
        return changed(self, shape=shape[1:], strides=dense_strides(held, layout=layout))

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
            raise freed(tensor)
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


def freed(tensor: torch.Tensor) -> InvalidCall:
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


Made = TypeVar("Made")


def changed(of: Made, **fields: Any) -> Made:
    """A copy of ``of`` with other fields, which nothing checks again."""
    made: Made = object.__new__(type(of))
    made.__dict__.update(of.__dict__, **fields)
    return made
