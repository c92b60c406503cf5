"""Runs generated CUDA C++ on the CPU, launched exactly as its artifact says, and hands out NumPy arrays.

A thin use of the simulator (dwconv/measure/simulator), for tests of numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dwconv.kernels.artifact import Artifact
from dwconv.measure.simulator.compile import available as available
from dwconv.measure.simulator.machine import Machine, Report

PARAMETER = re.compile(r"^(?P<type>(?:float|half|nv_bfloat16) ?\*|int)(?: __restrict__)? (?P<name>\w+)$")


@dataclass
class Run:
    """What a launch left behind."""

    tensors: dict[str, np.ndarray]
    """In float32 where NumPy does not have the type."""
    guards_intact: bool
    """True if the simulator found no fault of any kind; ``report`` names those it found."""
    report: Report


def signature(source: str, kernel: str) -> list[tuple[str, str]]:
    """(type, name) of every parameter of ``kernel``, read from the source."""
    text = re.search(rf"\b{kernel}\(([^)]*)\) \{{", source)
    assert text, f"no kernel {kernel} in the source"
    found = [PARAMETER.match(parameter.strip()) for parameter in text[1].split(",")]
    assert all(found), text[1]
    return [(match["type"].replace(" ", ""), match["name"]) for match in found if match]


def run(artifact: Artifact, tensors: dict[str, np.ndarray], *, batch: int, folder: Path) -> Run:
    """Launch every kernel of ``artifact`` on ``tensors`` (inputs; the rest is allocated and starts as NaN)."""
    inside: dict[str, torch.Tensor] = {}
    for argument in artifact.arguments:
        shape, dtype = argument.shape_at(batch), getattr(torch, argument.dtype)
        inside[argument.name] = torch.full(shape, float("nan"), dtype=dtype)
        if argument.name in tensors:
            given = torch.from_numpy(np.ascontiguousarray(tensors[argument.name]))
            inside[argument.name].copy_(given.reshape(shape))
    with Machine(artifact, folder=folder) as machine:
        machine(batch, *(tensor.data_ptr() for tensor in inside.values()))
        report = machine.report
    assert report is not None
    return Run({name: _as_numpy(tensor) for name, tensor in inside.items()}, report.clean, report)


def _as_numpy(tensor: torch.Tensor) -> np.ndarray:
    array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array
