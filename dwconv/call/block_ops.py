"""A block, ``problems.block``, as one: the torch ops ``dwconv::block_forward`` and ``dwconv::block_backward``.

    z, y, statistics = block_forward(x, w, norms)               norms: γ and β of each, of a frozen one its statistics
    dx, dw, gradients of norms = block_backward(dz, x, y, w, norms, statistics)

Beside a LayerNorm a bias of the convolution is the first of ``norms``. A BatchNorm cancels a bias.

Only x, y and statistics are kept for the backward pass; z in the place of y, or nothing, where that is enough. Tensors
come and go in the order of ``Workload.inputs`` and ``Workload.results``. Where no kernel does it at once, PyTorch's ops
run one after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor
from torch.autograd import Function

from dwconv import native
from dwconv.call import torch_ops
from dwconv.call.block_tensors import (
    batch_norms_of,
    is_layer_norm,
    kept_of,
    norms_of_backward,
    norms_of_forward,
    of_what_was_given,
    results_of,
)
from dwconv.call.call_plan import CallPlan, plan_for
from dwconv.call.cpp_ops import offer_of_plan
from dwconv.call.process_kernels import is_captured
from dwconv.call.torch_ops import GEOMETRY, OF_GEOMETRY, below_autograd
from dwconv.call.watchers import is_watched, is_watched_backward
from dwconv.dispatch import knowledge
from dwconv.dispatch.of_problem import saving
from dwconv.problems import pytorch
from dwconv.problems.block import Block, Norm
from dwconv.problems.problem import Problem, memory_format
from dwconv.problems.workload import Layout
from dwconv.records.line import encode
from dwconv.system import versions

torch_ops.define(f"block_forward(Tensor x, Tensor w, Tensor[] norms, str block, {GEOMETRY}) -> Tensor[]")
torch_ops.define(
    f"block_backward(Tensor dz, Tensor x, Tensor[] y, Tensor w, Tensor[] norms, str block, {GEOMETRY}) -> Tensor[]"
)

block_forward = torch.ops.dwconv.block_forward.default
block_backward = torch.ops.dwconv.block_backward.default


def _problem(x: Tensor, w: Tensor, norms: Sequence[Tensor], block: str, geometry: Sequence[Any]) -> Problem:
    *sizes, layout = geometry
    has_bias = len(norms) % 2 == 1
    return _problem_of(tuple(x.shape), tuple(w.shape), *map(tuple, sizes), layout, x.dtype, block, has_bias)


@lru_cache(maxsize=1000)
def _problem_of(
    input_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    layout: Layout,
    dtype: torch.dtype,
    block: str,
    has_bias: bool,
) -> Problem:
    return Problem(
        input_shape=input_shape,
        weight_shape=weight_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        dtype=dtype,
        layout=layout,
        bias=has_bias,
        block=Block.parse(block),
    )


def plan_of(x: Tensor, w: Tensor, norms: Sequence[Tensor], block: str, geometry: Sequence[Any]) -> CallPlan:
    return plan_for(_problem(x, w, norms, block, geometry), x.device)


def compiled(plan: CallPlan) -> Any | None:
    """The block for C++, from when that is compiled; None as long as one of its kernels runs elsewhere."""
    if plan.tally.block is None and native.module is not None and plan.problem.block is not None:
        runs = [kernel and kernel.native for kernel in map(plan.kernels.__getitem__, plan.problem.passes)]
        if all(runs) and not is_captured(plan.device):
            backward = runs[1] if plan.problem.trains else None
            plan.tally.block = native.module.TunedBlock(runs[0], backward, *_for_compiled(plan))
    return plan.tally.block


def _for_compiled(
    plan: CallPlan,
) -> tuple[bool, int, bool, list[Any], Any | None, Callable[[list[Tensor]], list[Tensor]]]:
    """Whether a block has a second norm, which of its results it keeps, whether its norm is a LayerNorm, of what the
    others have their statistics, what moves running statistics on a GPU, and its backward pass on ops that can be
    differentiated again."""
    problem = plan.problem
    assert problem.block is not None
    block, has_z = str(problem.block), problem.block.norm2 is not None
    has_layer_norm, kept = problem.block.layer_norm is not None, problem.block.kept
    place = results_of(block).index(kept) if kept else -1
    norms = [statistics_for_compiled(norm) for norm in problem.block.batch_norms]
    statistics = None
    if plan.device.type == "cuda" and problem.trains and not has_layer_norm:
        from dwconv.kernels.launch import statistics_kernel  # late: it is for GPUs alone

        statistics = statistics_kernel(native.module, plan.device)

    def watched_backward(given: list[Tensor]) -> list[Tensor]:
        dz, x, *images = given
        y, (w, *norms) = images[: place >= 0], images[place >= 0 :]
        return block_backward(dz, x, y, w, norms, block, *problem.geometry)

    return has_z, place, has_layer_norm, norms, statistics, watched_backward


def statistics_for_compiled(norm: Norm) -> Any:
    """Of what a norm has them, in the words of C++."""
    return getattr(native.module.Statistics, norm.statistics)  # type: ignore[union-attr]


decided_by = ""
"""A digest of what decides whether a block is faster as one: compiled graphs are kept under it."""


def note_decisions() -> None:
    """Key compiled code by the decisions of now. Compilers cannot trace the database that this reads."""
    global decided_by
    digest = hashlib.sha256(repr((versions.installed(), torch.get_num_threads(), saving())).encode())
    for record in knowledge.database():
        if record.workload.block is not None:
            digest.update(encode(record))
    decided_by = digest.hexdigest()


def forget() -> None:
    """Records may be others from now on: what is compiled until a model is converted is found by no other process."""
    global decided_by
    if decided_by:
        decided_by = uuid4().hex


def inference(
    plan: CallPlan, x: Tensor, w: Tensor, bias: Tensor | None, norms: Sequence[Sequence[Tensor]]
) -> Tensor | None:
    """z of a block in evaluation, or y without a second norm; None if its kernel could not be had after all.
    ``norms``: γ, β, mean and variance of each. ``bias``: of the convolution, only where a second norm has a mean to
    take it off from."""
    kernel = plan.kernels["inference"]
    if kernel is None:
        return None
    plan.tally.ops["inference"] += 1
    given = [tensor for norm in norms for tensor in norm]
    if bias is not None:
        given[-2] = given[-2] - bias
    return kernel(x, w.to(x.dtype), *given)


def _block_forward(x: Tensor, w: Tensor, norms: list[Tensor], block: str, *geometry: Any) -> list[Tensor]:
    plan = plan_of(x, w, norms, block, geometry)
    plan.tally.ops["forward"] += 1
    kernel = plan.kernels["forward"]
    if kernel is not None:
        results = kernel(x, w, *norms)
        gives = list(results) if isinstance(results, tuple) else [results]
        offer_of_plan(plan, (plan.kernels, "forward", range(2 + len(norms)), range(len(gives))))
        return gives
    found = _one_by_one(plan.problem, x, w, norms)
    return [found[name] for name in plan.problem.workload("forward").results]


def _block_backward(
    dz: Tensor, x: Tensor, y: list[Tensor], w: Tensor, norms: list[Tensor], block: str, *geometry: Any
) -> list[Tensor]:
    plan = plan_of(x, w, norms, block, geometry)
    plan.tally.ops["backward"] += 1
    kernel = plan.kernels["backward"]
    if kernel is not None:
        read = norms[-2:-1] if is_layer_norm(block) else norms  # γ alone
        results = list(kernel(dz, x, *y, w, *read))
        before = 3 + len(y)
        first = before + (len(norms) - 2 if is_layer_norm(block) else 0)
        reads = (*range(before), *range(first, first + len(read)))
        offer_of_plan(plan, (plan.kernels, "backward", reads, range(len(results))))
        return results
    with _recorded_by_autograd():
        return _gradients(plan.problem, dz, x, w, norms, create_graph=False)


@contextmanager
def _recorded_by_autograd() -> Iterator[None]:
    """Below autograd nothing is recorded, whatever the grad mode: here it is again."""
    below = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor"):
        below = below - torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), below), torch.enable_grad():
        yield


def _one_by_one(problem: Problem, x: Tensor, w: Tensor, norms: Sequence[Tensor]) -> dict[str, Tensor]:
    """Every result of the forward pass by its name, from PyTorch's ops."""
    found: dict[str, Tensor] = {}
    bias, norms = _bias_of(problem, norms)

    def convolve(a: Tensor) -> Tensor:
        found["y"] = pytorch.fprop(problem, a, w, bias)
        return found["y"].clone()  # whose memory the next ops may write to

    block = problem.block
    assert block is not None
    z = pytorch.block_forward(block, convolve, x, *norms)
    if block.layer_norm:
        return {"z": z.clone(memory_format=problem.memory_format), **found}  # it is a view
    found["z"] = z.contiguous(memory_format=problem.memory_format)
    for number, norm, image in (("1", block.norm1, x), ("2", block.batch_norm2, found["y"])):
        if norm and norm.statistics == "batch":
            variance, mean = torch.var_mean(image.to(_of_channels(image)), (0, *range(2, image.dim())), correction=0)
            found[f"mean{number}"], found[f"var{number}"] = mean, variance
    return found


