"""What the training steps of a model need of a GPU's memory at most, as if no other model lay beside it.

    weights, gradients, momentum       counted
    what a step allocates beside them  the allocator's peak in a step, less what lay there before
    what CUDA graphs hold              what the allocator holds more of after the capture

A batch whose steps need more than there is can be halved.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from torch import nn

from dwconv.errors import Shortage
from dwconv.measure.processes.shortages import shortage_of


def held_bytes() -> int:
    """What the allocator holds of the current GPU once it has given back what is free."""
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def peak_bytes(model: nn.Module, step: Callable[[], object], *, of_graphs: int | None = None) -> int:
    """The most that ``step``, a training step of ``model`` by SGD with momentum, needs in bytes. An earlier step must
    have made gradients and momentum. ``of_graphs``: by how much ``held_bytes`` grew when the model, which is made of
    CUDA graphs, was copied and captured; None of other models."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    in_step = torch.cuda.max_memory_allocated() - before
    trained = sum(each.nbytes for each in model.parameters() if each.requires_grad)
    if of_graphs is not None:  # with weights and gradients
        return of_graphs + trained + in_step
    return sum(each.nbytes for each in (*model.parameters(), *model.buffers())) + 2 * trained + in_step


def ran_out_of_memory(error: BaseException) -> bool:
    """True if ``error``, or an error that caused it, says that a GPU has no memory left."""
    if shortage_of(error) is Shortage.GPU_MEMORY:
        return True
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, torch.OutOfMemoryError):
        seen = seen.__cause__ or seen.__context__
    return seen is not None
