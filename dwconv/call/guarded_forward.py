"""GuardedForward: the forward pass of a module with its blocks as one, as long as nothing about the module has changed.

    parent(x) ─► does the guard hold, is the call as it was traced? ─no─► its own forward pass
                     │ yes
                     ▼
                 the traced forward pass ─► block(x) ─► faster as one at these sizes? ─no─► its parts, one by one
                                                            │ yes
                                                            ▼
                                                        one op; updates running statistics

Parameters, buffers and momenta are read in every call. C++ does the same once it is compiled:
``native/guarded_forward.h``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import _symbolic_trace
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import _disable_current_modes

from dwconv import native
from dwconv.call import block_call, block_ops, functional, torch_ops
from dwconv.call.block_call import CHANNELS_LAST, BlockForm, NormCall
from dwconv.call.call_plan import CallPlan
from dwconv.call.frozen_forward import Forward, Trace, TracedBlock, at
from dwconv.call.trace_guards import GLOBAL_HOOKS, Pinned, holds_by_values
from dwconv.call.warned_once import warn_once
from dwconv.call.watchers import (
    are_plain,
    is_of_dwconv,
    is_recorded_for_elsewhere,
    is_watched_beside_autocast,
    observing_mode,
)
from dwconv.problems import pytorch
from dwconv.problems.block import Block, Norm, Statistics

_ON_16_BITS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm2d, nn.InstanceNorm3d)
"""Norms that give images of 16 bits for such."""
_RETRY = 256
"""Calls after which a module that is another now is compared again."""


class GuardedForward:
    """A trace, bound to one module."""

    def __init__(self, parent: nn.Module, trace: Trace) -> None:
        self.trace, self.of = trace, weakref.ref(parent)
        self.forward = trace.run
        self.blocks: list[BoundBlock] = []
        self._pinned: Any = None
        self._wait = 0
        self._has_said = False

    def holds(self, parent: nn.Module) -> bool:
        if "is_in_onnx_export" in self.trace.tools and torch.onnx.is_in_onnx_export():
            return False
        if self._pinned is not None:
            if self._pinned.holds():
                return True
            self._pinned = None
        if any(GLOBAL_HOOKS):  # as long as it takes
            self._say_it_has_no_blocks(parent)
            return False
        if self._wait:
            self._wait -= 1
            return False
        if not holds_by_values(parent, self.trace):
            self._wait = _RETRY
            return False
        self._pinned = Pinned(parent, self.trace)
        self.blocks = [BoundBlock(parent, block) for block in self.trace.blocks]
        return True

    @property
    def is_pinned(self) -> bool:
        """Whether the last call ran it."""
        return self._pinned is not None

    def look_at_once(self) -> None:
        """The next call compares the module again."""
        self._wait = 0

    def _say_it_has_no_blocks(self, parent: nn.Module) -> None:
        """Once, if it would have some without the hooks of all modules."""
        if self._has_said or all(is_of_dwconv(hook) for hooks in GLOBAL_HOOKS for hook in hooks.values()):
            return
        self._has_said = True
        if not holds_by_values(parent, self.trace):
            return
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            convs: list[Any] = [at(parent, block.conv) for block in self.trace.blocks]
            if not any(
                block_call.is_ever_one(block.place, conv.weight.device, trains=self.trace.training)
                for block, conv in zip(self.trace.blocks, convs, strict=True)
            ):
                return
        warn_once(_ONE_BY_ONE.format("hooks of all modules observe each call, as those of a counter of FLOPs"))


_ONE_BY_ONE = "the parts of fused blocks run one by one while {}; afterwards the blocks run as one again"
_Bound = tuple[Sequence[Trace], list[GuardedForward]]
_bound: dict[int, _Bound] = {}


def entered(parent: nn.Module, traces: Sequence[Trace]) -> Any:
    """The forward pass of ``parent`` with its blocks, and the blocks; None where its own has to run."""
    if torch.compiler.is_compiling():
        return entered_by_compiler(parent, traces)
    if _symbolic_trace._is_fx_tracing_flag or torch._C._get_tracing_state() is not None:
        return None
    known = _bound.get(id(parent))
    if known is None or known[0] is not traces or known[1][0].of() is not parent:
        known = bind(parent, traces)
    for traced in known[1]:
        if traced.trace.training is parent.training:
            held = traced.is_pinned
            if traced.holds(parent):
                return traced
            if held:  # norms may have been frozen, or learn again
                for each in known[1]:
                    each.look_at_once()
    return None


def bind(parent: nn.Module, traces: Sequence[Trace]) -> _Bound:
    key = id(parent)
    known = _bound[key] = traces, [GuardedForward(parent, trace) for trace in traces]
    weakref.finalize(parent, _let_go, key, known)
    return known


def _let_go(key: int, known: _Bound) -> None:
    if _bound.get(key) is known:
        del _bound[key]


# -- a block -----------------------------------------------------------------------------------------------------------


class BoundBlock:
    """A block of one module. Called with x, it gives z."""

    def __init__(self, parent: nn.Module, block: TracedBlock) -> None:
        self._parent = weakref.ref(parent)
        self._block, self._place = block, block.place
        self._members: Any = None

    def __call__(self, x: Any) -> Any:
        if self._members is not None:
            z = native.run_traced(self._members, x)
            if z is not None:
                return z
        parent = self._parent()
        assert parent is not None, "it is running"
        conv: Any = at(parent, self._block.conv)
        z = self._as_one(x, conv, [at(parent, path) for path in self._block.norms])
        return self._block.run(parent, x) if z is None else z

    def _as_one(self, x: Any, conv: Any, norms: Sequence[Any]) -> Tensor | None:
        """z; None where the parts run one by one."""
        trains, held = torch.is_grad_enabled(), self._held(norms, conv)
        given = [conv.weight, conv.bias, *(tensor for each in held for tensor in each.tensors())]
        if not are_plain(*given):
            return None
        if (mode := observing_mode()) is not None:
            self._say_it_is_not_one(mode, x, conv, held)
            return None
        if is_watched_beside_autocast(x, x, None):
            return None
        if x.is_inference() if trains else not self._place.block.is_frozen or self._block.over_ranks:
            return None
        if x.dtype is not torch.float32 and any(not isinstance(norm, _ON_16_BITS) for norm in norms):
            return None  # in 16 bits others may give float32
        plan = block_call.plan_of(self._place, x, conv.weight, conv.bias, held, trains=trains)
        if plan is None:
            return None
        if self._block.over_ranks:
            mean, variance = norms[0].statistics_over_ranks(x)
            held = [held[0]._replace(running_mean=mean, running_var=variance)]
        elif self._is_learnt(plan, x, conv, norms) and (z := native.run_traced(self._members, x)) is not None:
            return z
        if not trains:
            statistics: list[Any] = [(each.weight, each.bias, each.running_mean, each.running_var) for each in held]
            return block_ops.inference(plan, x, conv.weight, conv.bias, statistics)
        for norm, counts in zip(norms, self._block.counts, strict=True):
            if counts and self._place.block.layer_norm is None and norm.num_batches_tracked is not None:
                norm.num_batches_tracked.add_(1)
        return block_call.run(x, conv.weight, conv.bias, held, str(self._place.block), *plan.problem.geometry)

    def _say_it_is_not_one(self, mode: Any, x: Any, conv: Any, held: Sequence[NormCall]) -> None:
        """Once, of a block that would be one without the mode."""
        if (
            is_of_dwconv(mode)
            or not isinstance(x, Tensor)
            or not are_plain(x)
            or not (torch.is_grad_enabled() or self._place.block.is_frozen)
        ):
            return
        trains = torch.is_grad_enabled()
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            if block_call.plan_of(self._place, x, conv.weight, conv.bias, held, trains=trains) is None:
                return
        kind = type(mode)
        warn_once(_ONE_BY_ONE.format(f"{kind.__module__}.{kind.__qualname__} is active, a mode that observes each op"))

    def _held(self, norms: Sequence[Any], conv: Any) -> list[NormCall]:
        if self._place.block.layer_norm is not None:
            return [NormCall(None, None, norm.weight, norm.bias) for norm in norms]
        found = []
        kinds = self._place.block.batch_norms
        for norm, counts, kind in zip(norms, self._block.counts, kinds, strict=True):
            if kind.is_frozen:
                mean, affine = norm.running_mean, (norm.weight, norm.bias)
                if norm.weight is None and norm.bias is None and mean is not None:
                    affine = torch.ones_like(mean), torch.zeros_like(mean)
                found.append(NormCall(mean, norm.running_var, *affine))
                continue
            if kind.is_of_images:
                found.append(_of_images(norm, conv.weight))
                continue
            momentum = norm.momentum
            if momentum is None and norm.num_batches_tracked is not None:
                momentum = 1.0 / max(1.0, float(norm.num_batches_tracked + counts))
            found.append(NormCall(norm.running_mean, norm.running_var, norm.weight, norm.bias, momentum))
        return found

    def _is_learnt(self, plan: CallPlan, x: Tensor, conv: nn.Module, norms: Sequence[nn.Module]) -> bool:
        """C++ runs calls of such an x from now on; False if it cannot."""
        cpp, compiled = native.module, block_ops.compiled(plan)
        if cpp is None or compiled is None:
            return False
        if self._members is None:
            is_layer_norm = self._place.block.layer_norm is not None
            kinds = self._place.block.batch_norms or [Norm()]
            statistics = map(block_ops.statistics_for_compiled, kinds)
            members = [*zip(map(weakref.ref, norms), self._block.counts, statistics, strict=True)]
            self._members = cpp.Members(weakref.ref(conv), members, is_layer_norm)
        self._members.learn(x, compiled)
        return True


# -- under torch.compile -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Compiled:
    """What a compiler goes on with: the traced forward pass, and its blocks, each an op of the graph."""

    trace: Trace
    forward: Forward
    blocks: list[Callable[[Tensor], Tensor]]


def entered_by_compiler(parent: nn.Module, traces: Sequence[Trace]) -> _Compiled | None:
    if is_recorded_for_elsewhere() or torch._C._are_functorch_transforms_active():
        return None
    if not parent.training or not torch.is_grad_enabled():
        return None
    for trace in traces:
        if trace.training and not trace.tools and holds_by_values(parent, trace):
            return _Compiled(trace, trace.run, [partial(_in_graph, parent, block) for block in trace.blocks])
    return None


def _statistics(block: Block) -> list[Statistics]:
    """Of what each norm has them."""
    return ["pixel"] if block.layer_norm else [norm.statistics for norm in block.batch_norms]


def _of_images(norm: Any, w: Tensor) -> NormCall:
    """An InstanceNorm, which may have no weight and bias."""
    affine = norm.weight, norm.bias
    if norm.weight is None and norm.bias is None:
        affine = w.new_ones(w.shape[0], dtype=torch.float32), w.new_zeros(w.shape[0], dtype=torch.float32)
    return NormCall(getattr(norm, "running_mean", None), getattr(norm, "running_var", None), *affine)


def _in_graph(parent: nn.Module, block: TracedBlock, x: Tensor) -> Any:
    if block.over_ranks:
        return block.run(parent, x)
    conv: Any = at(parent, block.conv)
    place = block.place
    learnt: list[Tensor] = []
    statistics: list[Tensor] = []
    momenta: list[float] = []
    for path, of in zip(block.norms, _statistics(place.block)):  # noqa: B905  compilers support no strict
        norm: Any = at(parent, path)
        if of == "image":
            learnt += _of_images(norm, conv.weight).tensors()
            continue
        if of == "running" and (norm.running_mean is None or norm.weight is None or norm.bias is None):
            return block.run(parent, x)
        learnt += [norm.weight, norm.bias]
        if of == "running":
            learnt += [norm.running_mean, norm.running_var]
        elif of == "batch":
            if norm.momentum is None or norm.running_mean is None:
                return block.run(parent, x)
            statistics += [norm.running_mean, norm.running_var]
            momenta.append(norm.momentum)
    for path, counts in zip(block.norms, block.counts):  # noqa: B905  compilers support no strict
        tracked = getattr(at(parent, path), "num_batches_tracked", None)
        if counts and tracked is not None:
            tracked.add_(1)
    return in_graph(
        x, conv.weight, conv.bias, learnt, statistics, momenta, block_ops.decided_by, str(place.block),
        place.weight_shape, place.stride, place.padding, place.dilation, place.bias,
    )  # fmt: skip


# -- a block in what is compiled ---------------------------------------------------------------------------------------


_OF_PLACE = "str block, int[] weight_shape, int[] stride, int[]? padding, int[] dilation, bool has_bias"
torch_ops.define(
    "block_in_graph(Tensor x, Tensor w, Tensor? bias, Tensor[] learnt, Tensor(a!)[] statistics, float[] momenta, "
    f"str decided_by, {_OF_PLACE}) -> Tensor"
)

in_graph = torch.ops.dwconv.block_in_graph.default


def _block_in_graph(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    learnt: list[Tensor],
    statistics: list[Tensor],
    momenta: list[float],
    decided_by: str,
    *fields: Any,
) -> Tensor:
    name, weight_shape, stride, padding, dilation, has_bias = fields
    place = BlockForm(
        block=Block.parse(name),
        weight_shape=tuple(weight_shape),
        stride=tuple(stride),
        padding=None if padding is None else tuple(padding),
        dilation=tuple(dilation),
        bias=has_bias,
    )
    given, moving, moments = iter(learnt), iter(statistics), iter(momenta)
    norms = []
    for norm in place.block.batch_norms:
        weight, shift = next(given), next(given)
        if norm.is_of_images:
            norms.append(NormCall(None, None, weight, shift))
            continue
        mean, variance = (next(given), next(given)) if norm.is_frozen else (next(moving), next(moving))
        norms.append(NormCall(mean, variance, weight, shift, 0.0 if norm.is_frozen else next(moments)))
    if place.block.layer_norm:
        norms = [NormCall(None, None, next(given), next(given))]
    plan = block_call.plan_of(place, x, w, bias, norms)
    if plan is not None:
        return block_call.run(x, w, bias, norms, name, *plan.problem.geometry)
    sides = place.problem(tuple(map(block_call.size_of, x.shape))).padding
    padding = tuple(zip(sides[::2], sides[1::2], strict=True))
    op: Any = functional.conv3d if len(padding) == 3 else functional.conv2d

    def convolve(a: Tensor) -> Tensor:
        given: Tensor = op(a, w, bias, place.stride, padding, place.dilation)
        return given

    if layer_norm := place.block.layer_norm:
        weight, shift = learnt
        return F.layer_norm(convolve(x).permute(CHANNELS_LAST), weight.shape, weight, shift, layer_norm.eps)
    return pytorch.block_of(place.block, convolve, x, norms, trains=True)


torch_ops.implement_composite(in_graph, _block_in_graph)