def _bias_of(problem: Problem, norms: Sequence[Tensor]) -> tuple[Tensor | None, Sequence[Tensor]]:
    """The bias of the convolution, if there is one, and the norms' parameters."""
    return (norms[0], norms[1:]) if problem.bias else (None, norms)


def _gradients(
    problem: Problem, dz: Tensor, x: Tensor, w: Tensor, norms: Sequence[Tensor], *, create_graph: bool
) -> list[Tensor]:
    """The gradients of x, w and the norms' parameters, from PyTorch's own derivatives. ``norms``: as the backward pass
    has them."""

    def leaf(each: Tensor) -> Tensor:
        return each if create_graph and each.requires_grad else each.detach().requires_grad_()

    block = problem.block
    assert block is not None
    given, held = [leaf(x), leaf(w)], list(norms)
    if not block.layer_norm:  # a LayerNorm reads the same in both passes
        named = dict(zip(block.inputs("backward")[-len(norms) :] if norms else (), norms, strict=True))
        names = [name for name in block.inputs("forward") if name in named]
        held = [leaf(named[name]) if name.startswith(("gamma", "beta")) else named[name].detach() for name in names]
    else:
        held = [leaf(each) for each in norms]
    given += [each for each in held if each.requires_grad]
    bias, of_norms = _bias_of(problem, held)
    z = pytorch.block_forward(block, lambda a: pytorch.fprop(problem, a, given[1], bias), given[0], *of_norms)
    dx, *others = torch.autograd.grad(z, given, dz, create_graph=create_graph)
    return [dx.contiguous(memory_format=problem.memory_format), *others]


