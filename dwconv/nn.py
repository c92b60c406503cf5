"""Depthwise layers: PyTorch's, on tuned kernels. ``dwconv.convert`` makes them of a model's own."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]  # a type comment in a scripted method is an error

from dwconv.call.arguments import Arguments
from dwconv.call.awaited import awaited
from dwconv.call.functional import conv1d, conv2d, conv3d

Size = int | tuple[int, ...]
"""A number, or one for each axis."""
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


class _Depthwise(nn.Module):
    """What the layers below have in common: how they are made."""

    plain_class: ClassVar[type[nn.Module]]
    """The class that ``dwconv.revert`` gives back; every class that ``convert`` makes has its own."""

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        *,
        multiplier: int = 1,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            channels,
            channels * multiplier,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=channels,
            bias=bias,
            padding_mode=padding_mode,
            device=device,
            dtype=dtype,
        )


class DepthwiseConv1d(_Depthwise, nn.Conv1d):
    """``torch.nn.Conv1d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class = nn.Conv1d

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if is_scripting():  # what is scripted runs in processes without dwconv
            if self.padding_mode == "zeros":
                return F.conv1d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
            padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return F.conv1d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)
        if self.padding_mode == "zeros":
            given = Arguments(input, weight, bias, self.stride, self.padding, self.dilation, self.groups, 1)
            waiting = awaited(given)
            return conv1d(*given[:-1]) if waiting is None else waiting
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return conv1d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)


class DepthwiseConv2d(_Depthwise, nn.Conv2d):
    """``torch.nn.Conv2d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class = nn.Conv2d

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if is_scripting():  # what is scripted runs in processes without dwconv
            if self.padding_mode == "zeros":
                return F.conv2d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
            padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return F.conv2d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)
        if self.padding_mode == "zeros":
            return conv2d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return conv2d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)


class DepthwiseConv3d(_Depthwise, nn.Conv3d):
    """``torch.nn.Conv3d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class = nn.Conv3d

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if is_scripting():  # what is scripted runs in processes without dwconv
            if self.padding_mode == "zeros":
                return F.conv3d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
            padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return F.conv3d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)
        if self.padding_mode == "zeros":
            return conv3d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return conv3d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)


LAYERS = (DepthwiseConv1d, DepthwiseConv2d, DepthwiseConv3d)
