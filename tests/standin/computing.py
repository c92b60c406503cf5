"""Computes the results of a launched artifact by the reference."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch

from dwconv.kernels.artifact import Argument, Artifact
from dwconv.problems.reference import reference
from dwconv.problems.right_answers import right_answers
from dwconv.problems.workload import IMAGES


def compute(artifact: Artifact, addresses: dict[str, int], batch: int, *, wrong: bool) -> None:
    """Write the results to their addresses; with ``wrong``, one element is wrong."""
    with torch.inference_mode():
        tensors = {each.name: _at(addresses[each.name], each, batch) for each in artifact.arguments}
        _refer(artifact, tensors, batch)
        if wrong:
            tensors[artifact.results[0].name].view(-1)[-1] += 1


def _at(address: int, argument: Argument, batch: int) -> torch.Tensor:
    """A tensor of the device, as the host sees it."""
    shape, dtype = argument.shape_at(batch), getattr(torch, argument.dtype)
    memory = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def _refer(artifact: Artifact, tensors: dict[str, torch.Tensor], batch: int) -> None:
    workload, layout = artifact.candidate.workload.with_batch(batch), artifact.candidate.template.layout

    def in_pytorch_shape(name: str) -> torch.Tensor:
        shape: Any = workload.shape_of(name)
        if layout == "nhwc" and name in IMAGES:
            n, c, *size = shape
            return tensors[name].view(n, *size, c).movedim(-1, 1)
        return tensors[name].view(shape)

    inputs = [in_pytorch_shape(name) for name in workload.inputs]
    if workload.block:
        results = tuple(answer.expected for answer in right_answers(workload, *inputs))
    else:
        results = reference(workload, *inputs)
    for name, result in zip(workload.results, results, strict=True):
        in_pytorch_shape(name).copy_(result.float())
