"""Problem: the sizes of a convolution in PyTorch's terms, from a call, before the decision what runs it.

A Workload is what can have kernels. A Problem may be of any type, and of an empty batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from dwconv.problems.as_written import transposed_size
from dwconv.problems.block import Block
from dwconv.problems.workload import BLOCK_PASSES, EVAL_PASSES, PASSES, Epilogue, Layout, Pass, Workload, by

_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def memory_format(layout: Layout, *, axes: int) -> torch.memory_format:
    """Of images with ``axes`` axes besides batch and channels."""
    return _CHANNELS_LAST[axes] if layout == "nhwc" else torch.contiguous_format


def lies_channels_last(image: torch.Tensor) -> bool:
    """Whether PyTorch's op takes an image, or a weight, for channels_last: by its strides. They decide also where a
    size of 1 leaves it open."""
    return are_channels_last(image.shape, image.stride())


def are_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether an image of these sizes and strides lies so."""
    if strides[1] == 0:
        return False
    least = 0
    for axis in (1, *range(len(sizes) - 1, 1, -1), 0):
        if sizes[axis] == 0 or strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * sizes[axis]
    return True


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The sizes of a call, as PyTorch has them: what decisions are made for."""

    input_shape: tuple[int, ...]
    """(N, C, H, W) or (N, C, D, H, W)"""
    weight_shape: tuple[int, ...]
    """(C·multiplier, 1, KH, KW) or (C·multiplier, 1, KD, KH, KW)"""
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    """(top, bottom, left, right); in 3-D (front, back, top, bottom, left, right)"""
    dilation: tuple[int, ...]
    dtype: torch.dtype
    layout: Layout
    bias: bool = False
    epilogue: Epilogue = "none"
    """Of the fprop; the other passes of the problem have none."""
    block: Block | None = None
    """The norms and activations fused with the convolution; the passes are those of the block."""
    trains: bool = True
    """Whether a block is in training; in evaluation its norms use their running statistics."""

    @classmethod
    def of(cls, workload: Workload) -> Problem:
        """The problem whose pass the workload is; of dgrad without the bias, which it does not have."""
        return cls(
            input_shape=workload.shape_of("x"),
            weight_shape=workload.shape_of("w"),
            stride=workload.stride,
            padding=tuple(side for sides in workload.padding for side in sides),
            dilation=workload.dilation,
            dtype=getattr(torch, workload.dtype),
            layout=workload.layout,
            bias=workload.bias,
            epilogue=workload.epilogue,
            block=workload.block,
            trains=workload.pass_ not in EVAL_PASSES,
        )

    @classmethod
    def of_transposed(
        cls,
        *,
        input_shape: tuple[int, ...],
        weight_shape: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        output_padding: tuple[int, ...],
        dilation: tuple[int, ...],
        dtype: torch.dtype,
        layout: Layout,
    ) -> Problem:
        """The convolution whose dgrad a transposed one is: see ``workload.TRANSPOSED``. ``input_shape`` is
        (N, C, H, W), ``weight_shape`` (C, multiplier, KH, KW), ``padding`` that of both sides. With a multiplier each
        channel of the input counts as so many alike ones. ``output_padding`` must be below the stride."""
        batch, channels, *size = input_shape
        _, multiplier, *kernel = weight_shape
        made = transposed_size(
            tuple(size), kernel=tuple(kernel), stride=stride, padding=tuple((side, side) for side in padding),
            output_padding=output_padding, dilation=dilation,
        )  # fmt: skip
        return cls(
            input_shape=(batch, channels * multiplier, *made),
            weight_shape=(channels * multiplier, 1, *kernel),
            stride=stride,
            padding=tuple(side for side in padding for _ in range(2)),
            dilation=dilation,
            dtype=dtype,
            layout=layout,
        )

    @property
    def passes(self) -> tuple[Pass, ...]:
        if self.block is None:
            return PASSES
        return BLOCK_PASSES if self.trains else EVAL_PASSES

    @property
    def alone(self) -> Problem:
        return dataclasses.replace(self, block=None, trains=True)

    @property
    def in_evaluation(self) -> Problem:
        return dataclasses.replace(self, trains=False, block=self.block and self.block.thawed)

    @property
    def axes(self) -> int:
        return len(self.stride)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """(N, C·multiplier, OH, OW) or (N, C·multiplier, OD, OH, OW) of y"""
        axes = range(self.axes)
        reach = [self.dilation[axis] * (self.weight_shape[2 + axis] - 1) + 1 for axis in axes]
        padded = [self.input_shape[2 + axis] + sum(self.padding[2 * axis : 2 * axis + 2]) for axis in axes]
        size = [(padded[axis] - reach[axis]) // self.stride[axis] + 1 for axis in axes]
        return (self.input_shape[0], self.weight_shape[0], *size)

    @property
    def memory_format(self) -> torch.memory_format:
        return memory_format(self.layout, axes=self.axes)

    @property
    def geometry(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Layout]:
        return self.stride, self.padding, self.dilation, self.layout

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def workload(self, pass_: Pass) -> Workload:
        """Raises InvalidWorkload for an empty batch, or a dtype that has no kernels."""
        return _workload(self, pass_)

    def _first_workload(self) -> Workload:
        batch, channels, *size = self.input_shape
        out_channels, _, *kernel = self.weight_shape
        return Workload(
            pass_=self.passes[0],
            batch=batch,
            channels=channels,
            input_size=tuple(size),
            kernel=tuple(kernel),
            multiplier=out_channels // channels,
            stride=self.stride,
            padding=tuple(zip(self.padding[::2], self.padding[1::2], strict=True)),
            dilation=self.dilation,
            dtype=self.dtype_name,  # type: ignore[arg-type]  # the workload checks it
            layout=self.layout,
            bias=self.bias,
            epilogue=self.epilogue,
            block=self.block,
        )

    def __str__(self) -> str:
        """``8×144×56×56 nhwc float32, kernel 3×3, stride 1×1, padding 1×1×1×1``, the defaults left out."""
        words = [
            f"{by(self.input_shape)} {self.layout} {self.dtype_name}",
            f"kernel {by(self.weight_shape[2:])}",
        ]
        for name, sizes, default in (
            ("stride", self.stride, 1),
            ("padding", self.padding, 0),
            ("dilation", self.dilation, 1),
        ):
            if any(size != default for size in sizes):
                words.append(f"{name} {by(sizes) if len(set(sizes)) > 1 else sizes[0]}")
        if self.weight_shape[0] != self.input_shape[1]:
            words.append(f"multiplier {self.weight_shape[0] // self.input_shape[1]}")
        if self.epilogue != "none":
            words.append(self.epilogue.replace("_", " "))
        if self.block:
            words.append(f"block {self.block}" + " in evaluation" * (not self.trains))
        return ", ".join(words) + " with a bias" * self.bias


@lru_cache(maxsize=64)
def _workload(problem: Problem, pass_: Pass) -> Workload:
    """Cached, since the decision of one call needs the same ones several times."""
    if pass_ == problem.passes[0]:
        return problem._first_workload()
    return _workload(problem, problem.passes[0]).for_pass(pass_)
