"""Measure what each piece of a model costs, for one microbatch: time of each pass, and bytes.

A piece of several operations has one backward pass, in which the gradients of its parameters need those of its inner
tensors. So two passes are timed: dgrad alone, and both together. What the second takes longer is wgrad, as a schedule
that runs them apart has it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dwconv.discovery.unchanged import unchanged
from dwconv.errors import CannotBeCut, DwconvWarning
from dwconv.measure.timing import CpuClock, Effort, time_in_turns
from dwconv.parallel.plan import LayerCost

_ROUND_S = 0.001
_ROUNDS = 9
DEFAULT_SECONDS = 5.0


def layer_costs(cut: nn.Sequential, microbatch: Tensor, *, seconds: float = DEFAULT_SECONDS) -> tuple[LayerCost, ...]:
    """The cost of each piece of ``cut``, which ``pieces`` made, on one microbatch, on the device that it lies on.

    All passes of all pieces are timed in turns, for about ``seconds`` in all. Times are medians. The data needs no
    gradient, so the first piece has no dgrad. The model is as before afterwards. Raises CannotBeCut if a piece does not
    run on the microbatch.
    """
    with unchanged(cut, [microbatch]), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DwconvWarning)  # of layers that run on PyTorch's op: they are only timed
        ran = _run(cut, microbatch)
        times_us = _timed(ran, seconds=seconds, device=microbatch.device)
    return tuple(
        LayerCost(
            name=each.name,
            forward_us=times_us[f"forward {each.name}"],
            dgrad_us=(dgrad_us := times_us.get(f"dgrad {each.name}", 0.0)),
            wgrad_us=max(0.0, times_us.get(f"backward {each.name}", dgrad_us) - dgrad_us),
            output_bytes=_size_bytes(each.output),
            saved_bytes=each.saved_bytes,
            parameter_bytes=sum(map(_size_bytes, each.parameters)),
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
    parameters: tuple[Tensor, ...]
    """Those that are trained."""
    saved_bytes: int


def _run(cut: nn.Sequential, microbatch: Tensor) -> list[_Ran]:
    seen = {_storage(tensor) for tensor in (*cut.parameters(), *cut.buffers())}
    found: list[_Ran] = []
    entry = microbatch.detach()
    for name, module in cut._modules.items():  # named_children leaves out what comes twice
        assert module is not None
        saved: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(_keeping(saved), _as_it_is):
            try:
                output = module(entry)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                raise CannotBeCut(f"{name} does not run on a microbatch of {_shape(microbatch)}: {error}") from error
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


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def _timed(ran: Iterable[_Ran], *, seconds: float, device: torch.device) -> dict[str, float]:
    """The median of each pass, in microseconds, by its name."""
    calls: dict[str, Callable[[], object]] = {}
    for each in ran:
        calls[f"forward {each.name}"] = _finished(_forward(each), device)
        if each.output.requires_grad:
            inputs = (each.entry,) if each.entry.requires_grad else ()
            if inputs:
                calls[f"dgrad {each.name}"] = _finished(_gradients(each, inputs), device)
            if each.parameters:
                calls[f"backward {each.name}"] = _finished(_gradients(each, (*inputs, *each.parameters)), device)
    effort = Effort(round_s=_ROUND_S, rounds=_ROUNDS, budget_s=seconds, patience_s=seconds / 2)
    measured = time_in_turns(calls, clock=CpuClock(), effort=effort)
    return {name: each.median_us for name, each in measured.items()}


def _forward(ran: _Ran) -> Callable[[], object]:
    return lambda: ran.module(ran.entry)


def _gradients(ran: _Ran, wanted: tuple[Tensor, ...]) -> Callable[[], object]:
    gradient = torch.randn_like(ran.output)
    return lambda: torch.autograd.grad(ran.output, wanted, gradient, retain_graph=True, allow_unused=True)


def _finished(call: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """``call``, and wait for the device. Launches are part of what a step costs there, too."""
    if device.type != "cuda":
        return call

    def and_wait() -> Any:
        result = call()
        torch.cuda.synchronize(device)
        return result

    return and_wait


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _size_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape))
