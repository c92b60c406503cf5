"""The reference: each pass in float64.

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
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from dwconv.problems import epilogue
from dwconv.problems.problem import memory_format
from dwconv.problems.workload import IMAGES, Workload

# Elements to work on at once: on a CPU they stay in the caches. With several threads there are so few that PyTorch runs
# them on one: waiting for other threads at every tap would take milliseconds on a busy machine.
_AT_ONCE, _AT_ONCE_ON_ONE_THREAD, _AT_ONCE_ON_A_GPU = 1 << 15, 1 << 17, 1 << 26


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
    return tuple(in_layout(workload, total) for total in totals)


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


def in_layout(workload: Workload, result: torch.Tensor) -> torch.Tensor:
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


def dtype_of(workload: Workload) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, workload.dtype)
    return dtype
