"""The loss of a whole batch, from those of its microbatches."""

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
        """``reduction``: None for that of the loss itself, as PyTorch's have one; else ``mean``. Raises NoPlan."""
        said = reduction or _said_by(loss) or "mean"
        if said not in get_args(Reduction):
            raise NoPlan(f"reduction={said} is none of {', '.join(get_args(Reduction))}; a loss must be one number")
        self._loss = loss
        self.reduction: Reduction = "mean" if said == "mean" else "sum"
        self._seen: list[tuple[Tensor, Tensor]] | None = None if reduction else []
        """Output and target of each microbatch, until the loss is checked; a given reduction is not checked then."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if self._seen is not None:
            self._seen.append((output.detach(), target.detach()))
        return self._loss(output, target)

    def flaw(self) -> str:
        """After a step, on the rank of the last stage: what is wrong with the loss; empty if nothing is, and on other
        ranks."""
        seen, self._seen = self._seen, None
        if not seen:
            return ""
        outputs, targets = (torch.cat(each) for each in zip(*seen, strict=True))
        count = len(outputs) if len(outputs) % 2 else 2
        parts = zip(outputs.chunk(count), targets.chunk(count), strict=True)
        whole, together = self._of(outputs, targets), torch.stack([self._of(*each) for each in parts])
        found = together.mean() if self.reduction == "mean" else together.sum()
        if torch.allclose(found.double(), whole.double(), rtol=max(1e-4, 32 * torch.finfo(whole.dtype).eps), atol=0):
            return ""
        return (
            f"the loss of {len(outputs)} images is {float(whole):.6g}, and the {self.reduction} of {count} equal parts "
            f"of them {float(found):.6g}: gradients would differ from those of one process; give "
            'reduction="mean" or "sum", which skips this check'
        )

    @torch.no_grad()
    def _of(self, output: Tensor, target: Tensor) -> Tensor:
        return self._loss(output, target)


def _said_by(loss: Loss) -> str | None:
    if isinstance(loss, partial):
        return loss.keywords.get("reduction") or _said_by(loss.func)
    said = getattr(loss, "reduction", None)
    return said if isinstance(said, str) else None
