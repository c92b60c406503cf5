"""Place: a block somewhere in a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from dwconv.problems.block import Block
from dwconv.problems.problem import Problem
from dwconv.problems.workload import tensorflow_padding

Ints = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Place:
    """All of a block but the size of its input. Plain data."""

    block: Block
    weight_shape: Ints
    """(C·multiplier, 1, KH, KW)"""
    stride: Ints
    padding: Ints | None
    """(top, bottom, left, right); None: as much as TensorFlow's padding is for the size."""
    dilation: Ints
    bias: bool = False
    """Whether the convolution has one that the block takes part in: where no BatchNorm takes it away again."""

    def problem(self, shape: Sequence[int], dtype: torch.dtype = torch.float32, *, trains: bool = True) -> Problem:
        """For x of (N, C, H, W), in training or in evaluation."""
        return _problem(self, tuple(shape), dtype, trains)


@lru_cache(maxsize=1000)
def _problem(place: Place, shape: Ints, dtype: torch.dtype, trains: bool) -> Problem:
    padding = place.padding
    if padding is None:
        padding = tuple(
            side
            for size, kernel, stride, dilation in zip(
                shape[2:], place.weight_shape[2:], place.stride, place.dilation, strict=True
            )
            for side in tensorflow_padding(size, kernel=kernel, stride=stride, dilation=dilation)
        )
    return Problem(
        input_shape=shape,
        weight_shape=place.weight_shape,
        stride=place.stride,
        padding=padding,
        dilation=place.dilation,
        dtype=dtype,
        layout="nhwc",
        bias=place.bias,
        block=place.block,
        trains=trains,
    )
