"""A block as a call: the arguments of PyTorch's modules go to the one op of ``block_ops``, which also updates running
statistics as they do.

    z = act2(F.batch_norm(conv2d(act1(F.batch_norm(x, …)), w), …))
    z = F.layer_norm(conv2d(x, w).permute(0, 2, 3, 1), …)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from dwconv.call import block_ops
from dwconv.call.block_tensors import batch_norms_of, is_layer_norm, results_of
from dwconv.call.call_plan import CallPlan, plan_for
from dwconv.dispatch import knowledge
from dwconv.errors import InvalidWorkload
from dwconv.kernels.operand import dense_strides
from dwconv.problems import pytorch
from dwconv.problems.as_written import tensorflow_padding
from dwconv.problems.block import Activation, Block, LayerNorm, Norm, Statistics
from dwconv.problems.problem import Problem, are_channels_last, lies_channels_last

Ints = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BlockForm:
    """All of a block but the size of its input. Plain data."""

    block: Block
    weight_shape: Ints
    """(C·multiplier, 1, KH, KW), in 3-D (C·multiplier, 1, KD, KH, KW)"""
    stride: Ints
    padding: Ints | None
    """(top, bottom, left, right), in 3-D (front, back, …); None: as much as TensorFlow's padding is for the size."""
    dilation: Ints
    bias: bool = False
    """Whether the block adds the bias of the convolution: a BatchNorm would cancel it."""

    def problem(self, shape: Sequence[int], dtype: torch.dtype = torch.float32, *, trains: bool = True) -> Problem:
        """For x of (N, C, H, W) or (N, C, D, H, W), in training or in evaluation."""
        return _problem(self, tuple(shape), dtype, trains)


@lru_cache(maxsize=1000)
def _problem(place: BlockForm, shape: Ints, dtype: torch.dtype, trains: bool) -> Problem:
    padding = place.padding
    if padding is None:
        padding = tuple(
            side
            for size, kernel, stride, dilation in zip(
                shape[2:], place.weight_shape[2:], place.stride, place.dilation, strict=True
            )
            for side in tensorflow_padding(size, kernel=kernel, stride=stride, dilation=dilation)
        )
    return Problem(
        input_shape=shape,
        weight_shape=place.weight_shape,
        stride=place.stride,
        padding=padding,
        dilation=place.dilation,
        dtype=dtype,
        layout="nhwc",
        bias=place.bias,
        block=place.block if trains else place.block.thawed,
        trains=trains,
    )


class NormCall(NamedTuple):
    """What a norm holds; running statistics move by ``momentum``. Of a LayerNorm or an InstanceNorm weight and bias
    alone. A tuple, because two are made in every call of a block, in a third of the time that a frozen dataclass
    takes."""

    running_mean: Tensor | None
    running_var: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    momentum: float = 0.0

    def tensors(self) -> list[Tensor]:
        return [each for each in self[:4] if isinstance(each, Tensor)]

    def learn(self, mean: Tensor, variance: Tensor, *, count: int) -> None:
        """Move the running statistics towards those of a batch: ``mean`` and ``variance``, (C,), are of ``count``
        values of each channel. PyTorch keeps the unbiased variance."""
        if self.running_mean is None or self.running_var is None:
            return
        unbiased = count / (count - 1)
        with torch.no_grad():
            if mean.is_cuda:  # each launch takes longer than its kernel
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * unbiased, self.momentum)
            else:
                self._learn_in_double(self.running_mean, mean.double())
                self._learn_in_double(self.running_var, variance.double() * unbiased)

    def _learn_in_double(self, running: Tensor, batch: Tensor) -> None:
        """As PyTorch's norm does, rounded once; to the same bits as ``native/statistics.h``."""
        running.copy_(batch * self.momentum + running.double() * (1 - self.momentum))


