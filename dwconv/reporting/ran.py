"""Ran: the sizes that each layer of a model ran, and how often.

Calls are identified by their weight. Those of a compiled graph, and with weights that FSDP gathered, are identified by
their sizes alone: they count for all layers of these sizes together.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from dwconv.call.call_plan import plan_for, plans
from dwconv.call.silu_ops import is_at_once
from dwconv.discovery import DiscoveredBlock, DiscoveredLayer, discover
from dwconv.discovery.same_padding import SamePadding, same_padding
from dwconv.discovery.step import ExampleStep
from dwconv.discovery.unchanged import unchanged
from dwconv.dispatch.decision import DispatchDecision
from dwconv.measure.step_share import OnGpu, timed_on_gpu
from dwconv.model.conversion import without_wrappers
from dwconv.model.swaps import Convolution, why_left
from dwconv.nn import LAYERS, TRANSPOSED_LAYERS, DepthwiseConv2d
from dwconv.problems.as_written import resolve_padding
from dwconv.problems.problem import Problem
from dwconv.problems.workload import TRANSPOSED, Pass

Layer = Any
"""One of ``LAYERS``."""
_Sizes = tuple[Problem, torch.device]
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """Calls of one layer, or of several that cannot be distinguished, with one problem."""

    names: tuple[str, ...]
    """Of the layers, in the model."""
    problem: Problem
    device: torch.device
    calls: Mapping[Pass, int]
    """As counted; of a backward pass, how often a forward call requested it."""
    per_step: Mapping[Pass, float]
    """How often a step runs each pass; passes that do not run are left out."""
    is_transposed: bool = False
    """Of transposed convolutions: problem and passes are those of the convolution that they are the dgrad of."""
    sweeps_bias: bool = False
    """Whether such a one has a bias, which kernels leave to a sweep."""
    counted_for: int = 1
    """How many layers the counted calls are of."""
    why_pytorch: str = ""
    """Why no call comes to dwconv; empty if they do."""

    @property
    def forward(self) -> Pass:
        return TRANSPOSED["fprop"] if self.is_transposed else self.problem.passes[0]

    def as_decided(self, decisions: Mapping[Pass, DispatchDecision]) -> Ran:
        """What ran, with ``backward`` in the place of dgrad and wgrad, where both gradients come from one kernel. Where
        one is requested without the other, it runs alone."""
        both = decisions.get("backward")
        is_apart = self.problem.block or self.is_transposed or self.why_pytorch
        if is_apart or both is None or both.provider == "pytorch":
            return self
        return dataclasses.replace(self, calls=_at_once(self.calls), per_step=_at_once(self.per_step))


def _at_once(counts: Mapping[Pass, Number]) -> Mapping[Pass, Number]:
    both = min(counts.get("dgrad", 0), counts.get("wgrad", 0))
    apart = {pass_: count - both * (pass_ in ("dgrad", "wgrad")) for pass_, count in counts.items()}
    counted = {**apart, "backward": apart.get("backward", 0) + both}
    return {pass_: count for pass_, count in counted.items() if count}


# -- as counted ------------------------------------------------------------------------------------------------------


def so_far(model: nn.Module) -> list[Ran]:
    """What the layers of dwconv in ``model`` ran, those of one layer together, in the order of the model; what a layer
    ran most often comes first. A step is taken to run the usual layer once."""
    layers = _layers(model)
    counted = _Counted()
    totals: dict[tuple[tuple[str, ...], _Sizes], Counter[Pass]] = defaultdict(Counter)
    for names, layer in _by_weight(layers):
        for sizes, calls in counted.of_weight(layer.weight).items():
            totals[names, sizes] += calls
    sharded = [(name, layer) for name, layer in layers if _is_sharded(layer)]
    by_sizes = ((layers, counted.of_ops()), (sharded, counted.of_gathered_weights() if sharded else {}))
    for candidates, (problem, device), calls in ((some, *each) for some, counts in by_sizes for each in counts.items()):
        names = tuple(name for name, each in candidates if _fits(each, problem) and calls[_forward(each, problem)])
        if names:
            first = dict(layers)[names[0]]
            has_bias = first.bias is not None and not isinstance(first, TRANSPOSED_LAYERS)
            totals[names, (dataclasses.replace(problem, bias=has_bias), device)] += calls
    of_names = dict(layers)
    found = [
        Ran(
            names=names,
            problem=problem,
            device=device,
            calls=calls,
            per_step={},
            counted_for=len(names),
            is_transposed=isinstance(of_names[names[0]], TRANSPOSED_LAYERS),
            sweeps_bias=_sweeps_bias(of_names[names[0]]),
        )
        for (names, (problem, device)), calls in totals.items()
    ]
    order = {name: place for place, (name, _) in enumerate(layers)}
    found.sort(key=lambda each: (order[each.names[0]], len(each.names), -each.calls[each.forward]))
    steps = _steps(found)
    return [dataclasses.replace(each, per_step={p: n / steps for p, n in each.calls.items() if n}) for each in found]


def _steps(found: Iterable[Ran]) -> float:
    """How many steps there were: the calls of the usual layer. Training steps, if there were any."""
    trained: Counter[tuple[str, ...]] = Counter()
    called: Counter[tuple[str, ...]] = Counter()
    for each in found:
        of_input: Pass = TRANSPOSED["dgrad"] if each.is_transposed else "dgrad"
        trained[each.names] += max(each.calls[of_input], each.calls["wgrad"]) + each.calls["backward"]
        called[each.names] += each.calls[each.forward]
    of_layers = trained if any(trained.values()) else called
    numbers = [calls / len(names) for names, calls in of_layers.items() if calls for _ in names]
    return statistics.median_low(numbers) if numbers else 1.0


class _Counted:
    """What the plans of this process counted."""

    def __init__(self) -> None:
        self._of_weights: dict[int, dict[_Sizes, Counter[Pass]]] = defaultdict(lambda: defaultdict(Counter))
        self._of_ops: dict[_Sizes, Counter[Pass]] = defaultdict(Counter)
        self._weights = []
        """Kept, so that no other takes the place of one."""
        for plan in plans():
            for each in plan.tally.counted():
                self._weights.append(each.weight)
                self._of_weights[id(each.weight)][plan.problem, plan.device] += each.passes
            # Gradients of the weight and of the bias are computed together, or not: the sizes are the same.
            self._of_ops[dataclasses.replace(plan.problem, bias=False), plan.device] += plan.tally.counted_ops()

    def of_weight(self, weight: torch.Tensor) -> Mapping[_Sizes, Counter[Pass]]:
        """Calls that came with this very weight."""
        return self._of_weights.get(id(weight), {})

    def of_gathered_weights(self) -> Mapping[_Sizes, Counter[Pass]]:
        """Calls with weights that FSDP gathered and let go of again, by their sizes without a bias. It keeps the
        tensors without their numbers, which no other weight lacks."""
        found: dict[_Sizes, Counter[Pass]] = defaultdict(Counter)
        for weight in {id(each): each for each in self._weights}.values():
            if weight.numel() and not weight.untyped_storage().nbytes():
                for (problem, device), calls in self._of_weights[id(weight)].items():
                    found[_bare(problem), device] += calls
        return found

    def of_ops(self) -> Mapping[_Sizes, Counter[Pass]]:
        """Passes that went through PyTorch's dispatcher, by their sizes without a bias. Where a layer's forward pass is
        not among them, only derivatives ran: these are no calls."""
        return self._of_ops


# -- in an example ---------------------------------------------------------------------------------------------------


def in_an_example(model: nn.Module, example_inputs: Any) -> list[Ran]:
    """What a step on the example runs, in the order of the first call; with what was counted so far of the same
    sizes."""
    discovery = discover(model, example_inputs)
    modules = {without_wrappers(name): module for name, module in model.named_modules()}
    counted = _Counted()
    whole = {block.layer: block.problem for block in discovery.blocks if _runs_as_one(block)}
    alike = Counter((_bare(layer.problem), layer.device) for layer in discovery.layers)
    alike += Counter((block.problem, block.device) for block in discovery.blocks if block.problem)
    found = []
    for layer in (each for discovered in discovery.layers for each in _as_it_runs(discovered, whole)):
        module = modules.get(layer.name)
        calls, counted_for = _counted_for(layer, module, counted, alike)
        found.append(
            Ran(
                names=(layer.name,),
                problem=layer.problem,
                device=layer.device,
                calls=calls,
                per_step=dict.fromkeys(layer.passes, float(layer.calls)),
                counted_for=counted_for,
                why_pytorch=_why_pytorch(layer, module),
                is_transposed=layer.is_transposed,
                sweeps_bias=_sweeps_bias(module),
            )
        )
    return found


def _runs_as_one(block: DiscoveredBlock) -> bool:
    if block.problem is None or not block.waits or block.problem.trains != torch.is_grad_enabled():
        return False
    return plan_for(block.problem, block.device).is_at_once


def _as_it_runs(
    layer: DiscoveredLayer, whole: Mapping[tuple[str, Problem | None], Problem | None]
) -> list[DiscoveredLayer]:
    """The layer, or the block around it if that runs as one; with SiLU after it, if kernels do both at once, a layer
    for each of the problems that they solve."""
    if block := whole.get((layer.name, layer.problem)):
        return [dataclasses.replace(layer, problem=block, passes=block.passes)]
    if not layer.silu_next or not is_at_once(layer.problems_at_once()[0][0], layer.device, trains=layer.trains):
        return [layer]
    return [dataclasses.replace(layer, problem=problem, passes=passes) for problem, passes in layer.problems_at_once()]


def _why_pytorch(layer: DiscoveredLayer, module: nn.Module | None) -> str:
    if isinstance(module, Convolution) and not isinstance(module, LAYERS) and why_left(module) is None:
        return "not converted; dwconv.convert(model) swaps it"
    if layer.is_functional:
        return "called as a function; dwconv.convert(model, functional=True) runs the call"
    return ""


def _counted_for(
    layer: DiscoveredLayer, module: nn.Module | None, counted: _Counted, alike: Counter[_Sizes]
) -> tuple[Counter[Pass], int]:
    """Calls that were counted of the layer with the sizes of the example, and how many layers these are of."""
    own = Counter[Pass]()
    if isinstance(module, LAYERS):
        own = counted.of_weight(module.weight).get((layer.problem, layer.device), own)
    sizes = (_bare(layer.problem), layer.device)
    ops = counted.of_ops().get(sizes)
    is_called = ops and ops[layer.forward if layer.problem.block is None else layer.problem.passes[0]]
    return (ops, alike[sizes]) if ops and is_called and not own else (own, 1)


def _bare(problem: Problem) -> Problem:
    return dataclasses.replace(problem, bias=False)


# -- layers ----------------------------------------------------------------------------------------------------------


def _layers(model: nn.Module) -> list[tuple[str, Layer]]:
    return [(without_wrappers(name), module) for name, module in model.named_modules() if isinstance(module, LAYERS)]


def _sweeps_bias(layer: nn.Module | None) -> bool:
    return isinstance(layer, TRANSPOSED_LAYERS) and layer.bias is not None


def _forward(layer: Layer, problem: Problem) -> Pass:
    return TRANSPOSED["fprop"] if isinstance(layer, TRANSPOSED_LAYERS) else problem.passes[0]


def _is_sharded(layer: Layer) -> bool:
    """True for a DTensor: a call then comes with what was gathered of it."""
    return hasattr(layer.weight, "device_mesh")


def _by_weight(layers: Sequence[tuple[str, Layer]]) -> list[tuple[tuple[str, ...], Layer]]:
    """Layers that share one weight cannot be distinguished."""
    of_weights: dict[int, list[tuple[str, Layer]]] = defaultdict(list)
    for name, layer in layers:
        of_weights[id(layer.weight)].append((name, layer))
    return [(tuple(name for name, _ in alike), alike[0][1]) for alike in of_weights.values()]


def _fits(layer: Layer, problem: Problem) -> bool:
    """True if the layer could have made such a call."""

    if problem.block and (layer.bias is not None or isinstance(layer, TRANSPOSED_LAYERS)):
        return False

    def with_height(sizes: Sequence[int], missing: int) -> tuple[int, ...]:
        return (missing, *sizes) if layer.axes == 1 else tuple(sizes)

    kernel, stride, dilation = (with_height(sizes, 1) for sizes in (layer.kernel_size, layer.stride, layer.dilation))
    padding: Sequence[tuple[int, int]]
    if isinstance(layer, SamePadding) and isinstance(layer, DepthwiseConv2d):
        padding = same_padding(layer, (problem.input_shape[2], problem.input_shape[3]))
    elif layer.padding_mode != "zeros":
        padding = [(0, 0)] * len(kernel)  # padded before the call
    elif isinstance(layer.padding, str):
        padding = resolve_padding(layer.padding, kernel=kernel, stride=stride, dilation=dilation)
    else:
        padding = [(size, size) for size in with_height(layer.padding, 0)]
    sides = tuple(side for pair in padding for side in pair)
    read = layer.out_channels if isinstance(layer, TRANSPOSED_LAYERS) else layer.in_channels
    wanted = (read, (layer.out_channels, 1, *kernel), stride, sides, dilation)
    return wanted == (
        problem.input_shape[1], problem.weight_shape, problem.stride, problem.padding, problem.dilation
    )  # fmt: skip


def step_on_gpu(model: nn.Module, example_inputs: Any) -> OnGpu | None:
    """What a step on the example takes of the host and of the GPU, forward and backward, without the optimizer, as it
    runs now. None on a CPU, and where something else profiles already. Nothing in the model changes."""
    step = ExampleStep.of(model, example_inputs, trains=None)
    if step.device.type != "cuda" or torch._C._autograd._profiler_enabled():
        return None
    with unchanged(step.model, step.tensors), torch.cuda.device(step.device):
        return timed_on_gpu(step)
