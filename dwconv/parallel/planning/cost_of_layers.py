"""Measure what each piece of a model costs, for one microbatch: time of each pass, and bytes.

A piece of several operations has one backward pass, in which the gradients of its parameters need those of its inner
tensors. So three passes are timed: dgrad alone, both together, and wgrad after dgrad, as in a schedule with separate
passes. Both together less dgrad is wgrad. It adds to the gradients that are there, as that of each microbatch but the
first, which takes its time where parameters are large and microbatches small.

A piece that is timed alone finds its data in the cache; in a step it does not. So the whole step is timed in turns with
the pieces, and its excess over their sum is divided among them.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from dwconv.discovery.unchanged import unchanged
from dwconv.errors import DwconvWarning
from dwconv.measure.clock.timing import CpuClock, Effort, time_in_turns
from dwconv.parallel.planning import split_backward
from dwconv.parallel.planning.fx_graph import runs
from dwconv.parallel.planning.pipeline_plan import LayerCost
from dwconv.records.record import CONTENDED, Measurement

_ROUND_S = 0.001
_ROUNDS = 9
_WHOLE_FORWARD, _WHOLE_STEP = "whole forward", "whole step"


def layer_costs(cut: nn.Sequential, microbatch: Tensor, *, seconds: float = 5.0) -> tuple[LayerCost, ...]:
    """The cost of each piece of ``cut``, which ``pieces`` made, on one microbatch, on its device.

    All passes of all pieces are timed in turns, for about ``seconds`` in all. Times are medians. The data needs no
    gradient, so the first piece has no dgrad. The model is as before afterwards. A DwconvWarning reports that other
    work took much of the time. Raises CannotBeCut if a piece does not run on the microbatch.
    """
    with unchanged(cut, [microbatch]), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DwconvWarning)  # of layers that run on PyTorch's op: they are only timed
        ran = _run(cut, microbatch)
        calls = _passes(ran) | _whole_step(cut, ran)
        calls = {name: _finished(call, microbatch.device) for name, call in calls.items()}
        effort = Effort(round_s=_ROUND_S, rounds=_ROUNDS, budget_s=seconds, patience_s=seconds / 2)
        measured = time_in_turns(calls, clock=CpuClock(), effort=effort)
    _warn_if_busy(measured)
    us = {name: each.median_us for name, each in measured.items()}
    dgrad_us = {each.name: us.get(f"dgrad {each.name}", 0.0) for each in ran}
    backward_us = {name: max(alone, us.get(f"backward {name}", 0.0)) for name, alone in dgrad_us.items()}
    split_us = {name: max(0.0, us.get(f"split {name}", 0.0) - both) for name, both in backward_us.items()}
    forward_factor = _factor(us[_WHOLE_FORWARD], sum(us[f"forward {each.name}"] for each in ran))
    whole_backward_us = us.get(_WHOLE_STEP, us[_WHOLE_FORWARD]) - us[_WHOLE_FORWARD]
    backward_factor = _factor(whole_backward_us, sum(backward_us.values()))
    return tuple(
        LayerCost(
            name=each.name,
            forward_us=forward_factor * us[f"forward {each.name}"],
            dgrad_us=backward_factor * dgrad_us[each.name],
            wgrad_us=backward_factor * (backward_us[each.name] - dgrad_us[each.name]),
            output_bytes=each.output.nbytes,
            saved_bytes=each.saved_bytes,
            parameter_bytes=sum(parameter.nbytes for parameter in each.parameters),
            split_us=backward_factor * split_us[each.name],
        )
        for each in ran
    )


@dataclass(frozen=True, kw_only=True)
class _Ran:
    """A piece after its forward pass, with the graph that its backward pass needs."""

    name: str
    module: nn.Module
    entry: Tensor
    output: Tensor
    parameters: tuple[nn.Parameter, ...]
    """Those that are trained."""
    saved_bytes: int


def _run(cut: nn.Sequential, microbatch: Tensor) -> list[_Ran]:
    seen = {_storage(tensor) for tensor in (*cut.parameters(), *cut.buffers())}
    found: list[_Ran] = []
    entry = microbatch.detach()
    for name, module in cut._modules.items():  # named_children leaves out what comes twice
        assert module is not None
        saved: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(_keeping(saved), lambda kept: kept), runs(name, microbatch):
            output = module(entry)
        storages = {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in saved}
        found.append(
            _Ran(
                name=name,
                module=module,
                entry=entry,
                output=output,
                parameters=tuple(each for each in module.parameters() if each.requires_grad),
                saved_bytes=sum(size for storage, size in storages.items() if storage not in seen),
            )
        )
        seen.update(storages)
        entry = output.detach()
        if entry.is_floating_point():
            entry.requires_grad_()
    return found


def _keeping(saved: list[Tensor]) -> Callable[[Tensor], Tensor]:
    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.detach())
        return tensor

    return pack


def _factor(whole_us: float, alone_us: float) -> float:
    """1 where other work has made nonsense of the times, such as a step that takes no longer than its forward pass."""
    return whole_us / alone_us if whole_us > 0 and alone_us > 0 else 1.0


def _warn_if_busy(measured: Mapping[str, Measurement]) -> None:
    busy = statistics.median(each.contention for each in measured.values())
    if busy > CONTENDED:
        warnings.warn(
            f"other work took {busy:.0%} of the time while layers were timed: the times may be far off; repeat it on a "
            "quiet machine",
            DwconvWarning,
            stacklevel=3,
        )


def _passes(ran: Iterable[_Ran]) -> dict[str, Callable[[], object]]:
    """The calls that are timed for each piece, by name."""
    calls: dict[str, Callable[[], object]] = {}
    for each in ran:
        calls[f"forward {each.name}"] = partial(each.module, each.entry)
        if each.output.requires_grad:
            inputs = (each.entry,) if each.entry.requires_grad else ()
            if inputs:
                calls[f"dgrad {each.name}"] = _dgrad(each)
            if each.parameters:
                calls[f"backward {each.name}"] = _backward(each, inputs)
            if inputs and each.parameters and split_backward.can_split(each.module):
                calls[f"split {each.name}"] = _split(each)
    return calls


def _whole_step(cut: nn.Sequential, ran: Sequence[_Ran]) -> dict[str, Callable[[], object]]:
    """All pieces one after the other, forward; and forward and backward."""
    entry, output = ran[0].entry, ran[-1].output
    parameters = [each for each in cut.parameters() if each.requires_grad]
    gradient = torch.randn_like(output)

    def step() -> None:
        torch.autograd.backward(cut(entry), gradient, inputs=parameters)

    calls: dict[str, Callable[[], object]] = {_WHOLE_FORWARD: lambda: cut(entry)}
    return calls | {_WHOLE_STEP: step} if parameters and output.requires_grad else calls


def _dgrad(ran: _Ran) -> Callable[[], object]:
    gradient = torch.randn_like(ran.output)
    return lambda: torch.autograd.grad(ran.output, ran.entry, gradient, retain_graph=True, allow_unused=True)


def _backward(ran: _Ran, inputs: tuple[Tensor, ...]) -> Callable[[], object]:
    """Both gradients; those of parameters are added to what is there."""
    gradient, wanted = torch.randn_like(ran.output), [*inputs, *ran.parameters]

    def both() -> None:
        ran.entry.grad = None
        torch.autograd.backward(ran.output, gradient, retain_graph=True, inputs=wanted)

    return both


def _split(ran: _Ran) -> Callable[[], object]:
    """dgrad, then wgrad."""
    gradient = torch.randn_like(ran.output)

    def one_after_the_other() -> None:
        ran.entry.grad = None
        output = _Alias.apply(ran.output)  # type: ignore[no-untyped-call]
        to_do = split_backward.dgrad(output, gradient, ran.entry, ran.parameters)
        split_backward.wgrad(ran.parameters, to_do, retain_graph=True)

    return one_after_the_other


class _Alias(Function):
    """An output that may lose its graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return split_backward.not_a_view(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def _finished(call: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """``call``, and wait for the device. Launches are part of what a step costs there, too."""
    if device.type != "cuda":
        return call

    def and_wait() -> None:
        call()
        torch.cuda.synchronize(device)

    return and_wait


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
