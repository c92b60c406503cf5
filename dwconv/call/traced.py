"""Traced: the forward pass of a module with its blocks as one, as long as nothing about the module has changed.

    parent(x) ─► does the guard hold? ─no─► its own forward pass
                     │ yes
                     ▼
                 the traced forward pass ─► block(x) ─► faster as one at these sizes? ─no─► its parts, one by one
                                                            │ yes
                                                            ▼
                                                        one op; running statistics learn

Parameters, buffers and momenta are read in every call. C++ does the same, ``native/traced.h``, from when it is there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import _symbolic_trace

from dwconv import native
from dwconv.call import block_call, blocks, compiled_block
from dwconv.call.block_call import IMAGE_DTYPES, LayerNormCall, NormCall, is_plain
from dwconv.call.call_plan import Plan, plan_for
from dwconv.call.guard import GLOBAL_HOOKS, Pinned, still_holds
from dwconv.call.traces import Forward, Trace, TracedBlock, at
from dwconv.call.watchers import is_recorded_for_elsewhere, is_watched_beside_autocast
from dwconv.errors import InvalidWorkload

_RETRY = 256
"""Calls after which a module that is another now is compared again."""


class Traced:
    """A trace, bound to one module."""

    def __init__(self, parent: nn.Module, trace: Trace) -> None:
        self.trace, self.of = trace, weakref.ref(parent)
        self.forward = trace.run
        self.blocks: list[Block] = []
        self._pinned: Any = None
        self._wait = 0

    def holds(self, parent: nn.Module) -> bool:
        if self._pinned is not None:
            if self._pinned.holds():
                return True
            self._pinned = None
        if any(GLOBAL_HOOKS):  # as long as it takes
            return False
        if self._wait:
            self._wait -= 1
            return False
        if not still_holds(parent, self.trace):
            self._wait = _RETRY
            return False
        self._pinned = Pinned(parent, self.trace)
        self.blocks = [Block(parent, block, trace=self.trace) for block in self.trace.blocks]
        return True


_Bound = tuple[Sequence[Trace], dict[bool, Traced]]
_bound: dict[int, _Bound] = {}


def entered(parent: nn.Module, traces: Sequence[Trace]) -> Any:
    """The forward pass of ``parent`` with its blocks, and the blocks; None where its own has to run."""
    if torch.compiler.is_compiling():
        return entered_by_compiler(parent, traces)
    if _symbolic_trace._is_fx_tracing_flag:
        return None
    known = _bound.get(id(parent))
    if known is None or known[0] is not traces or next(iter(known[1].values())).of() is not parent:
        known = bind(parent, traces)
    traced = known[1].get(parent.training)
    return traced if traced is not None and traced.holds(parent) else None


def bound(parent: nn.Module) -> _Bound | None:
    """What is bound to a module."""
    return _bound.get(id(parent))


def bind(parent: nn.Module, traces: Sequence[Trace]) -> _Bound:
    key = id(parent)
    known = _bound[key] = traces, {trace.training: Traced(parent, trace) for trace in traces}
    weakref.finalize(parent, _let_go, key, known)
    return known


def _let_go(key: int, known: _Bound) -> None:
    if _bound.get(key) is known:
        del _bound[key]


# -- a block -----------------------------------------------------------------------------------------------------------


class Block:
    """A block of one module. Called with x, it gives z."""

    def __init__(self, parent: nn.Module, block: TracedBlock, *, trace: Trace) -> None:
        self._parent = weakref.ref(parent)
        self._block, self._place, self._trains = block, block.place, trace.training
        self._members: Any = None

    def __call__(self, x: Any) -> Any:
        if self._members is not None:
            z = native.run_traced(self._members, x)
            if z is not None:
                return z
        parent = self._parent()
        assert parent is not None, "it is running"
        conv: Any = at(parent, self._block.conv)
        norms = [at(parent, path) for path in self._block.norms]
        plan = self._plan(x, conv, norms)
        z = None if plan is None else self._at_once(plan, x, conv, norms)
        return self._block.run(parent, x) if z is None else z

    def _plan(self, x: Any, conv: Any, norms: Sequence[nn.Module]) -> Plan | None:
        """The plan of x as one; None where its parts run one by one."""
        place, trains = self._place, self._trains
        if not is_plain(x, *IMAGE_DTYPES) or x.dim() != 4 or torch.is_grad_enabled() is not trains:
            return None
        lowers = torch._C._is_any_autocast_enabled()
        if lowers and (place.block.layer_norm or not is_lowered(x)):
            return None  # under autocast a LayerNorm gives float32, whatever it is given
        if torch._C._len_torch_function_stack() or is_watched_beside_autocast(x, x, None):
            return None
        if (trains and x.is_inference()) or not x.is_contiguous(memory_format=torch.channels_last):
            return None
        weight, bias = conv.weight, conv.bias
        if place.block.layer_norm is not None and place.bias != (bias is not None):
            return None
        if not x.numel() or x.shape[1] * (place.weight_shape[0] // max(1, x.shape[1])) != place.weight_shape[0]:
            return None
        if not block_call.takes(place.block, x.dtype, weight, bias) or tuple(weight.shape) != place.weight_shape:
            return None
        learnt = [weight] if bias is None else [weight, bias]
        if any(each.device != x.device or (not lowers and each.dtype is not x.dtype) for each in learnt):
            return None
        try:
            plan = plan_for(place.problem(x.shape, x.dtype, trains=trains), x.device)
        except InvalidWorkload:  # the kernel is larger than the image: its own function says so
            return None
        return plan if blocks.is_at_once(plan) and self._fit(self._calls(norms), x, plan) else None

    def _fit(self, calls: Sequence[NormCall | LayerNormCall], x: Tensor, plan: Plan) -> bool:
        """Whether norms are those of the block, for images of these sizes."""
        block, image = self._place.block, plan.problem.workload(plan.problem.passes[0]).output_shape
        for number, call in enumerate(calls):
            if call.weight is None or call.weight.device != x.device:
                return False
            if isinstance(call, LayerNormCall):
                assert block.layer_norm is not None
                if call.why_not((image[0], *image[2:], image[1]), eps=block.layer_norm.eps):
                    return False
                continue
            is_first = number == 0 and block.norm1 is not None
            norm = block.norm1 if is_first else block.batch_norm2
            assert norm is not None
            if call.why_not(x.shape if is_first else image, eps=norm.eps, trains=self._trains):
                return False
        return True

    def _calls(self, norms: Sequence[Any]) -> list[NormCall | LayerNormCall]:
        found: list[NormCall | LayerNormCall] = []
        for norm, counts in zip(norms, self._block.counts, strict=True):
            if self._place.block.layer_norm is not None:
                found.append(LayerNormCall(norm.normalized_shape, norm.weight, norm.bias, norm.eps))
                continue
            momentum = norm.momentum
            if momentum is None and norm.num_batches_tracked is not None:
                momentum = 1.0 / max(1.0, float(norm.num_batches_tracked + counts))
            statistics = norm.running_mean, norm.running_var
            found.append(NormCall(*statistics, norm.weight, norm.bias, self._trains, momentum, norm.eps))
        return found

    def _at_once(self, plan: Plan, x: Tensor, conv: Any, norms: Sequence[Any]) -> Tensor | None:
        calls = self._calls(norms)
        self._teach(x, plan, conv, norms)
        if not self._trains:
            statistics: list[Any] = [(each[2], each[3], each[0], each[1]) for each in calls]
            return blocks.inference(plan, x, conv.weight, conv.bias, statistics)
        for norm, counts in zip(norms, self._block.counts, strict=True):
            if counts and self._place.block.layer_norm is None and norm.num_batches_tracked is not None:
                norm.num_batches_tracked.add_(1)
        return block_call.run_planned(plan, x, conv.weight, conv.bias, tuple(calls))

    def _teach(self, x: Tensor, plan: Plan, conv: nn.Module, norms: Sequence[nn.Module]) -> None:
        """C++ runs calls of such an x from now on."""
        cpp, compiled = native.module, blocks.compiled(plan)
        if cpp is None or compiled is None:
            return
        if self._members is None:
            members = [
                cpp.NormMember(norm._parameters, norm._buffers, vars(norm), counts)
                for norm, counts in zip(norms, self._block.counts, strict=True)
            ]
            is_layer_norm = self._place.block.layer_norm is not None
            self._members = cpp.Members(conv._parameters, members, is_layer_norm, self._trains)
        self._members.learn(x, compiled)


def is_lowered(x: Tensor) -> bool:
    """Whether ``torch.autocast`` convolves in the type that x has."""
    kind = x.device.type
    return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) is x.dtype


# -- under torch.compile -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Compiled:
    """What a compiler goes on with: the traced forward pass, and its blocks, each an op of the graph."""

    forward: Forward
    blocks: list[Callable[[Tensor], Tensor]]


def entered_by_compiler(parent: nn.Module, traces: Sequence[Trace]) -> _Compiled | None:
    if is_recorded_for_elsewhere() or torch._C._are_functorch_transforms_active():
        return None
    if not parent.training or not torch.is_grad_enabled():
        return None
    for trace in traces:
        if trace.training and still_holds(parent, trace):
            return _Compiled(trace.run, [partial(_in_graph, parent, block) for block in trace.blocks])
    return None


def _in_graph(parent: nn.Module, block: TracedBlock, x: Tensor) -> Any:
    conv: Any = at(parent, block.conv)
    place = block.place
    learnt: list[Tensor] = []
    statistics: list[Tensor] = []
    momenta: list[float] = []
    for path in block.norms:
        norm: Any = at(parent, path)
        learnt += [norm.weight, norm.bias]
        if place.block.layer_norm is None:
            if norm.momentum is None or norm.running_mean is None:
                return block.run(parent, x)
            statistics += [norm.running_mean, norm.running_var]
            momenta.append(norm.momentum)
    for path, counts in zip(block.norms, block.counts):  # noqa: B905  compilers know no strict
        tracked = getattr(at(parent, path), "num_batches_tracked", None)
        if counts and tracked is not None:
            tracked.add_(1)
    return compiled_block.in_graph(
        x, conv.weight, conv.bias, learnt, statistics, momenta, blocks.decided_by, str(place.block), place.weight_shape,
        place.stride, place.padding, place.dilation, place.bias,
    )  # fmt: skip
