"""The blocks of a model, found in the graphs of its own modules.

    depthwise layer ─► the nearest module around it in whose graph its norms are, too
                            │ torch.fx; modules inside are not traced, except on the path to a block
                            ▼
    graph ─► norm ─► act ─► conv ─► norm ─► act, each handed to the next one alone (parts) ─► one node (folding)

Only this file defines what a block is. A forward pass becomes a trace only where no decision of Python in it can change
unseen: ``python_decisions`` gives the reason for the others.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torch import nn
from torch.fx import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from dwconv.call.frozen_forward import HOOKS, Trace, WatchedModule, at, plain_class
from dwconv.call.signature import NoSignature, Signature
from dwconv.discovery.call_watch import FirstCall
from dwconv.discovery.folding import (
    CONVOLUTIONS,
    OverRanks,
    Side,
    after,
    before,
    fold_over_ranks,
    folded,
    is_norm_of,
    kind_of,
    owner_path,
    place_of,
    source_of,
    takes,
)
from dwconv.discovery.forward_graph import decided_in, graph_of
from dwconv.discovery.python_decisions import names_of
from dwconv.discovery.same_padding import SamePadding
from dwconv.problems.block import Block, FrozenNorm, LayerNorm, Norm
from dwconv.problems.problem import Problem

_LEVELS = 4
"""Modules around a convolution, from the nearest on, that are traced."""
_LOOKS = 8
"""How often a forward pass is traced until all modules on the path to a block are traced."""


@dataclass(eq=False)
class Found:
    """A block around a convolution, or why there is none. Paths are those of the model."""

    conv: str
    parent: str = ""
    starts: str = ""
    """The module that begins it."""
    block: Block | None = None
    why_not: str = ""
    trains: bool = True
    """Whether the module around it trains; norms in it may keep their statistics."""
    chain: list[Node] = field(default_factory=list)
    norms: list[Node] = field(default_factory=list)
    behind: Side = field(default_factory=Side)
    """A norm with the statistics of all ranks, and its activation, which come after the block."""


Mode = Literal["train", "frozen", "eval"]
"""All modules train; all but BatchNorms, which keep their statistics; none does."""


@contextmanager
def _in_mode(model: nn.Module, mode: Mode) -> Iterator[None]:
    """All of it is in that mode meanwhile."""
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        vars(module)["training"] = _trains_in(mode, module)
    try:
        yield
    finally:
        for module, training in modes:
            vars(module)["training"] = training


def _trains_in(mode: Mode, module: nn.Module) -> bool:
    return mode == "train" or (mode == "frozen" and not isinstance(module, _BatchNorm))


# -- blocks ------------------------------------------------------------------------------------------------------------


def traces_as_written(parent: nn.Module) -> tuple[Trace, ...]:
    """The forward pass of a module that is a block by itself, in every mode, and as its modules are."""
    found = [*FoundBlocks(parent, ["conv"]).in_this_mode(["conv"]).values()]
    for mode in get_args(Mode):
        with _in_mode(parent, mode):
            made = FoundBlocks(parent, ["conv"]).in_this_mode(["conv"]).values()
        found += [each for each in made if not any(_are_of_one_state(each, other) for other in found)]
    return tuple(found)


class FoundBlocks:
    """The blocks around some convolutions of a model, in the mode that it is in. ``ran``: the modules whose forward
    pass runs, and how they are called; unless given all of them, each on tensors in the place of the arguments that
    have no default."""

    def __init__(
        self, model: nn.Module, convolutions: Sequence[str], *, ran: Mapping[str, FirstCall] | None = None
    ) -> None:
        self._model, self._ran = model, ran
        self._doubtful = {at(model, name) for name, each in (ran or {}).items() if not each.gives_tensors}
        self._names = {module: name for name, module in model.named_modules()}
        self._through: dict[str, set[nn.Module]] = {}
        self._tools: dict[str, set[str]] = {}
        self.found = [found for name in convolutions if (found := self._find(name)) is not None]

    def traces(self, names: Sequence[str]) -> dict[str, tuple[Trace, ...]]:
        """Those with the blocks around the convolutions of ``names``, by the path of the module that they are the
        forward pass of: in the modes that modules are in, and in every other one in which it has blocks."""
        made = {path: [trace] for path, trace in self.in_this_mode(names).items()}
        convolutions = [found.conv for found in self._wanted(names)]
        for mode in get_args(Mode):
            if all(module.training == _trains_in(mode, module) for module in self._model.modules()):
                continue
            with _in_mode(self._model, mode):
                others = FoundBlocks(self._model, convolutions, ran=self._ran).in_this_mode(names)
            for path, traces in made.items():
                if path in others and not any(_are_of_one_state(others[path], trace) for trace in traces):
                    traces.append(others[path])
        return {path: tuple(traces) for path, traces in made.items()}

    def _wanted(self, names: Sequence[str]) -> list[Found]:
        return [found for found in self.found if found.block and found.conv in names]

    def _find(self, name: str) -> Found | None:
        conv = at(self._model, name)
        if not isinstance(conv, CONVOLUTIONS):
            return None
        best: Found | None = None
        outer = name.split(".")[:-1] if name else []
        for level in range(len(outer), max(-1, len(outer) - _LEVELS), -1):
            path = ".".join(outer[:level])
            if self._ran is not None and path not in self._ran:
                continue
            found, is_cut = self._in_parent(path, name)
            if found is not None and (best is None or len(found.chain) > len(best.chain)):
                best = found
            elif found is not None and best is not None and found.why_not and not best.why_not:
                best.why_not = found.why_not  # of a larger block
            if not is_cut:
                break
        return best

    def _in_parent(self, path: str, name: str) -> tuple[Found | None, bool]:
        """The block in the graph of a module around a convolution, and whether its end is that of the graph."""
        parent = at(self._model, path)
        if type(parent).forward is nn.Module.forward or isinstance(parent, nn.ModuleList | nn.ModuleDict):
            return None, bool(path)
        try:
            signature = self._signature(path)
        except NoSignature as error:
            return Found(conv=name, parent=path, why_not=f"{_shown(path)} cannot be traced: {error}"), False
        inner = name[len(path) + 1 :] if path else name
        through = self._through.setdefault(path, {parent})
        for depth, _ in enumerate(inner.split(".")):
            through.add(at(parent, ".".join(inner.split(".")[:depth])))
        opaque: set[nn.Module] = set()
        for _ in range(_LOOKS):
            try:
                graph, _ = graph_of(parent, through, signature)
            except Exception as error:  # noqa: BLE001  whatever the model's own code raises
                why = f"{_shown(path)} cannot be traced: {str(error).partition(chr(10))[0][:120]}"
                return Found(conv=name, parent=path, why_not=why), False
            convolutions = [node for node in graph.nodes if node.op == "call_module" and node.target == inner]
            if len(convolutions) != 1:
                has_norm = any(before(each, parent).norm or after(each, parent).norm for each in convolutions)
                why = f"it runs {len(convolutions)} times in {_shown(path)}"
                return (Found(conv=name, parent=path, why_not=why) if has_norm else None), not convolutions
            sides = before(convolutions[0], parent), after(convolutions[0], parent)
            more = {each for side in sides if (each := _looks_into(side, parent)) is not None} - through - opaque
            opaque |= {each for each in more if not _leads_on(each)}
            through |= more - opaque
            if more <= opaque:
                break
        found = self._of_sides(Found(conv=name, parent=path, trains=parent.training), convolutions[0], *sides, parent)
        if found is not None and found.block:
            frozen, self._tools[path] = decided_in(parent, through, signature, doubtful=self._doubtful)
            if why := (frozen and f"{_shown(path)} {frozen}") or _own(through, self._names):
                found = Found(conv=name, parent=path, starts=found.starts, why_not=why)
        ends = [side.ends_at for side in (sides[1:] if isinstance(sides[1].kind, LayerNorm) else sides)]
        is_cut = any(end is not None and end.op in ("placeholder", "output") for end in ends)
        return found, is_cut and bool(path)

    def _signature(self, path: str) -> Signature:
        """Raises NoSignature."""
        if self._ran is None:
            plain: Any = plain_class(type(at(self._model, path)))
            return Signature.of(plain.forward)
        return self._ran[path].signature

    def _of_sides(self, found: Found, conv: Node, left: Side, right: Side, parent: nn.Module) -> Found | None:
        """The block that a convolution and its two sides are; None without a norm."""
        module = at(parent, str(conv.target))
        assert isinstance(module, CONVOLUTIONS)
        if left.norm is None and right.norm is None:
            return None
        if isinstance(right.kind, LayerNorm) or _has_other_statistics(left.kind, right.kind):
            left = Side()
        axes = len(module.kernel_size)
        reasons = [self._why_not(side, parent, found.parent, axes=axes) for side in (left, right)]
        if isinstance(right.kind, OverRanks) and not reasons[1]:
            if left.norm is None or reasons[0]:
                reasons[1] = f"of {owner_path(right.norm)}, there is no norm before the convolution"  # type: ignore[arg-type]
            else:
                found.behind, right = right, Side()
        elif right.norm is not None and isinstance(left.kind, OverRanks):
            reasons[1] = f"of {owner_path(right.norm)}, the norm before it has the statistics of all ranks"
        left, right = (Side() if why else side for side, why in zip((left, right), reasons, strict=True))
        found.why_not = "; ".join(filter(None, dict.fromkeys(reasons)))
        if left.norm is None and right.norm is None:
            return found
        if why := _why_no_convolution(module, found.conv, has_norm=right.norm is not None):
            found.why_not = why
            return found
        found.block = Block(
            norm1=FrozenNorm(eps=left.kind.eps) if isinstance(left.kind, OverRanks) else left.kind,
            act1=left.activation if left.norm is not None else "identity",
            norm2=right.kind,
            act2=right.activation if right.norm is not None else "identity",
        )
        if Block.parse(str(found.block)) != found.block:
            found.block, found.why_not = None, f"eps of {found.block} has more digits than a block's name"
            return found
        found.chain = [*left.between, conv, *right.between]
        found.norms = [norm for norm in (left.norm, right.norm) if norm is not None]
        first = owner_path(left.norm) if left.norm is not None else conv.target
        found.starts = f"{found.parent}.{first}" if found.parent else str(first)
        return found

    def _why_not(self, side: Side, parent: nn.Module, path: str, *, axes: int) -> str:
        if side.norm is None:
            return ""
        inner = owner_path(side.norm)
        assert inner is not None
        owner, name = at(parent, inner), f"{path}.{inner}" if path else inner
        has_neither = owner.weight is None and owner.bias is None
        may_lack = side.kind.statistics in ("running", "image")
        if (owner.weight is None or owner.bias is None) and not (has_neither and may_lack):
            return f"of {name}, it has no weight and bias"
        if isinstance(owner, _BatchNorm):
            if not owner.track_running_stats:
                return f"of {name}, there are no running statistics"
            if owner.training and not parent.training:
                return f"of {name}, its statistics are those of the batch"
        if side.kind.statistics == "running" and parent.training and _kind_of_device(owner) != "cpu":
            return f"of {name}, its statistics are not those of the batch"
        if not takes(owner, axes):
            return f"of {name}, it takes no images of {axes} axes"
        called = [str(node.target) for node in side.between if node.op == "call_module"]
        for each in dict.fromkeys([inner, *called]):
            if why := _why_of_its_own(at(parent, each), f"{path}.{each}" if path else each):
                return why
        again = sum(is_norm_of(node, inner) for node in side.norm.graph.nodes)
        return f"{name} runs {again} times in a step" if again > 1 else ""

    # -- traces --------------------------------------------------------------------------------------------------------

    def in_this_mode(self, names: Sequence[str]) -> dict[str, Trace]:
        """The traces of ``names`` in the mode that the model is in, alone."""
        by_parent: dict[str, list[Found]] = {}
        wanted = self._wanted(names)
        parents = sorted({found.parent for found in wanted}, key=len)
        for found in wanted:  # a traced forward pass is no longer called
            inner = at(self._model, found.parent)
            outer = next(path for path in parents if path == found.parent or inner in self._through[path])
            self._through[outer] |= self._through[found.parent]
            self._tools[outer] |= self._tools[found.parent]
            by_parent.setdefault(outer, []).append(found)
        return {path: self._trace(path, blocks) for path, blocks in by_parent.items()}

    def _trace(self, path: str, wanted: Sequence[Found]) -> Trace:
        parent = at(self._model, path)
        graph, signature = graph_of(parent, self._through[path], self._signature(path))
        inside = dict(parent.named_modules())
        members = set(self._through[path])
        blocks = []
        for each in wanted:
            inner = each.conv[len(path) + 1 :] if path else each.conv
            (conv,) = (node for node in graph.nodes if node.op == "call_module" and node.target == inner)
            found = self._of_sides(
                Found(conv=each.conv, parent=path), conv, before(conv, parent), after(conv, parent), parent
            )
            assert found is not None and found.block is not None
            module = inside[inner]
            assert isinstance(module, CONVOLUTIONS)
            members.update(inside[str(node.target)] for node in found.chain if node.op == "call_module")
            behind = found.behind
            members.update(inside[str(node.target)] for node in behind.between if node.op == "call_module")
            blocks.append(folded(graph, found.chain, found.norms, parent, place=place_of(module, found.block)))
            members.update(inside[path] for path in blocks[-1].norms)
            if behind.norm is not None:
                fold_over_ranks(graph, behind)
        for module in list(members):  # lists of modules, over which a forward pass goes
            members.update(each for each in module.children() if type(each).forward is nn.Module.forward)
        source, scope = source_of(graph)
        words = set(re.findall(r"[A-Za-z_]\w*", source + "".join(block.source for block in blocks)))
        names = names_of({name: value for name, value in scope.items() if name in words})
        watched = tuple(
            WatchedModule.of(module, path=inner, is_traced=module in self._through[path])
            for inner, module in inside.items()
            if module in members
        )
        return Trace(
            training=parent.training,
            signature=signature,
            tools=tuple(sorted(self._tools[path])),
            source=source,
            names=names,
            blocks=tuple(dataclasses.replace(block, names=names) for block in blocks),
            modules=watched,
        )


def _own(through: set[nn.Module], names: dict[nn.Module, str]) -> str:
    """Which of the traced modules has a forward pass of its own instance; empty if none has."""
    own = [
        f"the forward of {_shown(names[each])} is set on the instance" for each in through if "forward" in vars(each)
    ]
    return min(own, default="")


def _why_of_its_own(module: nn.Module, name: str) -> str:
    if isinstance(module, LazyModuleMixin):
        return f"{name} has no sizes before its first call; convert once more after it"
    if "forward" in vars(module):
        return f"the forward of {name} is set on the instance"
    return f"{name} has a hook" if any(len(getattr(module, hooks)) for hooks in HOOKS) else ""


def _why_no_convolution(conv: nn.Conv2d | nn.Conv3d, name: str, *, has_norm: bool) -> str:
    if conv.padding_mode != "zeros" and not isinstance(conv, SamePadding):
        return f"{name} pads with padding_mode={conv.padding_mode}"
    if conv.bias is not None and not has_norm:
        return "the convolution has a bias, and no norm after it"
    return _why_of_its_own(conv, name)


def _has_other_statistics(first: Any, second: Any) -> bool:
    """Whether only one of two norms has those of each image: the second is then in a block alone."""
    both = isinstance(first, Norm) and isinstance(second, Norm)
    return both and first.is_of_images is not second.is_of_images


def _looks_into(side: Side, parent: nn.Module) -> nn.Module | None:
    """The module that ends a side, if its own code may go on with a block."""
    node = side.ends_at
    if node is None or node.op != "call_module" or kind_of(node, parent) is not None:
        return None
    module = at(parent, str(node.target))
    return None if type(module).__module__.startswith("torch.nn.") and type(module) is not nn.Sequential else module


def _leads_on(module: nn.Module) -> bool:
    """Whether to trace into a module: it is a sequence, a norm, or has nothing inside."""
    is_sequence = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    is_norm = isinstance(module, _BatchNorm | nn.LayerNorm | nn.GroupNorm)
    return is_sequence or is_norm or not [*module.children(), *module.parameters()]


def _kind_of_device(norm: nn.Module) -> str:
    """Only a CPU has kernels of frozen norms: elsewhere the rest of a block is one without them."""
    mean = getattr(norm, "running_mean", None)
    return "cpu" if mean is None else str(mean.device.type)


def _shown(path: str) -> str:
    return path or "the model itself"


def problem_with(problem: Problem, block: Block, *, trains: bool) -> Problem:
    """A convolution with a block around it. A BatchNorm takes a bias in, or away."""
    bias = problem.bias and block.layer_norm is not None
    return dataclasses.replace(problem, block=block if trains else block.thawed, bias=bias, trains=trains)


def _are_of_one_state(first: Trace, second: Trace) -> bool:
    """Whether both are of the same modes of the same modules."""
    modes = [{each.path: each.training for each in trace.modules} for trace in (first, second)]
    return first.training == second.training and all(
        modes[1].get(path, training) == training for path, training in modes[0].items()
    )
