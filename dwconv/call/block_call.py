"""A block as a call: what PyTorch's functions are given, one after the other, as the one op of ``blocks``, which also
leaves the running statistics as they would.

    z = act2(F.batch_norm(conv2d(act1(F.batch_norm(x, …)), w), …))
    z = F.layer_norm(conv2d(x, w).permute(0, 2, 3, 1), …)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dwconv import native
from dwconv.call import blocks
from dwconv.call.call_plan import Plan
from dwconv.problems.block import Activation, Block
from dwconv.problems.block_reference import KINDS


class NormCall(NamedTuple):
    """The arguments of a call of ``F.batch_norm`` but its input; running statistics move by ``momentum``. A tuple,
    because two are made in every call of a block, in a third of the time that a frozen dataclass takes."""

    running_mean: Tensor | None
    running_var: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    training: bool
    momentum: float
    eps: float

    @classmethod
    def of(
        cls,
        input: Any,
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: Any = False,
        momentum: Any = 0.1,
        eps: Any = 1e-5,
    ) -> NormCall:
        """Of arguments as ``F.batch_norm`` takes them."""
        return cls(running_mean, running_var, weight, bias, training, momentum, eps)

    def apply(self, x: Tensor) -> Tensor:
        """On PyTorch's op."""
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps
        )

    def why_not(self, shape: Sequence[int], *, eps: float, trains: bool = True) -> str:
        """Why it is not, for an image of (N, C, H, W), the norm with ``eps`` of a block in training, or in evaluation;
        empty if it is."""
        if self.training != trains:
            return f"its statistics are {'not ' * trains}those of the batch"
        if self.weight is None or self.bias is None:
            return "it has no weight and bias"
        if self.eps != eps:
            return f"its eps is {self.eps}"
        if (self.running_mean is None) != (self.running_var is None):
            return "it has one running statistic alone"
        if self.running_mean is None and not trains:
            return "it has no running statistics"
        if not isinstance(self.momentum, (float, int)):
            return f"its momentum is {self.momentum}"
        for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
            if tensor is not None and not (
                is_plain(tensor, torch.float32) and tuple(tensor.shape) == tuple(shape[1:2])
            ):
                return "it holds other tensors than float32 ones with a number for each channel"
        return "" if values_per_channel(shape) > 1 or not trains else "there is one value per channel"

    def learn(self, mean: Tensor, variance: Tensor, *, count: int) -> None:
        """Move the running statistics towards those of a batch: ``mean`` and ``variance``, (C,), are of ``count``
        values of each channel. PyTorch keeps the unbiased variance."""
        if self.running_mean is None or self.running_var is None:
            return
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)


class LayerNormCall(NamedTuple):
    """The arguments of a call of ``F.layer_norm`` but its input, an image with the channels last."""

    normalized_shape: Sequence[int]
    weight: Tensor | None
    bias: Tensor | None
    eps: float

    @classmethod
    def of(
        cls, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5
    ) -> LayerNormCall:
        """Of arguments as ``F.layer_norm`` takes them."""
        return cls(normalized_shape, weight, bias, eps)

    def apply(self, x: Tensor) -> Tensor:
        """On PyTorch's op."""
        return F.layer_norm(x, list(self.normalized_shape), self.weight, self.bias, self.eps)

    def why_not(self, shape: Sequence[int], *, eps: float) -> str:
        """Why it is not, for an image of (N, H, W, C), the norm with ``eps`` of a block; empty if it is."""
        if tuple(self.normalized_shape) != tuple(shape[3:]):
            return "it is not over the channels of each pixel"
        if self.weight is None or self.bias is None:
            return "it has no weight and bias"
        if self.eps != eps:
            return f"its eps is {self.eps}"
        for tensor in (self.weight, self.bias):
            if not is_plain(tensor, torch.float32):
                return "it holds other tensors than float32 ones"
        return ""


def has_channels_last(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call of a function of PyTorch's gives an image (N, C, H, W) as (N, H, W, C)."""
    if func not in (Tensor.permute, torch.permute) or kwargs:
        return False
    order = args[1] if len(args) == 2 else args[1:]
    return tuple(each if type(each) is int else None for each in order) == CHANNELS_LAST


CHANNELS_LAST = (0, 2, 3, 1)


def channels_last(z: Tensor) -> Tensor:
    """The image ``z``, (N, C, H, W), not given away yet, as (N, H, W, C). In place: what PyTorch's LayerNorm
    gives is no view."""
    return z.transpose_(1, 2).transpose_(2, 3)


def values_per_channel(shape: Sequence[int]) -> int:
    """Of an image (N, C, H, W)."""
    return shape[0] * math.prod(shape[2:])


IMAGE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""Of images and weights; what norms hold is float32."""


def is_plain(tensor: Any, *dtypes: torch.dtype) -> bool:
    """True for numbers of ``dtypes`` at strides, of PyTorch's own classes, on any device."""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.dtype in dtypes
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
    )


