"""What a model keeps in its forward pass for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dwconv.discovery.forward_graph import plain
from dwconv.discovery.step import ExampleStep
from dwconv.discovery.unchanged import unchanged


def kept_bytes(model: nn.Module, example_inputs: Any, *, as_one: bool) -> int:
    """Bytes of the tensors that a step on the example keeps for its backward pass, each memory once, without
    parameters. ``as_one``: with the blocks that run as one; else every part runs by itself. Nothing in the model
    changes. Raises the model's own error if it fails on the example."""
    step = ExampleStep.of(model, example_inputs, trains=None)
    own = {each.untyped_storage().data_ptr() for each in step.model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    others = () if as_one else step.model.modules()
    watched = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with unchanged(step.model, step.tensors), plain(iter(others)), watched:
        step()
    return sum(kept.values())
