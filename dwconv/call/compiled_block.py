"""A block of a traced forward pass in what ``torch.compile`` makes: one op of its graph.

    x ─► dwconv.block_in_graph ─► z       as Dynamo sees it
         │ when the graph is made, by the sizes of the example: faster as one?
         ├─► dwconv.block_forward         and running statistics learn
         └─► batch_norm, hardtanh, dwconv.fprop, …

``decided_by`` is part of the op, so that a compiler finds no graph that other records decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dwconv.call import block_call, blocks, functional, torch_ops
from dwconv.call.block_call import IMAGE_DTYPES, LayerNormCall, NormCall
from dwconv.call.call_plan import plan_for
from dwconv.call.place import Place
from dwconv.errors import InvalidWorkload
from dwconv.problems.block import Block
from dwconv.problems.problem import Problem

_OF_PLACE = "str block, int[] weight_shape, int[] stride, int[]? padding, int[] dilation, bool has_bias"
torch_ops.define(
    "block_in_graph(Tensor x, Tensor w, Tensor? bias, Tensor[] learnt, Tensor(a!)[] statistics, float[] momenta, "
    f"str decided_by, {_OF_PLACE}) -> Tensor"
)

in_graph = torch.ops.dwconv.block_in_graph.default


def _in_graph(
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
    place = Place(
        block=Block.parse(name),
        weight_shape=tuple(weight_shape),
        stride=tuple(stride),
        padding=None if padding is None else tuple(padding),
        dilation=tuple(dilation),
        bias=has_bias,
    )
    calls = _calls(place, learnt, statistics, momenta)
    problem = _problem(x, w, bias, place, calls)
    if problem is None:
        return _one_by_one(x, w, bias, place, calls)
    return block_call.run(x, w, bias, calls, name, *problem.geometry)


def _calls(
    place: Place, learnt: Sequence[Tensor], statistics: Sequence[Tensor], momenta: Sequence[float]
) -> list[NormCall | LayerNormCall]:
    block = place.block
    if block.layer_norm is not None:
        return [LayerNormCall((place.weight_shape[0],), learnt[0], learnt[1], block.layer_norm.eps)]
    found: list[NormCall | LayerNormCall] = []
    for i, norm in enumerate(norm for norm in (block.norm1, block.batch_norm2) if norm is not None):
        mean, variance, weight, bias = *statistics[2 * i : 2 * i + 2], *learnt[2 * i : 2 * i + 2]
        found.append(NormCall(mean, variance, weight, bias, True, momenta[i], norm.eps))
    return found


def _problem(
    x: Tensor, w: Tensor, bias: Tensor | None, place: Place, calls: Sequence[NormCall | LayerNormCall]
) -> Problem | None:
    """The problem of the block, if it is faster as one."""
    shape, strides = ([_hint(size) for size in sizes] for sizes in (x.shape, x.stride()))
    if None in (*shape, *strides) or x.dim() != 4 or x.dtype not in IMAGE_DTYPES:
        return None
    _, channels, height, width = shape
    dense = (height * width * channels, 1, width * channels, channels)
    if not all(size == 1 or here == wanted for size, here, wanted in zip(shape, strides, dense, strict=True)):
        return None
    lowers = torch._C._is_any_autocast_enabled()
    others = [w] if bias is None else [w, bias]
    if not lowers and any(each.dtype is not x.dtype for each in others):
        return None
    if any(each.dtype not in (x.dtype, torch.float32) for each in others):
        return None
    if lowers and (place.block.layer_norm or torch.get_autocast_dtype(x.device.type) is not x.dtype):
        return None
    if place.weight_shape[0] % shape[1] or any(
        each.weight is None or each.weight.dtype is not torch.float32 for each in calls
    ):
        return None
    try:
        problem = place.problem(tuple(shape), x.dtype)
        return problem if blocks.is_at_once(plan_for(problem, x.device)) else None
    except InvalidWorkload:
        return None


def _hint(size: Any) -> Any:
    """A size that may change is that of the example; None if it is known only when the graph runs."""
    return size.node.hint if isinstance(size, torch.SymInt) else size


def _one_by_one(
    x: Tensor, w: Tensor, bias: Tensor | None, place: Place, calls: Sequence[NormCall | LayerNormCall]
) -> Tensor:
    block, left = place.block, list(calls)
    if block.norm1 is not None:
        x = left.pop(0).apply(x)
    x = block_call.activated(block.act1, x)
    (top, bottom, below, right) = place.problem(tuple(map(_hint, x.shape))).padding
    y = functional.conv2d(x, w, bias, place.stride, ((top, bottom), (below, right)), place.dilation)
    if block.layer_norm is not None:
        return left.pop(0).apply(y.permute(block_call.CHANNELS_LAST))
    if block.norm2 is not None:
        y = left.pop(0).apply(y)
    return block_call.activated(block.act2, y)


torch_ops.implement_composite(in_graph, _in_graph)
