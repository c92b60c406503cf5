"""Depthwise layers: PyTorch's, on tuned kernels. ``dwconv.convert`` makes them of a model's own."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]  # a type comment in a scripted method is an error

from dwconv.call.arguments import CallArguments
from dwconv.call.deferred import deferred
from dwconv.call.function_mode import active
from dwconv.call.functional import conv_of_layer
from dwconv.call.guarded_forward import entered
from dwconv.call.transposed import transpose_of_layer
from dwconv.errors import InvalidArgument, InvalidChoice, InvalidWorkload
from dwconv.system import given

Size = int | tuple[int, ...]
"""A number, or one for each axis."""
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


class AsPlain(type):
    """The type of a class that has a ``plain_class``, which it equals in ``==`` and in tables: tools that count,
    quantise or prune layers by their type find it there. ``is`` and ``isinstance`` distinguish the two."""

    def __eq__(cls, other: object) -> bool:
        return _plain(cls) is _plain(other) if isinstance(other, type) else NotImplemented

    def __hash__(cls) -> int:
        return type.__hash__(_plain(cls))


def _plain(of: type) -> type:
    """The class that ``dwconv.revert`` gives back; ``of`` itself, if it does not change that."""
    while (plain := vars(of).get("plain_class")) is not None:
        of = plain
    return of


class Revertible(nn.Module):
    """The base of our classes: the module has its plain class again once PyTorch's quantisation gives it a ``qconfig``,
    since that handles only PyTorch's classes, and leaves others as they are."""

    plain_class: ClassVar[type[nn.Module]]
    """The class that ``dwconv.revert`` gives back; every class that ``convert`` makes has its own."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "qconfig" and value is not None and revert_class(self):
            setattr(self, name, value)
        else:
            super().__setattr__(name, value)


def revert_class(module: nn.Module) -> bool:
    """Give a module its plain class again; False if it has that, or is of a class that was made of one of ours."""
    before, plain = type(module), _plain(type(module))
    if plain is not before:
        module.__class__ = plain
    return plain is not before


class _Layer(Revertible, metaclass=AsPlain):
    """What the layers below have in common. ``type(layer)(in_channels, out_channels, kernel_size, …)`` makes one, too,
    as of PyTorch's layers: libraries make layers by the class of another."""

    axes: ClassVar[int]
    if TYPE_CHECKING:  # TorchScript would take them for types
        in_channels: int
        groups: int
        stride: Any
        padding: Any
        dilation: Any
        padding_mode: Any
        _reversed_padding_repeated_twice: list[int]
        _forward_of_pytorch: Any

    @overload
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
    ) -> None: ...

    @overload
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, *others: Any, **options: Any
    ) -> None: ...

    def __init__(self, *sizes: Any, **options: Any) -> None:
        if len(sizes) + ("kernel_size" in options) > 2 or not _OF_PYTORCH.isdisjoint(options):
            super().__init__(*sizes, **options)
        else:
            self._make_depthwise(*sizes, **options)

    def _make_depthwise(self, channels: int, kernel_size: Size, *, multiplier: int = 1, **options: Any) -> None:
        channels = given.whole("channels", channels, least=1)
        multiplier = given.whole("multiplier", multiplier, least=1)
        for name, least in _LEAST.items():
            value = kernel_size if name == "kernel_size" else options.get(name, least)
            if not (name == "padding" and isinstance(value, str)):  # which PyTorch checks
                _check_sizes(name, value, least=least, axes=self.axes)
        if "bias" in options:
            options["bias"] = given.flag("bias", options["bias"])
        dtype = options.get("dtype")
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise InvalidArgument(f"dtype={given.shown(dtype)} is not a torch.dtype; give one, such as torch.float32")
        super().__init__(channels, channels * multiplier, kernel_size, groups=channels, **options)


class _Depthwise(_Layer):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # What is scripted runs in processes without dwconv; a layer that was made by this class may be any.
        if is_scripting() or self.groups != self.in_channels:
            plain: Tensor = self._forward_of_pytorch(input, weight, bias)
            return plain
        if is_replaced(self.axes):
            with active():
                within: Tensor = self._forward_of_pytorch(input, weight, bias)
                return within
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), 0
        elif self.axes == 1:
            arguments = CallArguments(input, weight, bias, self.stride, padding, self.dilation, self.groups, 1)
            waiting = deferred(arguments)
            if waiting is not None:
                return waiting
        return conv_of_layer(input, weight, bias, self.stride, padding, self.dilation, self.groups, self.axes)


