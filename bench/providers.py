"""Other providers of a workload on a device: the choices that a user of PyTorch has, named after the library that runs.

    onednn-<layout>     oneDNN through PyTorch's operator, on a CPU
    onednn-blocked      the same on tensors in the layout that oneDNN chooses itself, ``aBcd16b`` or the like
    aten-<layout>       PyTorch's own CUDA kernels
    cudnn-<layout>      cuDNN through PyTorch's operator, with its search for the best algorithm (benchmark=True)
    cudnn-op-<layout>   an operator of cuDNN's called directly, where PyTorch cannot be made to choose cuDNN
    causal-conv1d-<layout>  the package of that name, on CUDA, where it is installed
    inductor-<layout>   torch.compile(mode="max-autotune-no-cudagraphs")
    pytorch-<layout>    PyTorch's transposed convolution, whatever library runs it

PyTorch reports which library runs its operator under which settings: a name says what it is, and none is raced twice.
Tensors are in the provider's layout: no time includes a copy. Packages of causal convolutions (``CAUSAL``) are imported
here alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch

from dwconv.errors import one_line
from dwconv.measure.clock.timing import Call
from dwconv.measure.providers import laid_out, not_covered, pytorch_by_layout, pytorch_call
from dwconv.problems.problem import memory_format
from dwconv.problems.pytorch import OPS, TRANSPOSED_OPS
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
                name = next(name for name in pytorch_by_layout(workload, *inputs) if name.endswith(layout))
            if name not in names:
                names.append(name)
                yield Provider(name=name, make=partial(_pytorch, workload, layout), settings=settings)
        if inputs[0].device.type == "cuda" and f"cudnn-{layout}" not in names:
            yield Provider(name=f"cudnn-op-{layout}", make=partial(cudnn_op, workload, layout))
        if compiled:
            make = partial(_inductor, workload, layout)
            yield Provider(name=f"inductor-{layout}", make=make, settings=_as_chosen, slow=True)
    if inputs[0].device.type == "cpu" and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        yield Provider(name="onednn-blocked", make=partial(onednn_blocked, workload))
    if inputs[0].device.type == "cuda" and workload.is_row and importlib.util.find_spec("causal_conv1d") is not None:
        for layout in own:
            yield Provider(name=f"causal-conv1d-{layout}", make=partial(causal_conv1d, workload, layout))


def transposed_providers(workload: Workload) -> Iterator[Provider]:
    """PyTorch's transposed convolution whose pass ``workload`` is: see ``workload.TRANSPOSED``. The workload's own
    layout comes first."""
    for layout in sorted(LAYOUTS, key=lambda layout: layout != workload.layout):
        yield Provider(name=f"pytorch-{layout}", make=partial(transposed, workload, layout))


def settings_of_pytorch() -> list[Settings]:
    """Settings of PyTorch that change which library runs its operator: its own choice, cuDNN if a setting makes it use
    it, and without cuDNN."""
    can_be_set = hasattr(torch.backends.cudnn, "depthwise_kernel")  # newer than PyTorch 2.11
    return [_as_chosen, *([_told_to_use_cudnn] if can_be_set else []), _without_cudnn]


def _as_chosen() -> AbstractContextManager[None]:
    return torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False)


def _told_to_use_cudnn() -> AbstractContextManager[None]:
    return torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False, depthwise_kernel="cudnn")


def _without_cudnn() -> AbstractContextManager[None]:
    return torch.backends.cudnn.flags(enabled=False)


def _pytorch(workload: Workload, layout: Layout, inputs: Inputs) -> Call:
    return pytorch_call(workload, *laid_out(workload, *inputs, layout=layout))


def _inductor(workload: Workload, layout: Layout, inputs: Inputs) -> Call:
    return torch.compile(_pytorch(workload, layout, inputs), mode="max-autotune-no-cudagraphs")


def onednn_blocked(workload: Workload, inputs: Inputs) -> Callable[[], torch.Tensor]:
    """oneDNN on tensors as a layer before leaves them that ran there, too; the result of fprop and dgrad stays as it
    is. The weight of fprop is in its own format; the operators of the gradients take none but PyTorch's. In 2-D oneDNN
    chooses blocks of channels, in 3-D often none. Raises ValueError or RuntimeError for workloads that have no such
    path in PyTorch."""
    if workload.bias or workload.epilogue != "none" or workload.block:
        raise ValueError("what comes with the convolution has no operator on tensors in oneDNN's own layout")
    if any(before != after for before, after in workload.padding):
        raise ValueError("oneDNN's operator pads both sides alike here")
    named = dict(zip(workload.inputs, inputs, strict=True))
    padding, groups = [before for before, _ in workload.padding], workload.channels
    how = (workload.stride, padding, workload.dilation)
    if workload.pass_ == "fprop":
        reorder, convolve = torch.ops.mkldnn._reorder_convolution_weight, OPS[workload.axes]
        x, w = _as_onednn_has_it(named["x"]), named["w"].contiguous()
        prepared = w.to_mkldnn() if workload.axes == 3 else reorder(w, padding, *how[::2], groups, list(x.shape))
        return lambda: convolve(x, prepared, None, *how, groups)
    backward, rest = torch.ops.aten.convolution_backward, (False, [0] * workload.axes, groups)
    dy = _as_onednn_has_it(named["dy"])
    # Of x in dgrad, of w in wgrad PyTorch reads only the shape.
    if workload.pass_ == "dgrad":
        like_x, w = _as_onednn_has_it(named["w"].new_zeros(workload.input_shape)), named["w"].contiguous()
        return lambda: backward(dy, like_x, w, None, *how, *rest, (True, False, False))[0]
    x, like_w = _as_onednn_has_it(named["x"]), named["x"].new_zeros(workload.shape_of("w"))
    return lambda: backward(dy, x, like_w, None, *how, *rest, (False, True, False))[1]


def _as_onednn_has_it(tensor: torch.Tensor) -> torch.Tensor:
    """The result of a depthwise layer that changes nothing: it is in the format of the next one. ``to_mkldnn`` alone
    leaves it as it is."""
    channels, axes = tensor.shape[1], tensor.dim() - 2
    ones = tensor.new_ones((channels, 1, *[1] * axes)).to_mkldnn()
    return OPS[axes](tensor.contiguous().to_mkldnn(), ones, None, 1, 0, 1, channels)


def is_eager(name: str) -> bool:
    """True of PyTorch's own operator, as it runs in a usual layout, by the name of the provider."""
    library, _, layout = name.rpartition("-")
    return layout in LAYOUTS and library not in ("inductor", "causal-conv1d")


