"""The right answer of a pass, and the error that a kernel is allowed.

Every pass is a sum over taps: shifted slices of the tensors, multiplied and added in float64, one tap at a time.
Nothing here uses PyTorch's convolutions, since kernels are compared with them too. NaN and infinity propagate to the
results that they contribute to, and to no others.

Tensors have PyTorch's shapes (``Workload.shape_of``); a pass's inputs and results come in the order of
``Workload.inputs`` and ``Workload.results``.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F

from dwconv.problems import block_reference, epilogue
from dwconv.problems.block_reference import SMALLEST_STEP, stored
from dwconv.problems.problem import memory_format
from dwconv.problems.workload import EVAL_PASSES, IMAGES, Workload

BESIDE = 14
"""Columns beside those that contribute to a result, to either side, that a kernel may multiply by zeros."""
EXACT = 2**24
"""float32 holds every whole number up to this one."""
# Rounding errors of a sum of n terms grow like sqrt(n) if they are independent; the constant covers short sums,
# where they are not, and the few roundings outside the sum.
_SHORT_SUM = 8.0
# Relative rounding error of one float32 operation. Kernels sum in float32.
_SUM_ROUNDING = 2.0**-24
# Elements to work on at once: on a CPU they stay in the caches. With several threads there are so few that PyTorch runs
# them on one: waiting for other threads at every tap would take milliseconds on a busy machine.
_AT_ONCE, _AT_ONCE_ON_ONE_THREAD, _AT_ONCE_ON_A_GPU = 1 << 15, 1 << 17, 1 << 26


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One right result, and the error that a kernel is allowed in each element."""

    expected: torch.Tensor
    """The result in float64; in the workload's dtype if the answer is exact."""
    allowed: torch.Tensor | None
    """The allowed error in float64; None if the answer is exact. Infinite where a float32 sum may overflow."""
    may_be_nan: torch.Tensor | None = None
    """True where NaN is right as well; None if nowhere."""
    may_be_nan_beside: torch.Tensor | None = None
    """True where it is right of a kernel that multiplies by zeros up to ``BESIDE`` columns further; None if nowhere."""


def right_answers(workload: Workload, *inputs: torch.Tensor, kind: str | None = None) -> tuple[Answer, ...]:
    """The results of ``workload`` on these inputs. If the inputs have fewer images than its batch, the images repeat.

    The answers are exact if all inputs are whole numbers so small that float32 sums of them cannot round; else they
    have a bound on the rounding of float32 sums and of storing the result. ``kind`` is the device that runs the kernel,
    ``cpu`` or ``cuda``; by default the one that the inputs are on."""
    if workload.epilogue != "none":
        return (_after_epilogue(workload, *inputs, kind=kind),)
    if workload.block:
        return _of_block(workload, *inputs)
    results = _of_the_batch(workload, *inputs)
    if _sums_are_exact(workload, *inputs):
        return tuple(_exact(workload, result) for result in results)
    magnitudes = _of_the_batch(workload, *(tensor.abs() for tensor in inputs))
    kind = kind or inputs[0].device.type
    may_be_nan = [_may_be_nan(workload, *inputs, kind=kind), None]  # dbias meets no padding
    beside = [_may_be_nan_beside(workload, *inputs, kind=kind), None]
    return tuple(
        Answer(
            expected=result,
            allowed=_allowed(workload, result, magnitude),
            may_be_nan=nan,
            may_be_nan_beside=nan_beside,
        )
        for result, magnitude, nan, nan_beside in zip(results, magnitudes, may_be_nan, beside, strict=False)
    )


