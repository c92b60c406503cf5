"""Part: a part of a block that waits for its end: the call that led to it, and what PyTorch's functions make of it.

    x ──norm──► part ──act──► part ──conv──► part ──norm──► part ──act──► z

In training a part has gradients, and its norms learn. In evaluation norms have the statistics that they have learnt,
nothing learns, and nothing is recorded for a backward pass.

The calls of a block that was followed to its end are taught to C++, ``native/waiting.h``, which follows such calls from
then on. If one is another, or somebody looks, it tells of its parts, and they are these again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from dwconv import native
from dwconv.call import block_call, blocks
from dwconv.call.block_call import CHANNELS_LAST, LayerNormCall, NormCall
from dwconv.call.call_plan import Plan
from dwconv.call.expected import convolved, output_shape
from dwconv.call.place import Place
from dwconv.errors import InvalidCall

Ints = tuple[int, ...]


class Call(NamedTuple):
    """Of a function of PyTorch's or of ours, without the tensor that waits."""

    function: Callable[..., Any]
    others: tuple[Any, ...]
    keywords: Any
    is_in_place: bool


class Around(NamedTuple):
    """What a call is done in."""

    is_recorded: bool
    """For a backward pass: in training."""
    is_inference: bool
    """Under ``torch.inference_mode``: what it gives can never be recorded."""
    threads: int
    autocast: torch.dtype | None
    """To which type it lowers, on the device of x."""

    @classmethod
    def now(cls, kind: str) -> Around:
        """``kind``: of device."""
        lowers = torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(kind)
        return cls(
            torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads(),
            torch.get_autocast_dtype(kind) if lowers else None,
        )  # fmt: skip

    @contextmanager
    def again(self) -> Iterator[None]:
        """Recorded, or never to be, as it was then, whatever it is by now."""
        is_other = torch.is_inference_mode_enabled() is not self.is_inference
        mode = torch.inference_mode(self.is_inference) if is_other else nullcontext()
        with mode, torch.set_grad_enabled(self.is_recorded):
            yield


