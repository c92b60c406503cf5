"""What ran, by PyTorch's profiler: kernels that were launched, not decisions that were made.

A row of a race is void if other kernels ran than its name promises: PyTorch's own convolution in our place, or an empty
graph, which would seem to be the fastest of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from dwconv import settings
from dwconv.kernels.artifact import Artifact
from dwconv.measure.step_share import is_convolution, kernels_in

FIRST_KERNEL = "main_kernel"
"""The name of the first kernel of every artifact; PyTorch's have none like it."""
_OF_OP = {
    "dwconv::fprop": "fprop",
    "dwconv::fprop_silu": "fprop",
    "dwconv::dgrad": "dgrad",
    "dwconv::wgrad": "wgrad",
    "dwconv::backward": "backward",
}


def kernels_of(call: Callable[[], object], *, device: str) -> Counter[str] | None:
    """The kernels that a call launches on a GPU, by name; None on a CPU, and where the profiler records none at all."""
    if device != "cuda":
        return None
    found = _kernels(call)
    if found or _kernels(lambda: torch.zeros(1, device=device).add_(1)):
        return found
    return None


def _kernels(call: Callable[[], object]) -> Counter[str]:
    return Counter(event.name for event in kernels_in(call))


def why_void(provider: str, launched: Counter[str] | None, *, ours: Artifact, calls: int, is_ours: bool) -> str:
    """The reason why a provider's time is not what its name says, after ``calls`` calls; empty if it is. ``ours`` is
    dwconv's artifact in this race; ``launched`` None where kernels cannot be seen."""
    if launched is None:
        return ""
    own = Counter(each.kernel for each in ours.launches)
    if is_ours:
        wanted = Counter({name: count * calls for name, count in own.items()})
        seen = Counter({name: launched[name] for name in own})
        return "" if seen == wanted else f"{_told(wanted)} should have been launched, {_told(launched)} was"
    if not launched:
        return "no kernel was launched"
    if stray := launched.keys() & own.keys():
        return f"it launched dwconv's {', '.join(sorted(stray))}"
    of_pytorch = [name for name in launched if "at::native" in name]
    if provider.startswith("aten-") and not of_pytorch:
        return f"no kernel of PyTorch's own was launched: {_told(launched)}"
    if provider.startswith("cudnn-") and len(of_pytorch) == len(launched):
        return f"no kernel of cuDNN was launched: {_told(launched)}"
    return ""


def _told(kernels: Counter[str]) -> str:
    return ", ".join(f"{name} {count}×" for name, count in kernels.items() if count) or "nothing"


# -- steps of training -------------------------------------------------------------------------------------------------


def why_misnamed(step: Callable[[], object], layers: Mapping[str, int], *, on_gpu: bool) -> str:
    """The reason why ``layers``, how often a step runs each pass on each provider, is not what a step runs of dwconv;
    empty if it is."""
    wanted: Counter[str] = Counter()
    for name, times in layers.items():
        if name.endswith(" dwconv"):
            wanted[name.split(" ")[0]] += times
    seen = passes_of(step, on_gpu=on_gpu)
    wrong = [f"{pass_} {seen[pass_]} of {wanted[pass_]} times" for pass_ in _PASSES if seen[pass_] != wanted[pass_]]
    return f"dwconv's kernels ran {', '.join(wrong)}" if wrong else ""


_PASSES = ("fprop", "dgrad", "wgrad", "backward")


def passes_of(step: Callable[[], object], *, on_gpu: bool) -> Counter[str]:
    """How often a step runs each pass with a kernel of dwconv's. On a GPU such a kernel must have been launched."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with settings.quiet_profiler(), profile(activities=activities, record_shapes=True) as profiler:
        step()
        if on_gpu:
            torch.cuda.synchronize()
    found: Counter[str] = Counter()
    for event in profiler.events() or ():
        pass_ = _OF_OP.get(event.name)
        if pass_ and not any(map(is_convolution, _inside(event))):
            own = [kernel for each in (event, *_inside(event)) for kernel in each.kernels]
            found[pass_] += not on_gpu or any(kernel.name.startswith(FIRST_KERNEL) for kernel in own)
    return found


_ROADS = {"CppNode": "C++", "DwconvConvolution": "Python", "DwconvBlock": "Python", "DwconvFprop": "dispatcher"}
"""What is in the names of the nodes that calls leave in the history, and the road that such a call took."""


def roads_of(result: torch.Tensor) -> Counter[str]:
    """How many depthwise layers and blocks took each road, by the history of a result."""
    found: Counter[str] = Counter()
    for node in nodes_of(result):
        road = next((road for part, road in _ROADS.items() if part in node.name()), "")
        if node.name().startswith("ConvolutionBackward") and node._saved_weight.shape[1] == 1 < node._saved_groups:
            road = "PyTorch's op"
        found.update([road] if road else [])
    return found


def nodes_of(result: torch.Tensor) -> Iterator[Any]:
    """The nodes in the history of a result."""
    seen: set[Any] = set()
    waiting: list[Any] = [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
        yield node


def _inside(event: Any) -> Iterator[Any]:
    for child in event.cpu_children:
        yield child
        yield from _inside(child)
