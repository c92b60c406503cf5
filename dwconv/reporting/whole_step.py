"""The whole step: how much of it depthwise convolution is, which says what all that is won there is worth."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dwconv.call import causal, functional
from dwconv.call.active import arguments_of
from dwconv.discovery.step import ExampleStep
from dwconv.discovery.unchanged import unchanged
from dwconv.measure.step_share import OnGpu, depthwise_ms, fastest_profile, timed_on_gpu

_AXES: dict[object, int] = {functional.conv1d: 1, functional.conv2d: 2, functional.conv3d: 3}


def share_on_pytorch(model: nn.Module, example_inputs: Any) -> float | None:
    """The share of a step on the example, forward and backward, without the optimizer, that depthwise convolution takes
    on PyTorch's op, by the fastest of a few profiled steps. None where something else profiles already.

    A share, since other work on the machine slows all of a step alike. PyTorch's op takes all calls, so that none is
    counted and nothing is built; nothing in the model changes."""
    if torch._C._autograd._profiler_enabled():
        return None
    step = ExampleStep.of(model, example_inputs, trains=None)
    with unchanged(step.model, step.tensors), _OnPyTorch():
        profile = fastest_profile(step, device=step.device)
    return depthwise_ms(profile) / profile["step"]


def step_on_gpu(model: nn.Module, example_inputs: Any) -> OnGpu | None:
    """What a step on the example takes of the host and of the GPU, forward and backward, without the optimizer, as it
    runs now. None on a CPU, and where something else profiles already. Nothing in the model changes."""
    step = ExampleStep.of(model, example_inputs, trains=None)
    if step.device.type != "cuda" or torch._C._autograd._profiler_enabled():
        return None
    with unchanged(step.model, step.tensors), torch.cuda.device(step.device):
        return timed_on_gpu(step)


class _OnPyTorch(TorchFunctionMode):
    """While it is entered, PyTorch's op runs what dwconv is called for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is causal.causal_conv1d:
            with self:  # its parts are taken, too
                return causal.computed(*args, **kwargs)
        if (axes := _AXES.get(func)) is None:
            return func(*args, **kwargs)
        return arguments_of(axes, *args, **kwargs).on_pytorch()
