"""``ready``: waits until a model runs on its kernels."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from dwconv import native
from dwconv.call import background_builds
from dwconv.call.call_plan import plans
from dwconv.discovery.step import ExampleStep
from dwconv.discovery.unchanged import unchanged
from dwconv.errors import InvalidChoice, warn

Model = TypeVar("Model", bound=nn.Module)
_MOST_STEPS = 4
"""Kernels that arrive may let others be decided."""


def ready(model: Model, example_inputs: Any, *, timeout_s: float = 600.0) -> Model:
    """Wait until ``model``, which was converted, runs on its kernels, and return it: call it before you measure.

    The model takes some steps on ``example_inputs`` (a tensor, a tuple of positional arguments, or a dict of keyword
    arguments, on its device), which change nothing in it. Between them all cores build what its calls will run, known
    from measurements or predicted, and the C++ of calls. Without it, calls run on PyTorch's op until a kernel is there.
    After ``timeout_s`` seconds one warning says how many passes are still open.

    Raises the model's own error if it fails on the example, InvalidChoice for a ``timeout_s`` that is no time.
    """
    if not (isinstance(timeout_s, (int, float)) and timeout_s >= 0):
        raise InvalidChoice(f"timeout_s={timeout_s!r} is not a time; use 0 or more")
    step = ExampleStep.of(model, example_inputs, trains=None)
    native.native()
    with unchanged(model, step.tensors):
        for _ in range(_MOST_STEPS):
            step()
            waiting = [plan for plan in plans() if plan.is_open]
            if not waiting:
                return model
            for plan in waiting:
                plan.arriving.hurry()
            background_builds.finish(timeout_s=timeout_s)
    if still := sum(plan.is_open for plan in plans()):
        warn(f"ready: {still} kinds of calls have no kernels yet; give it more than timeout_s={timeout_s:g}")
    return model