class _DepthwiseTransposed(_Layer):
    if TYPE_CHECKING:
        weight: Tensor
        bias: Tensor | None
        kernel_size: Any
        output_padding: Any
        _output_padding: Any

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if is_scripting() or self.groups != self.in_channels or self.padding_mode != "zeros":
            plain: Tensor = self._forward_of_pytorch(input, output_size)
            return plain
        if is_replaced(self.axes, is_transposed=True):
            with active():
                within: Tensor = self._forward_of_pytorch(input, output_size)
                return within
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = self._output_padding(
                input, output_size, self.stride, self.padding, self.kernel_size, self.axes, self.dilation
            )
        return transpose_of_layer(
            input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups, self.dilation,
            self.axes,
        )  # fmt: skip


_LEAST = {"kernel_size": 1, "stride": 1, "padding": 0, "output_padding": 0, "dilation": 1}


def _check_sizes(name: str, value: Any, *, least: int, axes: int) -> None:
    """Raises InvalidArgument or InvalidChoice unless ``value`` is a whole number from ``least`` on, or one for each
    axis."""
    sizes = value if isinstance(value, (tuple, list)) else (value,)
    if len(sizes) not in (1, axes):
        raise InvalidChoice(f"{name}={value} has {len(sizes)} numbers; give one, or {axes}")
    for size in sizes:
        given.whole(name, size, least=least)


_OF_PYTORCH = frozenset({"in_channels", "out_channels", "groups"})


def is_replaced(axes: int, *, is_transposed: bool = False) -> bool:
    """True if a counter of calls, or the like, is in the place of PyTorch's function."""
    if is_transposed:
        name = f"conv_transpose{axes}d"
        return getattr(F, name) is not getattr(torch, name)
    if axes == 2:
        return F.conv2d is not torch.conv2d
    return F.conv1d is not torch.conv1d if axes == 1 else F.conv3d is not torch.conv3d


def _renamed(forward: Any) -> Any:
    """PyTorch's method by another name: TorchScript compiles methods by the names of their functions."""
    return FunctionType(forward.__code__, forward.__globals__, "_forward_of_pytorch")


class DepthwiseConv1d(_Depthwise, nn.Conv1d):
    """``torch.nn.Conv1d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class, axes = nn.Conv1d, 1
    _forward_of_pytorch = _renamed(nn.Conv1d._conv_forward)


class DepthwiseConv2d(_Depthwise, nn.Conv2d):
    """``torch.nn.Conv2d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class, axes = nn.Conv2d, 2
    _forward_of_pytorch = _renamed(nn.Conv2d._conv_forward)


class DepthwiseConv3d(_Depthwise, nn.Conv3d):
    """``torch.nn.Conv3d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class, axes = nn.Conv3d, 3
    _forward_of_pytorch = _renamed(nn.Conv3d._conv_forward)


class DepthwiseConvTranspose1d(_DepthwiseTransposed, nn.ConvTranspose1d):
    """``torch.nn.ConvTranspose1d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class, axes = nn.ConvTranspose1d, 1
    _forward_of_pytorch = _renamed(nn.ConvTranspose1d.forward)


