"""Computes the results of a launched artifact: quickly, by the reference, or thread by thread, in the simulator."""

from __future__ import annotations

import ctypes
import math
import os
from typing import Any

import torch

from dwconv import settings
from dwconv.kernels.artifact import Argument, Artifact
from dwconv.problems.reference import reference, right_answers
from dwconv.problems.workload import IMAGES

VARIABLE = "STAND_IN_COMPUTING"
"""``reference``, ``simulator``, or ``nothing`` where only times matter."""

_machines: dict[int, Any] = {}


def compute(artifact: Artifact, addresses: dict[str, int], batch: int, *, wrong: bool) -> None:
    """Write the results to their addresses; with ``wrong``, one element is wrong."""
    way = os.environ.get(VARIABLE, "reference")
    if way == "nothing":
        return
    with torch.inference_mode():
        tensors = {each.name: _at(addresses[each.name], each, batch) for each in artifact.arguments}
        if way == "simulator":
            _simulate(artifact, batch, list(tensors.values()))
        else:
            _refer(artifact, tensors, batch)
        if wrong:
            tensors[artifact.results[0].name].view(-1)[-1] += 1


def _at(address: int, argument: Argument, batch: int) -> torch.Tensor:
    """A tensor of the device, as the host sees it."""
    shape, dtype = argument.shape_at(batch), getattr(torch, argument.dtype)
    memory = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def _simulate(artifact: Artifact, batch: int, tensors: list[torch.Tensor]) -> None:
    """Raises RuntimeError for a fault of the kernel."""
    from dwconv.measure.simulator.machine import Machine  # which imports what this stands in for

    machine = _machines.get(id(artifact))
    if machine is None:
        folder = settings.cache_folder() / "simulator"
        folder.mkdir(0o700, parents=True, exist_ok=True)
        machine = _machines[id(artifact)] = Machine(artifact, folder=folder)
    machine(batch, *(tensor.data_ptr() for tensor in tensors))
    if machine.report is not None and not machine.report.clean:
        raise RuntimeError(f"{artifact.candidate.config}: {machine.report.faults[0]}")


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
