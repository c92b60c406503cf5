"""Discovery: the depthwise layers of a model, from one step on an example.

discover      runs one step, and changes nothing
  ├─ step         the model without its wrappers; forward, and the gradients of everything that requires one
  ├─ unchanged    the model, the example and the random numbers as they were before
  │    └─ content_kinds    each kind of object that the model holds, compared and put back
  └─ call_watch   every depthwise convolution that runs, wherever it is called, and the passes that it runs
       └─ find_blocks  the norms and activations around it, which may be one with it
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from dwconv.call.block_call import IMAGE_DTYPES
from dwconv.call.frozen_forward import at, is_written
from dwconv.discovery.call_watch import CallWatch, FirstCall, WatchedCall
from dwconv.discovery.find_blocks import FoundBlocks, problem_with
from dwconv.discovery.folding import INSTANCE_NORMS
from dwconv.discovery.step import ExampleStep
from dwconv.discovery.unchanged import unchanged
from dwconv.dispatch.of_problem import why_no_kernels
from dwconv.errors import InvalidWorkload, NoTemplate
from dwconv.problems.problem import Problem
from dwconv.problems.target import target_of
from dwconv.problems.workload import PASSES, TRANSPOSED, Pass, Workload


@dataclass(frozen=True, kw_only=True)
class DiscoveredLayer:
    """Calls of one depthwise convolution that are alike: in one module, of one problem, running the same passes."""

    name: str
    """The layer, or the module that makes the calls, by its name in the model; empty for the model itself."""
    problem: Problem
    device: torch.device
    passes: tuple[Pass, ...]
    """The passes that really ran: no dgrad if the input needs no gradient, no wgrad if the weight is frozen."""
    calls: int
    is_transposed: bool = False
    """True for a transposed convolution: problem and passes are those of the convolution that it is the dgrad of."""
    silu_next: bool = False
    """True if SiLU comes next, which a kernel may do at once."""
    is_functional: bool = field(default=False, compare=False)
    """True if the code of a module called PyTorch's function. Of a model that is not converted, nor is to be, every
    call is one."""
    caller: str = field(default="", compare=False)
    """The module whose code made the call. The name is the layer's whose weight it uses, if it is one's."""

    def problems(self) -> list[tuple[Problem, tuple[Pass, ...]]]:
        """Those that ran, with their passes, and those that run where SiLU is part of a kernel."""
        found = [(self.problem, self.passes)]
        for problem, passes in self.problems_at_once():
            # Without SiLU one plan has all passes: its decision for fprop is needed, too.
            found.append((problem, self.passes if problem.epilogue == "none" else passes))
        return found

    def problems_at_once(self) -> list[tuple[Problem, tuple[Pass, ...]]]:
        """What runs where SiLU is part of a kernel: fprop with it, its gradient, and the backward passes; none if it
        does not come next."""
        if not self.silu_next:
            return []
        causal = dataclasses.replace(self.problem, padding=(*self.problem.padding[:-1], 0))
        forward, gradient = (dataclasses.replace(causal, epilogue=each) for each in ("silu", "silu_gradient"))
        backward: tuple[Pass, ...] = tuple(pass_ for pass_ in self.passes if pass_ != "fprop")
        sums: tuple[Pass, ...] = ("fprop",)
        return [(forward, sums)] + [(gradient, sums), (causal, backward)] * bool(backward)

    @property
    def forward(self) -> Pass:
        return TRANSPOSED["fprop"] if self.is_transposed else "fprop"

    @property
    def trains(self) -> bool:
        """Whether a backward pass ran."""
        return self.passes != (self.forward,)

    @property
    def why_no_kernels(self) -> str:
        return why_no_kernels(self.problem, self.device)

    def __str__(self) -> str:
        times = f", {self.calls} times" if self.calls > 1 else ""
        reason = f"; left out: {self.why_no_kernels}" if self.why_no_kernels else ""
        passes = "+".join(self.passes) + ", with SiLU after it" * self.silu_next
        passes += ", transposed: the dgrad is its forward pass" * self.is_transposed
        return f"{self.name or '(the model itself)'}: {self.problem} on {self.device}{times}, {passes}{reason}"


@dataclass(frozen=True, kw_only=True)
class DiscoveredBlock:
    """Norms and activations around a depthwise convolution."""

    name: str
    starts: str
    """The module whose input the block is made of."""
    problem: Problem | None
    """Of the block; None if it cannot be one."""
    device: torch.device
    calls: int
    """How often a step runs it."""
    why_not: str = ""
    """Why it cannot be one; or, of one that can, why no more is in it. Empty if nothing is left out."""
    waits: bool = False
    """Whether it runs as one already, where that is faster."""
    parent: str = ""
    """The module whose forward pass has it."""

    @property
    def layer(self) -> tuple[str, Problem | None]:
        return self.name, None if self.problem is None else self.problem.alone


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """The depthwise convolutions of one step of a model. Prints as a list."""

    layers: tuple[DiscoveredLayer, ...]
    """In the order of the first call."""
    blocks: tuple[DiscoveredBlock, ...] = ()
    """The convolutions with a norm next to them, likewise."""
    counted_blocks: tuple[DiscoveredBlock, ...] = ()
    """Those whose passes count as well."""
    found_blocks: FoundBlocks | None = field(default=None, repr=False, compare=False)
    """What forward passes with blocks in them are made from."""

    @cached_property
    def left_out(self) -> tuple[DiscoveredLayer, ...]:
        """The layers that dwconv has no kernels for; ``why_no_kernels`` is the reason."""
        return tuple(layer for layer in self.layers if layer.why_no_kernels)

    def without_functional(self) -> Discovery:
        """Only what the layers of a converted model run."""
        return dataclasses.replace(self, layers=tuple(layer for layer in self.layers if not layer.is_functional))

    def with_blocks(self, *, all_of_them: bool = False, left_out: Container[str] = ()) -> Discovery:
        """Counts those as well that run as one already, or all that can but for those of some names."""
        can_be = [each for each in self.blocks if each.problem and each.name not in left_out]
        counted = tuple(each for each in can_be if all_of_them or each.waits)
        return dataclasses.replace(self, counted_blocks=counted)

    def counts(self) -> dict[Workload, int]:
        """Every workload of the layers that are not left out, and how often a step runs it."""
        counts: Counter[Workload] = Counter()
        for of_device in self.counts_by_device().values():
            counts.update(of_device)
        return dict(counts)

    def counts_by_device(self) -> dict[torch.device, dict[Workload, int]]:
        counts: dict[torch.device, Counter[Workload]] = defaultdict(Counter)
        for layer in self.layers:
            if layer not in self.left_out:
                for problem, passes in layer.problems():
                    for pass_ in passes:
                        counts[layer.device][problem.workload(pass_)] += layer.calls
        for block in self.counted_blocks:
            assert block.problem is not None
            for pass_ in block.problem.passes:
                counts[block.device][block.problem.workload(pass_)] += block.calls
        return {device: dict(of_device) for device, of_device in counts.items()}

    def __str__(self) -> str:
        names = {layer.name for layer in self.layers}
        return "\n".join([f"{len(names)} depthwise layers", *(f"  {layer}" for layer in self.layers)])


def discover(
    model: nn.Module, example_inputs: Any, *, trains: bool | None = None, converted: Collection[nn.Module] = ()
) -> Discovery:
    """Run ``model`` once on an example, and list the depthwise convolutions that ran, functional calls included.

    ``example_inputs`` is a tensor, a tuple or list of positional arguments, or a dict of keyword arguments, on the
    model's device. The backward pass runs too, from the sum of all tensors in the result that require a gradient, in
    whatever object they are, if ``trains``; by default if grad mode is on and there are such. Call it under
    ``torch.autocast`` for mixed precision.

    The model is as before afterwards: parameters and their ``grad``, buffers, classes and attributes of its modules
    and what these refer to, random number generators, also those that it holds; also if it fails on the example, which
    raises its own error. Lazy layers stay lazy. Hooks on gradients of parameters do not run. Wrappers
    (DistributedDataParallel, torch.compile) are looked through. A converted model and a plain one give one answer.
    ``converted``: layers that are to be, whose calls are then no functional ones.

    Raises InvalidWorkload, naming both devices, if the example is elsewhere than the parameters.
    """
    step = ExampleStep.of(model, example_inputs, trains=trains)
    with unchanged(step.model, step.tensors) as put_back:
        with CallWatch(step.model, converted=converted) as watch:
            step()
        put_back()
        layers = alike(watch.calls)
        found_blocks, blocks = _blocks(step.model, layers, ran=watch.ran)
    return Discovery(layers=layers, blocks=blocks, found_blocks=found_blocks)


def alike(calls: Iterable[WatchedCall]) -> tuple[DiscoveredLayer, ...]:
    """The calls, counted, in the order of the first one of each kind."""
    counts: Counter[DiscoveredLayer] = Counter()
    for call in calls:
        passes: tuple[Pass, ...] = tuple(pass_ for pass_ in PASSES if pass_ in call.passes)
        counts[DiscoveredLayer(**{**vars(call), "passes": passes}, calls=0)] += 1
    return tuple(dataclasses.replace(layer, calls=calls) for layer, calls in counts.items())


def _blocks(
    model: nn.Module, layers: Sequence[DiscoveredLayer], *, ran: Mapping[str, FirstCall]
) -> tuple[FoundBlocks, tuple[DiscoveredBlock, ...]]:
    """Those of the convolutions that train, and those in evaluation. One that ran several times is named once."""
    layers = [layer for layer in layers if not layer.is_transposed]
    names = dict.fromkeys(layer.name for layer in layers if layer.caller == layer.name)
    found_blocks = FoundBlocks(model, list(names), ran=ran)
    blocks: list[DiscoveredBlock] = []
    for found in found_blocks.found:
        trains = found.trains
        for layer in layers:
            if (
                layer.name != found.conv
                or layer.caller != layer.name
                or (trains and not {"dgrad", "wgrad"} & {*layer.passes})
            ):
                continue
            alone = layer.problem
            first = ran.get(found.starts)
            if first and first.reads_channels_last and isinstance(at(model, found.starts), INSTANCE_NORMS):
                alone = dataclasses.replace(alone, layout="nhwc")  # PyTorch's norm alone gives a contiguous image
            why_never = _why_never(alone)
            problem = None
            if found.block and not why_never:
                problem = problem_with(alone, found.block, trains=trains)
            why_not = why_never or (why_no_kernels_for(problem, layer.device) if problem else "")
            blocks.append(
                DiscoveredBlock(
                    name=layer.name,
                    starts=found.starts or layer.name,
                    problem=None if why_not else problem,
                    device=layer.device,
                    calls=layer.calls,
                    why_not=why_not or found.why_not,
                    waits=is_traced(at(model, found.parent)),
                    parent=found.parent,
                )
            )
    return found_blocks, tuple(blocks)


def is_traced(module: nn.Module) -> bool:
    """Whether a module runs its blocks as one already, where that is faster."""
    return bool(getattr(type(module), "traces", ())) or is_written(module)


def _why_never(problem: Problem) -> str:
    """Why there can be no block around a convolution, whatever is next to it."""
    if problem.dtype not in IMAGE_DTYPES:
        return f"blocks are of float32 or 16 bits, it is of {problem.dtype_name}"
    return "" if problem.layout == "nhwc" else "blocks are channels_last, it is contiguous"


def why_no_kernels_for(problem: Problem, device: torch.device) -> str:
    """Why dwconv has no kernels for a block; empty if it may have."""
    try:
        if reason := why_no_kernels(problem, device):
            return reason
        from dwconv.schedules.template import templates_for

        templates_for(problem.workload(problem.passes[0]), target_of(device))
    except (InvalidWorkload, NoTemplate) as error:
        return str(error)
    return ""
