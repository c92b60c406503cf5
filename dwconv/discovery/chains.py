"""Chains: norms, activations and depthwise convolutions of a step that hand their result to the next one alone.

    x ─► F.batch_norm ─► F.relu6 ─► conv2d ─► F.batch_norm ─► F.relu6 ─► z
         └───────────────────── a block ──────────────────────────┘
    x ─► conv2d ─► permute ─► F.layer_norm ─► z
         └───────────── a block ──────────┘

Functions are watched, whichever module calls them; a block begins where a module does, of whose input it is made. What
another one uses as well, also in a second place, ends it there.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils.weak import WeakTensorKeyDictionary

from dwconv.call.awaited_block import AwaitedBlock
from dwconv.call.block_call import IMAGE_DTYPES, LayerNormCall, NormCall, activation_of, has_channels_last
from dwconv.discovery.held import held
from dwconv.discovery.step import tensors_in
from dwconv.dispatch.decide import target_of, why_no_kernels
from dwconv.errors import InvalidWorkload, NoTemplate
from dwconv.problems.block import Activation, Block, LayerNorm, Norm
from dwconv.problems.problem import Problem


@dataclass(kw_only=True, eq=False)
class Link:
    """One function of a chain. No tensor is kept."""

    kind: Literal["norm", "act", "conv", "view", "layer_norm"]
    caller: str
    """The module that called it."""
    before: Link | None
    """Which made its input; None if that is no link."""
    is_given: bool
    """Whether its input is what its module was called with."""
    eps: float = 0.0
    trains: bool = False
    """Whether the statistics of a norm are those of the batch."""
    act: Activation = "identity"
    problem: Problem | None = None
    """Of a convolution."""
    device: torch.device | None = None
    dtype: torch.dtype | None = None
    """Of its input."""
    why_not: str = ""
    """Why it cannot be a part of a block."""
    after: Link | None = None
    used: int = 0
    """How often its result was."""


@dataclass(frozen=True, kw_only=True)
class SeenBlock:
    """A chain around a convolution, whether or not it can be one."""

    conv: Link
    starts: str
    """The module whose input it is made of."""
    block: Block | None
    why_not: str
    """Why it is not one, or why a part of the chain is not in it; empty if nothing is left out."""
    trains: bool = True
    """Whether the statistics of its norms are those of the batch."""


class Chains:
    """Grows with every function of the step."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = dict(model.named_modules())
        self._links: Any = WeakTensorKeyDictionary()
        self._runs: Counter[tuple[str, str]] = Counter()
        """How often a module called functions of a kind."""
        self._has_ended = False

    def function(self, func: Any, args: Any, kwargs: Any, result: Any, *, caller: str, inputs: Any) -> None:
        """A call of a function that is no convolution; ``inputs`` are those of the module that made it."""
        if func in AwaitedBlock.told or self._has_ended:
            return
        found = activation_of(func, args, kwargs)
        before = self._links.get(args[0]) if args and isinstance(args[0], Tensor) else None
        self.used((args, kwargs))
        if found and args:
            self._add(Link(kind="act", caller=caller, before=before, is_given=False, act=found[0]), result)
        elif func is F.batch_norm and args:
            norm = NormCall.of(*args, **kwargs)
            link = Link(
                kind="norm", caller=caller, before=before, is_given=_is_first(args[0], inputs), eps=float(norm.eps),
                trains=norm.training, why_not=norm.why_not(args[0].shape, eps=norm.eps, trains=norm.training),
                dtype=args[0].dtype,
            )  # fmt: skip
            self._add(link, result)
        elif before and has_channels_last(func, args, kwargs):
            self._add(Link(kind="view", caller=caller, before=before, is_given=False), result)
        elif before and func is F.layer_norm:
            call = LayerNormCall.of(*args, **kwargs)
            why = call.why_not(args[0].shape, eps=call.eps)
            if result.dtype is not args[0].dtype:
                why = f"it gives {str(result.dtype)[6:]} of {str(args[0].dtype)[6:]}"
            kind: Literal["layer_norm"] = "layer_norm"
            link = Link(
                kind=kind, caller=caller, before=before, is_given=False, eps=float(call.eps), trains=True, why_not=why
            )  # fmt: skip
            self._add(link, result)

    def convolution(self, x: Tensor, result: Tensor, problem: Problem, *, caller: str, inputs: Any) -> Link:
        """A depthwise convolution."""
        link = Link(
            kind="conv", caller=caller, before=self._links.get(x), is_given=_is_first(x, inputs), problem=problem,
            device=x.device, dtype=x.dtype,
        )  # fmt: skip
        self.used(x)
        self._add(link, result)
        return link

    def used(self, given: Any) -> None:
        """Tensors that were given to a function."""
        for tensor in {id(each): each for each in tensors_in(given)}.values():
            if link := self._links.get(tensor):
                link.used += 1

    def end(self, outputs: Any) -> None:
        """The model has given its outputs. What is done with them is not its own."""
        self.used(held(outputs, Tensor, but=nn.Module))
        self._has_ended = True

    def _add(self, link: Link, result: Tensor) -> None:
        if link.before:
            link.before.after = link
        self._runs[link.caller, link.kind] += 1
        self._links[result] = link

    # -- blocks --------------------------------------------------------------------------------------------------------

    def block_of(self, conv: Link) -> SeenBlock | None:
        """The chain around a convolution; None if there is no norm next to it."""
        norm1, act1 = _before(conv)
        norm2, act2 = _after(conv)
        if norm1 is None and norm2 is None:
            return None
        trains = any(norm.trains for norm in (norm1, norm2) if norm)
        if why := _why_never(conv.problem) or self._why_not(conv):
            return SeenBlock(conv=conv, starts=conv.caller, block=None, why_not=why)
        reasons = []
        if norm1 and (why := _why_frozen(norm1, trains) or self._why_not(norm1, act1) or _why_shared(norm1, act1)):
            reasons.append(why)
            norm1 = act1 = None
        if norm2 and (why := _why_frozen(norm2, trains) or self._why_not(norm2) or _why_shared(conv, norm2.before)):
            reasons.append(why)
            norm2 = act2 = None
        if norm2 and act2 and (why := self._why_not(act2) or _why_shared(norm2)):
            reasons.append(why)
            act2 = None
        if norm2 and norm2.kind == "layer_norm":
            norm1 = act1 = None
        first, block = norm1 or conv, None
        if norm1 or norm2:
            block = Block(
                norm1=Norm(eps=norm1.eps) if norm1 else None,
                act1=act1.act if act1 else "identity",
                norm2=_norm(norm2) if norm2 else None,
                act2=act2.act if act2 else "identity",
            )
            given = "" if first.is_given else f"it does not begin with what {_shown(first)} is given"
            why = (
                given
                or _why_not_alike(first, conv)
                or _why_no_bias(conv, norm2)
                or _why_no_kernels(conv, block, trains=trains)
            )
            if why:
                reasons, block = [why], None
        why_not = "; ".join(dict.fromkeys(reasons))
        return SeenBlock(conv=conv, starts=first.caller, block=block, why_not=why_not, trains=trains)

    def _why_not(self, *links: Link | None) -> str:
        """Why one of them can be no part of a block."""
        for link in filter(None, links):
            if link.why_not:
                return f"of {_shown(link)}, {link.why_not}"
            module = self._modules[link.caller]
            if isinstance(module, nn.SyncBatchNorm):
                return f"{_shown(link)} is a SyncBatchNorm, whose statistics are of all ranks"
            if any(not _is_of_lazy(hook) for name in _HOOKS for hook in getattr(module, name).values()):
                return f"{_shown(link)} has a hook"
            if link.kind != "act" and (times := self._runs[link.caller, link.kind]) > 1:
                return f"{_shown(link)} runs {times} times in a step"
        return ""


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _is_of_lazy(hook: Any) -> bool:
    """True of the hook of a lazy module, which is gone after its first call."""
    return getattr(hook, "__func__", None) is LazyModuleMixin._infer_parameters


