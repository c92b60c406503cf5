"""Other providers of a workload on a device: the choices that a user of PyTorch has, named after the library that runs.

    aten-<layout>       PyTorch's own CUDA kernels
    cudnn-<layout>      cuDNN through PyTorch's operator, with its search for the best algorithm (benchmark=True)
    cudnn-op-<layout>   an operator of cuDNN's called directly, where PyTorch cannot be made to choose cuDNN
    inductor-<layout>   torch.compile(mode="max-autotune-no-cudagraphs")

Who runs PyTorch's operator under which settings is asked of PyTorch: a name says what it is, and nobody races twice.
Tensors already lie in the provider's layout: nobody pays for a copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch

from dwconv.measure.clock.timing import Call
from dwconv.measure.providers import laid_out, pytorch_call, pytorch_calls
from dwconv.problems.workload import LAYOUTS, Layout, Workload

Settings = Callable[[], AbstractContextManager[None]]
"""A context with PyTorch's settings while a call is made, first run and captured; never while it is timed."""
Inputs = Sequence[torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Provider:
    """``make`` returns a call on inputs, or raises the library's error; it may take long (a compiler, a search)."""

    name: str
    make: Callable[[Inputs], Call]
    settings: Settings = contextlib.nullcontext
    slow: bool = False
    """Making a call takes some ten seconds."""


def providers(workload: Workload, inputs: Inputs, *, compiled: bool = False) -> Iterator[Provider]:
    """All providers, those in the workload's own layout first; ``compiled`` adds torch.compile."""
    own: list[Layout] = sorted(LAYOUTS, key=lambda layout: layout != workload.layout)
    for layout in own:
        names = []
        for settings in settings_of_pytorch():
            with settings():
                name = next(name for name in pytorch_calls(workload, *inputs) if name.endswith(layout))
            if name not in names:
                names.append(name)
                yield Provider(name=name, make=partial(_pytorch, workload, layout), settings=settings)
        if inputs[0].device.type == "cuda" and f"cudnn-{layout}" not in names:
            yield Provider(name=f"cudnn-op-{layout}", make=partial(cudnn_op, workload, layout))
        if compiled:
            make = partial(_inductor, workload, layout)
            yield Provider(name=f"inductor-{layout}", make=make, settings=_as_chosen, slow=True)


def settings_of_pytorch() -> list[Settings]:
    """Settings of PyTorch that change which library runs its operator: its own choice, cuDNN if it can be told to use
    it, and without cuDNN."""
    told = hasattr(torch.backends.cudnn, "depthwise_kernel")  # newer than PyTorch 2.11
    return [_as_chosen, *([_told_to_use_cudnn] if told else []), _without_cudnn]


def _as_chosen() -> AbstractContextManager[None]:
    return torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False)


def _told_to_use_cudnn() -> AbstractContextManager[None]:
    return torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False, depthwise_kernel="cudnn")


def _without_cudnn() -> AbstractContextManager[None]:
    return torch.backends.cudnn.flags(enabled=False)


def _pytorch(workload: Workload, layout: Layout, inputs: Inputs) -> Call:
    return pytorch_call(workload, *laid_out(workload, *inputs, layout=layout))


def _inductor(workload: Workload, layout: Layout, inputs: Inputs) -> Call:
    compiled: Call = torch.compile(_pytorch(workload, layout, inputs), mode="max-autotune-no-cudagraphs")
    return compiled


def cudnn_op(workload: Workload, layout: Layout, inputs: Inputs) -> Call:
    """cuDNN's operators as PyTorch has them; the input's gradient is the transposed convolution. Raises ValueError for
    workloads that they cannot run."""
    if workload.pass_ == "wgrad":
        raise ValueError("PyTorch has no operator for cuDNN's weight gradient alone")
    if workload.bias:
        raise ValueError("cuDNN's operator adds no bias")
    if any(before != after for before, after in workload.padding):
        raise ValueError("cuDNN's operator pads both sides alike")
    first, w = laid_out(workload, *inputs, layout=layout)
    padding = [before for before, _ in workload.padding]
    flags = (True, False, False)  # benchmark, deterministic, allow_tf32
    if workload.pass_ == "fprop":
        operator = torch.ops.aten.cudnn_convolution
        return lambda: operator(first, w, padding, workload.stride, workload.dilation, workload.channels, *flags)
    transpose, over = torch.ops.aten.cudnn_convolution_transpose, _not_covered(workload)
    return lambda: transpose(first, w, padding, over, workload.stride, workload.dilation, workload.channels, *flags)


def _not_covered(workload: Workload) -> list[int]:
    """Rows and columns at the end of the input that the last output does not reach, padding included."""
    sizes = zip(workload.input_size, workload.kernel, workload.stride, workload.padding, workload.dilation, strict=True)
    return [
        (size + sum(padding) - dilation * (kernel - 1) - 1) % stride
        for size, kernel, stride, padding, dilation in sizes
    ]
