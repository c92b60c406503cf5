"""Everybody who can run a workload on a GPU: the choices a user of PyTorch has.

    aten-<layout>      PyTorch's own CUDA kernels, cuDNN switched off
    cudnn-<layout>     cuDNN through PyTorch, with its search for the best algorithm (benchmark=True)
    cudnn-op-<layout>  cuDNN's operator called directly, where PyTorch would not choose it (forward only)
    inductor-<layout>  torch.compile(mode="max-autotune")

Tensors already lie in the provider's layout: nobody pays for a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from dwconv.measure.cases import Case
from dwconv.measure.providers import laid_out, pytorch_call
from dwconv.workload import LAYOUTS, Layout, Workload

Call = Callable[[], object]


def gpu_providers(case: Case, *, compiled: bool) -> Iterator[tuple[str, Callable[[], Call]]]:
    """Names, and for each what makes its call; making it may take long (a compiler, a search) or fail.

    ``compiled``: torch.compile too, which takes some ten seconds."""
    for layout in LAYOUTS:
        yield f"aten-{layout}", lambda layout=layout: _aten(case, layout)
        yield f"cudnn-{layout}", lambda layout=layout: _cudnn(case, layout)
        if case.workload.pass_ == "fprop" and not case.workload.bias and _is_symmetric(case.workload):
            yield f"cudnn-op-{layout}", lambda layout=layout: _cudnn_op(case, layout)
        if compiled:
            yield f"inductor-{layout}", lambda layout=layout: _inductor(case, layout)


def _aten(case: Case, layout: Layout) -> Call:
    call = pytorch_call(case.workload, *laid_out(case.workload, *case.inputs, layout=layout))

    def run() -> object:
        with torch.backends.cudnn.flags(enabled=False):
            return call()

    return run


def _cudnn(case: Case, layout: Layout) -> Call:
    call = pytorch_call(case.workload, *laid_out(case.workload, *case.inputs, layout=layout))

    def run() -> object:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
            return call()

    return run


def _cudnn_op(case: Case, layout: Layout) -> Call:
    x, w = laid_out(case.workload, *case.inputs, layout=layout)
    workload = case.workload
    padding = [workload.padding[0][0], workload.padding[1][0]]
    return lambda: torch.ops.aten.cudnn_convolution(
        x, w, padding, workload.stride, workload.dilation, workload.channels, True, False, False
    )


def _inductor(case: Case, layout: Layout) -> Call:
    call = pytorch_call(case.workload, *laid_out(case.workload, *case.inputs, layout=layout))
    compiled: Call = torch.compile(call, mode="max-autotune-no-cudagraphs")
    return compiled


def _is_symmetric(workload: Workload) -> bool:
    return all(before == after for before, after in workload.padding)
