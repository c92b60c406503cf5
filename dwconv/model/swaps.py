"""Swaps: the classes that a model's modules are to have, decided one by one, swapped at once; and swapped back.

decide_layers   each depthwise layer on kernels, or why it is left alone
decide_blocks   the blocks of the example that run as one ──► trace_blocks: forward passes with these in them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from dwconv.call.call_plan import CallPlan, plan_for
from dwconv.call.frozen_forward import Trace, at, is_written
from dwconv.discovery import DiscoveredBlock, Discovery
from dwconv.discovery.same_padding import pads_the_same
from dwconv.discovery.unchanged import unchanged
from dwconv.model.conversion import ConversionSummary, ConvertedLayer, shown_name
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
from dwconv.nn import LAYERS
from dwconv.problems.workload import by


class Swaps:
    """The classes that modules are to have. ``swap`` gives them all; ``undo`` gives those of before."""

    def __init__(self) -> None:
        self.wanted: dict[nn.Module, type[nn.Module]] = {}
        self._before: list[tuple[nn.Module, type[nn.Module]]] = []

    def make_functional(self, module: nn.Module) -> None:
        if not self.is_functional(module):
            self.wanted[module] = functional_class(module, self.wanted.get(module, type(module)))

    def is_functional(self, module: nn.Module) -> bool:
        """True if its forward pass runs functional calls on dwconv, or is to."""
        return is_functional(self.wanted.get(module, type(module)))

    def trace(self, module: nn.Module, traces: tuple[Trace, ...]) -> None:
        """Its forward pass is to be a traced one, in the modes that it was traced in."""
        plain: type[nn.Module] = type(module)
        if "traces" in vars(plain):  # of before
            plain = vars(plain)["plain_class"]
        self.wanted[module] = traced_class(plain, traces)

    def swap(self) -> None:
        for module, to in self.wanted.items():
            self._before.append((module, type(module)))
            module.__class__ = to
        self.wanted.clear()

    def undo(self) -> None:
        for module, plain in reversed(self._before):
            module.__class__ = plain


def decide_layers(model: nn.Module, swaps: Swaps) -> ConversionSummary:
    """Which class each depthwise layer is to have, or why it is left alone."""
    converted, skipped, before = [], [], 0
    for name, module, reason in with_groups(model):
        if isinstance(module, LAYERS):
            before += 1
        elif isinstance(module, Convolution) and not reason:
            swaps.wanted[module] = _class_for(module)
            converted.append(ConvertedLayer(name, _sizes(module)))
        else:
            skipped.append(ConvertedLayer(name, f"stays {type(module).__name__}: {reason}"))
    return ConversionSummary(converted=tuple(converted), skipped=tuple(skipped), converted_before=before)


# -- which class a layer gets -----------------------------------------------------------------------------------------

_Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d | _Transposed
_DEPTHWISE: dict[type[nn.Module], type[nn.Module]] = {ours.plain_class: ours for ours in LAYERS}


def with_groups(model: nn.Module) -> Iterator[tuple[str, nn.Module, str | None]]:
    """The convolutions with groups, transposed ones too, by name, and why each is left alone; None if it can be
    converted. Of a part that is TorchScript it names the part."""
    scripted: list[str] = []
    for name, module in model.named_modules():
        if any(name.startswith(outer and f"{outer}.") for outer in scripted):
            continue
        if isinstance(module, torch.jit.ScriptModule):
            scripted.append(name)
            if any(_has_groups_in_script(each) for each in module.modules()):
                yield name, module, "it is TorchScript, which runs its own code; convert the model before it is made"
        elif isinstance(module, Convolution) and module.groups > 1:
            yield name, module, None if isinstance(module, LAYERS) else why_left(module)


def _has_groups_in_script(module: nn.Module) -> bool:
    """Of what TorchScript keeps of a convolution: its name, and its weight of (C·multiplier, C / groups, …)."""
    weight = getattr(module, "weight", None)
    is_convolution = str(getattr(module, "original_name", "")).removeprefix("Depthwise").startswith("Conv")
    return (
        is_convolution and isinstance(weight, torch.Tensor) and weight.dim() > 2 and 1 == weight.shape[1] != len(weight)
    )


def why_left(module: Convolution) -> str | None:
    """Why a convolution with groups is left alone; None if it can be converted."""
    if module.groups != module.in_channels and not isinstance(module, LazyModuleMixin):
        return f"groups={module.groups} of {module.in_channels} channels is not depthwise"
    own = overridden(class_before_parametrizations(module), _pytorchs(module))
    if not own or pads_the_same(module):
        return None
    return f"its {own[0]} is its own; functional=True runs the depthwise calls in it on dwconv"


def _pytorchs(module: Convolution) -> type[nn.Module]:
    return next(pytorchs for pytorchs in _DEPTHWISE if isinstance(module, pytorchs))


def _class_for(module: Convolution) -> type[nn.Module]:
    plain, pytorchs = class_before_parametrizations(module), _pytorchs(module)
    ours = _DEPTHWISE[pytorchs]
    found = same_padding_class(plain, ours) if overridden(plain, pytorchs) else depthwise_class(plain, ours)
    return found if plain is type(module) else reparametrized(module, found)


def _sizes(module: Convolution) -> str:
    multiplier = module.out_channels // module.groups
    lazy = "if its first call has " * isinstance(module, LazyModuleMixin)
    words = [f"{lazy}{module.groups} channels", f"kernel {by(module.kernel_size)}"]
    words += ["transposed"] if isinstance(module, _Transposed) else []
    words += [f"stride {by(module.stride)}"] if any(size != 1 for size in module.stride) else []
    words += [f"dilation {by(module.dilation)}"] if any(size != 1 for size in module.dilation) else []
    words += [f"multiplier {multiplier}"] if multiplier != 1 else []
    return ", ".join(words)


# -- blocks --------------------------------------------------------------------------------------------------------


def decide_blocks(
    model: nn.Module, discovery: Discovery, swaps: Swaps, *, only_faster: bool = False
) -> tuple[tuple[ConvertedLayer, ...], list[str]]:
    """A row for each convolution of the example with a norm next to it; and the names of those that may run as one with
    it, or that are faster as one at the sizes of the example."""
    modules = dict(model.named_modules())
    rows, wanted = [], []
    for block in discovery.blocks:
        plans = _plans_of(block)
        is_left = only_faster and not any(plan.is_at_once for plan in plans)
        why = block.why_not if not plans else "" if is_left else why_not_traced(modules[block.parent], block, swaps)
        if not why and not is_left:
            wanted.append(block.name)
        rows.append(ConvertedLayer(block.name, f"no block: {why}" if why else _runs(block, plans)))
    return tuple(rows), wanted


def trace_blocks(model: nn.Module, discovery: Discovery, swaps: Swaps, *, names: Sequence[str]) -> None:
    """The modules around these blocks of the example are to have traced forward passes, in which they are one."""
    if not names or discovery.found_blocks is None:
        return
    with unchanged(model, []):
        traced = discovery.found_blocks.traces(names)
    for path, traces in traced.items():
        module = at(model, path)
        if not is_written(module):
            swaps.trace(module, traces)


def _plans_of(block: DiscoveredBlock) -> list[CallPlan]:
    """What runs it at the sizes of the example, as it trains and in evaluation; empty if there is no block."""
    problems = dict.fromkeys([block.problem, block.problem.in_evaluation]) if block.problem else ()
    return [plan_for(problem, block.device) for problem in problems]


def why_not_traced(parent: nn.Module, block: DiscoveredBlock, swaps: Swaps) -> str:
    """Why the forward pass around a block is not replaced; empty if it may be a traced one."""
    if is_parametrized(parent):
        return f"{shown_name(block.parent)} is parametrised"
    if swaps.is_functional(parent):
        return f"{shown_name(block.parent)} convolves by functional calls"
    return ""


def _runs(block: DiscoveredBlock, plans: Sequence[CallPlan]) -> str:
    """Whether a block runs as one at the sizes of the example, and why; in evaluation only where it does."""
    first, *others = plans
    text = f"block {first.problem.block} from {shown_name(block.starts)} {_runs_as(first)}"
    text += "".join(f"; in evaluation {_runs_as(each)}" for each in others if each.is_at_once)
    return f"{text}; left out: {block.why_not}" if block.why_not else text


def _runs_as(plan: CallPlan) -> str:
    if plan.is_at_once:
        return f"runs as one: {', '.join(f'{pass_} {each.reason}' for pass_, each in plan.decisions.items())}"
    slow, decision = next((pass_, each) for pass_, each in plan.decisions.items() if each.provider != "dwconv")
    return f"runs one after the other: {slow}: {decision.reason}"
