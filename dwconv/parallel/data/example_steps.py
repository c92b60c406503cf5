"""Steps on an example, forward and backward, by which ways of communication are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dwconv.discovery.step import ExampleStep, outputs_in
from dwconv.errors import InvalidChoice

Loss = Callable[[Any], Tensor]
"""From what the model returns."""


@dataclass(frozen=True, kw_only=True)
class TrainingExample:
    """What a step trains on, without an optimizer."""

    example: ExampleStep
    loss: Loss | None
    """None: the mean of all outputs."""
    parameters: tuple[nn.Parameter, ...]
    """Those that are trained."""

    @classmethod
    def of(cls, model: nn.Module, example_inputs: Any, *, loss: Loss | None) -> TrainingExample:
        """Raises InvalidWorkload for an example that is not on the model's device, or of another kind."""
        trained = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)
        return cls(example=ExampleStep.of(model, example_inputs, trains=True), loss=loss, parameters=trained)

    def step(self, model: nn.Module) -> None:
        """One forward and backward pass of ``model``, which may be wrapped. The gradients are forgotten."""
        self._gradients(model)
        self._forget()

    def synchronous_step(self, model: nn.Module, group: dist.ProcessGroup) -> None:
        """The same, and then all gradients in one all-reduce, which nothing hides."""
        self._gradients(model)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):
            alike = [gradient for gradient in gradients if gradient.dtype is dtype]
            flat = torch.cat([gradient.reshape(-1) for gradient in alike]).div_(dist.get_world_size(group))
            dist.all_reduce(flat, group=group)
            for gradient, mean in zip(alike, torch.split(flat, [each.numel() for each in alike]), strict=True):
                gradient.copy_(mean.view_as(gradient))
        self._forget()

    def _gradients(self, model: nn.Module) -> None:
        with torch.enable_grad():
            outputs = model(*self.example.positional, **self.example.keywords)
            if self.loss is not None:
                self.loss(outputs).backward()  # type: ignore[no-untyped-call]
                return
            found = outputs_in(outputs)
            if not found:
                raise InvalidChoice(
                    f"no output of {type(self.example.model).__name__} requires a gradient; "
                    "give loss=, a function from what the model returns to a loss"
                )
            torch.autograd.backward(found, [torch.full_like(each, 1 / max(each.numel(), 1)) for each in found])

    def _forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
