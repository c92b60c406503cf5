"""The fast path, for plain tensors and calls without observers: a call is recorded with its kernels.

PyTorch's dispatcher, twice through Python in each direction, costs more than a small convolution: forward and backward
of 1×8×7×7 take 47 µs on this path, 110 µs through the ops. A usual training step needs no dispatcher, and skips it.

In a training step the interpreter has left the CPU's caches by the next layer: the first use of an attribute costs
microseconds. So the C++ of ``dwconv.native``, once compiled, runs the recorded calls. The rest runs here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from dwconv import native
from dwconv.call.arguments import Call, CallArguments, Padding, has_sides, image_of, whole, with_axes_of
from dwconv.call.call_plan import MOST_PLANS, forget_calls, made_of_plans, plan_for
from dwconv.call.gradients import Needs, Passes, Tied, gradients, wanted
from dwconv.call.passes import PlannedPasses
from dwconv.call.process_kernels import is_captured
from dwconv.call.torch_ops import DispatchedPasses
from dwconv.call.watchers import is_watched_backward
from dwconv.kernels.operand import MOST_ELEMENTS, dense_strides, x_pitch_of
from dwconv.problems.workload import PASSES, Pass


def convolve(given: CallArguments, *, layers_weight: Tensor) -> Tensor:
    """y, of a call that is not ``is_watched``. ``layers_weight``: the weight before autocast lowered it; calls are
    counted by it.
    Raises InvalidCall, InvalidArgument."""
    input, weight, bias, stride, padding, dilation, groups, axes = given
    trains = torch.is_grad_enabled() and (
        input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    )
    # All that decides what runs the call, and how. To read it costs as much as a small convolution.
    key = (
        input.shape, input.stride(), input.dtype, input.device, weight.shape, weight.stride(), weight.dtype,
        weight.device, None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.device),
        stride if type(stride) in _USUAL else whole("stride", stride), padding if type(padding) is int else
        _hashable(padding), dilation if type(dilation) in _USUAL else whole("dilation", dilation),
        groups if type(groups) is int or groups is None else whole("groups", groups), axes,
        torch.get_num_threads(), trains, native.module or native.why_not,  # once compiled, every call is new
    )  # fmt: skip
    passes = _known.get(key)
    if passes is None:
        passes = _learn(key, given, trains=trains)
        # The way through Python would take longer, in both directions, than it took to learn the call.
        if weight is layers_weight and (taken := native.convolve(*given)) is not None:
            return cast(Tensor, taken)
    if passes.was_open and (passes.plan.settled != passes.settled or passes.plan.meet(id(layers_weight))):
        passes = _learn(key, given, trains=trains)
    passes.plan.tally.count(layers_weight, for_x=trains and input.requires_grad, for_w=trains and weight.requires_grad)
    if passes.plan.is_pytorch:
        return given.on_pytorch()
    if trains:
        return _apply(input, weight, bias, passes, axes)  # type: ignore[no-untyped-call]
    return given.as_given(passes.fprop(*given.images(), bias))


_known: dict[object, PlannedPasses] = made_of_plans()
"""What runs a call, by everything that describes it: it needs no second check."""


def _learn(key: object, given: CallArguments, *, trains: bool) -> PlannedPasses:
    """Check a new call, decide what runs it, and record the decision."""
    call = Call.of(given)
    plan = plan_for(call.problem, call.x.device, needs=_needed(given, trains=trains))
    bias, x_pitch = given.bias, x_pitch_of(call.x, layout=call.problem.layout)
    dense = (
        (x_pitch > 0 or call.x.is_contiguous(memory_format=plan.memory_format))
        and call.w.is_contiguous()
        and (bias is None or bias.is_contiguous())
    )
    passes = PlannedPasses(
        plan=plan, x_pitch=x_pitch, dense=dense, was_open=plan.is_open, settled=plan.settled,
        weight_strides=call.w.stride(),
    )  # fmt: skip
    plan.kernels.check(PASSES if trains else PASSES[:1])
    if is_captured(call.x.device):  # what cannot be loaded and checked now can be later
        return passes
    if len(_known) >= MOST_PLANS:
        forget_calls()
    _known[key] = passes
    teach(call, passes, trains=trains)
    return passes


def _needed(given: CallArguments, *, trains: bool) -> set[Pass]:
    """The passes that follow from a call."""
    needed: set[Pass] = {"fprop"}
    if trains and given.input.requires_grad:
        needed.add("dgrad")
    if trains and (given.weight.requires_grad or (given.bias is not None and given.bias.requires_grad)):
        needed.add("wgrad")
    return needed


_USUAL = (int, tuple, str)


def _hashable(padding: Padding) -> object:
    if has_sides(padding):
        return tuple(tuple(pair) if isinstance(pair, (tuple, list)) else pair for pair in padding)
    return padding if type(padding) in _USUAL else whole("padding", padding)


class DwconvConvolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, passes: PlannedPasses, axes: int) -> Tensor:
        needs_dx, needs_dw, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_dw else None, w if needs_dx else None)
        ctx.passes, ctx.axes, ctx.is_image = passes, axes, axes > 1 and x.dim() == axes + 2
        if ctx.is_image:
            return passes.fprop(x, w, bias)
        return with_axes_of(x, passes.fprop(image_of(x, axes=axes), image_of(w, axes=axes), bias), axes=axes)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        given, axes = dy, ctx.axes
        x, w = ctx.saved_tensors
        if not ctx.is_image:
            x, w = (each if each is None else image_of(each, axes=axes) for each in (x, w))
            dy = image_of(dy, axes=axes)
        needs_dx, needs_dw, needs_db, *_ = wanted(ctx)
        passes: Passes = differentiable(ctx.passes) if is_watched_backward(dy, x, w) else ctx.passes.given(x, w, dy)
        dx, dw, db, _ = gradients(passes, Tied(x, w, None, dy), Needs(needs_dx, needs_dw, needs_db))
        if not ctx.is_image:
            dx = None if dx is None else with_axes_of(given, dx, axes=axes)
            dw = dw if dw is None or axes > 1 else dw.squeeze_(2)
        return dx, dw, db, None, None


_apply = super(Function, DwconvConvolution).apply
"""Function.apply without its check for transforms of torch.func, which takes half of its time."""


# -- what C++ takes ----------------------------------------------------------------------------------------------------


Ints = Sequence[int]
_ALL: tuple[Pass, ...] = (*PASSES, "backward")
"""The last replaces the two before it where both gradients are needed and it has a kernel."""


def teach(call: Call, passes: PlannedPasses, *, trains: bool) -> None:
    """Let C++ run calls like this one from now on, if it can; while the plan is open, as many as that allows.
    ``trains``: gradients are needed, too."""
    plan, compiled = passes.plan, None
    if plan.is_pytorch:
        compiled = _pytorch_call(call)
    elif passes.dense:
        compiled = _tuned_call(call, passes, trains=trains)
    if compiled is None:
        return
    if plan.is_open:
        compiled.left = 0
        plan.arriving.meanwhile.append(compiled)
    native.learn(compiled, *call.given)
    plan.tally.taught.append(compiled)


def differentiable(passes: PlannedPasses) -> DispatchedPasses:
    """``passes`` on ops that support double backward."""
    return DispatchedPasses.of(passes.plan.problem, weight_strides=passes.weight_strides)


def _pytorch_call(call: Call) -> Any | None:
    """A call that PyTorch's own op runs as a whole. Nothing is compiled for that alone."""
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
    """A call whose passes tuned kernels run, on tensors as they are in memory, or, of batches of images and volumes
    that are padded alike on both sides, PyTorch's own op; None if there is another pass, or no kernel."""
    given, problem = call.given, call.problem
    if max(given.input.numel(), given.weight.numel()) > MOST_ELEMENTS:
        return None
    requested = _ALL if trains and passes.gives_both else PASSES if trains else PASSES[:1]
    kernels = {pass_: kernel for pass_ in requested if (kernel := passes.kernels[pass_])}
    is_other = given.axes == 1 or given.input.dim() < problem.axes + 2 or problem.padding[::2] != problem.padding[1::2]
    if not kernels or (is_other and not kernels.keys() >= {*requested} - {"backward"}):
        return None
    compiled, fprop = native.soon(), kernels.get("fprop")
    if compiled is None or (fprop and fprop.workload.bias != problem.bias):
        return None
    runs = {pass_: kernel.native for pass_, kernel in kernels.items() if passes.reads_in_place(kernel)}
    if len(runs) < len(kernels) or None in runs.values():
        return None
    y_shape = problem.output_shape
    if math.prod(y_shape) > MOST_ELEMENTS:
        return None
    first = given.axes + 2 - given.input.dim()
    kept = [axis for axis in range(first, problem.axes + 2) if not (given.axes == 1 and axis == 2)]  # the user's axes
    shapes = [
        compiled.Shape([shape[axis] for axis in kept], [strides[axis] for axis in kept])
        for shape in (y_shape, problem.input_shape)
        for strides in [dense_strides(shape, layout=problem.layout)]
    ]
    shapes.append(compiled.Shape(given.weight.shape, given.weight.stride()))
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
    """C++ calls it where a backward pass is watched: the gradients, on ops that support double backward."""

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