def plain(result: torch.Tensor) -> torch.Tensor:
    """The result of any provider as a usual tensor."""
    return result.to_dense() if result.layout is torch._mkldnn else result  # type: ignore[attr-defined]


def causal_conv1d(workload: Workload, layout: Layout, inputs: Inputs) -> Call:
    """The package's operator for (B, C, L), or for (B, L, C) seen as that. Raises ValueError for workloads that it
    cannot run."""
    if workload.pass_ != "fprop" or workload.epilogue not in ("none", "silu"):
        raise ValueError("causal-conv1d computes all gradients in one call, none alone")
    taps = workload.kernel[-1]
    causal = workload.padding[-1] == (taps - 1, 0) and workload.stride[-1] == workload.dilation[-1] == 1
    if not causal or not 2 <= taps <= 4 or workload.multiplier != 1:
        raise ValueError("causal-conv1d takes causal rows of 2 to 4 taps, one output for each channel")
    named = dict(zip(workload.inputs, laid_out(workload, *inputs, layout=layout), strict=True))
    x, w, bias = named["x"].squeeze(2), named["w"].flatten(1), named.get("bias")
    run, silu = _of_causal_conv1d(), workload.epilogue == "silu"
    return lambda: run(x, w, bias, silu=silu).unsqueeze(2)


# -- causal convolutions of sequences, as functions that have gradients ------------------------------------------------


CausalFunction = Callable[..., torch.Tensor]
"""(x, weight, bias, silu=…) -> y; x and y are (B, C, L), weight (C, K), bias (C) or None. Raises the package's error
for what it does not run."""


