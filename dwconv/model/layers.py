"""The depthwise layers of a model, or of a loop, as it runs, for ``python -m dwconv.tune --layers``."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from dwconv.discovery import DiscoveredLayer, Discovery, alike, discover
from dwconv.discovery.call_watch import CallWatch
from dwconv.discovery.step import unwrapped
from dwconv.errors import InvalidArgument, InvalidWorkload, warn
from dwconv.problems.layer_files import Layer, check_can_write, write_layers
from dwconv.problems.problem import Problem
from dwconv.problems.workload import Pass
from dwconv.system import given


@dataclass(frozen=True, kw_only=True)
class ModelLayers:
    """The depthwise layers that a step of a model runs. Prints as a list, with what was left out."""

    network: str
    """The model's class: the network's name in the file."""
    layers: tuple[Layer, ...]
    """Those that dwconv has kernels for, each once, in the order of the first call."""
    discovery: Discovery

    def save(self, path: Path | str) -> None:
        """Write the file that ``python -m dwconv.tune --layers PATH`` tunes. Raises InvalidWorkload if it cannot be
        written."""
        write_layers(given.path("path", path), {self.network: self.layers})

    def __str__(self) -> str:
        return f"{self.network}: {self.discovery}"


def layers(model: nn.Module, example_inputs: Any, *, trains: bool | None = None) -> ModelLayers:
    """List the depthwise layers that ``model`` runs on an example, with the batch, layout and type that they have in
    the run, and the passes that they need. ``example_inputs`` and ``trains`` are those of
    ``dwconv.discovery.discover``. The model is not changed; what it raises on the example is raised.

    Raises InvalidWorkload if no depthwise convolution ran, or none that dwconv has kernels for."""
    discovery = discover(model, example_inputs, trains=trains)
    network = type(unwrapped(model)).__name__
    counts = _counts(discovery.layers)
    if not discovery.layers:
        raise InvalidWorkload(f"no depthwise convolution ran in {network}: there are no layers to list")
    if not counts:
        reasons = dict.fromkeys(layer.why_no_kernels for layer in discovery.left_out)
        raise InvalidWorkload(f"no depthwise convolution of {network} can be tuned: {'; '.join(reasons)}")
    return ModelLayers(network=network, layers=_listed(counts), discovery=discovery)


class collect:
    """Inside ``with dwconv.collect(path):``, write every depthwise convolution that runs to a file that ``python -m
    dwconv.tune --layers PATH`` tunes, with the passes that it ran and how often: those of a training loop of one's own,
    at all its sizes. A layer with more than four sizes is listed once, at its most frequent one, with the most frequent
    of each further octave of pixels as ``sizes``: one kernel of any size is tuned for them. The file is also written if
    the loop ends with an error.

    Convolutions run on PyTorch's op meanwhile, converted or not: put it around a few steps. ``name``: of the network in
    the file. Raises InvalidWorkload, naming the file, if it cannot be written; warns if nothing ran."""

    def __init__(self, path: Path | str, *, name: str = "collected") -> None:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"name={given.shown(name)} is no name of a network; give a str")
        self._path, self._name, self._watch = given.path("path", path), name, CallWatch(nn.Module())

    def __enter__(self) -> None:
        check_can_write(self._path)
        self._watch.__enter__()

    def __exit__(self, *error: object) -> None:
        self._watch.__exit__(*error)
        if counts := _counts(alike(self._watch.calls)):
            write_layers(self._path, {self._name: _at_few_sizes(counts)})
        else:
            warn(f"layers={self._path} was not written: no depthwise convolution that dwconv has kernels for ran")


_Kind = tuple[Problem, tuple[Pass, ...]]
_Counts = Mapping[_Kind, int]
_MOST_SIZES = 4
"""Of a layer, to be listed one by one."""


def _counts(layers: Iterable[DiscoveredLayer]) -> _Counts:
    counts: Counter[_Kind] = Counter()
    for layer in layers:
        if not layer.why_no_kernels:
            for problem, passes in layer.problems():
                counts[problem, passes] += layer.calls
    return counts


def _at_few_sizes(counts: _Counts) -> tuple[Layer, ...]:
    """The layers, those with many sizes once."""
    of_layers: dict[object, list[_Kind]] = defaultdict(list)
    for problem, passes in counts:
        layer = dataclasses.replace(problem, input_shape=problem.input_shape[1:2])
        of_layers[layer, passes].append((problem, passes))
    found: list[Layer] = []
    for kinds in of_layers.values():
        if len(kinds) <= _MOST_SIZES:
            found += _listed({kind: counts[kind] for kind in kinds})
            continue
        octaves: dict[int, list[_Kind]] = defaultdict(list)
        for kind in kinds:
            images, _, *size = kind[0].input_shape
            octaves[round(math.log2(images * math.prod(size)))].append(kind)
        usual = [max(alike_kinds, key=lambda kind: counts[kind]) for alike_kinds in octaves.values()]
        usual.sort(key=lambda kind: counts[kind], reverse=True)
        (once,) = _listed({usual[0]: sum(counts[kind] for kind in kinds)})
        sizes = dict.fromkeys(kind[0].workload("fprop").input_size for kind in usual)
        found.append(dataclasses.replace(once, sizes=tuple(size for size in sizes if size != once.input_size)))
    return tuple(found)


def _listed(counts: _Counts) -> tuple[Layer, ...]:
    return tuple(
        Layer.of(problem.workload("fprop"), count=calls, passes=passes) for (problem, passes), calls in counts.items()
    )
