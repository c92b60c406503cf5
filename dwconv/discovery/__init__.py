"""Discovery: the depthwise layers of a model, from one step on an example.

discover      runs one step, and changes nothing
  ├─ step         the model without its wrappers; forward, and the gradients of everything that requires one
  │    └─ reentrant    also where a backward pass calls another
  ├─ unchanged    the model, the example and the random numbers as they were before
  └─ watch        every depthwise convolution that runs, wherever it is called, and the passes that it runs
       └─ chains       the norms and activations around it, which may be one with it
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from dwconv.call.awaited_block import waits_for_blocks
from dwconv.discovery.chains import problem_with
from dwconv.discovery.step import ExampleStep
from dwconv.discovery.unchanged import unchanged
from dwconv.discovery.watch import Watch
from dwconv.dispatch.decide import why_no_kernels
from dwconv.problems.problem import Problem
from dwconv.problems.workload import PASSES, Pass, Workload


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
    """How many of them a step makes."""
    activated: bool = False
    """True if SiLU comes next, which a kernel may do at once."""
    is_functional: bool = field(default=False, compare=False)
    """True if the code of a module called PyTorch's function. Of a model that is not converted every call is one."""
    caller: str = field(default="", compare=False)
    """The module whose code made the call. The name is the layer's whose weight it uses, if it is one's."""

    def problems(self) -> list[tuple[Problem, tuple[Pass, ...]]]:
        """Those that ran, with their passes, and those that run where SiLU is part of a kernel."""
        found = [(self.problem, self.passes)]
        for problem, passes in self.problems_at_once():
            # Without SiLU all passes are of one plan: what it says of fprop should be known, too.
            found.append((problem, self.passes if problem.epilogue == "none" else passes))
        return found

    def problems_at_once(self) -> list[tuple[Problem, tuple[Pass, ...]]]:
        """What runs where SiLU is part of a kernel: fprop with it, its gradient, and the backward passes; none if it
        does not come next."""
        if not self.activated:
            return []
        causal = dataclasses.replace(self.problem, padding=(*self.problem.padding[:-1], 0))
        forward, gradient = (dataclasses.replace(causal, epilogue=each) for each in ("silu", "silu_gradient"))
        backward: tuple[Pass, ...] = tuple(pass_ for pass_ in self.passes if pass_ != "fprop")
        sums: tuple[Pass, ...] = ("fprop",)
        return [(forward, sums)] + [(gradient, sums), (causal, backward)] * bool(backward)

    @property
    def why_no_kernels(self) -> str:
        """Why dwconv has no kernels for it; empty if it may have."""
        return why_no_kernels(self.problem, self.device)

    def __str__(self) -> str:
        times = f", {self.calls} times" if self.calls > 1 else ""
        reason = f"; left out: {self.why_no_kernels}" if self.why_no_kernels else ""
        passes = "+".join(self.passes) + ", with SiLU after it" * self.activated
        return f"{self.name or '(the model itself)'}: {self.problem} on {self.device}{times}, {passes}{reason}"


@dataclass(frozen=True, kw_only=True)
class DiscoveredBlock:
    """Norms and activations around a depthwise convolution."""

    name: str
    """The layer that makes the convolution."""
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

    @property
    def layer(self) -> tuple[str, Problem | None]:
        """The name and the problem of the layer alone."""
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

    @cached_property
    def left_out(self) -> tuple[DiscoveredLayer, ...]:
        """The layers that dwconv has no kernels for; each says why."""
        return tuple(layer for layer in self.layers if layer.why_no_kernels)

    def without_functional(self) -> Discovery:
        """Only what the layers of a converted model run."""
        return dataclasses.replace(self, layers=tuple(layer for layer in self.layers if not layer.is_functional))

    def with_blocks(self, *, all_of_them: bool = False) -> Discovery:
        """Counts those as well that run as one already, or all that can."""
        counted = tuple(each for each in self.blocks if each.problem and (all_of_them or each.waits))
        return dataclasses.replace(self, counted_blocks=counted)

    def counts(self) -> dict[Workload, int]:
        """Every workload of the layers that are not left out, and how often a step runs it."""
        counts: Counter[Workload] = Counter()
        for of_device in self.counts_by_device().values():
            counts.update(of_device)
        return dict(counts)

    def counts_by_device(self) -> dict[torch.device, dict[Workload, int]]:
        """The same for each device that such layers run on."""
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


def discover(model: nn.Module, example_inputs: Any, *, trains: bool | None = None) -> Discovery:
    """Run ``model`` once on an example, and list the depthwise convolutions that ran, functional calls included.

    ``example_inputs`` is a tensor, a tuple or list of positional arguments, or a dict of keyword arguments, on the
    model's device. The backward pass runs too, from the sum of all tensors in the result that require a gradient, in
    whatever object they are, if ``trains``; by default if grad mode is on and there are such. Call it under
    ``torch.autocast`` for mixed precision.

    The model is as before afterwards: parameters and their ``grad``, buffers, attributes and classes of its modules,
    random number generators, also those that it holds; also if it fails on the example, which raises its own error.
    Lazy layers stay lazy. Wrappers (DistributedDataParallel, torch.compile) are looked through. A converted model and a
    plain one give the same answer.

    Raises InvalidWorkload, naming both devices, if the example is elsewhere than the parameters.
    """
    step = ExampleStep.of(model, example_inputs, trains=trains)
    with unchanged(step.model, step.tensors), Watch(step.model) as watch:
        step()
    alike: Counter[DiscoveredLayer] = Counter()
    for call in watch.calls:
        passes: tuple[Pass, ...] = tuple(pass_ for pass_ in PASSES if pass_ in call.passes)
        layer = DiscoveredLayer(
            name=call.name,
            problem=call.problem,
            device=call.device,
            passes=passes,
            calls=0,
            activated=call.activated,
            is_functional=call.is_functional,
            caller=call.caller,
        )
        alike[layer] += 1
    return Discovery(
        layers=tuple(dataclasses.replace(layer, calls=calls) for layer, calls in alike.items()),
        blocks=_blocks(watch, step.model),
    )


def _blocks(watch: Watch, model: nn.Module) -> tuple[DiscoveredBlock, ...]:
    """Those of the convolutions that train, and those in evaluation. One that ran several times is named once."""
    modules = dict(model.named_modules())
    alike: Counter[DiscoveredBlock] = Counter()
    for call in watch.calls:
        if call.link is None or not (seen := watch.chains.block_of(call.link)):
            continue
        if not seen.trains or call.passes & {"dgrad", "wgrad"}:
            block = DiscoveredBlock(
                name=call.name,
                starts=seen.starts,
                problem=problem_with(call.problem, seen.block, trains=seen.trains) if seen.block else None,
                device=call.device,
                calls=0,
                why_not=seen.why_not,
                waits=_waits(seen.starts, modules),
            )
            alike[block] += 1
    return tuple(dataclasses.replace(block, calls=calls) for block, calls in alike.items())


def _waits(name: str, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a block that begins with that module is waited for there, or by a module around it."""
    return any(waits_for_blocks(modules[around]) for around in _around(name))


def _around(name: str) -> list[str]:
    """The module and those that it is in."""
    parts = name.split(".")
    return ["", *(".".join(parts[:count]) for count in range(1, len(parts) + 1))] if name else [""]
