"""Test data: the inputs that kernels are verified on.

Tensors have PyTorch's shapes (``Workload.shape_of``), in the order of ``Workload.inputs``.
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from dwconv.problems import epilogue
from dwconv.problems.problem import memory_format
from dwconv.problems.reference import dtype_of, over_space, terms
from dwconv.problems.right_answers import EXACT
from dwconv.problems.rounding import KINDS
from dwconv.problems.workload import EVAL_PASSES, IMAGES, Workload

Data = Literal["integers", "normal", "extreme"]
"""Test data. ``integers`` are so small that every order of summation in float32 gives the exact result. ``normal``
values are drawn from a normal distribution. ``extreme`` values are near the ends of the dtype's range, of widely
different magnitudes, NaN or infinite: each channel has one of these kinds, its neighbours have others."""

# Extreme values, as shares of the decades that a type has above 1: in float32 10^30, and 10^-20 to 10^20. All sums of
# products with normal values stay in the range of float32, whatever their order.
_LARGE, _WIDE = 0.78, 0.52
_LARGE_VALUES, _TINY_VALUES, _WIDE_VALUES, _NOT_FINITE, _NOT_FINITE_SECOND = range(5)


def operands(
    workload: Workload, *, data: Data, seed: int, device: str = "cpu", images: int | None = None
) -> tuple[torch.Tensor, ...]:
    """Random inputs of the pass, in calling order, in the workload's dtype and layout; ``images`` instead of its batch,
    if given."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for name in workload.inputs:
        shape = workload.with_batch(images or workload.batch).shape_of(name)
        if workload.block:
            drawn.append(torch.randn(shape, generator=generator))
        elif data == "integers":
            most = _largest_integer(workload)
            drawn.append(torch.randint(-most, most + 1, shape, generator=generator, dtype=torch.int8))
        else:
            drawn.append(torch.randn(shape, generator=generator))
        if name not in IMAGES and (scale := epilogue.weight_scale(workload)) != 1.0:
            drawn[-1] = drawn[-1] * scale
    if workload.block:
        _make_block(workload, dict(zip(workload.inputs, drawn, strict=True)), extreme=data == "extreme", seed=seed)
    elif data == "extreme":
        _make_extreme(workload, drawn, seed=seed, generator=generator)
    return tuple(
        _in_layout(workload, name, values.to(device, getattr(torch, workload.dtype_of(name))))
        for name, values in zip(workload.inputs, drawn, strict=True)
    )


def _in_layout(workload: Workload, name: str, tensor: torch.Tensor) -> torch.Tensor:
    if name in IMAGES:
        return tensor.contiguous(memory_format=memory_format(workload.layout, axes=workload.axes))
    return tensor


