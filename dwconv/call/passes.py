"""PlannedPasses: the passes of a convolution, each on the tuned kernel that a CallPlan names, or on PyTorch's own op.

Shapes are PyTorch's, for 1-D with a height of 1. Results have the plan's layout, whatever that of the arguments.
Nothing here is differentiable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.autograd import profiler

from dwconv.call.call_plan import CallPlan
from dwconv.kernels.kernel import Kernel
from dwconv.kernels.operand import x_pitch_of
from dwconv.problems import pytorch
from dwconv.problems.workload import Pass


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedPasses:
    """``gradients.Passes`` on a plan."""

    plan: CallPlan
    x_pitch: int = 0
    """``Workload.x_pitch`` of the x that the kernels are for."""
    dense: bool = False
    """True if all tensors are without gaps, images in the plan's layout, but for an x of that pitch. Otherwise kernels
    check them, and copy if need be."""
    was_open: bool = False
    """True if the plan was open when they were made: kernels that arrive make others."""
    settled: int = 0
    """``CallPlan.settled`` when they were made."""
    weight_strides: tuple[int, ...] | None = None
    """The strides of the weight, if its gradient is to have them."""

    @property
    def kernels(self) -> Mapping[Pass, Kernel | None]:
        """dwconv's kernel that runs a pass; None where PyTorch's own op does."""
        return self.plan.kernels.at(self.x_pitch) if self.x_pitch else self.plan.kernels

    @property
    def gives_both(self) -> bool:
        """True if both gradients come from one kernel. Of a slice wgrad may read x in place: it is not copied for
        that."""
        return self.plan.gives_both and not self.x_pitch

    def reads_in_place(self, kernel: Kernel) -> bool:
        """True if the kernel reads its tensors as they are."""
        return self.dense and kernel.is_direct and kernel.x_pitch in (None, self.x_pitch)

    def fprop(self, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        kernel = self.kernels["fprop"]
        if kernel is None:
            return pytorch.fprop(self.plan.problem, x, w, bias)
        y: Tensor
        if bias is None:
            y = self._run(kernel, x, w)
        elif kernel.workload.bias:
            y = self._run(kernel, x, w, bias)
        else:
            y = self._run(kernel, x, w)
            y.add_(bias.view(-1, *[1] * (y.dim() - 2)))  # nothing has read it yet
        return y

    def dgrad(self, dy: Tensor, w: Tensor) -> Tensor:
        kernel = self.kernels["dgrad"]
        if kernel is None:
            return pytorch.dgrad(self.plan.problem, dy, w)
        return self._run(kernel, dy, w)

    def wgrad(self, x: Tensor, dy: Tensor) -> Tensor:
        kernel = self.kernels["wgrad"]
        if kernel is None:
            return with_strides(pytorch.wgrad(self.plan.problem, x, dy), self.weight_strides)
        if kernel.workload.bias:
            return self.wgrad_bias(x, dy)[0]
        return with_strides(self._run(kernel, x, dy), self.weight_strides)

    def wgrad_bias(self, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        kernel = self.kernels["wgrad"]
        if kernel is None:
            dw, dbias = pytorch.wgrad_bias(self.plan.problem, x, dy)
        elif kernel.workload.bias:
            dw, dbias = self._run(kernel, x, dy)
        else:
            dw, dbias = self._run(kernel, x, dy), pytorch.dbias(dy)
        return with_strides(dw, self.weight_strides), dbias

    def backward(self, x: Tensor, dy: Tensor, w: Tensor) -> tuple[Tensor, Tensor] | None:
        """(dx, dw) from one kernel; None where dgrad and wgrad run."""
        kernel = self.plan.kernels["backward"] if self.gives_both else None
        if kernel is None:
            return None
        dx, dw = self._run(kernel, dy, x, w)
        return dx, with_strides(dw, self.weight_strides)

    def given(self, x: Tensor | None, w: Tensor | None, dy: Tensor) -> PlannedPasses:
        """The passes for a gradient that may have gaps, or another layout than the plan's, and for tensors that were
        kept for it, of which hooks may have made others."""
        problem = self.plan.problem
        if not self.dense or (
            dy.is_contiguous(memory_format=self.plan.memory_format)
            and (x is None or (x.dtype is dy.dtype and x.shape == problem.input_shape and self.is_laid_out(x)))
            and (w is None or (w.dtype is dy.dtype and w.shape == problem.weight_shape and w.is_contiguous()))
        ):
            return self
        return replace(self, dense=False)

    def is_laid_out(self, x: Tensor) -> bool:
        """True if x is dense in the plan's layout, but for its pitch."""
        if not self.x_pitch:
            return x.is_contiguous(memory_format=self.plan.memory_format)
        return x_pitch_of(x, layout=self.plan.problem.layout) == self.x_pitch

    def _run(self, kernel: Kernel, *inputs: Tensor) -> Any:
        has_native = kernel.native is not None
        if profiler._is_profiler_enabled and not has_native:  # a profile without the names would be a riddle
            with profiler.record_function(kernel.workload.op):
                return kernel(*inputs)
        return kernel.on_dense(*inputs) if self.reads_in_place(kernel) and not has_native else kernel(*inputs)


def with_strides(dw: Tensor, strides: Sequence[int] | None) -> Tensor:
    """dw with the strides of the weight, so that DDP, which flattens gradients, need not copy it. Weights that
    were made channels_last differ from others in their stride along the axis of length 1."""
    if strides is None or dw.stride() == strides:
        return dw
    first, _, *others = dw.stride()
    if tuple(strides) == (first, 1, *others):  # in place: PyTorch's gradients are no views
        dw.squeeze_(1).unsqueeze_(-1)
        for axis in range(dw.dim() - 1, 1, -1):
            dw.transpose_(axis - 1, axis)
    elif tuple(strides) == (first, dw.shape[2] * others[0], *others):
        dw.squeeze_(1).unsqueeze_(1)
    return dw
