"""Gradients: the derivative of a convolution, of any order, for every path of a call.

A convolution ties three tensors together, and each pass computes one of them from the other two:

    y = fprop(x, w)        x = dgrad(y, w)        w = wgrad(x, y)

Each pass is linear in both of its inputs, and the other two passes are its transposes. So whatever was computed, its
gradient takes the place of the result, and the gradient of each input is what the pass of that input computes from the
other two tensors. The derivative of the derivative has the same form. A bias goes with the weight: fprop takes both,
and wgrad_bias gives both.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from dwconv.problems import pytorch


class Passes(Protocol):
    """What runs the passes of one convolution. Images are (N, C, H, W) or (N, C, D, H, W)."""

    def fprop(self, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        """y"""

    def dgrad(self, dy: Tensor, w: Tensor) -> Tensor:
        """dx"""

    def wgrad(self, x: Tensor, dy: Tensor) -> Tensor:
        """dw"""

    def wgrad_bias(self, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        """(dw, dbias)"""

    def backward(self, x: Tensor, dy: Tensor, w: Tensor) -> tuple[Tensor, Tensor] | None:
        """(dx, dw); None where dgrad and wgrad are to run."""


class Tied(NamedTuple):
    """The tensors that a convolution ties together, or their gradients; None where unknown or not needed.
    A tuple, since every backward pass makes one, in a third of the time of a frozen dataclass."""

    x: Tensor | None = None
    w: Tensor | None = None
    bias: Tensor | None = None
    y: Tensor | None = None


class Needs(NamedTuple):
    """The tensors that need a gradient."""

    x: bool = False
    w: bool = False
    bias: bool = False
    y: bool = False


def gradients(passes: Passes, tied: Tied, needs: Needs) -> Tied:
    """The gradients that are needed. ``tied``: the inputs of the pass that was run, as far as they are needed, and in
    place of its results their gradients."""
    x, w, bias, y = tied
    dx = dw = db = dy = None
    if needs.x and needs.w and not (needs.bias or needs.y):
        assert x is not None and w is not None and y is not None
        if both := passes.backward(x, y, w):
            return Tied(both[0], both[1])
    if needs.w:
        assert x is not None and y is not None
        if needs.bias:
            dw, db = passes.wgrad_bias(x, y)
        else:
            dw = passes.wgrad(x, y)
    elif needs.bias:
        assert y is not None
        db = pytorch.dbias(y)
    if needs.y:
        assert x is not None and w is not None
        dy = passes.fprop(x, w, bias)
    if needs.x:  # last: what comes next in a backward pass reads it
        assert y is not None and w is not None
        dx = passes.dgrad(y, w)
    return Tied(dx, dw, db, dy)


# -- what a backward pass needs ----------------------------------------------------------------------------------------


def wanted(ctx: Any) -> tuple[bool, ...]:
    """Whether the gradient of each argument is needed now, in order; valid only in ``backward``. A last False is of
    an absent tensor."""
    return (*(node is not None and _runs(node) for node, _ in ctx.next_functions), False)


def _runs(node: Any) -> bool:
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # the gradient of a parameter in torch.autograd.grad
        return True
