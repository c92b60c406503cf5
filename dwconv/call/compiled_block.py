"""What ``torch.compile`` makes of a block that is expected somewhere: one function in its graph.

    x ─► begins_block ─► batch_norm ─► hardtanh ─► dwconv.fprop ─► batch_norm ─► hardtanh ─► z      as it is traced
    x ─► block_call.run ─► z                                                          as Inductor goes on with it

Inductor shows a graph to others before it does anything. There, what follows each ``begins_block`` is compared with the
block that is expected, part by part, as ``awaited_block`` does with calls: what is all there, looked at by nobody else,
and measured to be faster as one becomes one. The rest stays, as it does with other compilers: begins_block gives x.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Graph, Node

from dwconv.call import block_call, blocks, torch_ops
from dwconv.call.block_call import IMAGE_DTYPES, LayerNormCall, NormCall, activation_of, is_plain
from dwconv.call.call_plan import plan_for
from dwconv.call.place import Place
from dwconv.call.watchers import is_recorded_for_elsewhere
from dwconv.dispatch import knowledge
from dwconv.errors import InvalidWorkload, warn
from dwconv.problems.block import Block
from dwconv.problems.problem import Problem
from dwconv.records.line import encode
from dwconv.system import versions

_OF_PLACE = "str block, int[] weight_shape, int[] stride, int[]? padding, int[] dilation, bool bias"
torch_ops.define(f"begins_block(Tensor(a) x, {_OF_PLACE}) -> Tensor(a)")

begins_block = torch.ops.dwconv.begins_block.default


def begun(x: Any, place: Place) -> Any:
    """``x``, marked in what is being compiled."""
    if is_recorded_for_elsewhere() or torch._C._are_functorch_transforms_active():
        return x
    if not isinstance(x, Tensor) or not torch.is_grad_enabled():
        return x
    return begins_block(
        x, str(place.block), place.weight_shape, place.stride, place.padding, place.dilation, place.bias
    )


def _begins_block(x: Tensor, *place: Any) -> Tensor:
    show_graphs()
    return x


torch_ops.implement_composite(begins_block, _begins_block)


# -- Inductor ----------------------------------------------------------------------------------------------------------


def show_graphs() -> None:
    """Have Inductor show its graphs here, after whoever looks at them already."""
    try:
        from torch._inductor import config

        before, ours = config.pre_grad_custom_pass, _pass_class()
    except (ImportError, AttributeError) as error:
        warn(f"compiled code has no blocks as one: PyTorch {torch.__version__} shows its graphs to nobody ({error})")
        return
    if not isinstance(before, ours):
        several = before if isinstance(before, (list, tuple)) else [] if before is None else [before]
        config.pre_grad_custom_pass = ours(several)


@cache
def _pass_class() -> Any:
    """Made when something is compiled: to import Inductor takes a second."""
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class BlocksOfGraph(CustomGraphPass):
        def __init__(self, before: Sequence[Any]) -> None:
            self._before = tuple(before)

        def __call__(self, graph: Graph) -> None:
            for each in self._before:
                each(graph)
            make_blocks_one(graph)

        def uuid(self) -> Any:
            """What compiled graphs are kept under; None, so that none are, if somebody before has none."""
            theirs = [each.uuid() if isinstance(each, CustomGraphPass) else None for each in self._before]
            return None if None in theirs else (*theirs, _what_decides())

    return BlocksOfGraph


def _what_decides() -> str:
    """A digest of what says whether a block is faster as one, and of what makes it one."""
    digest = hashlib.sha256(repr((versions.installed(), torch.get_num_threads())).encode())
    for record in knowledge.database():
        digest.update(encode(record))
    return digest.hexdigest()


# -- graphs ------------------------------------------------------------------------------------------------------------


def make_blocks_one(graph: Graph) -> None:
    """Changes a graph of PyTorch's functions."""
    for begins in [node for node in graph.nodes if node.target is begins_block]:
        place = _place(*begins.args[1:])
        if problem := _problem(begins, place):
            parts = _parts(begins, place, problem)
            if parts and _are_inputs_known(graph, begins, parts):
                _replace(graph, begins, parts, problem)
        begins.replace_all_uses_with(begins.args[0])
        graph.erase_node(begins)


def _place(block: str, weight_shape: Any, stride: Any, padding: Any, dilation: Any, bias: bool) -> Place:
    sides = None if padding is None else tuple(padding)
    shapes = {"weight_shape": tuple(weight_shape), "stride": tuple(stride), "dilation": tuple(dilation)}
    return Place(block=Block.parse(block), padding=sides, bias=bias, **shapes)


