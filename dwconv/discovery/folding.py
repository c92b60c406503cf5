"""Folding: a chain of nodes of a traced forward pass becomes one node, which runs a block.

    x ─► norm ─► act ─► conv ─► norm ─► act ─► z
         └─ Side ────┘          └─ Side ────┘

Only the next one reads the result of each; operations without effect may be in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.nn.modules.batchnorm import _BatchNorm

from dwconv.call.block_call import CHANNELS_LAST, BlockForm, activated_over_ranks, as_convolved
from dwconv.call.frozen_forward import TracedBlock, at, batch_norm_eps, is_over_ranks
from dwconv.discovery.frozen_norms import frozen_eps
from dwconv.discovery.same_padding import SamePadding, pads_the_same
from dwconv.problems.block import Activation, Block, FrozenNorm, InstanceNorm, LayerNorm, Norm


class OverRanks(FrozenNorm):
    """A norm with the statistics of all ranks. Before a convolution a block is given them like those of a frozen one;
    after it the norm and its activation are an op behind the block."""


class View:
    """An image with the channels last."""


def kind_of(node: Node, parent: nn.Module) -> Any:
    """The Norm, LayerNorm, Activation or View that a node is; None for anything else."""
    if node.op == "call_module":
        module = at(parent, str(node.target))
        if len(node.args) != 1 or node.kwargs:
            return None
        if (act := _activation_of_module(module)) is not None:
            return act
        if (eps := batch_norm_eps(module)) is not None:
            return Norm(eps=eps) if module.training else FrozenNorm(eps=eps)
        if is_over_ranks(module) and module.track_running_stats and (eps := _usual_eps(module)) is not None:
            return OverRanks(eps=eps) if module.training else FrozenNorm(eps=eps)
        if isinstance(module, nn.SyncBatchNorm):  # in evaluation it is as any other
            is_frozen = type(module).forward is nn.SyncBatchNorm.forward and not module.training
            return FrozenNorm(eps=module.eps) if is_frozen and type(module.eps) is float else None
        if (eps := frozen_eps(module)) is not None:
            return FrozenNorm(eps=eps)
        if (eps := _instance_norm_eps(module)) is not None:
            return InstanceNorm(eps=eps)
        if type(module) is nn.LayerNorm and len(module.normalized_shape) == 1 and module.weight is not None:
            return LayerNorm(eps=module.eps) if module.bias is not None else None
        return None
    function = getattr(Tensor, str(node.target), None) if node.op == "call_method" else node.target
    if node.op not in ("call_function", "call_method"):
        return None
    if function in (Tensor.permute, torch.permute) and not node.kwargs:
        order = node.args[1] if len(node.args) == 2 else node.args[1:]
        return View if isinstance(order, tuple | list) and tuple(order) == CHANNELS_LAST else None
    if function is F.batch_norm:
        owner, eps = owner_of(node, parent), _argument(node, 7, "eps", 1e-5)
        is_usual = isinstance(owner, _BatchNorm) and not isinstance(owner, nn.SyncBatchNorm) and type(eps) is float
        if not is_usual or _trains(node) not in (True, False):
            return None
        if not _trains(node):
            return FrozenNorm(eps=eps)
        learns_otherwise = _argument(node, 6, "momentum", 0.1) != getattr(owner, "momentum", None)
        return None if learns_otherwise else Norm(eps=eps)
    if function is F.group_norm:
        owner, eps = owner_of(node, parent), _argument(node, 4, "eps", 1e-5)
        if not isinstance(owner, nn.GroupNorm) or type(eps) is not float:
            return None
        groups = _argument(node, 1, "num_groups", 0)
        return InstanceNorm(eps=eps) if groups == owner.num_groups == owner.num_channels else None
    if function is F.layer_norm:
        owner, eps = owner_of(node, parent), _argument(node, 4, "eps", 1e-5)
        return LayerNorm(eps=eps) if isinstance(owner, nn.LayerNorm) and len(owner.normalized_shape) == 1 else None
    return _activation_of(function, node) if function is not None else None


CONVOLUTIONS = (nn.Conv2d, nn.Conv3d)
INSTANCE_NORMS = (nn.InstanceNorm2d, nn.InstanceNorm3d)
_OF_AXES = {nn.BatchNorm2d: 2, nn.InstanceNorm2d: 2, nn.BatchNorm3d: 3, nn.InstanceNorm3d: 3}


def takes(norm: nn.Module, axes: int) -> bool:
    """Whether a norm takes images of so many axes; one that is no more than a scale and a shift takes two."""
    of_class = [number for kind, number in _OF_AXES.items() if isinstance(norm, kind)]
    is_of_any = isinstance(norm, nn.SyncBatchNorm | nn.GroupNorm | nn.LayerNorm | _BatchNorm)
    return axes in of_class if of_class else is_of_any or axes == 2


def _instance_norm_eps(module: nn.Module) -> float | None:
    """The eps of a norm of each channel of each image; None for another module. Its statistics are those of the image
    in evaluation, too."""
    if isinstance(module, nn.GroupNorm) and type(module).forward is nn.GroupNorm.forward:
        is_one = module.num_groups == module.num_channels
    else:
        is_one = type(module) in INSTANCE_NORMS and not module.track_running_stats
    return _usual_eps(module) if is_one else None


def _usual_eps(norm: Any) -> float | None:
    return norm.eps if type(norm.eps) is float and norm.eps > 0 else None


def _activation_of_module(module: nn.Module) -> Activation | None:
    if type(module) is nn.GELU and module.approximate != "none":
        return None
    if isinstance(module, nn.Hardtanh) and type(module) in (nn.Hardtanh, nn.ReLU6):  # a ReLU6 has limits, too
        return "relu6" if (module.min_val, module.max_val) == (0.0, 6.0) else None
    return _MODULES.get(type(module))


def _activation_of(function: Any, node: Node) -> Activation | None:
    name, others = _FUNCTIONS.get(function, (None, ()))
    usual, wanted = _OPTIONS.get(function, ({}, {}))
    given: dict[str, Any] = {**usual, **dict(zip(others, node.args[1:], strict=False)), **node.kwargs}
    return name if {key: given[key] for key in given if key not in ("input", "inplace")} == wanted else None


_MODULES: dict[type[nn.Module], Activation] = {
    nn.Identity: "identity",
    nn.ReLU: "relu",
    nn.Hardswish: "hardswish",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
}
_FUNCTIONS: dict[Callable[..., Any], tuple[Activation, tuple[str, ...]]] = {
    F.relu: ("relu", ("inplace",)),
    torch.relu: ("relu", ()),
    torch.relu_: ("relu", ()),
    Tensor.relu: ("relu", ()),
    Tensor.relu_: ("relu", ()),
    F.relu6: ("relu6", ("inplace",)),
    F.hardtanh: ("relu6", ("min_val", "max_val", "inplace")),
    F.hardtanh_: ("relu6", ("min_val", "max_val")),
    F.hardswish: ("hardswish", ("inplace",)),
    F.silu: ("silu", ("inplace",)),
    F.gelu: ("gelu", ()),
}
"""By function, with what it may be given besides its input."""
_LIMITS = {"min_val": -1.0, "max_val": 1.0}, {"min_val": 0.0, "max_val": 6.0}
_OPTIONS: dict[Callable[..., Any], tuple[dict[str, Any], dict[str, Any]]] = {
    F.hardtanh: _LIMITS,
    F.hardtanh_: _LIMITS,
    F.gelu: ({"approximate": "none"}, {"approximate": "none"}),
}
"""By function, the options that it has by itself, and those that it must have."""
_TENSORS = {
    F.batch_norm: ((1, "running_mean"), (2, "running_var"), (3, "weight"), (4, "bias")),
    F.layer_norm: ((2, "weight"), (3, "bias")),
    F.group_norm: ((2, "weight"), (3, "bias")),
}


def owner_of(node: Node, parent: nn.Module) -> nn.Module | None:
    """The module all of whose tensors a norm is given."""
    path = owner_path(node)
    return None if path is None else at(parent, path)


def owner_path(node: Node) -> str | None:
    if node.op == "call_module":
        return str(node.target)
    paths = set()
    for position, name in _TENSORS[node.target]:  # type: ignore[index]
        given = _argument(node, position, name, None)
        if not isinstance(given, Node) or given.op != "get_attr":
            return None
        outer, _, last = str(given.target).rpartition(".")
        if last != name:
            return None
        paths.add(outer)
    return paths.pop() if len(paths) == 1 else None


def _argument(node: Node, position: int, name: str, usual: Any) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, usual)


def _trains(node: Node) -> Any:
    return _argument(node, 5, "training", False)


# -- chains ------------------------------------------------------------------------------------------------------------


@dataclass
class Side:
    """What is next to a convolution on one side."""

    norm: Node | None = None
    act: Node | None = None
    between: list[Node] = field(default_factory=list)
    """All nodes of the side, in order."""
    kind: Any = None
    activation: Activation = "identity"
    ends_at: Node | None = None
    """The node that is no part of it."""


def asks_for_axes(node: Node) -> bool:
    """Whether a node is the number of axes of an image: that of x as well as that of any part of a block."""
    return (node.target is getattr and node.args[1:] == ("ndim",)) or (node.op, node.target) == ("call_method", "dim")


def _only_user(node: Node) -> Node | None:
    users = [each for each in node.users if not asks_for_axes(each)]
    return users[0] if len(users) == 1 and sum(each is node for each in users[0].all_input_nodes) == 1 else None


def before(conv: Node, parent: nn.Module) -> Side:
    side, node = Side(), conv.args[0]
    acts: list[tuple[Node, Activation]] = []
    seen: list[Node] = []
    while isinstance(node, Node):
        side.ends_at = node
        kind = kind_of(node, parent)
        if _only_user(node) is None or not (isinstance(kind, (str, Norm))):
            break
        seen.insert(0, node)
        if isinstance(kind, Norm):
            side.norm, side.kind, side.between = node, kind, seen
            side.ends_at = node.args[0] if isinstance(node.args[0], Node) else None
            break
        if kind != "identity":
            acts.append((node, cast(Activation, kind)))
            if len(acts) > 1:
                break
        node = node.args[0]
    if side.norm is not None and acts:
        side.act, side.activation = acts[0]
    return side


def after(conv: Node, parent: nn.Module) -> Side:
    side, node = Side(), conv
    seen: list[Node] = []
    is_viewed = False
    while True:
        following = _only_user(node)
        if following is None:
            break
        side.ends_at = following
        if not following.args or following.args[0] is not node:
            break
        kind = kind_of(following, parent)
        if side.norm is None:
            if kind is View and not is_viewed:
                is_viewed = True
            elif isinstance(kind, LayerNorm if is_viewed else Norm):
                side.norm, side.kind = following, kind
            elif kind != "identity" or is_viewed:
                break
        elif kind == "identity":
            pass
        elif isinstance(kind, str) and side.act is None and not is_viewed:
            side.act, side.activation = following, cast(Activation, kind)
        else:
            break
        seen.append(following)
        if side.norm is not None:
            side.between = list(seen)
        node = following
        if side.norm is not None and is_viewed:
            break
        if side.act is not None:
            break
    return side


def is_norm_of(node: Node, path: str | None) -> bool:
    if node.op == "call_module":
        return node.target == path
    return node.op == "call_function" and node.target in _TENSORS and owner_path(node) == path


# -- one node for a chain ------------------------------------------------------------------------------------------

_MARK = "dwconv_block_"


def folded(
    graph: Graph, chain: Sequence[Node], norms: Sequence[Node], parent: nn.Module, *, place: BlockForm
) -> TracedBlock:
    """Makes ``chain`` one node of ``graph``; a place in the list of its blocks comes with the order of the calls."""
    first, last, number = chain[0], chain[-1], sum(is_folded(node) for node in graph.nodes)
    x = first.args[0]
    assert isinstance(x, Node)
    (conv,) = (str(node.target) for node in chain if _convolves(node, parent))
    owners = tuple(str(owner_path(norm)) for norm in norms)
    kinds = [kind_of(norm, parent) for norm in norms]
    counts = tuple(
        norm.op == "call_module" and type(kind) in (Norm, LayerNorm) for norm, kind in zip(norms, kinds, strict=True)
    )
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
        last.replace_all_uses_with(_lying_as_before(graph, one, chain, parent))
    _let_go(graph, chain, x)
    over_ranks = any(isinstance(kind, OverRanks) for kind in kinds)
    source = parts.python_code("self").src
    return TracedBlock(place=place, conv=conv, norms=owners, counts=counts, source=source, over_ranks=over_ranks)


def fold_over_ranks(graph: Graph, side: Side) -> None:
    """Makes the norm of a side and its activation one node of ``graph``, behind a block."""
    assert side.norm is not None
    first, last = side.between[0], side.between[-1]
    y = first.args[0]
    assert isinstance(y, Node)
    with graph.inserting_before(first):
        norm = graph.create_node("get_attr", str(side.norm.target))
        last.replace_all_uses_with(graph.call_function(activated_over_ranks, (y, norm, side.activation)))
    _let_go(graph, side.between, y)


def _let_go(graph: Graph, chain: Sequence[Node], x: Node) -> None:
    """Erases the nodes of a chain that has been replaced; ``x``: what they begin with."""
    for node in chain:
        for user in filter(asks_for_axes, list(node.users)):
            user.replace_input_with(node, x)
    for node in reversed(chain):
        graph.erase_node(node)


def _lying_as_before(graph: Graph, one: Node, chain: Sequence[Node], parent: nn.Module) -> Node:
    """What a block gives, as it lies where the nodes of ``chain`` run. A block is channels_last, and so is what it is
    given; PyTorch's InstanceNorm gives a contiguous image, whatever it is given."""
    place = next(place for place, node in enumerate(chain) if _convolves(node, parent))
    if any(_is_instance_norm(node, parent) for node in chain[place:]):
        return graph.call_method("contiguous", (one,))
    if any(_is_instance_norm(node, parent) for node in chain[:place]):
        conv = graph.create_node("get_attr", str(chain[place].target))
        return graph.call_function(as_convolved, (one, conv))
    return one


def _is_instance_norm(node: Node, parent: nn.Module) -> bool:
    return node.op == "call_module" and isinstance(at(parent, str(node.target)), INSTANCE_NORMS)


def _convolves(node: Node, parent: nn.Module) -> bool:
    return node.op == "call_module" and isinstance(at(parent, str(node.target)), CONVOLUTIONS)


def place_of(conv: nn.Conv2d | nn.Conv3d, block: Block) -> BlockForm:
    """A block around a convolution, for images of any size."""
    if isinstance(conv, SamePadding) or pads_the_same(conv):
        padding = None
    else:
        sides = conv._reversed_padding_repeated_twice  # (left, right, top, bottom), the last axis first
        pairs = [*zip(sides[::2], sides[1::2], strict=True)]
        padding = tuple(side for pair in reversed(pairs) for side in pair)
    return BlockForm(
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
