"""The loss of a whole batch, from those of its microbatches: their mean, or their sum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from dwconv.errors import NoPlan

Reduction = Literal["mean", "sum"]
Loss = Callable[[Tensor, Tensor], Tensor]


class BatchLoss:
    """A loss that is called for each microbatch, and checked once: of all images at once it must be what the
    microbatches give together."""

    def __init__(self, loss: Loss, reduction: Reduction | None) -> None:
        """``reduction``: None for what the loss itself says, as PyTorch's do; else ``mean``. Raises NoPlan."""
        said = reduction or _said_by(loss) or "mean"
        if said not in get_args(Reduction):
            raise NoPlan(f"reduction={said} is none of {', '.join(get_args(Reduction))}; a loss must be one number")
        self._loss = loss
        self.reduction: Reduction = "mean" if said == "mean" else "sum"
        self._seen: list[tuple[Tensor, Tensor, Tensor]] | None = None if reduction else []
        """Output, target and loss of each microbatch, until the loss is checked; whoever says it is believed."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        loss = self._loss(output, target)
        if self._seen is not None:
            self._seen.append((output.detach(), target.detach(), loss.detach()))
        return loss

    def flaw(self) -> str:
        """After a step, on the rank of the last stage: what is wrong with the loss; empty if nothing is, and on other
        ranks."""
        seen, self._seen = self._seen, None
        if not seen:
            return ""
        outputs, targets = (torch.cat([each[place] for each in seen]) for place in (0, 1))
        parts = [each[2] for each in seen]
        if len(parts) == 1:
            if len(outputs) < 2 or len(outputs) % 2:
                return ""
            parts = [self._of(*halves) for halves in zip(outputs.chunk(2), targets.chunk(2), strict=True)]
        whole, together = self._of(outputs, targets), torch.stack(parts)
        found = together.mean() if self.reduction == "mean" else together.sum()
        if torch.allclose(found.double(), whole.double(), rtol=_tolerance(whole), atol=1e-6):
            return ""
        return (
            f"the loss of {len(outputs)} images is {float(whole):.6g}, and the {self.reduction} of {len(parts)} equal "
            f'parts of them {float(found):.6g}: gradients would not be one process\'s; give reduction="mean" or "sum", '
            "as one of them is, which is then taken as it is"
        )

    @torch.no_grad()
    def _of(self, output: Tensor, target: Tensor) -> Tensor:
        return self._loss(output, target)


def _said_by(loss: Loss) -> str | None:
    if isinstance(loss, partial):
        return loss.keywords.get("reduction") or _said_by(loss.func)
    said = getattr(loss, "reduction", None)
    return said if isinstance(said, str) else None


def _tolerance(loss: Tensor) -> float:
    return max(1e-4, 32 * torch.finfo(loss.dtype).eps)
