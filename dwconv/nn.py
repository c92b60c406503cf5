"""Depthwise layers, and ``convert``, which makes them of a model's own."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]  # a type comment in a scripted method is an error

from dwconv import settings
from dwconv.call.functional import conv1d, conv2d, reset
from dwconv.discovery.step import unwrapped
from dwconv.errors import InvalidChoice
from dwconv.model.conversion import ConversionSummary as ConversionSummary
from dwconv.model.conversion import ConvertedLayer as ConvertedLayer
from dwconv.model.conversion import remember, without_wrappers
from dwconv.model.conversion import shown_name as shown_name
from dwconv.model.converted_classes import (
    class_before_parametrizations,
    depthwise_class,
    functional_class,
    is_functional,
    overridden,
    reparametrized,
    same_padding_class,
)
from dwconv.model.same_padding import pads_the_same
from dwconv.problems.workload import by

Model = TypeVar("Model", bound=nn.Module)
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


def convert(
    model: Model, example_inputs: Any = None, *, seconds: float | None = None, functional: bool | None = None
) -> Model:
    """Let the depthwise ``nn.Conv1d`` and ``nn.Conv2d`` layers of ``model`` run on tuned kernels, in place.

    Returns ``model``, the same object; ``dwconv.summary(model)`` tells what was done. The layers stay the objects they
    are, with their parameters, hooks, mode and names; only their class changes, to a subclass of what it was. So
    optimizers, state dicts and checkpoints made before keep working. Numbers agree with PyTorch's within rounding.
    Converting again changes nothing. A subclass of PyTorch's layers is converted if its forward pass is theirs.

    With ``example_inputs`` (a tensor, a tuple of positional arguments, or a dict of keyword arguments, on the model's
    device) the model takes one step on them, which changes nothing in it. A few known configurations of each pass that
    ran, and that nobody tuned on this device, are then raced against PyTorch's op. What is the fastest runs from the
    next call on, and is remembered in the user's own log. After ``seconds``, 60 by default, no further pass is begun;
    those with most to win came first. Call it on every rank of a distributed job: one races for all.

    ``functional``: what becomes of calls of ``F.conv1d`` and ``F.conv2d`` in the model's own code, on the weight of a
    layer or on any other. True: the forward pass of the model runs under ``dwconv.active``. None, the default: so do
    the modules that made such calls in the example; without an example none. False: these calls stay on PyTorch's op.

    Raises the model's own error if it fails on the example, InvalidWorkload for an example on another device, and
    InvalidChoice for ``seconds`` that are no time. Then, and after ctrl-C, nothing in the model has changed; what was
    measured is kept. Whatever else keeps it from racing is told by the summary, and the model is converted.
    """
    if example_inputs is None and seconds is not None:
        raise InvalidChoice(f"seconds={seconds} is for a race, and without example_inputs there is none; give them")
    seconds = settings.RACE_SECONDS if seconds is None else seconds
    if not seconds >= 0:
        raise InvalidChoice(f"seconds={seconds} is no time; use 0 or more")
    swaps = _Swaps()
    try:
        told = _swap_layers(model, swaps)
        if functional:
            swaps.make_functional(unwrapped(model))
            told = dataclasses.replace(told, functional=True)
        if example_inputs is not None:
            told = _with_example(model, example_inputs, told, swaps, seconds=seconds, functional=functional)
    except BaseException:
        swaps.undo()
        raise
    remember(model, told)
    return model


class _Swaps:
    """The classes of modules, changed; and changed back."""

    def __init__(self) -> None:
        self._before: list[tuple[nn.Module, type[nn.Module]]] = []

    def swap(self, module: nn.Module, to: type[nn.Module]) -> None:
        self._before.append((module, type(module)))
        module.__class__ = to

    def make_functional(self, module: nn.Module) -> None:
        """Its forward pass runs under ``active`` from now on."""
        if not is_functional(module):
            self.swap(module, functional_class(module))

    def undo(self) -> None:
        for module, plain in reversed(self._before):
            module.__class__ = plain


def _swap_layers(model: nn.Module, swaps: _Swaps) -> ConversionSummary:
    converted, skipped, before = [], [], 0
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) or module.groups == 1:
            continue
        if isinstance(module, (DepthwiseConv1d, DepthwiseConv2d)):
            before += 1
        elif reason := why_left(module):
            skipped.append(ConvertedLayer(name, f"stays {type(module).__name__}: {reason}"))
        else:
            assert not isinstance(module, nn.Conv3d)
            swaps.swap(module, _class_for(module))
            converted.append(ConvertedLayer(name, _sizes(module)))
    return ConversionSummary(converted=tuple(converted), skipped=tuple(skipped), converted_before=before)


def _with_example(
    model: nn.Module,
    example_inputs: Any,
    told: ConversionSummary,
    swaps: _Swaps,
    *,
    seconds: float,
    functional: bool | None,
) -> ConversionSummary:
    """What runs in the example, and the race of it. Plans made before are forgotten: the next call decides anew."""
    from dwconv.discovery import discover  # late, as the tuner is: converting alone needs neither

    discovery = discover(model, example_inputs)
    modules = dict(unwrapped(model).named_modules())
    called = {}
    for layer in discovery.layers:
        if layer.is_functional:
            where = f"a functional call in {shown_name(layer.caller)} ({type(modules[layer.caller]).__name__})"
            fate = "stays on PyTorch's op: functional=False" if functional is False else "runs on dwconv"
            called[layer.name] = ConvertedLayer(layer.name, f"{where} {fate}")
            if functional is None:
                swaps.make_functional(modules[layer.caller])
    raced = discovery if functional is not False else discovery.without_functional()
    from dwconv.call.plan import kernel_state
    from dwconv.tuner.race.model_race import race_for

    races = race_for(raced.counts_by_device(), seconds=seconds, state=kernel_state())
    reset()
    skipped = tuple(layer for layer in told.skipped if without_wrappers(layer.name) not in called)
    return dataclasses.replace(
        told, skipped=skipped, called=tuple(called.values()), discovery=discovery, races=tuple(races)
    )


# -- which class a layer gets -----------------------------------------------------------------------------------------

_DEPTHWISE: dict[type[nn.Module], type[nn.Module]] = {nn.Conv1d: DepthwiseConv1d, nn.Conv2d: DepthwiseConv2d}


def why_left(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> str | None:
    """Why a convolution with groups is left alone; None if it can be converted."""
    if module.groups != module.in_channels:
        return f"groups={module.groups} of {module.in_channels} channels is not depthwise"
    if isinstance(module, nn.Conv3d):
        return "there are no 3-D kernels yet"
    pytorchs = nn.Conv1d if isinstance(module, nn.Conv1d) else nn.Conv2d
    own = overridden(class_before_parametrizations(module), pytorchs)
    if not own or pads_the_same(module):
        return None
    return f"its {own[0]} is its own; functional=True runs the depthwise calls in it on dwconv"


def _class_for(module: nn.Conv1d | nn.Conv2d) -> type[nn.Module]:
    """The class that a layer gets which is to be converted."""
    plain = class_before_parametrizations(module)
    pytorchs = nn.Conv1d if isinstance(module, nn.Conv1d) else nn.Conv2d
    ours = _DEPTHWISE[pytorchs]
    if plain is pytorchs:
        found = ours
    elif overridden(plain, pytorchs):
        found = same_padding_class(plain, ours)
    else:
        found = depthwise_class(plain, ours)
    return found if plain is type(module) else reparametrized(module, found)


def _sizes(module: nn.Module) -> str:
    assert isinstance(module, (nn.Conv1d, nn.Conv2d))
    multiplier = module.out_channels // module.in_channels
    words = [f"{module.in_channels} channels", f"kernel {by(module.kernel_size)}"]
    words += [f"stride {by(module.stride)}"] if any(size != 1 for size in module.stride) else []
    words += [f"dilation {by(module.dilation)}"] if any(size != 1 for size in module.dilation) else []
    words += [f"multiplier {multiplier}"] if multiplier != 1 else []
    return ", ".join(words)
