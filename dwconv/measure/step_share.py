"""Where the time of a training step goes, as PyTorch's profiler records it; above all, what its depthwise layers take.

The own time of every op counts for the nearest op around it, itself included, that has a kind. What is left of a step
is Python between the ops. On a GPU the time is that of the kernels, and what is left is the time in which none ran.
``timed_on_gpu`` says what the host takes of such a step beside its kernels.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._autograd import DeviceType

from dwconv import settings

FEW_STEPS = 3
"""Profiled steps of one model to find the share of its depthwise layers."""
_LONG_S = 10.0
"""After as long no further step is profiled."""
OTHERS = "others"
_OURS = {
    "dwconv::fprop": "depthwise fprop",
    "dwconv::dgrad": "depthwise backward",
    "dwconv::wgrad": "depthwise backward",
    "dwconv::backward": "depthwise backward",
    "dwconv::fprop_silu": "depthwise fprop",
    "dwconv::silu_gradient": "depthwise backward",
}
_DEPTHWISE = frozenset(_OURS.values())

HOST_BOUND = 0.8
"""The host is the bottleneck of a step if kernels run for less than this share of it."""
_HOST_STEPS, _HOST_LONG_S = 5, 2.0
"""Steps whose host time is taken, and after how long no further one is; the least counts, since what is more came from
outside."""


@dataclass(frozen=True, kw_only=True)
class OnGpu:
    """A step on a GPU, in milliseconds."""

    host_ms: float
    """Until the host has launched all of it, with the waits of code that reads results."""
    step_ms: float
    """Until the GPU has done it."""
    kernels_ms: float
    """What its kernels take, one after the other."""
    launches: int
    """Kernels, those that a CUDA graph replays included."""

    @property
    def busy(self) -> float:
        """The share of the step in which kernels run."""
        return min(1.0, self.kernels_ms / self.step_ms)

    @property
    def waits_for_host(self) -> bool:
        """True if faster kernels would not make it faster."""
        return self.busy < HOST_BOUND


def timed_on_gpu(step: Callable[[], object]) -> OnGpu:
    """What ``step`` takes of the host and of the current GPU, after a first one. It is profiled apart from being
    timed."""
    step()
    host_ms, step_ms = math.inf, math.inf
    ends_s = time.perf_counter() + _HOST_LONG_S
    for number in range(_HOST_STEPS):
        if number and time.perf_counter() >= ends_s:
            break
        torch.cuda.synchronize()
        started_s = time.perf_counter()
        step()
        host_ms = min(host_ms, (time.perf_counter() - started_s) * 1e3)
        torch.cuda.synchronize()
        step_ms = min(step_ms, (time.perf_counter() - started_s) * 1e3)
    kernels = kernels_in(step)
    taken_ms = sum(event.time_range.elapsed_us() for event in kernels) / 1e3
    return OnGpu(host_ms=host_ms, step_ms=step_ms, kernels_ms=taken_ms, launches=len(kernels))


def kernels_in(call: Callable[[], object]) -> list[Any]:
    """The profiler's events of the kernels that a call runs on the current GPU, without copies."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with settings.quiet_profiler(), torch.profiler.profile(activities=activities) as profiler:
        call()
        torch.cuda.synchronize()
    of_device = (event for event in profiler.events() or () if event.device_type == DeviceType.CUDA)
    return [event for event in of_device if not event.name.startswith(("Memcpy", "Memset"))]


KindOf = Callable[[Any], str | None]
"""From an event of the profiler to the kind of its op; None leaves that to the op around it."""


def step_ratio_at_most(step: Callable[[], object], *, device: torch.device) -> float:
    """How many times as fast ``step`` would be if its depthwise convolutions cost nothing: by the fastest of a few
    profiled steps after a first one, since slower ones say more about other work on the machine."""
    step()  # what is made on first use is no part of it
    started_s = time.perf_counter()
    found: list[dict[str, float]] = []
    for _ in range(FEW_STEPS):
        found.append(profiled(step, kind=convolution_kind, on_gpu=device.type == "cuda"))
        if time.perf_counter() - started_s > _LONG_S:
            break
    return ratio_at_most(min(found, key=lambda profile: profile["step"]))


def profiled(step: Callable[[], object], *, kind: KindOf, on_gpu: bool) -> dict[str, float]:
    """Milliseconds of one step by kind, the longest first, with ``step`` for the whole."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with settings.quiet_profiler(), torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        started_s = time.perf_counter()
        step()
        if on_gpu:
            torch.cuda.synchronize()
        whole_ms = (time.perf_counter() - started_s) * 1e3
    found: dict[str, float] = defaultdict(float)
    for event in profiler.events() or ():
        if not on_gpu:
            found[_kind_around(event, kind)] += event.self_cpu_time_total / 1e3
        elif event.device_type == DeviceType.CPU:  # kernels count for the op that launched them
            found[_kind_around(event, kind)] += event.self_device_time_total / 1e3
    found["between the ops"] = whole_ms - sum(found.values())
    return dict(sorted(found.items(), key=lambda item: -item[1])) | {"step": whole_ms}


def ratio_at_most(profile: Mapping[str, float]) -> float:
    """How many times as fast the step would be if its depthwise convolutions cost nothing."""
    depthwise_ms = sum(profile.get(kind, 0.0) for kind in _DEPTHWISE)
    return profile["step"] / max(profile["step"] - depthwise_ms, 1e-9)


def is_convolution(event: Any) -> bool:
    """True for the ops of convolutions, dwconv's and PyTorch's."""
    name: str = event.name
    return name in _OURS or ("conv" in name and name.startswith("aten::"))


def convolution_kind(event: Any) -> str | None:
    """The kind of a convolution; None for other ops, and for one that is a part of another: where PyTorch has no kernel
    for groups, it runs them one by one."""
    kind, around = _kind_of(event) if is_convolution(event) else None, event.cpu_parent
    while kind and around is not None:
        if is_convolution(around) and _kind_of(around):
            return None
        around = around.cpu_parent
    return kind


def _kind_of(event: Any) -> str | None:
    """PyTorch's convolutions are distinguished by the shape of the weight: (C·multiplier, 1, KH, KW) with more than one
    input channel is depthwise."""
    if event.name in _OURS:
        return _OURS[event.name]
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


def _kind_around(event: Any, kind_of: KindOf) -> str:
    while event is not None:
        if kind := kind_of(event):
            return kind
        event = event.cpu_parent
    return OTHERS