def _of_causal_conv1d() -> CausalFunction:
    run = importlib.import_module("causal_conv1d").causal_conv1d_fn
    return lambda x, w, bias, *, silu: run(x, w, bias, activation="silu" if silu else None)


def _of_cudnn() -> CausalFunction:
    run = importlib.import_module("cudnn.ops").causal_conv1d
    return lambda x, w, bias, *, silu: run(x, w, bias, activation="silu" if silu else "identity")


def _of_subquadratic_ops() -> CausalFunction:
    run = importlib.import_module("subquadratic_ops_torch.causal_conv1d").causal_conv1d
    return lambda x, w, bias, *, silu: run(x, w, bias, "silu" if silu else "identity")


CAUSAL: dict[str, tuple[str, Callable[[], CausalFunction]]] = {
    "causal-conv1d": ("causal-conv1d", _of_causal_conv1d),
    "cudnn-causal": ("nvidia-cudnn-frontend 1.23 or newer, with cuDNN 9.22 or newer,", _of_cudnn),
    "subquadratic-ops": ("subquadratic-ops-torch", _of_subquadratic_ops),
}
"""Providers by name: the package, in words, and how its function is imported."""


def causal_functions() -> tuple[dict[str, CausalFunction], dict[str, str]]:
    """Those of ``CAUSAL`` that are installed, and why the others do not race."""
    found: dict[str, CausalFunction] = {}
    refused: dict[str, str] = {}
    for name, (package, imported) in CAUSAL.items():
        try:
            found[name] = imported()
        except ModuleNotFoundError:
            refused[name] = f"{package} is not installed"
        except Exception as error:  # noqa: BLE001  whatever a package raises that does not fit here
            refused[name] = f"{package} cannot be used: {one_line(f'{type(error).__name__}: {error}', most=150)}"
    return found, refused


def cudnn_op(workload: Workload, layout: Layout, inputs: Inputs) -> Call:
    """cuDNN's operators as PyTorch has them; the input's gradient is the transposed convolution. Raises ValueError for
    workloads that they cannot run."""
    if workload.pass_ == "wgrad":
        raise ValueError("PyTorch has no operator for cuDNN's weight gradient alone")
    if workload.block:
        raise ValueError("cuDNN's operators convolve, and nothing else")
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
    transpose, over = torch.ops.aten.cudnn_convolution_transpose, not_covered(workload)
    return lambda: transpose(first, w, padding, over, workload.stride, workload.dilation, workload.channels, *flags)


def transposed(workload: Workload, layout: Layout, inputs: Inputs) -> Call:
    """A pass of PyTorch's transposed convolution: forward is dgrad, and the gradient of its input fprop. Raises
    ValueError for workloads that are none of its passes."""
    if workload.bias or workload.epilogue != "none" or workload.block or workload.multiplier > 1:
        raise ValueError("a transposed convolution alone has one output for each channel, and no bias")
    if any(before != after for before, after in workload.padding):
        raise ValueError("PyTorch's transposed convolution pads both sides alike")
    named = dict(zip(workload.inputs, laid_out(workload, *inputs, layout=layout), strict=True))
    padding, over, groups = [before for before, _ in workload.padding], not_covered(workload), workload.channels
    if workload.pass_ == "dgrad":
        op, dy, w = TRANSPOSED_OPS[workload.axes], named["dy"], named["w"]
        return lambda: op(dy, w, None, workload.stride, padding, over, groups, workload.dilation)
    # Of the tensor whose gradient is not computed PyTorch reads only the shape.
    like = next(iter(named.values())).new_zeros
    dy = named.get(
        "dy", like(workload.output_shape).contiguous(memory_format=memory_format(layout, axes=workload.axes))
    )
    w, is_fprop = named.get("w", like(workload.shape_of("w"))), workload.pass_ == "fprop"
    how = (workload.stride, padding, workload.dilation, True, over, groups, (is_fprop, not is_fprop, False))
    backward = torch.ops.aten.convolution_backward
    return lambda: backward(named["x"], dy, w, None, *how)[not is_fprop]
