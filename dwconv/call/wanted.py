"""Which gradients a backward pass wants. ``ctx.needs_input_grad`` says only which inputs may have one: where that
of the input alone is asked for, or that of the weight alone, the other pass would be run for nothing. The schedules of
pipelines that split the backward pass do that for every microbatch.
"""

from __future__ import annotations

from typing import Any

import torch


def wanted(ctx: Any) -> tuple[bool, ...]:
    """For each tensor that the function was given, in order: is its gradient wanted now? To be asked in ``backward``.
    False once more at the end, for a tensor that was not given."""
    return (*(node is not None and _runs(node) for node, _ in ctx.next_functions), False)


def _runs(node: Any) -> bool:
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # the gradient of a parameter that torch.autograd.grad was asked for
        return True