def plan_of(
    place: BlockForm, x: Tensor, w: Tensor, bias: Tensor | None, norms: Sequence[NormCall], *, trains: bool = True
) -> CallPlan | None:
    """The plan of a block that is faster as one; None where its parts run one by one. Tensors may be placeholders while
    a graph is made."""
    block = place.block
    lowers = torch._C._is_any_autocast_enabled()
    if lowers and not (_is_lowered(x) and all(_keeps(norm.statistics, x.device.type, x.dtype) for norm in block.norms)):
        return None
    shape, strides = (tuple(map(size_of, sizes)) for sizes in (x.shape, x.stride()))
    axes = len(place.weight_shape)
    if not _holds(x, *IMAGE_DTYPES) or len(shape) != axes or None in (*shape, *strides) or 0 in shape:
        return None
    if not are_channels_last(shape, strides):  # where a size of 1 leaves it open, PyTorch's ops go by the strides
        return None
    dense = dense_strides(shape, layout="nhwc")
    if any(size != 1 and here != wanted for size, here, wanted in zip(shape, strides, dense, strict=True)):
        return None
    if tuple(w.shape) != place.weight_shape or w.shape[0] % shape[1]:
        return None
    if bias is not None and (block.norm2 is None or bias.shape != w.shape[:1]):
        return None
    if block.layer_norm and place.bias != (bias is not None):
        return None
    rounded = (torch.float32,) if lowers else ()
    if not all(_holds(each, x.dtype, *rounded) and each.device == x.device for each in (w, bias) if each is not None):
        return None
    try:
        plan = plan_for(place.problem(shape, x.dtype, trains=trains), x.device)
    except InvalidWorkload:  # the kernel is larger than the image: PyTorch's function raises the error
        return None
    if not plan.is_at_once:
        return None
    of_y = plan.problem.workload(plan.problem.passes[0]).output_shape
    if shape[1] == 1 or any(math.prod(image[2:]) == 1 for image in (shape, of_y)):
        return None  # these are contiguous, too, and PyTorch's ops give them now one way, now the other
    kinds = [(kind, image) for kind, image in ((block.norm1, shape), (block.norm2, of_y)) if kind]
    fit = all(
        _fits(norm, kind, image, x.device, trains=trains) for norm, (kind, image) in zip(norms, kinds, strict=True)
    )
    return plan if fit else None


def is_ever_one(place: BlockForm, device: torch.device, *, trains: bool) -> bool:
    """Whether the block is faster as one at a size that records have. It takes as long as deciding that."""
    sizes = {
        (workload.input_shape, getattr(torch, workload.dtype))
        for record in knowledge.database()
        if (workload := record.workload).block == (place.block if trains else place.block.thawed)
        and place.weight_shape == (workload.channels * workload.multiplier, 1, *workload.kernel)
    }
    for shape, dtype in sizes:
        try:
            decisions = plan_for(place.problem(shape, dtype, trains=trains), device).decisions
        except InvalidWorkload:
            continue
        if all(each.provider == "dwconv" for each in decisions.values()):
            return True
    return False


def _fits(norm: NormCall, kind: Norm | LayerNorm, image: Sequence[int], device: torch.device, *, trains: bool) -> bool:
    """Whether a norm of ``image``, (N, C, …), is one of a block."""
    if norm.weight is None or norm.bias is None or (norm.running_mean is None) != (norm.running_var is None):
        return False
    if isinstance(kind, Norm) and kind.is_of_images:
        if math.prod(image[2:]) == 1 or norm.running_mean is not None:  # of one value PyTorch raises an error
            return False
    elif isinstance(kind, Norm):
        learns = trains and not kind.is_frozen
        if _values_per_channel(image) == 1 if learns else norm.running_mean is None:
            return False
    return isinstance(norm.momentum, (float, int)) and all(
        _holds(each, torch.float32) and each.device == device and tuple(each.shape) == tuple(image[1:2])
        for each in norm.tensors()
    )