def exact_answers(workload: Workload, batches: Sequence[int], *inputs: torch.Tensor) -> list[tuple[Answer, ...]] | None:
    """The answers at each of these batch sizes, whose images are those of the inputs: one reference serves all. None if
    float32 sums may round at the largest, and of an epilogue and a block, which round."""
    first, second, *_ = inputs
    images = len(first)
    if workload.epilogue != "none" or workload.block or not _sums_are_exact(workload.with_batch(max(batches)), *inputs):
        return None
    orders = [repeated(batch, images).to(first.device) for batch in batches]
    if workload.pass_ == "wgrad":  # a sum over images: of each alone, and how often it counts
        alone = [reference(workload.with_batch(1), first[k : k + 1], second[k : k + 1]) for k in range(images)]
        of_images = [torch.stack(results) for results in zip(*alone, strict=True)]
        times = [torch.bincount(order, minlength=images).double() for order in orders]
        answers = [tuple(torch.tensordot(counts, each, dims=1) for each in of_images) for counts in times]
    else:
        (of_image,) = (result.float() for result in reference(workload.with_batch(images), *inputs))
        answers = [(_laid_out(workload, of_image[order]),) for order in orders]
    return [tuple(_exact(workload, result) for result in results) for results in answers]


def _after_epilogue(workload: Workload, *inputs: torch.Tensor, kind: str | None) -> Answer:
    """The answer of the sums alone, and what the epilogue makes of it and of its error."""
    plain = workload.with_epilogue("none")
    dy = None
    if workload.inputs[-1] == "dy":
        *inputs, dy = inputs  # type: ignore[assignment]
        dy = dy[repeated(workload.batch, len(dy)).to(dy.device)].double()
    (z,) = _of_the_batch(plain, *inputs)
    of_z: torch.Tensor | float = 0.0
    overflows, nan = torch.zeros_like(z, dtype=torch.bool), None
    if not _sums_are_exact(workload, *inputs):
        (magnitude,) = _of_the_batch(plain, *(tensor.abs() for tensor in inputs))
        of_z, overflows = _sum_error(plain, magnitude), magnitude >= torch.finfo(torch.float32).max
        nan = _may_be_nan(plain, *inputs, kind=kind or inputs[0].device.type)
    result = epilogue.apply(workload, z, dy)
    error = epilogue.allowed_error(workload, z, dy, of_z=of_z, rounding=_SUM_ROUNDING)
    overflows |= result.abs() >= torch.finfo(dtype_of(workload)).max
    allowed = stored(workload.dtype, result, error).where(~overflows, math.inf)
    return Answer(expected=result, allowed=allowed, may_be_nan=nan)


def _of_block(workload: Workload, *inputs: torch.Tensor) -> tuple[Answer, ...]:
    """Its statistics are those of the whole batch, or given. NaN or infinity in a channel may reach all that the
    channel gives: through a statistic, or times the zeros of the padding. Of x it does not where statistics are
    given."""
    named = zip(workload.inputs, inputs, strict=True)
    order = repeated(workload.batch, len(inputs[0])).to(inputs[0].device)
    whole = [tensor[order] if name in IMAGES else tensor for name, tensor in named]
    found = block_reference.results(workload, *whole, convolve=lambda *given: reference(*given)[0])
    finite = torch.ones(workload.channels, dtype=torch.bool, device=inputs[0].device)
    for name, tensor in zip(workload.inputs, inputs, strict=True):
        if name in IMAGES and workload.pass_ in EVAL_PASSES:
            continue
        by_channel = tensor.movedim(1, 0) if name in IMAGES else tensor
        finite &= by_channel.reshape(workload.channels, -1).isfinite().all(1)
    answers = []
    for name in workload.results:
        about = found[name]
        dtype = workload.dtype_of(name)
        largest = torch.finfo(getattr(torch, dtype)).max
        allowed = stored(dtype, about.value, about.error).where(about.magnitude < largest, math.inf)
        shape = [1] * about.value.dim()
        shape[1 if name in IMAGES else 0] = -1
        answers.append(
            Answer(
                expected=_laid_out(workload, about.value),
                allowed=_laid_out(workload, allowed),
                may_be_nan=~finite.view(shape).expand_as(about.value),
            )
        )
    return tuple(answers)


def _exact(workload: Workload, result: torch.Tensor) -> Answer:
    """float32 in between: a kernel sums in float32 and rounds once, and so may not round twice from float64."""
    return Answer(expected=result.float().to(dtype_of(workload)), allowed=None)