class Part:
    """x, or a part of a block that is done with the part before it."""

    __slots__ = (
        "around", "call", "earlier", "given", "learns", "name", "norm", "place", "plan", "shape", "tensors", "value",
        "versions",
    )  # fmt: skip

    def __init__(
        self,
        *,
        place: Place,
        plan: Plan,
        before: Part | None,
        name: str,
        given: tuple[Tensor, ...],
        norm: NormCall | LayerNormCall | None = None,
        around: Around | None = None,
    ) -> None:
        self.place, self.plan, self.name = place, plan, name
        self.given = given
        """x, a weight and perhaps a bias, or γ and β: what has a gradient. In evaluation mean and variance, too."""
        self.norm = norm
        if around is None:  # norms and activations do the same in any
            around = before.around if before and name != "conv" else Around.now(given[0].device.type)
        self.around: Around = around
        self.learns = norm is not None and self.trains
        """Whether the running statistics do not know of it yet."""
        self.value: Tensor | None = None
        self.call: Call | None = None
        """The call that was followed to it."""
        self.versions = list(map(_version, given))
        self.earlier: tuple[Part, ...] = (*before.earlier, before) if before else ()
        """Those before it, from x on."""
        self.tensors: tuple[Tensor, ...] = (*before.tensors, *given) if before else given
        """All that was given, to those before it, too."""
        self.shape: Ints = before.shape if before else tuple(given[0].shape)
        if name == "conv":
            self.shape = output_shape(place, self.shape)
        elif name == "view":
            self.shape = tuple(self.shape[axis] for axis in CHANNELS_LAST)

    @property
    def x(self) -> Tensor:
        return self.tensors[0]

    @property
    def trains(self) -> bool:
        return self.plan.problem.trains

    @property
    def taken(self) -> int:
        """How many parts of the block it has."""
        return len(self.earlier)

    def result(self) -> Tensor:
        """By PyTorch's functions, computed once."""
        if self.value is None:
            self.check()
            if not self.earlier:
                self.value = self.x
            elif self.norm and self.learns:
                self.value, self.learns = self.norm.apply(self.earlier[-1].result()), False
            else:
                self.value = self.apply(self.earlier[-1].result(), self.given)
        return self.value

    def apply(self, value: Tensor, given: Sequence[Tensor]) -> Tensor:
        """This part alone, with other tensors. Running statistics stay."""
        if self.norm:
            return self.norm.apply_again(value, *given) if self.trains else self.norm.apply(value)
        if self.name == "view":
            return value.permute(CHANNELS_LAST)
        if self.name == "conv":
            return convolved(self.place, self.x.shape, value, given=given)
        act = self.place.block.act1 if self.name == "act1" else self.place.block.act2
        return block_call.activated(act, value)

    def again(self, tensors: Sequence[Tensor]) -> Tensor:
        """The result, of other tensors in place of ``tensors``."""
        left = iter(tensors)
        value = next(left)
        for part in (*self.earlier, self)[1:]:
            value = part.apply(value, [next(left) for _ in part.given])
        return value

    def gradients(self, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """From that of the result to those of ``tensors``."""
        again = torch.is_grad_enabled()
        self.check()
        wanted = [tensor.requires_grad for tensor in self.tensors]
        with torch.enable_grad():
            given = [
                each if again and is_wanted else each.detach().requires_grad_(is_wanted)
                for each, is_wanted in zip(self.tensors, wanted, strict=True)
            ]
            # Of x a view: where nothing was done with it yet, it would be asked for the gradient of itself.
            value = self.again([given[0].view_as(given[0]), *given[1:]])
            asked = [each for each, is_wanted in zip(given, wanted, strict=True) if is_wanted]
            found = iter(torch.autograd.grad(value, asked, gradient, create_graph=again))
        return tuple(next(found) if is_wanted else None for is_wanted in wanted)

    def check(self) -> None:
        """Raises InvalidCall if a tensor has changed since."""
        for part in (*self.earlier, self):
            if list(map(_version, part.given)) != part.versions:
                of_norm = "a weight or a statistic" if part.norm and not part.trains else "the weight"
                what = f"{of_norm} of its {part.name}" if part.earlier else "x"
                raise InvalidCall(
                    f"a result inside a block is used after {what} changed in place; clone() it where it is kept, or "
                    "convert with blocks=False"
                )

    def then(self, name: str, given: tuple[Tensor, ...] = (), norm: NormCall | LayerNormCall | None = None) -> Part:
        return Part(place=self.place, plan=self.plan, before=self, name=name, given=given, norm=norm)

    def maker(self, kind: type[Tensor]) -> Callable[[], Any]:
        """Makes a tensor that stands for it, of which nothing is known but its form."""
        if self.name == "view":
            _, height, width, channels = self.shape
            strides = (height * width * channels, width * channels, channels, 1)
        else:
            _, channels, height, width = self.shape
            strides = (height * width * channels, 1, width * channels, channels)
        x = self.x
        return partial(Tensor._make_wrapper_subclass, kind, self.shape, strides=strides, dtype=x.dtype, device=x.device)


def _version(tensor: Tensor) -> int:
    """How often it was changed; of tensors of ``torch.inference_mode`` nobody counts that."""
    return 0 if tensor.is_inference() else tensor._version


# -- what C++ follows --------------------------------------------------------------------------------------------------


def teach(chain: Sequence[Part], kind: type[Tensor]) -> None:
    """From now on C++ follows calls as those that led from x to the end of a block, if all were done in the same.
    ``kind``: of the tensors that wait."""
    module, (x, *others) = native.module, chain
    block = None if module is None else blocks.compiled(x.plan)
    if module is None or block is None:
        return
    if {part.around for part in chain} != {Around.now(x.x.device.type)}:
        return
    calls = []
    for part in others:
        assert part.call is not None, "it was followed"
        norm, statistics, momentum = part.norm, [], 0.0
        if isinstance(norm, NormCall):
            if part.trains:
                statistics = [each for each in (norm.running_mean, norm.running_var) if each is not None]
            norm, momentum = norm._replace(running_mean=None, running_var=None), float(norm.momentum)
        if norm is not None:
            norm = norm._replace(weight=None, bias=None)
        made = None if part is others[-1] else part.maker(kind)
        calls.append(
            module.Followed(
                part.call.function, (None, *part.call.others), part.call.keywords, made, part.call.is_in_place,
                part.name, norm, momentum, [*part.given, *statistics], len(part.given),
            )
        )  # fmt: skip
    remember = partial(_remembered, x.place, x.plan, x.around)
    module.learn_block(x.place, x.x, block, x.maker(kind), remember, calls)


@_disable_dynamo  # a function that is compiled may look, and PyTorch 2.11 fails to compile this
def _remembered(
    place: Place,
    plan: Plan,
    around: Around,
    before: Part | None,
    name: str,
    norm: NormCall | LayerNormCall | None,
    call: tuple[Any, ...] | None,
    tensors: Sequence[Tensor],
    versions: list[int],
    learns: bool,
    value: Tensor | None,
) -> Part:
    """A part that C++ was led to. ``tensors``: what it was given, one version of each, and statistics that learn."""
    given = tuple(tensors[: len(versions)])
    if norm is not None:
        norm = norm._replace(weight=given[0], bias=given[1])
    if isinstance(norm, NormCall) and len(tensors) > 2:
        norm = norm._replace(running_mean=tensors[2], running_var=tensors[3])
    part = Part(place=place, plan=plan, before=before, name=name, given=given, norm=norm, around=around)
    part.call = None if call is None else Call(*call)
    part.versions, part.learns, part.value = versions, learns and norm is not None, value
    return part
