"""PyTorch's own operator, called as its users call it, in both layouts: what a candidate is measured against.

The tensors of the other layout already lie in that layout: no time includes a copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from dwconv.measure.clock.timing import GLANCE, Call, Clock, time_in_turns
from dwconv.problems import pytorch
from dwconv.problems.block import NOTHING, Block
from dwconv.problems.problem import Problem, lies_channels_last, memory_format
from dwconv.problems.workload import LAYOUTS, Layout, Pass, Workload

# What PyTorch's choice of a backend is called here; the rest goes by the name of PyTorch.
_LIBRARIES = {"Mkldnn": "onednn", "Cudnn": "cudnn", "CudaDepthwise2d": "aten"}


def pytorch_by_layout(workload: Workload, *inputs: torch.Tensor) -> dict[str, Call]:
    """PyTorch's operator on these inputs, by provider and layout: ``onednn-nhwc``, ``cudnn-nchw``, …"""
    calls: dict[str, Call] = {}
    for layout in LAYOUTS:
        name = f"{_library(workload, layout, device=inputs[0].device)}-{layout}"
        calls[name] = pytorch_call(workload, *laid_out(workload, *inputs, layout=layout))
    return calls


def around_call(workload: Workload, *inputs: torch.Tensor) -> Call | None:
    """PyTorch's ops of a block besides its convolution, in its layout, one after the other: what they take where a
    tuned kernel convolves. None for another workload, and where there are none."""
    block = workload.block
    if block is None or (block.norm1, block.act1, block.norm2) == (None, "identity", None):
        return None
    problem = Problem.of(workload)
    named = dict(zip(workload.inputs, laid_out(workload, *inputs, layout=workload.layout), strict=True))
    if workload.pass_ == "inference":
        y = torch.zeros(workload.output_shape, dtype=problem.dtype, device=inputs[0].device)
        y = y.contiguous(memory_format=problem.memory_format)
        return _block_inference_call(block, named, convolve=lambda a, w: y)
    return _around_call(problem, block, workload.pass_, named)


def transposed_call(workload: Workload, *inputs: torch.Tensor) -> Call | None:
    """PyTorch's transposed convolution whose forward pass the dgrad is, in the workload's layout: kernels of the one
    run the other. None where it takes as long as PyTorch's dgrad does: contiguous, in 3-D, and without a stride."""
    is_strided_dgrad = workload.pass_ == "dgrad" and max(workload.stride) > 1 and workload.multiplier == 1
    is_apart = workload.layout == "nhwc" and workload.axes == 2 and inputs[0].device.type == "cpu"
    if not (is_strided_dgrad and is_apart) or any(before != after for before, after in workload.padding):
        return None
    dy, w = laid_out(workload, *inputs, layout=workload.layout)
    numbers = (workload.stride, [before for before, _ in workload.padding], not_covered(workload), workload.channels)
    return lambda: F.conv_transpose2d(dy, w, None, *numbers, workload.dilation)


def not_covered(workload: Workload) -> list[int]:
    """Rows and columns at the end of the input that the last output does not reach, padding included: the output
    padding of the transposed convolution."""
    sizes = zip(workload.input_size, workload.kernel, workload.stride, workload.padding, workload.dilation, strict=True)
    return [
        (size + sum(padding) - dilation * (kernel - 1) - 1) % stride
        for size, kernel, stride, padding, dilation in sizes
    ]


def laid_out(workload: Workload, *inputs: torch.Tensor, layout: Layout) -> list[torch.Tensor]:
    """The inputs of a pass, laid out as a model converted to ``layout`` has them."""
    lies = memory_format(layout, axes=workload.axes)
    return [tensor.contiguous(memory_format=lies) if tensor.dim() > 1 else tensor for tensor in inputs]


def pytorch_call(workload: Workload, *inputs: torch.Tensor) -> Callable[[], Any]:
    """PyTorch's operator for the pass on these inputs, in whatever layout they have, as a call runs it where no kernel
    is faster; a causal convolution as its users write it, without a copy. It returns the result, or dw and dbias. A
    gradient of an activation has its sums from the forward pass, which PyTorch's keeps; so has that of a block."""
    layout: Layout = "nhwc" if lies_channels_last(inputs[0]) else "nchw"
    beyond = _padded_beyond(workload)
    problem = dataclasses.replace(Problem.of(_padded_alike(workload, beyond)), layout=layout)
    named = dict(zip(workload.inputs, inputs, strict=True))
    if workload.block == NOTHING and workload.pass_ == "backward":
        return lambda: pytorch.backward(problem, named["x"], named["dy"], named["w"])
    if workload.block:
        return _block_call(problem, workload.block, workload.pass_, named)
    given: list[Any] = [named.get(name) for name in ("x", "w", "bias", "dy")]
    x, w, bias, dy = given
    if workload.pass_ == "fprop":
        return _fprop_call(problem, x, w, bias, dy, beyond=beyond)
    dy = F.pad(dy, (0, beyond)).contiguous(memory_format=problem.memory_format) if beyond else dy
    if workload.pass_ == "dgrad":
        return lambda: pytorch.dgrad(problem, dy, w)
    wgrad = pytorch.wgrad_bias if workload.bias else pytorch.wgrad
    return lambda: wgrad(problem, x, dy)


