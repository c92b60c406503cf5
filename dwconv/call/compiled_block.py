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
import torch.nn.functional as F
from torch import Tensor

from dwconv.call import block_call, functional, torch_ops
from dwconv.call.block_call import CHANNELS_LAST, NormCall
from dwconv.call.place import Place
from dwconv.problems import pytorch
from dwconv.problems.block import Block

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
    running: Sequence[Tensor | None] = statistics or [None, None]  # of a LayerNorm
    held = zip(running[::2], running[1::2], learnt[::2], learnt[1::2], momenta or [0.0], strict=True)
    norms = [NormCall(*each) for each in held]
    plan = block_call.plan_of(place, x, w, bias, norms)
    if plan is not None:
        return block_call.run(x, w, bias, norms, name, *plan.problem.geometry)
    top, bottom, left, right = place.problem(tuple(map(block_call.size_of, x.shape))).padding

    def convolve(a: Tensor) -> Tensor:
        return functional.conv2d(a, w, bias, place.stride, ((top, bottom), (left, right)), place.dilation)

    if layer_norm := place.block.layer_norm:
        weight, shift = learnt
        return F.layer_norm(convolve(x).permute(CHANNELS_LAST), weight.shape, weight, shift, layer_norm.eps)
    return pytorch.block_of(place.block, convolve, x, norms, trains=True)


torch_ops.implement_composite(in_graph, _in_graph)
