"""TransposedArguments: what a user gave to ``conv_transpose1d`` and the like.

TransposedCall: these arguments, checked, with the convolution whose dgrad they name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from dwconv.call.arguments import (
    KERNELS,
    Size,
    check_beside,
    check_input,
    image_of,
    layout_of_result,
    lowered,
    per_axis,
    running_dtype,
)
from dwconv.errors import InvalidCall
from dwconv.problems import pytorch
from dwconv.problems.problem import Problem
from dwconv.problems.workload import by


class TransposedArguments(NamedTuple):
    """Arguments as the user gave them. The fields are those of ``Arguments``, in PyTorch's order."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None
    stride: Size
    padding: Size
    output_padding: Size
    groups: int | None
    dilation: Size
    axes: int

    @property
    def function(self) -> str:
        return f"conv_transpose{self.axes}d"

    def lowered(self) -> TransposedArguments | None:
        tensors = lowered(*self[:3])
        return None if tensors is None else self._replace(input=tensors[0], weight=tensors[1], bias=tensors[2])

    def as_pytorchs(self) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
        groups = self.groups
        if groups is None:
            is_image = isinstance(self.input, Tensor) and self.input.dim() > self.axes
            groups = self.input.size(-self.axes - 1) if is_image else 1
        return pytorch.TRANSPOSED_OPS[self.axes], (*self[:6], groups, self.dilation)

    def on_pytorch(self) -> Tensor:
        """The result of PyTorch's own op, with PyTorch's own derivative."""
        op, arguments = self.as_pytorchs()
        return op(*arguments)


@dataclass(frozen=True, kw_only=True)
class TransposedCall:
    """Arguments that are a depthwise transposed convolution."""

    given: TransposedArguments
    x: Tensor
    """(N, C, H, W) or (N, C, D, H, W)"""
    w: Tensor
    """(C·multiplier, 1, KH, KW) or (C·multiplier, 1, KD, KH, KW)"""
    multiplier: int
    problem: Problem
    """The convolution whose dgrad computes y from x."""
    output_padding: tuple[int, ...]
    is_ours: bool
    """False if there is no such convolution: one with this stride would read more of y than x has elements for."""

    @classmethod
    def of(cls, given: TransposedArguments) -> TransposedCall:
        """Raises InvalidCall or InvalidArgument, naming what does not fit."""
        channels, weight, axes = check_input(given), given.weight, given.axes
        if weight.dim() != axes + 2 or weight.shape[0] != channels or 0 in (channels, *weight.shape[1:]):
            wanted = f"(C, multiplier, {KERNELS[axes]})"
            raise InvalidCall(f"weight of shape {by(weight.shape)} is not {wanted} with C={channels} input channels")
        multiplier = weight.shape[1]
        check_beside(given, out_channels=channels * multiplier)
        strides, dilations = (
            per_axis(name, value, axes=axes, least=1)
            for name, value in (("stride", given.stride), ("dilation", given.dilation))
        )
        paddings, over = (
            per_axis(name, value, axes=axes, least=0)
            for name, value in (("padding", given.padding), ("output_padding", given.output_padding))
        )
        for step, spread, more in zip(strides, dilations, over, strict=True):
            if more >= max(step, spread):
                raise InvalidCall(
                    f"output_padding={more} must be below the stride or the dilation, {step} and {spread}"
                )
        x, w = image_of(given.input, axes=axes), image_of(weight, axes=axes)
        problem = Problem.of_transposed(
            input_shape=tuple(x.shape),
            weight_shape=tuple(w.shape),
            stride=strides,
            padding=paddings,
            output_padding=over,
            dilation=dilations,
            dtype=running_dtype(x),
            layout=layout_of_result(x, w),
        )
        for size, made in zip(x.shape[2:], problem.input_shape[2:], strict=True):
            if size < 1 or made < 1:
                raise InvalidCall(
                    f"input of {by(x.shape[2:])} with padding={by(paddings)} makes an output of "
                    f"{by(problem.input_shape[2:])}; use a larger input or less padding"
                )
        is_ours = all(more < step for step, more in zip(strides, over, strict=True))
        return cls(
            given=given, x=x, w=as_one_each(w), multiplier=multiplier, problem=problem, output_padding=over,
            is_ours=is_ours,
        )  # fmt: skip


def as_one_each(w: Tensor) -> Tensor:
    """(C, multiplier, …) as (C·multiplier, 1, …)"""
    return w if w.shape[1] == 1 else w.reshape(-1, 1, *w.shape[2:])