def _block_call(problem: Problem, block: Block, pass_: Pass, named: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """One op after the other, with what autograd keeps for the backward pass."""
    if pass_ == "inference":
        return _block_inference_call(block, named, convolve=lambda a, w: pytorch.fprop(problem, a, w, None))
    given = _learning(problem, block, named)

    def forward() -> torch.Tensor:
        x, w, *others = given
        bias, norms = (others[0], others[1:]) if problem.bias else (None, others)
        with torch.inference_mode(False), torch.enable_grad():
            return pytorch.block_forward(block, lambda a: pytorch.fprop(problem, a, w, bias), x, *norms)

    if pass_ == "forward":
        return forward
    z, dz, learnt = forward(), _result_gradient(block, named), _with_gradients(given)
    return lambda: torch.autograd.grad(z, learnt, dz, retain_graph=True)


def _around_call(problem: Problem, block: Block, pass_: Pass, named: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """A call of the parts around the convolution: what it reads ends there, and what it gives begins anew."""
    x, w, *others = _learning(problem, block, named)
    bias, norms = (others[0], others[1:]) if problem.bias else (None, others)
    read: list[torch.Tensor] = []
    with torch.inference_mode(False), torch.no_grad():
        y = pytorch.fprop(problem, x, w, bias).requires_grad_()

    def forward() -> torch.Tensor:
        def convolve(a: torch.Tensor) -> torch.Tensor:
            read[:] = [a]
            return y

        with torch.inference_mode(False), torch.enable_grad():
            return pytorch.block_forward(block, convolve, x, *norms)

    if pass_ == "forward":
        return forward
    z, (a,), dz = forward(), read, _result_gradient(block, named)
    with torch.inference_mode(False):
        da = torch.ones_like(a)
    before = (4 if block.norm1.is_frozen else 2) if block.norm1 else 0
    parts = []
    if z is not y:
        parts.append((z, [y, *_with_gradients(norms[before:])], dz))
    if a is not x:
        parts.append((a, [x, *_with_gradients(norms[:before])], da))
    return lambda: [torch.autograd.grad(of, given, gradient, retain_graph=True) for of, given, gradient in parts]


def _result_gradient(block: Block, named: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.inference_mode(False):
        return named["dz" if block.norm2 else "dy"].clone(memory_format=torch.preserve_format)


def _learning(problem: Problem, block: Block, named: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """x, w, the bias if there is one, γ and β of each norm, with gradients; and the statistics of frozen norms."""
    with torch.inference_mode(False):
        copies = {name: tensor.clone(memory_format=torch.preserve_format) for name, tensor in named.items()}
        for name in block.inputs("forward", bias=problem.bias):
            if name not in copies:  # what is added takes no part in the backward pass
                like = copies["w"][:, 0, 0, 0] if name == "bias" else copies["gamma2"]
                copies[name] = torch.zeros_like(like)
        names = block.inputs("forward", bias=problem.bias)
        return [copies[name].requires_grad_(not name.startswith(("mean", "var"))) for name in names]


def _with_gradients(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [each for each in tensors if each.requires_grad]


def _block_inference_call(
    block: Block, named: dict[str, torch.Tensor], *, convolve: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> Callable[[], Any]:
    x, w, *norms = named.values()

    def inference() -> torch.Tensor:
        with torch.inference_mode():
            return pytorch.block_inference(block, lambda a: convolve(a, w), x, *norms)

    return inference


def _fprop_call(problem: Problem, x: Any, w: Any, bias: Any, dy: Any, *, beyond: int) -> Callable[[], Any]:
    def sums() -> torch.Tensor:
        z = pytorch.fprop(problem, x, w, bias)
        return z[..., : z.shape[-1] - beyond]

    if problem.epilogue == "silu_gradient":
        z = sums()
        return lambda: pytorch.silu_gradient(problem, z, dy)
    return lambda: pytorch.activated(problem, sums())


def _padded_beyond(workload: Workload) -> int:
    """Columns by which a causal convolution pads less after the end. In PyTorch it pads both sides
    alike, and cuts off what is over, which copies nothing; its gradient comes padded from there."""
    before, after = workload.padding[-1]
    return max(0, before - after) if workload.is_row and workload.stride[-1] == 1 and not workload.block else 0


def _padded_alike(workload: Workload, beyond: int) -> Workload:
    *others, (before, after) = workload.padding
    return dataclasses.replace(workload, padding=(*others, (before, after + beyond)))


def better_layout(calls: dict[str, Call], *, clock: Clock) -> str:
    """The name of the fastest of ``calls``, by a glance."""
    taken = time_in_turns(calls, clock=clock, effort=GLANCE)
    return min(taken, key=lambda name: taken[name].median_us)


def _library(workload: Workload, layout: Layout, *, device: torch.device) -> str:
    """What runs PyTorch's operator; ``pytorch`` where it does not report it."""
    dtype = getattr(torch, workload.dtype)
    x, w = laid_out(
        workload,
        *(torch.zeros(workload.with_batch(1).shape_of(name), dtype=dtype, device=device) for name in ("x", "w")),
        layout=layout,
    )
    padding, _ = pytorch.split_padding(Problem.of(workload).padding)
    try:
        backend = torch._C._select_conv_backend(
            x, w, None, workload.stride, padding, workload.dilation, False, [0] * workload.axes, workload.channels
        )
    except (AttributeError, RuntimeError, TypeError):  # private, so it may change
        return "pytorch"
    return _LIBRARIES.get(str(backend).rpartition(".")[2], "pytorch")