def takes(block: Block, image: torch.dtype, weight: Any, bias: Any) -> bool:
    """Whether the convolution of a block of images of that type may have that weight and bias, which may be None. A
    weight in float32 is rounded, as ``torch.autocast`` does."""
    if not is_plain(weight, image, torch.float32):
        return False
    if bias is None:
        return True
    return block.norm2 is not None and is_plain(bias, *IMAGE_DTYPES) and tuple(bias.shape) == tuple(weight.shape[:1])


Norms = Sequence[NormCall | LayerNormCall]
"""The calls of a block's norms."""


def run_planned(plan: Plan, x: Tensor, w: Tensor, bias: Tensor | None, norms: Norms) -> Tensor:
    """As ``run``, past Python where C++ can take it: in a training step, where the caches have forgotten the
    interpreter, that is most of what a small block takes."""
    problem = plan.problem
    compiled = blocks.compiled(plan) if problem.bias == (bias is not None) else None
    z: Tensor | None = None if compiled is None else native.run_block(compiled, x, w.to(x.dtype), bias, norms)
    if z is None:
        return run(x, w, bias, norms, str(problem.block), *problem.geometry)
    return channels_last(z) if isinstance(norms[-1], LayerNormCall) else z


def run(x: Tensor, w: Tensor, bias: Tensor | None, norms: Norms, block: str, *geometry: Any) -> Tensor:
    """z, or y of a block without a second norm. ``bias``: of the convolution, only where a second norm takes it away
    again, with the mean, or a LayerNorm takes it in. Of a LayerNorm z has the channels last."""
    learnt = [tensor for norm in norms for tensor in (norm.weight, norm.bias) if tensor is not None]
    if isinstance(norms[-1], LayerNormCall):
        taken = learnt if bias is None else [bias.to(x.dtype), *learnt]
        z: Tensor = blocks.forward(x, w.to(x.dtype), taken, block, *geometry)[0]
        return channels_last(z)
    if bias is not None:
        learnt[-1] = learnt[-1] + (bias - bias)  # zeros, and zero gradients; NaN and infinity of a bias give NaN
    results = blocks.forward(x, w.to(x.dtype), learnt, block, *geometry)
    found = dict(zip(blocks.results_of(block), results, strict=True))
    if bias is not None:
        found["mean2"] = found["mean2"] + bias.detach()
    places = [(number, image) for number, image in (("1", x), ("2", results[0])) if f"mean{number}" in found]
    for (number, image), norm in zip(places, norms, strict=True):
        if isinstance(norm, NormCall):
            norm.learn(found[f"mean{number}"], found[f"var{number}"], count=values_per_channel(image.shape))
    return results[0]


# -- activations -----------------------------------------------------------------------------------------------------


def activation_of(func: Any, args: Any, kwargs: Any) -> tuple[Activation, bool] | None:
    """Which activation of blocks a call of a function of PyTorch's is, and whether it writes over what it is given;
    None if it is none."""
    known = _ACTIVATIONS.get(func)
    if known is None:
        return None
    name, others = known
    given = {**dict(zip(others, args[1:], strict=False)), **kwargs}
    given.pop("input", None)
    in_place = bool(given.pop("inplace", func in _IN_PLACE))
    usual = {"min_val": 0.0, "max_val": 6.0} if func is F.hardtanh else {"approximate": "none"}
    if func is F.hardtanh and set(given) != set(usual):
        return None
    return (name, in_place) if all(given[key] == usual.get(key) for key in given) else None


def activated(name: Activation, value: Tensor) -> Tensor:
    """By PyTorch's function, not in place."""
    return KINDS[name].apply(value)


_ACTIVATIONS: dict[Callable[..., Any], tuple[Activation, tuple[str, ...]]] = {
    F.relu: ("relu", ("inplace",)),
    torch.relu: ("relu", ()),
    torch.relu_: ("relu", ()),
    Tensor.relu: ("relu", ()),
    Tensor.relu_: ("relu", ()),
    F.relu6: ("relu6", ("inplace",)),
    F.hardtanh: ("relu6", ("min_val", "max_val", "inplace")),
    F.hardswish: ("hardswish", ("inplace",)),
    F.silu: ("silu", ("inplace",)),
    F.gelu: ("gelu", ()),
}
"""By function, with what it may be given besides its input."""
_IN_PLACE = (torch.relu_, Tensor.relu_)