def _make_extreme(workload: Workload, inputs: list[torch.Tensor], *, seed: int, generator: torch.Generator) -> None:
    """Make normal values extreme, in place: the first of the inputs in most channels, the second in the rest."""
    first, second, *others = inputs
    limits = torch.finfo(dtype_of(workload))
    decades = math.log10(limits.max)
    multiplier = first.shape[1] // workload.channels
    kind = (torch.arange(workload.channels) + seed).repeat_interleave(multiplier)[None] % 5
    if workload.pass_ != "wgrad":  # which sums over images: their kinds would mix
        kind = (kind + torch.arange(len(first))[:, None]) % 5
    kind = over_space(workload, kind.expand(first.shape[:2]))
    first *= torch.where(kind == _LARGE_VALUES, 10.0 ** (_LARGE * decades), 1.0)
    # Only a few values are tiny, among zeros: a CPU takes a hundred cycles for each product that is a denormal.
    few = (kind == _TINY_VALUES) & over_space(workload, torch.arange(first.shape[1]) < 5 * multiplier)
    tiny = over_space(workload, torch.where(torch.arange(len(first)) == 0, limits.tiny, 0.0)[:, None])
    first *= torch.where(few, tiny, 1.0)
    wide = 10.0 ** (_WIDE * decades * (2 * torch.rand(first.shape, generator=generator) - 1))
    first *= torch.where(kind == _WIDE_VALUES, wide, 1.0)
    _strew(first.view(*first.shape[:2], -1), kind.flatten(2) == _NOT_FINITE, seed=seed, generator=generator)
    owner = torch.arange(workload.channels).repeat_interleave(workload.multiplier) + seed
    planes = second.view(-1, len(owner), math.prod(second.shape[-workload.axes :]))
    chosen = (owner % 5 == _NOT_FINITE_SECOND)[None, :, None].expand(len(planes), -1, 1)
    _strew(planes, chosen, seed=seed, generator=generator)
    _zero_every_other(planes, (kind == _NOT_FINITE).flatten(1).any(0).repeat_interleave(len(owner) // first.shape[1]))
    _zero_every_other(first.view(*first.shape[:2], -1), chosen[0, :: len(owner) // first.shape[1], 0])
    if "bias" in workload.inputs:
        others[0][::2] = 0.0  # added to a bias, tiny sums would vanish


def _make_block(workload: Workload, named: dict[str, torch.Tensor], *, extreme: bool, seed: int) -> None:
    """Make what a block is given of normal values, in place: γ near 1, statistics that are those of x and y, or near
    these where they are given. Extreme channels are far from zero beside their deviation, hardly deviate, are large,
    have a NaN, or are all the same."""
    assert workload.block is not None
    for name in ("x", "y") if extreme else ():
        if name not in named:
            continue
        image = named[name]
        kind = (torch.arange(image.shape[1]) + seed) % 5
        large = 1e3 if workload.dtype == "float16" else 1e12
        image *= over_space(workload, torch.tensor([1.0, 1e-4, large, 1.0, 0.0])[kind])
        image += over_space(workload, torch.tensor([1000.0, 0.0, 0.0, 0.0, 3.0])[kind])
        if name == "x":
            image.view(*image.shape[:2], -1)[-1, kind == _NOT_FINITE, -1] = math.nan
    for name, tensor in named.items():
        if name == "z":  # what an activation gave
            tensor.copy_(KINDS[workload.block.act2].apply(4 * tensor))
            continue
        of = named.get("x" if name.endswith("1") else "y")
        if name.startswith("gamma"):
            tensor.mul_(0.25).add_(1.0)
        elif name.startswith("beta"):
            tensor.mul_(0.25)
        elif name.startswith(("mean", "var")):
            if of is None:  # statistics of a y that is not computed yet
                tensor.mul_(0.25) if name.startswith("mean") else tensor.mul_(0.25).add_(1.0).square_()
                continue
            values = of.double().movedim(1, 0).flatten(1)
            norm = workload.block.norm1 if name.endswith("1") else workload.block.batch_norm2
            if workload.pass_ not in EVAL_PASSES and norm and not norm.is_frozen:
                tensor.copy_(values.mean(1) if name.startswith("mean") else values.var(1, correction=0))
                continue
            values, drawn = values.nan_to_num(), tensor.double()  # running statistics of other images: near those of x
            mean, variance = values.mean(1), values.var(1, correction=0)
            is_mean = name.startswith("mean")
            tensor.copy_(mean + 0.25 * drawn * variance.sqrt() if is_mean else variance * (1 + 0.25 * drawn) ** 2)


def _strew(planes: torch.Tensor, chosen: torch.Tensor, *, seed: int, generator: torch.Generator) -> None:
    """Put NaN, ∞ or -∞ into each chosen one of ``planes`` (images, channels, elements), in place."""
    images, channels, elements = planes.shape
    number = torch.arange(images)[:, None] + torch.arange(channels) + seed
    values = torch.tensor([math.inf, math.nan, -math.inf])[number % 3][..., None]
    at = torch.randint(elements, (images, channels, 1), generator=generator)
    planes.scatter_(2, at, values.where(chosen, planes.gather(2, at)))


def _zero_every_other(planes: torch.Tensor, chosen: torch.Tensor) -> None:
    """Every other element of the ``chosen`` channels of ``planes`` (images, channels, elements) becomes 0, in place,
    for 0 · ∞ is NaN."""
    _, channels, elements = planes.shape
    checkered = (torch.arange(channels)[:, None] + torch.arange(elements)) % 2 == 0
    planes.masked_fill_(checkered & chosen[:, None], 0.0)


def _largest_integer(workload: Workload) -> int:
    """The largest value, up to 3, whose products can be added up without rounding; 1 if there is none."""
    return next((most for most in (3, 2) if most * most * terms(workload) < EXACT), 1)