IMAGE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""Of images and weights; what norms hold is float32."""


def _holds(tensor: Tensor, *dtypes: torch.dtype) -> bool:
    """True for numbers of ``dtypes`` at strides."""
    return (
        tensor.dtype in dtypes
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and not tensor._is_zerotensor()
    )


def _is_lowered(x: Tensor) -> bool:
    """Whether ``torch.autocast`` convolves in the type that x has."""
    kind = x.device.type
    return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) is x.dtype


@lru_cache(maxsize=10)
def _keeps(statistics: Statistics, kind: str, dtype: torch.dtype) -> bool:
    """Whether PyTorch's norm gives the type of its input under autocast: BatchNorm does; LayerNorm and GroupNorm do not
    on a GPU, where they give float32."""
    if statistics in ("batch", "running"):
        return True
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad(), torch.autocast(kind, dtype):
        y, gamma = torch.zeros((1, 2, 2, 2), dtype=dtype, device=kind), torch.ones(2, device=kind)
        if statistics == "pixel":
            return F.layer_norm(y, (2,), gamma, gamma).dtype is dtype
        return F.group_norm(y, 2, gamma, gamma).dtype is F.instance_norm(y, None, None, gamma, gamma).dtype is dtype


def size_of(size: Any) -> Any:
    """Of a size that may change, that of the example; None if only the running graph has it."""
    return size.node.hint if isinstance(size, torch.SymInt) else size


def _values_per_channel(shape: Sequence[int]) -> int:
    """Of an image (N, C, …)."""
    return shape[0] * math.prod(shape[2:])


CHANNELS_LAST = (0, 2, 3, 1)


def as_convolved(z: Tensor, conv: Any) -> Tensor:
    """z as it lies where PyTorch's op convolves a contiguous image, whatever the image in its place is here:
    channels_last if the weight of ``conv`` is, and otherwise contiguous."""
    return z if z.is_contiguous() or lies_channels_last(conv.weight) else z.contiguous()


def activated_over_ranks(y: Tensor, norm: Any, activation: Activation) -> Tensor:
    """An activation of what a norm with the statistics of all ranks gives, as one op; compiled, its parts."""
    if torch.compiler.is_compiling():
        return pytorch.ACTIVATIONS[activation](norm(y))
    z: Tensor = norm.activated(y, activation)
    return z


def run(x: Tensor, w: Tensor, bias: Tensor | None, norms: Sequence[NormCall], block: str, *geometry: Any) -> Tensor:
    """z, or y of a block without a second norm. ``bias``: of the convolution, only where a second norm takes it away
    again, with the mean, or a LayerNorm takes it in. Of a LayerNorm z has the channels last."""
    learnt = [tensor for norm in norms for tensor in (norm.weight, norm.bias) if tensor is not None]
    kinds = batch_norms_of(block)
    if is_layer_norm(block):
        taken = learnt if bias is None else [bias.to(x.dtype), *learnt]
        z: Tensor = block_ops.forward(x, w.to(x.dtype), taken, block, *geometry)[0]
        return z.transpose_(1, 2).transpose_(2, 3)  # in place: what PyTorch's LayerNorm gives is no view
    if bias is not None and kinds[-1].is_frozen:
        learnt[-1] = _shifted(norms[-1], bias, kinds[-1].eps)
    elif bias is not None:
        learnt[-1] = learnt[-1] + (bias - bias)  # zeros, and zero gradients; NaN and infinity of a bias give NaN
    taken = []
    for norm, kind in zip(norms, kinds, strict=True):
        taken, learnt = [*taken, *learnt[:2]], learnt[2:]
        if kind.is_frozen:
            assert norm.running_mean is not None and norm.running_var is not None, "it fits"
            taken += [norm.running_mean, norm.running_var]
    results = block_ops.forward(x, w.to(x.dtype), taken, block, *geometry)
    found = dict(zip(results_of(block), results, strict=True))
    if bias is not None and "mean2" in found:
        found["mean2"] = found["mean2"] + bias.detach()
    places = [(number, image) for number, image in (("1", x), ("2", results[0])) if f"mean{number}" in found]
    learning = [norm for norm, kind in zip(norms, kinds, strict=True) if kind.statistics == "batch"]
    for (number, image), norm in zip(places, learning, strict=True):
        norm.learn(found[f"mean{number}"], found[f"var{number}"], count=_values_per_channel(image.shape))
    return results[0]


def _shifted(norm: NormCall, bias: Tensor, eps: float) -> Tensor:
    """The β with which a frozen norm also adds the bias of the convolution, with gradients for what makes it."""
    assert norm.weight is not None and norm.bias is not None and norm.running_var is not None, "it fits"
    return norm.bias + norm.weight * torch.rsqrt(norm.running_var + eps) * bias