# -- shapes ------------------------------------------------------------------------------------------------------------


def _forward_fake(x: Tensor, w: Tensor, norms: list[Tensor], block: str, *geometry: Any) -> list[Tensor]:
    y = torch_ops.fprop_fake(x, w, None, *geometry)
    results = results_of(block)
    of_channels = x.new_empty(x.shape[1], dtype=_of_channels(x))
    return [torch.empty_like(y if name in ("y", "z") else of_channels) for name in results]


def _backward_fake(
    dz: Tensor, x: Tensor, y: list[Tensor], w: Tensor, norms: list[Tensor], block: str, *geometry: Any
) -> list[Tensor]:
    lies = memory_format(geometry[-1], axes=x.dim() - 2)
    like = torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=lies)
    if is_layer_norm(block):
        return [like, w.new_empty(w.shape), *map(torch.empty_like, norms)]
    of_channels = x.new_empty(x.shape[1], dtype=_of_channels(x))
    gradients = 2 * len(batch_norms_of(block))
    return [like, w.new_empty(w.shape), *(torch.empty_like(of_channels) for _ in range(gradients))]


def _of_channels(image: Tensor) -> torch.dtype:
    """The type of what norms have of each channel."""
    return torch.promote_types(image.dtype, torch.float32)


# -- derivatives -------------------------------------------------------------------------------------------------------


