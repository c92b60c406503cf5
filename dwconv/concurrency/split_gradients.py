"""The two gradients of a convolution as two tasks: dgrad and wgrad read the same dy and do not need each other.

AOTAutograd hands over one operator for both, PyTorch's ``convolution_backward`` or dwconv's ``backward``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from dwconv.concurrency.operator_groups import kind_of

_BACKWARD = torch.ops.aten.convolution_backward.default
_MASK = 10
"""The place of the argument with the requested gradients: of x, w and the bias."""


def split(module: GraphModule) -> GraphModule:
    """``module`` with both gradients of each convolution apart."""
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in [node for node in graph.nodes if _gives_both(node)]:
        with graph.inserting_before(node):
            (_split_pytorchs if node.target is _BACKWARD else _split_ours)(graph, node)
        graph.erase_node(node)
    _keep_meta_of_results(module.graph, graph)
    return GraphModule(module, graph, class_name=module.__class__.__name__)


def _gives_both(node: Node) -> bool:
    if node.target is _BACKWARD:
        mask: Any = node.args[_MASK]
        return bool(mask[0] and mask[1])
    return kind_of(node) == "dwconv.backward"


def _split_pytorchs(graph: Graph, node: Node) -> None:
    """PyTorch's operator twice, each with its mask."""
    masked: Any = node.args[_MASK]
    halves = []
    for mask in ((True, False, False), (False, True, masked[2])):
        half = graph.call_function(_BACKWARD, (*node.args[:_MASK], list(mask)))
        val = tuple(each if kept else None for each, kept in zip(node.meta["val"], mask, strict=True))
        half.meta = {**node.meta, "val": val}
        halves.append(half)
    for user in list(node.users):
        user.replace_input_with(node, halves[0 if user.args[1] == 0 else 1])


def _split_ours(graph: Graph, node: Node) -> None:
    """dgrad and wgrad, in the place of the results of ``backward``."""
    given: Any = node.args
    x, dy, w, *geometry = given
    input_shape, weight_shape = (list(each.meta["val"].shape) for each in (x, w))
    halves = [
        graph.call_function(torch.ops.dwconv.dgrad.default, (dy, w, input_shape, *geometry)),
        graph.call_function(torch.ops.dwconv.wgrad.default, (x, dy, weight_shape[2:], *geometry)),
    ]
    for half, val in zip(halves, node.meta["val"], strict=True):
        half.meta = {**node.meta, "val": val}
    for user in list(node.users):
        of_result: Any = user.args[1]
        user.replace_all_uses_with(halves[of_result])
        graph.erase_node(user)


def _keep_meta_of_results(source: Graph, copied: Graph) -> None:
    """``graph_copy`` leaves out the ``meta`` of the node that returns the results."""
    *_, before = source.nodes
    *_, after = copied.nodes
    after.meta = dict(before.meta)