def _why_never(problem: Problem | None) -> str:
    """Why there can be no block around a convolution, whatever is next to it."""
    assert problem is not None
    if problem.dtype not in IMAGE_DTYPES:
        return f"blocks are of float32 or 16 bits, it is of {problem.dtype_name}"
    return "" if problem.layout == "nhwc" else "blocks are channels_last, it is contiguous"


def _why_frozen(norm: Link, trains: bool) -> str:
    """Why a norm is not in a block of which others have the statistics of the batch."""
    return f"of {_shown(norm)}, its statistics are not those of the batch" if trains and not norm.trains else ""


def _why_not_alike(first: Link, conv: Link) -> str:
    assert conv.problem is not None
    if first.dtype is conv.problem.dtype:
        return ""
    return f"{_shown(first)} is given {str(first.dtype)[6:]}, the convolution is in {conv.problem.dtype_name}"


def _why_no_bias(conv: Link, norm2: Link | None) -> str:
    """A norm takes a bias away again, with the mean."""
    assert conv.problem is not None
    return "the convolution has a bias, and no norm after it" if conv.problem.bias and norm2 is None else ""


def _norm(link: Link) -> Norm | LayerNorm:
    return LayerNorm(eps=link.eps) if link.kind == "layer_norm" else Norm(eps=link.eps)


def _is_first(tensor: Any, inputs: Any) -> bool:
    return isinstance(inputs, tuple) and bool(inputs) and tensor is inputs[0]


def _before(conv: Link) -> tuple[Link | None, Link | None]:
    """The norm before it, and the activation between, if there is a norm."""
    link = conv.before
    act = link if link and link.kind == "act" else None
    norm = act.before if act else link
    return (norm, act) if norm and norm.kind == "norm" else (None, None)


def _after(conv: Link) -> tuple[Link | None, Link | None]:
    """The norm after it, and the activation after that; or a LayerNorm, of its view with the channels last."""
    if conv.after and conv.after.kind == "view":
        norm = conv.after.after
        return (norm, None) if norm and norm.kind == "layer_norm" else (None, None)
    norm = conv.after if conv.after and conv.after.kind == "norm" else None
    act = norm.after if norm and norm.after and norm.after.kind == "act" else None
    return norm, act


def _why_shared(*links: Link | None) -> str:
    """Which of them gives its result to more than the next one."""
    for link in filter(None, links):
        if link.used > 1:
            return f"the result of {_shown(link)} is used {link.used} times"
    return ""


def _shown(link: Link) -> str:
    return link.caller or "the model itself"


def _why_no_kernels(conv: Link, block: Block, *, trains: bool) -> str:
    """Why dwconv has no kernels for a convolution with that around it; empty if it may have."""
    assert conv.problem is not None and conv.device is not None
    try:
        if Block.parse(str(block)) != block:
            return f"eps of {block} has more digits than a block's name"
        problem = problem_with(conv.problem, block, trains=trains)
        if reason := why_no_kernels(problem, conv.device):
            return reason
        from dwconv.schedules.template import templates_for

        templates_for(problem.workload(problem.passes[0]), target_of(conv.device))
    except (InvalidWorkload, NoTemplate) as error:
        return str(error)
    return ""


def problem_with(problem: Problem, block: Block, *, trains: bool) -> Problem:
    """A convolution with a block around it. To a BatchNorm a bias makes no difference."""
    bias = problem.bias and block.layer_norm is not None
    return dataclasses.replace(problem, block=block, bias=bias, trains=trains)