class DwconvBlock(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, block: str, *others: Any) -> Any:
        geometry, norms = others[:4], list(others[4:])
        watched = is_watched(x, w, None)
        if watched:
            results = below_autograd(block_forward, x, w, norms, block, *geometry)
        else:
            results = _block_forward(x, w, norms, block, *geometry)
        named = dict(zip(results_of(block), results, strict=True))
        ctx.block, ctx.geometry, ctx.count = block, geometry, len(norms)
        kept_y = [named[kept_of(block)]] if kept_of(block) else []
        ctx.seen = None
        if kept_of(block) == "z" and not watched:  # which belongs to the caller, and may be changed: an alias is kept
            kept_y, ctx.seen = [named["z"].data], _without_memory(named["z"])
            ctx.version = ctx.seen._version
        statistics = [tensor for name, tensor in named.items() if name not in ("y", "z")]
        ctx.has_y = bool(kept_y)
        ctx.save_for_backward(x, w, *kept_y, *norms, *statistics)
        ctx.mark_non_differentiable(*(tensor for name, tensor in named.items() if name != _first(named)))
        ctx.set_materialize_grads(False)  # of y that would be an image of zeros
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, dz: Tensor | None, *others: Any) -> tuple[Any, ...]:
        if dz is None:
            return (None,) * int(3 + len(OF_GEOMETRY) + ctx.count)
        saved = ctx.saved_tensors
        x, w, *kept = saved
        y, kept = kept[: ctx.has_y], kept[ctx.has_y :]
        norms = norms_of_backward(ctx.block, kept[: ctx.count], kept[ctx.count :])
        if ctx.seen is not None and ctx.seen._version != ctx.version:
            y = _block_forward(x, w, norms_of_forward(ctx.block, norms), ctx.block, *ctx.geometry)[:1]
        backward = block_backward if is_watched_backward(dz, *saved) else _block_backward
        dx, dw, *gradients = backward(dz, x, y, w, norms, ctx.block, *ctx.geometry)
        given = of_what_was_given(ctx.block, gradients, norms, needed=ctx.needs_input_grad[-ctx.count :])
        found: tuple[Any, ...] = (dx, dw, None, *OF_GEOMETRY, *given)
        return found


def _without_memory(tensor: Tensor) -> Tensor:
    """A tensor of the same version, whatever happens to this one."""
    seen = tensor.view(tensor.shape)
    seen.set_(tensor.new_empty(0).untyped_storage(), 0, (0,), (1,))
    return seen


def forward(x: Tensor, w: Tensor, norms: Sequence[Tensor], block: str, *geometry: Any) -> Sequence[Tensor]:
    """``block_forward``; where nothing watches, without PyTorch's dispatcher, which takes longer than a small block."""
    if is_watched(x, w, None):
        return block_forward(x, w, norms, block, *geometry)
    return DwconvBlock.apply(x, w, block, *geometry, *norms)  # type: ignore[no-untyped-call]


def _first(named: dict[str, Tensor]) -> str:
    """The output of the block; its other results are for the backward pass alone."""
    return next(iter(named))


def _differentiable_forward(x: Tensor, w: Tensor, norms: list[Tensor], block: str, *geometry: Any) -> list[Tensor]:
    return list(DwconvBlock.apply(x, w, block, *geometry, *norms))  # type: ignore[no-untyped-call]


def _differentiable_backward(
    dz: Tensor, x: Tensor, y: list[Tensor], w: Tensor, norms: list[Tensor], block: str, *geometry: Any
) -> list[Tensor]:
    problem = _problem(x, w, norms, block, geometry)
    return _gradients(problem, dz, x, w, norms, create_graph=True)


torch_ops.implement(block_forward, _block_forward, _forward_fake, _differentiable_forward)
torch_ops.implement(block_backward, _block_backward, _backward_fake, _differentiable_backward)
