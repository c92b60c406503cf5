"""Depthwise layers, and ``convert``, which makes them of a model's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dwconv.call.functional import conv1d, conv2d
from dwconv.workload import by

Size1d = int | tuple[int]
Size2d = int | tuple[int, int]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


class DepthwiseConv1d(nn.Conv1d):
    """``torch.nn.Conv1d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

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
        if self.padding_mode == "zeros":
            return conv1d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return conv1d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)


class DepthwiseConv2d(nn.Conv2d):
    """``torch.nn.Conv2d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

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
        if self.padding_mode == "zeros":
            return conv2d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return conv2d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)


@dataclass(frozen=True)
class ConvertedLayer:
    """A layer by its name in the model, empty for the model itself, with its sizes or the reason why not."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ConversionSummary:
    """The result of ``convert``. Prints as a table."""

    converted: tuple[ConvertedLayer, ...]
    skipped: tuple[ConvertedLayer, ...]
    """Convolutions with groups that were left as they are, and why."""

    def __str__(self) -> str:
        lines = [f"{len(self.converted)} depthwise layers converted"]
        if self.skipped:
            lines[0] += f", {len(self.skipped)} left as they are"
        rows = [*self.converted, *self.skipped]
        width = max((len(_shown(row.name)) for row in rows), default=0)
        return "\n".join([*lines, *(f"  {_shown(row.name):<{width}}  {row.text}" for row in rows)])


def convert(model: nn.Module) -> ConversionSummary:
    """Let the depthwise ``nn.Conv1d`` and ``nn.Conv2d`` layers of ``model`` run on tuned kernels, in place.

    The layers stay the objects they are, with their parameters, hooks, mode and names; only their class changes, to a
    subclass of what it was. So optimizers, state dicts and checkpoints made before keep working. Numbers agree with
    PyTorch's within rounding. Converting again changes nothing.
    """
    converted, skipped = [], []
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) or module.groups == 1:
            continue
        if isinstance(module, (DepthwiseConv1d, DepthwiseConv2d)):
            continue
        if reason := _why_not(module):
            skipped.append(ConvertedLayer(name, f"stays {type(module).__name__}: {reason}"))
        else:
            module.__class__ = _DEPTHWISE[type(module)]  # type: ignore[assignment]
            converted.append(ConvertedLayer(name, _sizes(module)))
    return ConversionSummary(converted=tuple(converted), skipped=tuple(skipped))


_DEPTHWISE: dict[type[nn.Module], type[nn.Module]] = {nn.Conv1d: DepthwiseConv1d, nn.Conv2d: DepthwiseConv2d}


def _why_not(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> str | None:
    """Why a convolution with groups is left alone; None if it can be converted."""
    if module.groups != module.in_channels:
        return f"groups={module.groups} of {module.in_channels} channels is not depthwise"
    if isinstance(module, nn.Conv3d):
        return "there are no 3-D kernels yet"
    if type(module) not in _DEPTHWISE:
        return "a subclass may compute something else; use dwconv.conv1d or conv2d in it"
    return None


def _sizes(module: nn.Module) -> str:
    assert isinstance(module, (nn.Conv1d, nn.Conv2d))
    multiplier = module.out_channels // module.in_channels
    words = [f"{module.in_channels} channels", f"kernel {by(module.kernel_size)}"]
    words += [f"stride {by(module.stride)}"] if any(size != 1 for size in module.stride) else []
    words += [f"dilation {by(module.dilation)}"] if any(size != 1 for size in module.dilation) else []
    words += [f"multiplier {multiplier}"] if multiplier != 1 else []
    return ", ".join(words)


def _shown(name: str) -> str:
    return name or "(the model itself)"
