"""Other work: what a step takes beside its depthwise convolutions, which says how much they matter."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dwconv.call import causal, functional
from dwconv.call.active import arguments_of
from dwconv.discovery.step import ExampleStep
from dwconv.discovery.unchanged import unchanged
from dwconv.measure.step_share import depthwise_ms, fastest_profile

_AXES: dict[object, int] = {functional.conv1d: 1, functional.conv2d: 2, functional.conv3d: 3}


def other_us(model: nn.Module, example_inputs: Any) -> float | None:
    """The time of a step on the example, forward and backward, without the optimizer and without its depthwise
    convolutions, by the fastest of a few profiled ones. None where somebody profiles already.

    PyTorch's op takes all calls, so that none is counted and nothing is built; what else a step does is the same.
    Nothing in the model changes."""
    if torch.autograd._profiler_enabled():
        return None
    step = ExampleStep.of(model, example_inputs, trains=None)
    with unchanged(step.model, step.tensors), _OnPyTorch():
        profile = fastest_profile(step, device=step.device)
    return 1e3 * (profile["step"] - depthwise_ms(profile))


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
