"""Teaching: what C++ is told of a call that came for the first time, so that it takes the next ones alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dwconv import native
from dwconv.call.arguments import Call, has_sides, with_axes_of
from dwconv.call.call_plan import Plan
from dwconv.call.gradients import Needs, Tied, gradients
from dwconv.call.passes import PlannedPasses
from dwconv.call.torch_ops import DispatchedPasses
from dwconv.kernels.kernel import MOST_ELEMENTS
from dwconv.problems.workload import PASSES, Pass

Ints = Sequence[int]
_ALL: tuple[Pass, ...] = (*PASSES, "backward")
"""The last takes the place of the two before it, where both gradients are wanted; without its kernel they run."""


def teach(call: Call, passes: PlannedPasses, *, trains: bool) -> None:
    """Let C++ take calls like this one from now on, if it can. ``trains``: gradients are needed, too."""
    compiled: object | None = None
    if passes.plan.is_pytorch:
        compiled = _pytorch_call(call)
    elif passes.dense:
        compiled = _tuned_call(call, passes, trains=trains)
    if compiled is not None:
        native.learn(compiled, *call.given)
        passes.plan.tally.taught.append(compiled)


def teach_meanwhile(call: Call, plan: Plan) -> None:
    """Let C++ take calls like this one for as many calls as the plan says, while PyTorch's op runs them."""
    if plan.is_pytorch and (compiled := _pytorch_call(call)) is not None:
        compiled.left = 0
        native.learn(compiled, *call.given)
        plan.tally.taught.append(compiled)
        plan.meanwhile.append(compiled)


def differentiable(passes: PlannedPasses) -> DispatchedPasses:
    """The same passes on ops that can be differentiated again."""
    problem = passes.plan.problem
    return DispatchedPasses(
        input_shape=problem.input_shape,
        kernel_size=problem.weight_shape[2:],
        geometry=problem.geometry,
        weight_strides=passes.weight_strides,
    )


def _pytorch_call(call: Call) -> Any | None:
    """A call that PyTorch's own op runs as a whole: nobody should pay for having asked. Nothing is compiled for that
    alone."""
    compiled = native.native(may_compile=False)
    if compiled is None or isinstance(call.given.padding, str) or has_sides(call.given.padding):
        return None
    try:
        return compiled.PyTorchCall(call.given.axes, *_geometry(call))
    except TypeError:  # numbers beyond 64 bits: PyTorch has its own error for them
        return None


def _geometry(call: Call) -> tuple[Ints, Ints, Ints, int]:
    """Stride, padding, the same on both sides, and dilation, of the user's axes; groups."""
    problem, axes = call.problem, call.given.axes
    return problem.stride[-axes:], problem.padding[::2][-axes:], problem.dilation[-axes:], problem.input_shape[1]


def _tuned_call(call: Call, passes: PlannedPasses, *, trains: bool) -> Any | None:
    """A call whose passes tuned kernels run, on tensors as they lie, or, of batches of images and volumes that are
    padded alike on both sides, PyTorch's own op; None if there is another pass, or no kernel."""
    given, problem, plan = call.given, call.problem, passes.plan
    if max(given.input.numel(), given.weight.numel()) > MOST_ELEMENTS:
        return None
    asked = _ALL if trains and passes.gives_both else PASSES if trains else PASSES[:1]
    kernels = {pass_: kernel for pass_ in asked if (kernel := passes.kernels[pass_])}
    is_other = given.axes == 1 or given.input.dim() < problem.axes + 2 or problem.padding[::2] != problem.padding[1::2]
    if not kernels or (is_other and not kernels.keys() >= {*asked} - {"backward"}):
        return None
    compiled, fprop = native.soon(), kernels.get("fprop")
    if compiled is None or (fprop and fprop.workload.bias != problem.bias):
        return None
    runs = {pass_: kernel.native for pass_, kernel in kernels.items() if passes.reads_as_it_lies(kernel)}
    if len(runs) < len(kernels) or None in runs.values():
        return None
    y_shape = problem.workload("fprop").shape_of("y")
    y, x = (
        given.as_given(torch.empty(shape, device="meta", memory_format=plan.memory_format))
        for shape in (y_shape, problem.input_shape)
    )
    if y.numel() > MOST_ELEMENTS:
        return None
    shapes = [compiled.Shape(each.shape, each.stride()) for each in (y, x, given.weight)]
    channel_axis = given.input.dim() - given.axes - 1
    backward = _WatchedBackward(
        passes=differentiable(passes), y_shape=y_shape, w_shape=problem.weight_shape,
        w_as_given=given.weight.shape,
    )  # fmt: skip
    return compiled.TunedCall(
        trains, problem.input_shape[0], *shapes, given.input.stride(), channel_axis, *map(runs.get, _ALL),
        compiled.Geometry(*_geometry(call)), backward,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _WatchedBackward:
    """C++ asks for it where a backward pass is watched: the gradients, on ops that can be differentiated again."""

    passes: DispatchedPasses
    y_shape: Ints
    """(N, C·multiplier, OH, OW) or (N, C·multiplier, OD, OH, OW)"""
    w_shape: Ints
    """(C·multiplier, 1, KH, KW) or (C·multiplier, 1, KD, KH, KW)"""
    w_as_given: Ints
    """With the user's axes, as the tensors come and the gradients go."""

    def __call__(
        self, x: Tensor | None, w: Tensor | None, dy: Tensor, needs: tuple[bool, ...]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """(dx, dw, dbias)"""
        tied = Tied(
            x=None if x is None else x.reshape(self.passes.input_shape),
            w=None if w is None else w.reshape(self.w_shape),
            y=dy.reshape(self.y_shape),
        )
        dx, dw, db, _ = gradients(self.passes, tied, Needs(*needs))
        if dw is not None and len(self.w_as_given) < dw.dim():
            dw = dw.squeeze_(2)
        return None if dx is None else with_axes_of(dy, dx, axes=len(self.w_as_given) - 2), dw, db
