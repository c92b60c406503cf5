"""The two gradients of a convolution: dgrad and wgrad read the same dy and do not need each other.

AOTAutograd hands over one operator for both, PyTorch's ``convolution_backward`` or dwconv's ``backward``, of which
``split`` makes two. dwconv has two already where there is a bias. ``pairs`` finds both sorts among a graph's tasks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from dwconv.concurrency.cutting import kind_of
from dwconv.concurrency.tasks import CutGraph

_BACKWARD = torch.ops.aten.convolution_backward.default
_MASK = 10
"""The place of the argument with the requested gradients: of x, w and the bias."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The tasks of the two gradients of one convolution."""

    name: str
    """For display: the operator of dgrad."""
    dgrad: int
    wgrad: int
    convolution: int | None
    """Its place among those that were split; None for two that came as two."""


def split(module: GraphModule, *, kept_whole: Collection[int] = ()) -> GraphModule:
    """The same graph with both gradients of each convolution apart. ``kept_whole``: those that stay one operator, by
    their place among the convolutions of which both are requested."""
    graph = Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for place, node in enumerate([node for node in graph.nodes if _gives_both(node)]):
        if place in kept_whole:
            continue
        with graph.inserting_before(node):
            halves = (_pytorchs if node.target is _BACKWARD else _ours)(graph, node)
        for half in halves:
            half.meta["convolution"] = place
            half.meta["whole"] = node.target, node.args
        graph.erase_node(node)
    _keep_meta_of_results(module.graph, graph)
    return GraphModule(module, graph, class_name=module.__class__.__name__)


def _gives_both(node: Node) -> bool:
    if node.target is _BACKWARD:
        mask: Any = node.args[_MASK]
        return bool(mask[0] and mask[1])
    return kind_of(node) == "dwconv.backward"


def _pytorchs(graph: Graph, node: Node) -> list[Node]:
    """The same operator twice, each with its mask."""
    masked: Any = node.args[_MASK]
    halves = []
    for mask in ((True, False, False), (False, True, masked[2])):
        half = graph.call_function(_BACKWARD, (*node.args[:_MASK], list(mask)))
        val = tuple(each if kept else None for each, kept in zip(node.meta["val"], mask, strict=True))
        half.meta = {**node.meta, "val": val}
        halves.append(half)
    for user in list(node.users):
        user.replace_input_with(node, halves[0 if user.args[1] == 0 else 1])
    return halves


def _ours(graph: Graph, node: Node) -> list[Node]:
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
    return halves


def _keep_meta_of_results(source: Graph, copied: Graph) -> None:
    """``graph_copy`` leaves out the ``meta`` of the node that returns the results."""
    *_, before = source.nodes
    *_, after = copied.nodes
    after.meta = dict(before.meta)


def pairs(cut: CutGraph) -> list[Pair]:
    """The pairs whose gradients are in two tasks, neither of which needs the other."""
    owner = {node: index for index, group in enumerate(cut.nodes) for node in group}
    by_reads: dict[Any, dict[str, Node]] = {}
    for node in owner:
        role, key = _role(node)
        if role:
            by_reads.setdefault(key, {})[role] = node
    found = []
    for roles in by_reads.values():
        if len(roles) == 2:
            dgrad, wgrad = owner[roles["dgrad"]], owner[roles["wgrad"]]
            needs = {dgrad, wgrad} & {*cut.graph.tasks[dgrad].needs, *cut.graph.tasks[wgrad].needs}
            if dgrad != wgrad and not needs:
                convolution = roles["dgrad"].meta.get("convolution")
                found.append(Pair(name=roles["dgrad"].name, dgrad=dgrad, wgrad=wgrad, convolution=convolution))
    return found


def _role(node: Node) -> tuple[str, Any]:
    """``dgrad`` or ``wgrad`` and what both have in common; empty for another operator."""
    if node.target is _BACKWARD:
        mask: Any = node.args[_MASK]
        role = {(True, False): "dgrad", (False, True): "wgrad"}.get((bool(mask[0]), bool(mask[1])), "")
        return role, (node.args[0], node.args[1], node.args[2])
    kind = kind_of(node)
    if kind == "dwconv.dgrad":
        return "dgrad", (node.args[0], *map(str, node.args[3:]))
    if kind in ("dwconv.wgrad", "dwconv.wgrad_bias"):
        return "wgrad", (node.args[1], *map(str, node.args[3:]))
    return "", None