class DepthwiseConvTranspose2d(_DepthwiseTransposed, nn.ConvTranspose2d):
    """``torch.nn.ConvTranspose2d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class, axes = nn.ConvTranspose2d, 2
    _forward_of_pytorch = _renamed(nn.ConvTranspose2d.forward)


class DepthwiseConvTranspose3d(_DepthwiseTransposed, nn.ConvTranspose3d):
    """``torch.nn.ConvTranspose3d(channels, channels * multiplier, kernel_size, groups=channels)`` on tuned kernels."""

    plain_class, axes = nn.ConvTranspose3d, 3
    _forward_of_pytorch = _renamed(nn.ConvTranspose3d.forward)


TRANSPOSED_LAYERS = (DepthwiseConvTranspose1d, DepthwiseConvTranspose2d, DepthwiseConvTranspose3d)
LAYERS = (DepthwiseConv1d, DepthwiseConv2d, DepthwiseConv3d, *TRANSPOSED_LAYERS)


class DepthWiseConv2dImplicitGEMM(DepthwiseConv2d):
    """The layer of that name of RepLKNet, SLaK and others, with its parameters: ``torch.nn.Conv2d(channels, channels,
    kernel, padding=kernel // 2, groups=channels)`` on tuned kernels, of any type. The output has the input's size, so
    ``kernel``, a number or (height, width), is odd. Raises InvalidChoice for an even one."""

    plain_class = nn.Conv2d

    def __init__(self, channels: int, kernel: Size, bias: bool = False) -> None:
        _check_sizes("kernel", kernel, least=1, axes=2)
        sizes = tuple(kernel) if isinstance(kernel, (tuple, list)) else (kernel,)
        sizes *= 2 // len(sizes)
        if any(size % 2 == 0 for size in sizes):
            raise InvalidChoice(f"kernel={kernel} is even, and cannot keep the size of the input; give an odd one")
        super().__init__(channels, sizes, padding=tuple(size // 2 for size in sizes), bias=bias)


class DepthwiseBlock(nn.Module):
    """``act2(bn2(conv(act1(bn1(x)))))``, as one op where that was measured to be faster, in training forward and
    backward; otherwise its modules one after the other.

    ``conv`` is a depthwise ``nn.Conv2d``, ``nn.Conv3d``, or dwconv's; the others, norms as ``nn.BatchNorm2d`` and
    activations as ``nn.ReLU6``, may be None. They are submodules of these names, with parameters, statistics and hooks
    of their own. Raises InvalidWorkload for a ``conv`` that is not depthwise, InvalidArgument for
    a part that is no module.

    One op is for training, with norms that learn or keep their statistics, or for evaluation; channels_last, in
    float32 or, but for the norms, in 16 bits, of BatchNorms with weight and bias, or of InstanceNorms, the activations
    ReLU, ReLU6, Hardswish, SiLU and GELU. An activation before a convolution needs a norm before it, a bias a norm
    after it.
    """

    parts_of_block: ClassVar[tuple[str, ...]] = ("bn1", "act1", "conv", "bn2", "act2")
    """In the order of its forward pass, whatever order they were set in."""

    def __init__(
        self,
        *,
        conv: nn.Conv2d | nn.Conv3d,
        bn1: nn.Module | None = None,
        act1: nn.Module | None = None,
        bn2: nn.Module | None = None,
        act2: nn.Module | None = None,
    ) -> None:
        if not isinstance(conv, nn.Conv2d | nn.Conv3d) or conv.groups != conv.in_channels:
            raise InvalidWorkload(f"conv={conv} is not depthwise; use one with groups=in_channels")
        for name, part in (("bn1", bn1), ("act1", act1), ("bn2", bn2), ("act2", act2)):
            if part is not None and not isinstance(part, nn.Module):
                raise InvalidArgument(f"{name}={given.shown(part)} is not a torch.nn.Module; give a module, or None")
        super().__init__()
        self.traces: tuple[Any, ...] = ()
        self.bn1, self.act1, self.conv, self.bn2, self.act2 = bn1, act1, conv, bn2, act2

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.parts_of_block and all(hasattr(self, each) for each in self.parts_of_block):
            from dwconv.discovery.find_blocks import traces_as_written  # late: layers alone do without

            self.traces = traces_as_written(self)

    def forward(self, x: Tensor) -> Tensor:
        if is_scripting():
            x = x if self.bn1 is None else self.bn1(x)
            x = x if self.act1 is None else self.act1(x)
            x = self.conv(x)
            x = x if self.bn2 is None else self.bn2(x)
            return x if self.act2 is None else self.act2(x)
        traced = entered(self, self.traces) if self.traces else None
        if traced is not None:
            return traced.forward(self, traced.blocks, x)
        for module in (self.bn1, self.act1, self.conv, self.bn2, self.act2):
            x = x if module is None else module(x)
        return x
