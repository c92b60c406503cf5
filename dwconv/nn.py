"""Depthwise layers: PyTorch's, on tuned kernels. ``dwconv.convert`` makes them of a model's own."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]  # a type comment in a scripted method is an error

from dwconv.call.functional import conv1d, conv2d

Size1d = int | tuple[int]
Size2d = int | tuple[int, int]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


class DepthwiseConv1d(nn.Conv1d):
    """``torch.nn.Conv1d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class: ClassVar[type[nn.Module]] = nn.Conv1d
    """The class that ``dwconv.revert`` gives back; every class that ``convert`` makes has its own."""

    def __init__(
        self,
        channels: int,
        kernel_size: Size1d,
        *,
        multiplier: int = 1,
        stride: Size1d = 1,
        padding: Size1d | str = 0,
        dilation: Size1d = 1,
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

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if is_scripting():  # what is scripted runs in processes without dwconv
            if self.padding_mode == "zeros":
                return F.conv1d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
            padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return F.conv1d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)
        if self.padding_mode == "zeros":
            return conv1d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return conv1d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)


class DepthwiseConv2d(nn.Conv2d):
    """``torch.nn.Conv2d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class: ClassVar[type[nn.Module]] = nn.Conv2d
    """The class that ``dwconv.revert`` gives back; every class that ``convert`` makes has its own."""

    def __init__(
        self,
        channels: int,
        kernel_size: Size2d,
        *,
        multiplier: int = 1,
        stride: Size2d = 1,
        padding: Size2d | str = 0,
        dilation: Size2d = 1,
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
