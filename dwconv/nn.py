"""Depthwise layers, and ``convert``, which makes them of a model's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dwconv import settings
from dwconv.call.functional import conv1d, conv2d, reset
from dwconv.errors import InvalidChoice
from dwconv.workload import by

if TYPE_CHECKING:
    from dwconv.discovery import Discovery
    from dwconv.tuner.race_result import RaceResult

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
        if torch.jit.is_scripting():  # type: ignore[attr-defined]  # what is scripted runs without dwconv
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
        if torch.jit.is_scripting():  # type: ignore[attr-defined]  # what is scripted runs without dwconv
            if self.padding_mode == "zeros":
                return F.conv2d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
            padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return F.conv2d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)
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
    discovery: Discovery | None = None
    """The depthwise convolutions that ran in the example; None without one."""
    races: tuple[RaceResult, ...] = ()
    """What was raced, for each kind of device that the example ran on."""

    def __str__(self) -> str:
        lines = [f"{len(self.converted)} depthwise layers converted"]
        if self.skipped:
            lines[0] += f", {len(self.skipped)} left as they are"
        lines += self._of_the_example()
        rows = [*self.converted, *self.skipped]
        width = max((len(shown_name(row.name)) for row in rows), default=0)
        return "\n".join([*lines, *(f"  {shown_name(row.name):<{width}}  {row.text}" for row in rows)])

    def _of_the_example(self) -> list[str]:
        """A line or a few on what ran in the example, and what was raced of it."""
        if self.discovery is None:
            return []
        if not self.discovery.layers:
            return ["no depthwise layer ran in the example: nothing to race"]
        lines = [str(race) for race in self.races]
        lines += [f"not all was raced: {race.problem}" for race in self.races if race.problem]
        lines += [f"left out: {layer}" for layer in self.discovery.left_out]
        ran = {layer.name for layer in self.discovery.layers}
        idle = [shown_name(layer.name) for layer in self.converted if without_wrappers(layer.name) not in ran]
        return lines + ([f"did not run in the example: {', '.join(idle)}"] if idle else [])


def convert(model: nn.Module, example_inputs: Any = None, *, seconds: float | None = None) -> ConversionSummary:
    """Let the depthwise ``nn.Conv1d`` and ``nn.Conv2d`` layers of ``model`` run on tuned kernels, in place.

    The layers stay the objects they are, with their parameters, hooks, mode and names; only their class changes, to a
    subclass of what it was. So optimizers, state dicts and checkpoints made before keep working. Numbers agree with
    PyTorch's within rounding. Converting again changes nothing.

    With ``example_inputs`` (a tensor, a tuple of positional arguments, or a dict of keyword arguments, on the model's
    device) the model takes one step on them, which changes nothing in it. A few known configurations of each pass that
    ran, and that nobody tuned on this device, are then raced against PyTorch's op. What is the fastest runs from the
    next call on, and is remembered in the user's own log. After ``seconds``, 60 by default, no further pass is begun;
    those with most to win came first. Call it on every rank of a distributed job: one races for all.

    Raises the model's own error if it fails on the example, InvalidWorkload for an example on another device, and
    InvalidChoice for ``seconds`` that are no time. Then, and after ctrl-C, nothing in the model has changed; what was
    measured is kept. Whatever else keeps it from racing is told by the summary, and the model is converted.
    """
    discovery: Discovery | None = None
    races: tuple[RaceResult, ...] = ()
    if example_inputs is not None or seconds is not None:
        discovery, races = _raced(model, example_inputs, seconds=seconds)
    converted, skipped = [], []
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) or module.groups == 1:
            continue
        if isinstance(module, (DepthwiseConv1d, DepthwiseConv2d)):
            continue
        if reason := why_left(module):
            skipped.append(ConvertedLayer(name, f"stays {type(module).__name__}: {reason}"))
        else:
            module.__class__ = _DEPTHWISE[type(module)]  # type: ignore[assignment]
            converted.append(ConvertedLayer(name, _sizes(module)))
    return ConversionSummary(converted=tuple(converted), skipped=tuple(skipped), discovery=discovery, races=races)


def _raced(model: nn.Module, example_inputs: Any, *, seconds: float | None) -> tuple[Discovery, tuple[RaceResult, ...]]:
    """What runs in the example, and the race of it. Plans made before are forgotten: the next call decides anew."""
    if example_inputs is None:
        raise InvalidChoice(f"seconds={seconds} is for a race, and without example_inputs there is none; give them")
    seconds = settings.RACE_SECONDS if seconds is None else seconds
    if not seconds >= 0:
        raise InvalidChoice(f"seconds={seconds} is no time; use 0 or more")

    from dwconv.discovery import discover  # late, as the tuner is: converting alone needs neither

    discovery = discover(model, example_inputs)
    from dwconv.tuner.at_once import race_for

    races = race_for(discovery.counts_by_device(), seconds=seconds)
    reset()
    return discovery, tuple(races)


_DEPTHWISE: dict[type[nn.Module], type[nn.Module]] = {nn.Conv1d: DepthwiseConv1d, nn.Conv2d: DepthwiseConv2d}


def why_left(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> str | None:
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


def shown_name(name: str) -> str:
    return name or "(the model itself)"


def without_wrappers(name: str) -> str:
    """The name of a layer in the model without its wrappers, as discovery has it."""
    while name.startswith(_WRAPPERS):
        name = name.partition(".")[2]
    return name


_WRAPPERS = ("module.", "_orig_mod.")
"""What DistributedDataParallel, DataParallel and torch.compile put before the names of layers."""
