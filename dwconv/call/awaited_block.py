"""AwaitedBlock: what runs up to the end of a block that is expected here, so that all of it can be one:

    x = started(x, place)                the block that was seen in the model, or that its author wrote
    h = F.batch_norm(x, …)               nothing runs yet: h waits, and knows what it is made of
    h = F.relu6(h)                       nor here; in place it is the same tensor that now stands for more
    y = dwconv.conv2d(h, w, padding=1)   nor here
    y = F.batch_norm(y, …)
    z = F.relu6(y)                       one op runs it all; running statistics learn of it

Functions are followed, not modules: it does not matter which modules call them, and what PyTorch's modules do besides,
as to count batches, they do. As soon as something else comes than was expected, or somebody else looks (a hook, a
second consumer, ``Function.apply``), what was done so far is done by PyTorch's functions, once, in order, and all goes
on without waiting. So another activation or other sizes give what they always do. In evaluation, where nothing is
recorded for a backward pass, a block of norms that have learnt waits in the same way, one of norms that train does not.

Calls that were followed to the end of a block C++ follows from then on, ``native/waiting.h``, until one is another or
somebody looks: then what was done so far is told here, and all goes on as if it had been followed here.

What is looked at only after the block ran is computed again, as gradients recorded through it are: from x, which must
be the same still. Compiled code does not wait: its compiler makes norms and activations one by itself, and nothing was
measured against that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from dwconv import native
from dwconv.call import block_call, blocks, compiled_block
from dwconv.call.block_call import IMAGE_DTYPES, LayerNormCall, NormCall, activation_of, is_plain
from dwconv.call.block_part import Call, Part, teach
from dwconv.call.call_plan import plan_for
from dwconv.call.expected import convolution_of, is_lowered
from dwconv.call.place import Place
from dwconv.call.waiting import Waiting
from dwconv.call.watchers import is_watched_beside_autocast
from dwconv.errors import InvalidWorkload

Ints = tuple[int, ...]


def started(x: Any, place: Place) -> Any:
    """``x``, waiting for a block, if it was measured to be faster as one at these sizes; x itself otherwise, and where
    somebody watches. Where nothing is recorded for a backward pass, one in evaluation."""
    if torch.compiler.is_compiling():
        return compiled_block.begun(x, place)
    waiting = native.begin_block(place, x)
    if waiting is not None:
        return waiting
    if not is_plain(x, *IMAGE_DTYPES) or x.dim() != 4:
        return x
    trains = torch.is_grad_enabled()
    if torch._C._is_any_autocast_enabled() and (place.block.layer_norm or not is_lowered(x)):
        return x  # under autocast a LayerNorm gives float32, whatever it is given
    if is_watched_beside_autocast(x, x, None) or (trains and x.is_inference()):
        return x
    if not x.is_contiguous(memory_format=torch.channels_last):
        return x
    if x.shape[1] * (place.weight_shape[0] // max(1, x.shape[1])) != place.weight_shape[0] or not x.numel():
        return x
    try:
        plan = plan_for(place.problem(x.shape, x.dtype, trains=trains), x.device)
    except InvalidWorkload:  # the kernel is larger than the image: its own function says so
        return x
    if not blocks.is_at_once(plan):
        return x
    return _waiting(Part(place=place, plan=plan, before=None, name="x", given=(x,)))


def may_wait(module: nn.Module) -> bool:
    """Whether a block may wait that a module begins: while it trains, and where nothing is recorded. Compiled code does
    not wait in evaluation."""
    return module.training or not (torch.is_grad_enabled() or torch.compiler.is_compiling())


def waits_for_blocks(module: object) -> bool:
    """Whether a module calls ``started``: its class says so."""
    return bool(getattr(type(module), "waits_for_blocks", False))


# -- what waits ------------------------------------------------------------------------------------------------------


@dataclass
class _Holder:
    """What a tensor stands for: with functions in place, more and more."""

    part: Part


def _waiting(part: Part) -> Tensor:
    """What stands for a part, in training with a place in autograd's graph."""
    holder, watched = _Holder(part), torch._C._are_functorch_transforms_active()
    waiting: Tensor
    if not part.trains:
        waiting = AwaitedBlock(holder)
    elif native.module is not None and not watched:
        waiting = native.wait(AwaitedBlock(holder), holder, part.tensors)
    else:
        waiting = (_Await.apply if watched else _apply)(holder, *part.tensors)  # type: ignore[no-untyped-call]
    return waiting


