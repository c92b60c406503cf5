"""Cut a model into pieces that run one after the other, each reading one tensor and giving one.

A pipeline stage is some pieces in a row. An ``nn.Sequential`` falls into its layers. Any other module is traced by
torch.fx and cut wherever a single tensor carries everything that comes later:

    conv ──► norm ──► block ───┬─► conv ─► norm ─┐      │ is a cut; between the two arrows of a block there is none,
           │        │          └────────────────(+)──►  │ since two tensors are needed there
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from dwconv.discovery.unchanged import unchanged
from dwconv.errors import CannotBeCut
from dwconv.parallel.planning.fx_graph import has_hooks, operation_name, runs, traced


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A module, with a name for people."""

    name: str
    module: nn.Module


def pieces(model: nn.Module, example: Tensor) -> nn.Sequential:
    """The pieces of ``model``, in order. Their parameters, buffers and layers are the model's own, not copies; so a
    change of the one is a change of the other.

    ``example`` is a batch on the model's device, of any size: the model runs on it once and is as before afterwards.
    Cut a model in the mode that it is to run in, since code such as ``if self.training`` is followed now. A
    piece is named by its layers, or by the function that it is.

    Layers that share a parameter are one piece, with everything between them. So is a layer with the one after it, if
    that one changes its input in place. Raises CannotBeCut, which names the operation, for a model that cannot be
    traced or that does not take and give one tensor.
    """
    found = _cut(model, name="")
    with unchanged(model, [example]), torch.no_grad():
        found = _checked(found, example, name=type(model).__name__)
    found = _with_shared_parameters_together(found)
    names = _unique(piece.name for piece in found)
    return nn.Sequential(OrderedDict(zip(names, (piece.module for piece in found), strict=True)))


# -- where to cut ----------------------------------------------------------------------------------------------------


def _cut(module: nn.Module, *, name: str) -> list[_Piece]:
    if type(module).forward is nn.Sequential.forward and not has_hooks(module):
        children = [(child, each) for child, each in module._modules.items() if each is not None]  # one may come twice
        return [piece for child, each in children for piece in _cut(each, name=_path(name, child))]
    if name and (not list(module.children()) or has_hooks(module)):
        return [_Piece(name=name, module=module)]
    try:
        found = _pieces_of(traced(module))
    except CannotBeCut:
        if not name:
            raise
        return [_Piece(name=name, module=module)]  # a layer of an nn.Sequential can stay whole
    return [_Piece(name=_path(name, piece.name), module=piece.module) for piece in found]


def _pieces_of(graph_module: fx.GraphModule) -> list[_Piece]:
    nodes = [node for node in graph_module.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
    (entry,) = (node for node in graph_module.graph.nodes if node.op == "placeholder")
    (output,) = (node for node in graph_module.graph.nodes if node.op == "output")
    result = output.args[0]
    if result not in nodes:
        raise CannotBeCut(
            f"{type(graph_module).__name__} returns something other than one tensor that its layers compute; "
            "wrap it in a module that does"
        )
    order = {node: number for number, node in enumerate(nodes)}
    last_use = {node: max((order.get(user, len(nodes)) for user in node.users), default=-1) for node in (entry, *nodes)}
    found, begin, carried, furthest = [], 0, entry, last_use[entry]
    for number, node in enumerate(nodes):
        # What is carried on from here must be the value of this node alone.
        if furthest <= number < last_use[node]:
            found.append(_piece(graph_module, nodes[begin : number + 1], entry=carried, result=node))
            begin, carried = number + 1, node
        furthest = max(furthest, last_use[node])
    if begin < len(nodes):  # such as an assertion after the result
        found.append(_piece(graph_module, nodes[begin:], entry=carried, result=result))
    return found


def _piece(graph_module: fx.GraphModule, nodes: Sequence[fx.Node], *, entry: fx.Node, result: Any) -> _Piece:
    graph = fx.Graph()
    copies = {entry: graph.placeholder("x")}

    def copy_of(node: fx.Node) -> fx.Node:
        if node not in copies:  # a parameter or buffer, which every piece that reads it gets itself
            copies[node] = graph.node_copy(node)
        return copies[node]

    for node in nodes:
        copies[node] = graph.node_copy(node, copy_of)
    graph.output(copies[result])
    return _Piece(name=_name(nodes), module=_smallest(fx.GraphModule(graph_module, graph, class_name="Piece")))


def _smallest(piece: fx.GraphModule) -> nn.Module:
    """The layer itself if the piece is nothing but a call of it."""
    _, *calls, _ = piece.graph.nodes
    if len(calls) == 1 and calls[0].op == "call_module" and len(calls[0].args) == 1 and not calls[0].kwargs:
        return piece.get_submodule(str(calls[0].target))
    return piece


def _name(nodes: Sequence[fx.Node]) -> str:
    """The module that they are all part of; for a function, with its name."""
    paths = []
    for node in nodes:
        stack = node.meta.get("nn_module_stack") or {}
        path = str(node.target) if node.op == "call_module" else next(reversed(stack), "")
        paths.append(path.split(".") if path else [])
    common = [parts[0] for parts in itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))]
    layers = [str(node.target) for node in nodes if node.op == "call_module"]
    if not common and layers:
        return layers[0]
    if nodes[0].op != "call_module" and (len(nodes) == 1 or not common):
        common.append(operation_name(nodes[0]))
    return ".".join(common)