def _allowed(workload: Workload, result: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """The error allowed in each element; ``magnitude`` is the sum of the absolute values of its terms."""
    allowed = stored(workload.dtype, result, _sum_error(workload, magnitude))
    return allowed.where(magnitude < torch.finfo(dtype_of(workload)).max, math.inf)


def _sum_error(workload: Workload, magnitude: torch.Tensor) -> torch.Tensor:
    count = terms(workload)
    return _SUM_ROUNDING * (_SHORT_SUM + math.sqrt(count)) * magnitude + count * SMALLEST_STEP["float32"]


def _of_the_batch(workload: Workload, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """``reference`` for the workload's batch; the inputs hold only the images that differ."""
    first, second, *bias = inputs
    images = len(first)
    if images == workload.batch:
        return reference(workload, *inputs)
    if workload.pass_ == "wgrad":  # a sum over images: an image that repeats n times counts n times
        times = torch.bincount(repeated(workload.batch, images), minlength=images).to(first.device)
        return reference(workload.with_batch(images), first, second.double() * over_space(workload, times[:, None]))
    (result,) = reference(workload.with_batch(images), first, second, *bias)
    return (_laid_out(workload, result[repeated(workload.batch, images).to(first.device)]),)


def repeated(batch: int, images: int) -> torch.Tensor:
    """For each image of a batch, which of the ``images`` different ones it is. They repeat in an order without a
    period, so that a kernel that takes one image for another shows."""
    number = torch.arange(batch)
    round_ = number // images
    return (number + round_ + round_ // images) % images


def _may_be_nan(workload: Workload, *inputs: torch.Tensor, kind: str) -> torch.Tensor | None:
    """True where infinity or NaN meets padding whose zeros a ``kind`` of kernel multiplies: 0 · ∞ is NaN. In NCHW on
    the CPU that is the padding to the left and right of images, with CUDA all padding."""
    first, second, *_ = inputs
    width = workload.axes - 1
    axes = tuple(range(workload.axes)) if kind == "cuda" else (width,)
    if kind == "cuda" and workload.pass_ == "wgrad":
        x_is_padded = _meets_zeros(workload, "x", first, second, axes=axes)
        return x_is_padded | _meets_zeros(workload, "dy", second, first, axes=axes)
    if workload.pass_ == "wgrad" or (kind == "cpu" and workload.layout == "nhwc") or second.isfinite().all():
        return None
    return _meets_zeros(workload, workload.inputs[0], first, second, axes=axes)


def _may_be_nan_beside(workload: Workload, *inputs: torch.Tensor, kind: str) -> torch.Tensor | None:
    """True where infinity or NaN stands in a row of the image that contributes to a result, up to ``BESIDE`` columns
    beside those that do: as with a wider kernel. Only kernels of 16 bits for CUDA multiply so, without stride and
    dilation."""
    first, second, *_ = inputs
    is_strided = any(step > 1 for step in (*workload.stride, *workload.dilation))
    if kind != "cuda" or is_strided or workload.dtype == "float32" or workload.pass_ == "wgrad":
        return None
    if first.isfinite().all():
        return None
    (*taps, across), (*padding, (before, after)) = workload.kernel, workload.padding
    wider = dataclasses.replace(
        workload,
        kernel=(*taps, across + 2 * BESIDE),
        padding=(*padding, (before + BESIDE, after + BESIDE)),
        bias=False,
    )
    met = (~first.isfinite()).double(), second.new_ones(wider.weight_shape)
    return _of_the_batch(wider, *met)[0] > 0


def _meets_zeros(
    workload: Workload, name: str, padded: torch.Tensor, other: torch.Tensor, *, axes: tuple[int, ...]
) -> torch.Tensor:
    """True where the result is NaN if the zeros around ``padded``, which is x or dy, are multiplied along these axes:
    the padding becomes part of the tensor. Only ``other`` may be infinite or NaN."""
    size, padding, widths = list(workload.input_size), list(workload.padding), []
    for axis in reversed(range(workload.axes)):
        stride, (before, after) = workload.stride[axis], padding[axis]
        if axis not in axes:
            widths += [0, 0]
        elif name == "x":
            widths += [before, after]
            size[axis], padding[axis] = size[axis] + before + after, (0, 0)
        else:  # as far as the kernel reaches; with so much more padding, dy has that size
            beyond = -(-workload.dilation[axis] * (workload.kernel[axis] - 1) // stride)
            widths += [beyond, beyond]
            padding[axis] = (before + stride * beyond, after + stride * beyond)
    larger = dataclasses.replace(workload, input_size=tuple(size), padding=tuple(padding), bias=False)
    given = [F.pad(torch.ones_like(padded), widths), torch.where(other.isfinite(), 1.0, math.inf)]
    return _of_the_batch(larger, *(given if name == workload.inputs[0] else reversed(given)))[0].isnan()


def reference(workload: Workload, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The pass in float64, tap by tap, on the inputs' device. Returns its results."""
    totals = tuple(
        torch.zeros(workload.shape_of(name), dtype=torch.float64, device=inputs[0].device) for name in workload.results
    )
    for images, channels in _portions(workload, device=inputs[0].device):
        portion = dataclasses.replace(
            workload, batch=images.stop - images.start, channels=channels.stop - channels.start
        )
        taken = [
            tensor[_part(workload, name, images, channels)].double().contiguous()
            for name, tensor in zip(workload.inputs, inputs, strict=True)
        ]
        for name, total, result in zip(workload.results, totals, _at_once(portion, *taken), strict=True):
            total[_part(workload, name, images, channels)] += result
    return tuple(_laid_out(workload, total) for total in totals)


def _portions(workload: Workload, *, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Slices of images and channels, to be worked on one after the other."""
    if device.type == "cuda":
        at_once = _AT_ONCE_ON_A_GPU
    else:
        at_once = _AT_ONCE if torch.get_num_threads() > 1 else _AT_ONCE_ON_ONE_THREAD
    plane = max(math.prod(workload.input_size), workload.multiplier * math.prod(workload.output_size))
    images = min(workload.batch, max(1, at_once // plane))
    channels = max(1, at_once // (images * plane))
    for image in range(0, workload.batch, images):
        for channel in range(0, workload.channels, channels):
            yield (
                slice(image, min(image + images, workload.batch)),
                slice(channel, min(channel + channels, workload.channels)),
            )


def _part(workload: Workload, name: str, images: slice, channels: slice) -> tuple[slice, ...]:
    if name not in ("x", "dx"):
        channels = slice(channels.start * workload.multiplier, channels.stop * workload.multiplier)
    return (images, channels) if name in IMAGES else (channels,)


def _laid_out(workload: Workload, result: torch.Tensor) -> torch.Tensor:
    """``result`` in the workload's layout: comparing it is then several times faster."""
    if result.dim() > 1 and workload.pass_ != "wgrad":
        return result.contiguous(memory_format=memory_format(workload.layout, axes=workload.axes))
    return result.contiguous()


def _at_once(workload: Workload, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first, second, *others = inputs
    if workload.pass_ == "fprop":
        z = _fprop(workload, x=first, w=second)
        z = z + over_space(workload, others[0]) if workload.bias else z
        return (epilogue.apply(workload, z, others[-1] if others else None),)
    if workload.pass_ == "dgrad":
        return (_dgrad(workload, dy=first, w=second),)
    dw = _wgrad(workload, x=first, dy=second)
    return (dw, second.sum(dim=_all_but_channels(second))) if workload.bias else (dw,)


def terms(workload: Workload) -> int:
    """The most products that are added up for one element of a result."""
    if workload.pass_ == "wgrad":
        return workload.batch * math.prod(workload.output_size)
    return math.prod(workload.kernel) * (workload.multiplier if workload.pass_ == "dgrad" else 1)


# -- the three sums --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Tap:
    """One element of the kernel, the outputs that read inside the input through it, and the inputs that they read."""

    at: tuple[int, ...]
    outputs: tuple[slice, ...]
    inputs: tuple[slice, ...]


@lru_cache(maxsize=64)
def _taps(workload: Workload) -> tuple[_Tap, ...]:
    reaches = [[_reach(workload, axis=axis, tap=tap) for tap in range(k)] for axis, k in enumerate(workload.kernel)]
    found = []
    for at in itertools.product(*map(range, workload.kernel)):
        outputs, inputs = zip(*(reaches[axis][tap] for axis, tap in enumerate(at)), strict=True)
        found.append(_Tap(at=at, outputs=outputs, inputs=inputs))
    return tuple(found)


def _reach(workload: Workload, *, axis: int, tap: int) -> tuple[slice, slice]:
    """(outputs, inputs) along an axis: output o reads input o·stride + tap·dilation − padding, if that is inside."""
    stride, size = workload.stride[axis], workload.input_size[axis]
    shift = tap * workload.dilation[axis] - workload.padding[axis][0]
    first = max(0, -(shift // stride))
    last = min(workload.output_size[axis] - 1, (size - 1 - shift) // stride)
    if last < first:
        return slice(0, 0), slice(0, 0)
    start = first * stride + shift
    return slice(first, last + 1), slice(start, start + (last - first) * stride + 1, stride)


def _fprop(workload: Workload, *, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    total = _by_channel(workload, x.new_zeros(workload.shape_of("y")))
    weights = w.reshape(workload.channels, workload.multiplier, *workload.kernel)
    for tap in _taps(workload):
        read = _at(x, tap.inputs).unsqueeze(2)
        _at(total, tap.outputs).addcmul_(read, over_space(workload, _at(weights, tap.at)))
    return total.flatten(1, 2)


def _dgrad(workload: Workload, *, dy: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    total = dy.new_zeros(workload.shape_of("dx"))
    gradients = _by_channel(workload, dy)
    weights = w.reshape(workload.channels, workload.multiplier, *workload.kernel)
    for tap in _taps(workload):
        for m in range(workload.multiplier):
            read = _at(gradients[:, :, m], tap.outputs)
            _at(total, tap.inputs).addcmul_(read, over_space(workload, _at(weights[:, m], tap.at)))
    return total


def _wgrad(workload: Workload, *, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    total = x.new_zeros(workload.shape_of("dw"))
    gradients = _by_channel(workload, dy)
    for tap in _taps(workload):
        products = _at(x, tap.inputs).unsqueeze(2) * _at(gradients, tap.outputs)
        _at(total[:, 0], tap.at).copy_(products.sum(dim=(0, *range(3, products.dim()))).flatten())
    return total


def _at(tensor: torch.Tensor, position: tuple[Any, ...]) -> torch.Tensor:
    return tensor[(..., *position)]


def _by_channel(workload: Workload, tensor: torch.Tensor) -> torch.Tensor:
    """(N, C·multiplier, …) as (N, C, multiplier, …)."""
    n, _, *size = tensor.shape
    return tensor.view(n, workload.channels, workload.multiplier, *size)


def over_space(workload: Workload, tensor: torch.Tensor) -> torch.Tensor:
    """With axes of size 1 for the height, the width and the depth, if there is one."""
    return tensor.view(*tensor.shape, *(1,) * workload.axes)


def _all_but_channels(image: torch.Tensor) -> tuple[int, ...]:
    return (0, *range(2, image.dim()))


# -- exactness -------------------------------------------------------------------------------------------------------


def _sums_are_exact(workload: Workload, *inputs: torch.Tensor) -> bool:
    if (scale := epilogue.weight_scale(workload)) != 1.0:
        inputs = (inputs[0], *(parameter / scale for parameter in inputs[1:]))
    if not all(bool((tensor == tensor.round()).all()) for tensor in inputs):
        return False
    # At least 1, for a dbias sums dy as it is.
    first, second, *bias = (max(1.0, float(tensor.abs().max())) for tensor in inputs)
    return first * second * terms(workload) + sum(bias) < EXACT


def dtype_of(workload: Workload) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, workload.dtype)
    return dtype
