"""The depthwise layers of a model as it runs, for ``python -m dwconv.tune --layers``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from dwconv.discovery import Discovery, discover
from dwconv.discovery.step import unwrapped
from dwconv.errors import InvalidWorkload
from dwconv.problems.layer_files import Layer, write_layers
from dwconv.problems.problem import Problem
from dwconv.problems.workload import Pass


@dataclass(frozen=True, kw_only=True)
class ModelLayers:
    """The depthwise layers that a step of a model runs. Prints as a list, with what was left out."""

    network: str
    """The model's class: the network's name in the file."""
    layers: tuple[Layer, ...]
    """Those that dwconv has kernels for, each once, in the order of the first call."""
    discovery: Discovery
    """Everything that ran, module by module."""

    def save(self, path: Path | str) -> None:
        """Write the file that ``python -m dwconv.tune --layers PATH`` tunes. Raises InvalidWorkload if it cannot be
        written."""
        write_layers(Path(path), {self.network: self.layers})

    def __str__(self) -> str:
        return f"{self.network}: {self.discovery}"


def layers(model: nn.Module, example_inputs: Any, *, trains: bool | None = None) -> ModelLayers:
    """List the depthwise layers that ``model`` runs on an example, with the batch, layout and type that they have in
    the run, and the passes that they need. ``example_inputs`` and ``trains`` are those of
    ``dwconv.discovery.discover``. The model is not changed; what it raises on the example is raised.

    Raises InvalidWorkload if no depthwise convolution ran, or none that dwconv has kernels for."""
    discovery = discover(model, example_inputs, trains=trains)
    network = type(unwrapped(model)).__name__
    counts: Counter[tuple[Problem, tuple[Pass, ...]]] = Counter()
    for layer in discovery.layers:
        if not layer.why_no_kernels:
            for problem, passes in layer.problems():
                counts[problem, passes] += layer.calls
    if not discovery.layers:
        raise InvalidWorkload(f"no depthwise convolution ran in {network}: there are no layers to list")
    if not counts:
        reasons = dict.fromkeys(layer.why_no_kernels for layer in discovery.left_out)
        raise InvalidWorkload(f"no depthwise convolution of {network} can be tuned: {'; '.join(reasons)}")
    listed = (
        Layer.of(problem.workload("fprop"), count=calls, passes=passes) for (problem, passes), calls in counts.items()
    )
    return ModelLayers(network=network, layers=tuple(listed), discovery=discovery)