def _path(*parts: str) -> str:
    return ".".join(part for part in parts if part)


# -- where not to cut ------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Group:
    """Pieces that must stay together."""

    pieces: list[_Piece]
    entry: Any
    """The value that the first of them read."""


def _checked(found: Sequence[_Piece], example: Tensor, *, name: str) -> list[_Piece]:
    """Run them, and join what cannot be apart: a piece whose result has no gradient to send back, and one that changes
    its input."""
    groups: list[_Group] = []
    value: Any = example
    for piece in found:
        if groups and not (isinstance(value, Tensor) and value.is_floating_point()):
            groups[-1].pieces.append(piece)
        else:
            groups.append(_Group(pieces=[piece], entry=value))
        versions = [_version(group.entry) for group in groups]
        with runs(f"{name}, at {piece.name}," if piece.name else name, example):
            value = piece.module(value)
        changed = [number for number, group in enumerate(groups) if _version(group.entry) != versions[number]]
        if changed and len(groups) > 1:
            begin = max(0, changed[0] - 1)
            groups[begin].pieces += [each for group in groups[begin + 1 :] for each in group.pieces]
            del groups[begin + 1 :]
    if not isinstance(value, Tensor):
        raise CannotBeCut(f"{name} gives a {type(value).__name__}, not one tensor; wrap it in a module that does")
    return [_joined(group.pieces) for group in groups]


def _version(value: object) -> int:
    return value._version if isinstance(value, Tensor) else 0


def _with_shared_parameters_together(found: Sequence[_Piece]) -> list[_Piece]:
    last_owner = {parameter: number for number, piece in enumerate(found) for parameter in piece.module.parameters()}
    together: list[_Piece] = []
    begin = 0
    while begin < len(found):
        end = number = begin
        while number <= end:
            end = max([end, *(last_owner[parameter] for parameter in found[number].module.parameters())])
            number += 1
        together.append(_joined(found[begin : end + 1]))
        begin = end + 1
    return together


def _joined(some: Sequence[_Piece]) -> _Piece:
    if len(some) == 1:
        return some[0]
    return _Piece(name=some[0].name, module=nn.Sequential(*(piece.module for piece in some)))


def _unique(names: Iterable[str]) -> list[str]:
    """The names, as ``nn.Sequential`` takes them: without dots, none twice."""
    unique: dict[str, None] = {}
    for name in names:
        plain = name.replace(".", "_")
        candidates = itertools.chain([plain], (f"{plain}_{number}" for number in itertools.count(2)))
        unique[next(each for each in candidates if each not in unique)] = None
    return list(unique)
