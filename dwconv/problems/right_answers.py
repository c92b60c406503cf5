"""The right answer of a pass, and the error that a kernel is allowed in each element of it.

Answers are those of ``reference``. They are exact where float32 sums cannot round. Elsewhere a kernel is allowed what
rounding does, and NaN where its way to sum makes some of infinity.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from dwconv.problems import block_reference, epilogue
from dwconv.problems.reference import dtype_of, in_layout, over_space, reference, terms
from dwconv.problems.rounding import ROUNDING, SHORT_SUM, SMALLEST_STEP, stored
from dwconv.problems.workload import EVAL_PASSES, IMAGES, Workload

BESIDE = 14
"""Columns beside those that contribute to a result, to either side, that a kernel may multiply by zeros."""
EXACT = 2**24
"""float32 holds every whole number up to this one."""


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
        answers = [(in_layout(workload, of_image[order]),) for order in orders]
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
    error = epilogue.allowed_error(workload, z, dy, of_z=of_z, rounding=ROUNDING)
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
                expected=in_layout(workload, about.value),
                allowed=in_layout(workload, allowed),
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
    return ROUNDING * (SHORT_SUM + math.sqrt(count)) * magnitude + count * SMALLEST_STEP["float32"]


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
    return (in_layout(workload, result[repeated(workload.batch, images).to(first.device)]),)


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


def _sums_are_exact(workload: Workload, *inputs: torch.Tensor) -> bool:
    if (scale := epilogue.weight_scale(workload)) != 1.0:
        inputs = (inputs[0], *(parameter / scale for parameter in inputs[1:]))
    if not all(bool((tensor == tensor.round()).all()) for tensor in inputs):
        return False
    # At least 1, for a dbias sums dy as it is.
    first, second, *bias = (max(1.0, float(tensor.abs().max())) for tensor in inputs)
    return first * second * terms(workload) + sum(bias) < EXACT