def _problem(begins: Node, place: Place) -> Problem | None:
    """The problem of the block that is expected, if it is faster as one."""
    x = _value(begins)
    if not is_plain(x, *IMAGE_DTYPES) or x.dim() != 4:
        return None
    try:
        problem = place.problem(tuple(x.shape), x.dtype)
        plan = plan_for(problem, begins.meta["example_value"].device)
    except InvalidWorkload:
        return None
    return problem if blocks.is_at_once(plan) else None


def _parts(begins: Node, place: Place, problem: Problem) -> dict[str, Node]:
    """The nodes of the block by the names of its parts, if all are there."""
    found: dict[str, Node] = {}
    last = begins
    for name in place.parts:
        if len(last.users) != 1:
            return {}
        (following,) = last.users
        if following.args[:1] != (last,) or not is_plain(_value(following), problem.dtype):
            return {}
        if not _is_part(name, following, problem, tuple(_value(last).shape)):
            return {}
        last = found[name] = following
    return found


def _is_part(name: str, node: Node, problem: Problem, shape: tuple[int, ...]) -> bool:
    """Whether a node is the part of that name, for an image of ``shape``."""
    block = problem.block
    assert block is not None
    if name.startswith("act"):
        function = getattr(Tensor, str(node.target), None) if node.op == "call_method" else node.target
        found = activation_of(function, node.args, node.kwargs)
        return found is not None and found[0] == (block.act1 if name == "act1" else block.act2)
    if name == "conv":
        if node.target is not torch_ops.fprop:
            return False
        weight, bias, *geometry = cast(tuple[Any, ...], node.args[1:])
        given = tuple(each if isinstance(each, str) else tuple(each) for each in geometry)
        takes = block_call.takes(block, problem.dtype, _value(weight), _value(bias))
        takes = takes and (not block.layer_norm or problem.bias == (bias is not None))
        return takes and given == tuple(problem.geometry)
    if name == "view":
        function = getattr(Tensor, str(node.target), None) if node.op == "call_method" else node.target
        return block_call.has_channels_last(function, node.args, node.kwargs)
    if block.layer_norm:
        return node.target is F.layer_norm and not _norm_of(node, _value).why_not(shape, eps=block.layer_norm.eps)
    if node.target is not F.batch_norm:
        return False
    norm, wanted = NormCall.of(*node.args, **node.kwargs), block.norm1 if name == "norm1" else block.norm2
    assert wanted is not None, "as it is a part"
    statistics: tuple[Any, ...] = norm[:2]
    is_alone = all(len(each.users) == 1 for each in statistics if each is not None)  # they learn where the block begins
    return is_alone and not NormCall(*map(_value, norm)).why_not(shape, eps=wanted.eps)


def _norm_of(node: Node, seen: Callable[[Any], Any] = lambda given: given) -> NormCall | LayerNormCall:
    """The call of a norm that a node is, with what is ``seen`` of its arguments."""
    kind = LayerNormCall if node.target is F.layer_norm else NormCall
    return kind(*map(seen, kind.of(*node.args, **node.kwargs)))


def _value(given: Any) -> Any:
    """A tensor without numbers as the one that a node stands for; sizes that may change are those of the example."""
    if not isinstance(given, Node):
        return given
    example = given.meta.get("example_value")
    if not isinstance(example, torch._subclasses.FakeTensor):
        return None
    shape, strides = ([_hint(size) for size in sizes] for sizes in (example.shape, example.stride()))
    if None in (*shape, *strides):  # known only when it runs
        return None
    return torch.empty_strided(shape, strides, dtype=example.dtype, device="meta")


def _hint(size: Any) -> Any:
    return size.node.hint if isinstance(size, torch.SymInt) else size


def _are_inputs_known(graph: Graph, begins: Node, parts: dict[str, Node]) -> bool:
    """Whether weights and norms are there where the block begins."""
    places = {node: number for number, node in enumerate(graph.nodes)}
    given = {each for node in parts.values() for each in node.all_input_nodes} - {begins, *parts.values()}
    return all(places[each] < places[begins] for each in given)


def _replace(graph: Graph, begins: Node, parts: dict[str, Node], problem: Problem) -> None:
    norms = [(_norm_of(node), True) for name, node in parts.items() if name.startswith("norm")]
    end = list(parts.values())[-1]
    with graph.inserting_before(begins):
        weight, bias = parts["conv"].args[1:3]
        given = begins.args[0], weight, bias, norms, str(problem.block), *problem.geometry
        one = graph.call_function(block_call.run, given)
    one.meta = dict(end.meta)
    end.replace_all_uses_with(one)
    for node in reversed(parts.values()):
        graph.erase_node(node)
