"""Where the time of a training step goes, by kind of work, as PyTorch's profiler sees it.

The own time of every op counts for the nearest op around it, itself included, that has a kind. What is left of a step
is Python between the ops. On a GPU the time is that of the kernels, and what is left is the time in which none ran.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._C._autograd import DeviceType

STEPS = 8
"""Profiled steps of each model to compare kinds of work. The profiler slows all models alike."""
FEW_STEPS = 3
"""Profiled steps of one model to find the share of its depthwise layers."""
Step = Callable[[torch.Tensor, torch.Tensor], float]
"""One step of training on images and labels; returns the loss."""

_KINDS = (
    ("normalisation", ("batch_norm", "layer_norm")),
    ("activation", ("relu", "hardtanh", "hardswish", "hardsigmoid", "gelu", "threshold", "clamp")),
    ("pointwise, dense", ("addmm", "aten::mm", "aten::linear", "aten::bmm")),
    ("copies, layouts", ("aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy")),
    ("sums, products", ("aten::add", "aten::mul", "aten::mean", "aten::sum", "aten::div", "aten::expand")),
    ("optimizer", ("Optimizer.", "_foreach", "AccumulateGrad")),
    ("autograd", ("autograd::engine", "Backward0", "Backward1", "DwconvConvolution")),
)
"""Each kind, and words in the names of its ops. Convolutions are told apart by their weights."""
_TWO_WAYS = ("normalisation", "activation")
_OURS = {
    "dwconv::fprop": "depthwise fprop",
    "dwconv::dgrad": "depthwise backward",
    "dwconv::wgrad": "depthwise backward",
}
_DEPTHWISE = frozenset(_OURS.values())


def profiles(
    steps: Mapping[str, Step], image: torch.Tensor, labels: torch.Tensor, *, count: int
) -> dict[str, dict[str, float]]:
    """Milliseconds by kind, with ``step`` for the whole, of each model's fastest step. Several are taken in turn;
    slower ones say more about other work on the machine."""
    fastest: dict[str, dict[str, float]] = {}
    for _ in range(count):
        for name, step in steps.items():
            found = _profile(step, image, labels)
            fastest[name] = min(fastest.get(name, found), found, key=lambda each: each["step"])
    return fastest


def _profile(step: Step, image: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    on_gpu = image.device.type == "cuda"
    activities = [torch.profiler.ProfilerActivity.CPU]
    if on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        started = time.perf_counter()
        step(image, labels)
        whole_ms = (time.perf_counter() - started) * 1e3
    found: dict[str, float] = defaultdict(float)
    for event in profiler.events() or ():
        if not on_gpu:
            found[_kind_around(event)] += event.self_cpu_time_total / 1e3
        elif event.device_type is DeviceType.CPU:  # kernels count for the op that launched them
            found[_kind_around(event)] += event.self_device_time_total / 1e3
    found["between the ops"] = whole_ms - sum(found.values())
    return dict(sorted(found.items(), key=lambda item: -item[1])) | {"step": whole_ms}


def ratio_at_most(profile: Mapping[str, float]) -> float:
    """How many times as fast the step would be if its depthwise convolutions cost nothing."""
    depthwise_ms = sum(profile.get(kind, 0.0) for kind in _DEPTHWISE)
    return profile["step"] / max(profile["step"] - depthwise_ms, 1e-9)


def table(profiles: dict[str, dict[str, float]]) -> str:
    """A table with the plain and the converted model side by side."""
    plain, converted = profiles["plain"], profiles["converted"]
    lines = [f"  {'ms a step, profiled':26} {'plain':>8} {'converted':>10} {'saved':>8}"]
    kinds = dict.fromkeys((*plain, *converted))
    for kind in sorted(kinds, key=lambda kind: kind == "step"):
        before, after = plain.get(kind, 0.0), converted.get(kind, 0.0)
        lines.append(f"  {kind:26} {before:8.1f} {after:10.1f} {before - after:8.1f}")
    return "\n".join(lines)


def _kind_around(event: Any) -> str:
    while event is not None:
        if kind := _kind(event):
            return kind
        event = event.cpu_parent
    return "others"


def _kind(event: Any) -> str | None:
    name: str = event.name
    if name in _OURS:
        return _OURS[name]
    if "conv" in name and name.startswith("aten::"):
        return _kind_of_convolution(event)
    kind = next((kind for kind, parts in _KINDS if any(part in name for part in parts)), None)
    return f"{kind} backward" if kind in _TWO_WAYS and "backward" in name else kind


def _kind_of_convolution(event: Any) -> str | None:
    """True by the shape of its weight: (C·multiplier, 1, KH, KW) with more than one input channel is depthwise."""
    is_backward = "backward" in event.name
    shapes = event.input_shapes or []
    if len(shapes) < 2 + is_backward:
        return None
    x, weight = shapes[is_backward : 2 + is_backward]
    if len(weight) < 3 or len(x) != len(weight):
        return None
    if weight[1] == 1 and x[1] > 1:
        return "depthwise backward" if is_backward else "depthwise fprop"
    return "pointwise, dense backward" if is_backward else "pointwise, dense"
