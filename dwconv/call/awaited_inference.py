"""AwaitedInference: a block that is expected in evaluation, where its norms have the statistics that they have learnt.

As in ``awaited_block`` functions are followed until the end of the block, and whatever else comes, what was done so far
is done by PyTorch's functions, in order. Nothing learns and nothing is recorded for a backward pass: a part is the
function that was called, and can be called again at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from dwconv.call import blocks
from dwconv.call.block_call import NormCall, activated, activation_of
from dwconv.call.call_plan import Plan
from dwconv.call.expected import convolution_of, convolved, output_shape
from dwconv.call.place import Place
from dwconv.call.waiting import Waiting
from dwconv.errors import InvalidCall
from dwconv.problems.block import Norm

Ints = tuple[int, ...]
Apply = Callable[[Tensor], Tensor]


def awaited(x: Tensor, place: Place, plan: Plan) -> Tensor:
    """``x``, waiting for a block that ``plan`` runs as one."""
    return AwaitedInference(_Part(_Expected(x, place, plan), None, tuple(x.shape), None, (x,)))


class _Expected:
    """A block that has begun."""

    __slots__ = ("place", "plan", "x")

    def __init__(self, x: Tensor, place: Place, plan: Plan) -> None:
        self.x, self.place, self.plan = x, place, plan


class _Part:
    """x, or a part of a block that is done with the part before it. ``apply``: what PyTorch's function makes of that;
    ``given``: x itself; γ, β, mean and variance; or the weight, and a bias if there is one."""

    __slots__ = ("apply", "before", "expected", "given", "shape", "taken", "value", "versions")

    def __init__(
        self, expected: _Expected, before: _Part | None, shape: Ints, apply: Apply | None, given: tuple[Tensor, ...]
    ) -> None:
        self.expected, self.before, self.shape, self.apply, self.given = expected, before, shape, apply, given
        self.taken: int = 0 if before is None else before.taken + 1
        self.value: Tensor | None = None
        self.versions = [_version(tensor) for tensor in given]

    def then(self, apply: Apply, given: tuple[Tensor, ...] = (), shape: Ints | None = None) -> _Part:
        return _Part(self.expected, self, shape or self.shape, apply, given)

    @property
    def is_last(self) -> bool:
        return self.taken == len(self.expected.place.parts)

    def chain(self) -> list[_Part]:
        """From x on."""
        found = [self]
        while found[-1].before:
            found.append(found[-1].before)
        return found[::-1]

    def result(self) -> Tensor:
        """By PyTorch's functions, computed once."""
        if self.value is None:
            self.check()
            if self.before is None or self.apply is None:
                self.value = self.expected.x
            else:
                self.value = self.apply(self.before.result())
        return self.value

    def check(self) -> None:
        """Raises InvalidCall if a tensor has changed since."""
        if self.versions != [_version(tensor) for tensor in self.given]:
            what = "x" if self.before is None else "a weight or a statistic"
            raise InvalidCall(
                f"a result inside a block is used after {what} changed in place; clone() it where it is kept, or "
                "convert with blocks=False"
            )


def _version(tensor: Tensor) -> int:
    """How often it was changed; of tensors of ``torch.inference_mode`` nobody counts that."""
    return 0 if tensor.is_inference() else tensor._version


class AwaitedInference(Waiting):
    """Stands for x, or a result inside a block."""

    _part: _Part
    told: ClassVar[frozenset[Any]] = Waiting.told | {Tensor.stride}

    @staticmethod
    def __new__(cls: type[AwaitedInference], part: _Part) -> AwaitedInference:
        _, channels, height, width = part.shape
        x = part.expected.x
        made: AwaitedInference = Tensor._make_wrapper_subclass(
            cls,
            part.shape,
            strides=(height * width * channels, 1, width * channels, channels),
            dtype=x.dtype,
            device=x.device,
        )
        made._part = part
        return made

    def value(self) -> Tensor:
        """The result itself."""
        with torch.no_grad():  # as it was when it began to wait
            return self._part.result()

    def following(self, func: Any, args: Any, kwargs: Any) -> Tensor | None:
        """What the next part of the block makes of it, if it is the one that is expected; None otherwise."""
        part = self._part
        if part.value is not None or torch.is_grad_enabled():
            return None
        expected = part.expected.place.parts[part.taken]
        if expected.startswith("act"):
            return self._activated(expected, func, args, kwargs)
        if expected == "conv":
            following = _convolved(part, func, args, kwargs)
        else:
            following = _normalised(part, getattr(part.expected.place.block, expected), func, args, kwargs)
        return _gone_on(following) if following else None

    def _activated(self, expected: str, func: Any, args: Any, kwargs: Any) -> Tensor | None:
        part, found = self._part, activation_of(func, args, kwargs)
        if found is None or found[0] != getattr(part.expected.place.block, expected):
            return None
        following = part.then(partial(activated, found[0]))
        if found[1]:  # in place: this tensor stands for more from now on
            self._part = following
        return self if found[1] and not following.is_last else _gone_on(following)


def _gone_on(part: _Part) -> Tensor:
    """What stands for it; at the end of the block its result, by one op."""
    if not part.is_last:
        return AwaitedInference(part)
    expected = part.expected
    chain = part.chain()
    for each in chain:
        each.check()
    parts = dict(zip(expected.place.parts, chain[1:], strict=True))
    norms = [parts[name].given for name in ("norm1", "norm2") if name in parts]
    weight, *others = parts["conv"].given
    z = blocks.inference(expected.plan, expected.x, weight, others[0] if others else None, norms)
    part.value = part.result() if z is None else z
    return part.value


def _normalised(part: _Part, wanted: Norm, func: Any, args: Any, kwargs: Any) -> _Part | None:
    if func is not F.batch_norm:
        return None
    norm = NormCall.of(*args, **kwargs)
    if norm.why_not(part.shape, eps=wanted.eps, trains=False):
        return None
    return part.then(norm.apply, (norm.weight, norm.bias, norm.running_mean, norm.running_var))  # type: ignore[arg-type]


def _convolved(part: _Part, func: Any, args: Any, kwargs: Any) -> _Part | None:
    expected = part.expected
    learnt = convolution_of(expected.place, expected.x, part.shape, func, args, kwargs)
    if learnt is None:
        return None
    apply = partial(convolved, expected.place, part.shape, given=learnt)
    return part.then(apply, learnt, output_shape(expected.place, part.shape))
