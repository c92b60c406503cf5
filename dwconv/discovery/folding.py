"""Folding: a chain of nodes becomes one node, which runs a block."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.fx import Graph, Node

from dwconv.call.block_call import Place
from dwconv.call.traces import TracedBlock, at
from dwconv.discovery.parts import asks_for_axes, owner_path
from dwconv.discovery.same_padding import SamePadding, pads_the_same
from dwconv.problems.block import Block

_MARK = "dwconv_block_"


def folded(
    graph: Graph, chain: Sequence[Node], norms: Sequence[Node], parent: nn.Module, *, place: Place
) -> TracedBlock:
    """Makes ``chain`` one node of ``graph``; a place in the list of its blocks comes with the order of the calls."""
    first, last, number = chain[0], chain[-1], sum(is_folded(node) for node in graph.nodes)
    x = first.args[0]
    assert isinstance(x, Node)
    (conv,) = (str(node.target) for node in chain if _convolves(node, parent))
    owners = tuple(str(owner_path(norm)) for norm in norms)
    counts = tuple(norm.op == "call_module" for norm in norms)
    parts = Graph()
    copied: dict[Node, Node] = {x: parts.placeholder("x")}
    for node in chain:
        for given in node.all_input_nodes:
            if given not in copied:
                copied[given] = parts.node_copy(given)
        copied[node] = parts.node_copy(node, lambda each: copied[each])
    parts.output(copied[last])
    with graph.inserting_before(first):
        one = graph.create_node("call_function", _marker(number), (x,), name=f"block_{number}")
    last.replace_all_uses_with(one)
    for node in chain:
        for user in filter(asks_for_axes, list(node.users)):
            user.replace_input_with(node, x)
    for node in reversed(chain):
        graph.erase_node(node)
    return TracedBlock(place=place, conv=conv, norms=owners, counts=counts, source=parts.python_code("self").src)


def _convolves(node: Node, parent: nn.Module) -> bool:
    return node.op == "call_module" and isinstance(at(parent, str(node.target)), nn.Conv2d)


def place_of(conv: nn.Conv2d, block: Block) -> Place:
    """A block around a convolution, for images of any size."""
    if isinstance(conv, SamePadding) or pads_the_same(conv):
        padding = None
    else:
        left, right, top, bottom = conv._reversed_padding_repeated_twice
        padding = top, bottom, left, right
    return Place(
        block=block,
        weight_shape=tuple(conv.weight.shape),
        stride=tuple(conv.stride),
        padding=padding,
        dilation=tuple(conv.dilation),
        bias=conv.bias is not None and block.layer_norm is not None,
    )


def source_of(graph: Graph) -> tuple[str, dict[str, Any]]:
    """The function that a graph with folded chains is, with its blocks as its second argument; and what it reads."""
    for node in reversed(graph.nodes):
        node.type = None  # annotations of the model's code, which may have no name here
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    code = graph.python_code("self")
    source = re.sub(rf"{_MARK}(\d+)\(", r"blocks_[\1](", code.src)
    return re.sub(r"def forward\(self(, )?", r"def forward(self, blocks_\1", source, count=1), code.globals


def is_folded(node: Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "").startswith("block_")


def _marker(number: int) -> Callable[..., Any]:
    def mark(x: Any) -> Any:
        raise AssertionError("a block runs where the trace is bound")

    mark.__name__ = mark.__qualname__ = f"block_{number}"
    mark.__module__ = "dwconv"
    return mark