class _Await(Function):
    """As ``native.wait``, until that is compiled."""

    @staticmethod
    def forward(ctx: Any, holder: _Holder, *tensors: Tensor) -> Tensor:
        ctx.holder = holder
        return AwaitedBlock(holder)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.holder.part.gradients(gradient)


_apply = super(Function, _Await).apply
"""Function.apply without its check for transforms of torch.func: half of its time."""


class AwaitedBlock(Waiting):
    """Stands for x, or a result inside a block."""

    _holder: _Holder
    told: ClassVar[frozenset[Any]] = Waiting.told | {Tensor.stride}

    @staticmethod
    def __new__(cls: type[AwaitedBlock], holder: _Holder) -> AwaitedBlock:
        made: AwaitedBlock = holder.part.maker(cls)()
        made._holder = holder
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_compiling():  # which cannot look into C++
            return super().__torch_function__(func, types, args, kwargs)
        following = native.follow_block(func, args, kwargs)
        return super().__torch_function__(func, types, args, kwargs) if following is None else following

    def dim(self) -> int:
        """Of an image: norms ask in every call."""
        return 4

    def value(self) -> Tensor:
        """The result itself."""
        part = self._holder.part
        with part.around.again():
            return part.result()

    def following(self, func: Any, args: Any, kwargs: Any) -> Tensor | None:
        """What the next part of the block makes of it, if it is the one that is expected; None otherwise."""
        part = self._holder.part
        if torch.compiler.is_compiling():
            return None
        if (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) != part.around[:2]:
            return None
        if any(each.value is not None for each in (*part.earlier, part)):
            return None
        expected = part.place.parts[part.taken]
        if expected.startswith("act"):
            return self._activated(expected, func, args, kwargs)
        goes_on = {"conv": _convolved, "view": _viewed}.get(expected, _normalised)
        following = goes_on(part, func, args, kwargs)
        if following is None:
            return None
        following.call = Call(func, args[1:], kwargs, False)
        return _gone_on(following)

    def _activated(self, expected: str, func: Any, args: Any, kwargs: Any) -> Tensor | None:
        part = self._holder.part
        found = activation_of(func, args, kwargs)
        if found is None or found[0] != getattr(part.place.block, expected):
            return None
        following = part.then(expected)
        following.call = Call(func, args[1:], kwargs, found[1])
        if not found[1]:
            return _gone_on(following)
        self._holder.part = following
        return self if following.taken < len(part.place.parts) else _gone_on(following)


def _gone_on(part: Part) -> Tensor:
    """What stands for it; at the end of the block its result, by one op."""
    place = part.place
    if part.taken < len(place.parts):
        return _waiting(part)
    part.check()
    chain = (*part.earlier, part)
    weight, *others = next(each.given for each in chain if each.name == "conv")
    bias = others[0] if others else None
    if part.trains:
        norms = tuple((each.norm, each.learns) for each in chain if each.norm)
        part.value = block_call.run_planned(part.plan, part.x, weight, bias, norms)
        for each in chain:
            each.learns = False
    else:
        z = blocks.inference(part.plan, part.x, weight, bias, [each.given for each in chain if each.norm])
        part.value = part.result() if z is None else z
    if place.bias == bool(others) or not part.trains:
        teach(chain, AwaitedBlock)
    return part.value


# -- which function does what a part is to do --------------------------------------------------------------------------


def _normalised(part: Part, func: Any, args: Any, kwargs: Any) -> Part | None:
    is_layer_norm = part.name == "view"
    if func is not (F.layer_norm if is_layer_norm else F.batch_norm):
        return None
    norm: NormCall | LayerNormCall = (LayerNormCall if is_layer_norm else NormCall).of(*args, **kwargs)
    name = part.place.parts[part.taken]
    wanted = part.place.block.norm1 if name == "norm1" else part.place.block.norm2
    assert wanted is not None, "as it is a part"
    read = [norm.weight, norm.bias]
    if isinstance(norm, LayerNormCall):
        why_not = norm.why_not(part.shape, eps=wanted.eps)
    else:
        why_not = norm.why_not(part.shape, eps=wanted.eps, trains=part.trains)
        read += [] if part.trains else [norm.running_mean, norm.running_var]
    return None if why_not else part.then(name, tuple(each for each in read if each is not None), norm)


def _viewed(part: Part, func: Any, args: Any, kwargs: Any) -> Part | None:
    return part.then("view") if block_call.has_channels_last(func, args, kwargs) else None


def _convolved(part: Part, func: Any, args: Any, kwargs: Any) -> Part | None:
    learnt = convolution_of(part.place, part.x, part.shape, func, args, kwargs)
    return None if learnt is None else part.then("conv", learnt)
