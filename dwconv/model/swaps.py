"""Swaps: the classes of a model's modules, changed; and changed back."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from dwconv.call.traces import Trace
from dwconv.discovery.same_padding import pads_the_same
from dwconv.model.conversion import ConversionSummary, ConvertedLayer
from dwconv.model.converted_classes import (
    class_before_parametrizations,
    depthwise_class,
    functional_class,
    is_functional,
    overridden,
    reparametrized,
    same_padding_class,
    traced_class,
)
from dwconv.nn import LAYERS, DepthwiseConv1d, DepthwiseConv2d, DepthwiseConv3d
from dwconv.problems.workload import by


class Swaps:
    """What was swapped, so that it can be undone."""

    def __init__(self) -> None:
        self._before: list[tuple[nn.Module, type[nn.Module]]] = []

    def swap(self, module: nn.Module, to: type[nn.Module]) -> None:
        self._before.append((module, type(module)))
        module.__class__ = to

    def make_functional(self, module: nn.Module) -> None:
        """Its forward pass runs under ``active`` from now on."""
        if not is_functional(module):
            self.swap(module, functional_class(module))

    def trace(self, module: nn.Module, traces: tuple[Trace, ...]) -> None:
        """Its forward pass is a traced one from now on, in the modes that it was traced in."""
        plain: type[nn.Module] = type(module)
        if "traces" in vars(plain):  # of before
            plain = vars(plain)["plain_class"]
        self.swap(module, traced_class(plain, traces))

    def undo(self) -> None:
        for module, plain in reversed(self._before):
            module.__class__ = plain


def swap_layers(model: nn.Module, swaps: Swaps) -> ConversionSummary:
    """Give every depthwise layer that can be converted its class."""
    converted, skipped, before = [], [], 0
    for name, module in model.named_modules():
        if not isinstance(module, Convolution) or module.groups == 1:
            continue
        if isinstance(module, LAYERS):
            before += 1
        elif reason := why_left(module):
            skipped.append(ConvertedLayer(name, f"stays {type(module).__name__}: {reason}"))
        else:
            swaps.swap(module, _class_for(module))
            converted.append(ConvertedLayer(name, _sizes(module)))
    return ConversionSummary(converted=tuple(converted), skipped=tuple(skipped), converted_before=before)


# -- which class a layer gets -----------------------------------------------------------------------------------------

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
"""PyTorch's layers."""
_DEPTHWISE: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: DepthwiseConv1d,
    nn.Conv2d: DepthwiseConv2d,
    nn.Conv3d: DepthwiseConv3d,
}


def why_left(module: Convolution) -> str | None:
    """Why a convolution with groups is left alone; None if it can be converted."""
    if module.groups != module.in_channels and not _is_lazy(module):
        return f"groups={module.groups} of {module.in_channels} channels is not depthwise"
    own = overridden(class_before_parametrizations(module), _pytorchs(module))
    if not own or pads_the_same(module):
        return None
    return f"its {own[0]} is its own; functional=True runs the depthwise calls in it on dwconv"


def _pytorchs(module: Convolution) -> type[nn.Module]:
    """PyTorch's own class of a layer."""
    return next(pytorchs for pytorchs in _DEPTHWISE if isinstance(module, pytorchs))


def _class_for(module: Convolution) -> type[nn.Module]:
    """The class that a layer gets which is to be converted."""
    plain, pytorchs = class_before_parametrizations(module), _pytorchs(module)
    ours = _DEPTHWISE[pytorchs]
    found = same_padding_class(plain, ours) if overridden(plain, pytorchs) else depthwise_class(plain, ours)
    return found if plain is type(module) else reparametrized(module, found)


def _is_lazy(module: nn.Module) -> bool:
    """True of a layer that learns its sizes in its first call."""
    return isinstance(module, LazyModuleMixin)


def _sizes(module: Convolution) -> str:
    multiplier = module.out_channels // module.groups
    lazy = "if its first call has " * _is_lazy(module)
    words = [f"{lazy}{module.groups} channels", f"kernel {by(module.kernel_size)}"]
    words += [f"stride {by(module.stride)}"] if any(size != 1 for size in module.stride) else []
    words += [f"dilation {by(module.dilation)}"] if any(size != 1 for size in module.dilation) else []
    words += [f"multiplier {multiplier}"] if multiplier != 1 else []
    return ", ".join(words)
