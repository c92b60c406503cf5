"""Ops in C++: Python runs the first op of a kind and gives C++ its kernels; C++ runs the next ones.

Compiled code calls ops. Through Python an op costs as much as a small convolution. PyTorch's dispatcher calls C++
before Python: C++ finds an op by its name, its numbers, and the strides of its tensors. An unknown op goes on to
Python, which runs it and offers C++ the kernels, or PyTorch's own op. An open plan offers nothing: other kernels may
run it soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dwconv import native
from dwconv.call.call_plan import CallPlan
from dwconv.call.passes import PlannedPasses
from dwconv.problems.problem import Problem
from dwconv.problems.workload import Pass

Places = Sequence[int]
_names: list[str] = []
"""Of ops that C++ runs once it is compiled."""


def to_be_taken(name: str) -> None:
    """C++ runs the op ``dwconv::name`` from the next call on."""
    _names.append(name)


def offer(passes: PlannedPasses, *ran: tuple[Pass, Places, Places]) -> None:
    """Each pass that an op has run, with the places of what it read among the tensors of the op, and of what it gave
    among its results. Those of ``wgrad`` are (x, dy), of ``dgrad`` (dy, w), of ``backward`` (dy, x, w), in this
    order."""
    offer_of_plan(passes.plan, *((passes.kernels, *each) for each in ran))


def offer_of_plan(plan: CallPlan, *ran: tuple[Any, Pass, Places, Places]) -> None:
    """Offer the ops of ``plan``, with the kernels of each pass before it."""
    module = native.module
    if module is None or plan.is_open:
        return
    if _names:
        module.take_ops(_names)
        _names.clear()
    if not module.is_offer_open():  # what ran came past the dispatcher
        return
    steps = [_step(module, plan.problem, *each) for each in ran]
    if len(steps) == 2 and all(isinstance(step, module.PyTorchGradients) for step in steps):
        steps = [module.PyTorchGradients.both(*steps)]
    if None not in steps:
        call = module.OpCall(steps)
        plan.tally.taken.append((tuple(pass_ for _, pass_, _, _ in ran), call))
        module.offer(call)


def _step(module: Any, problem: Problem, kernels: Any, pass_: Pass, inputs: Places, results: Places) -> Any | None:
    if pass_ not in kernels:  # it cannot be had now, as in a capture
        return None
    kernel = kernels[pass_]
    if kernel is None:
        return _on_pytorch(module, problem, pass_, inputs, results)
    fits = len(kernel.workload.inputs) == len(inputs) and len(kernel.workload.results) == len(results)
    return module.KernelStep(kernel.native, inputs, results) if fits and kernel.native is not None else None


def _on_pytorch(module: Any, problem: Problem, pass_: Pass, inputs: Places, results: Places) -> Any | None:
    """None where something has to be done besides."""
    if problem.epilogue != "none" or problem.block or problem.padding[::2] != problem.padding[1::2]:
        return None
    geometry = module.Geometry(problem.stride, problem.padding[::2], problem.dilation, problem.input_shape[1])
    if pass_ == "fprop":
        return module.PyTorchFprop(geometry, problem.memory_format, inputs, results)
    x, w = (
        module.Shape(shape, torch.empty(shape, device="meta", memory_format=format).stride())
        for shape, format in (
            (problem.input_shape, problem.memory_format),
            (problem.weight_shape, torch.contiguous_format),
        )
    )
    if pass_ == "dgrad":
        dy, weight = inputs
        return module.PyTorchGradients(geometry, x, w, (dy, -1, weight), (*results, -1, -1))
    if pass_ == "wgrad":
        image, dy = inputs
        dw, dbias = (*results, -1)[:2]
        return module.PyTorchGradients(geometry, x, w, (dy, image, -1), (-1, dw, dbias))
    return None
