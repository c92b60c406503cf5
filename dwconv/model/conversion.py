"""ConversionSummary: what ``convert`` did with a model, and ``summary``, which returns it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from torch import nn

from dwconv.call.call_plan import plans
from dwconv.call.plan_kernels import State, state_of
from dwconv.discovery.step import check_model, unwrapped
from dwconv.errors import InvalidWorkload

if TYPE_CHECKING:
    from dwconv.discovery import Discovery
    from dwconv.tuner.race_result import RaceResult


@dataclass(frozen=True)
class ConvertedLayer:
    """A layer by its name in the model, empty for the model itself, with its sizes or the reason why not."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a step on the example keeps for its backward pass, without parameters. Prints as ``53 MB, …``."""

    one_by_one_bytes: int
    """As PyTorch's ops."""
    as_one_bytes: int
    """With the blocks that run as one."""

    def __str__(self) -> str:
        ours, plain = (each / 1e6 for each in (self.as_one_bytes, self.one_by_one_bytes))
        return f"{ours:.1f} MB are kept for the backward pass, {plain:.1f} MB by PyTorch's ops"


@dataclass(frozen=True, kw_only=True)
class ConversionSummary:
    """What ``convert`` did. Prints as a table."""

    converted: tuple[ConvertedLayer, ...]
    skipped: tuple[ConvertedLayer, ...]
    """Convolutions with groups that were left as they are, and why."""
    converted_before: int = 0
    functional: bool = False
    """True if all functional calls in the model's forward pass run on dwconv."""
    called: tuple[ConvertedLayer, ...] = ()
    """What ran in the example through functional calls: the layer whose weight they use, or else the module that makes
    them, and what became of them."""
    blocks: tuple[ConvertedLayer, ...] = ()
    """The layers with a norm next to them, and whether they run as one with it; empty without ``blocks``."""
    discovery: Discovery | None = None
    races: tuple[RaceResult, ...] = ()
    """What was raced, for each kind of device that the example ran on."""
    kept: Kept | None = None
    """With ``memory="less"`` what a step keeps."""
    ready: int = 0
    """Passes of the layers' calls so far whose kernels are there."""
    building: int = 0
    """Passes whose kernels are still to be predicted or built: PyTorch's op runs until then."""

    def __str__(self) -> str:
        layers = "layer" if len(self.converted) == 1 else "layers"
        lines = [f"{len(self.converted)} depthwise {layers} converted"]
        if self.converted_before:
            lines[0] += f", {self.converted_before} were before"
        if self.skipped:
            lines[0] += f", {len(self.skipped)} left as they are"
        if not (self.converted or self.converted_before or self.skipped or self.functional or self.discovery):
            lines[0] += ": no convolution of torch.nn with groups is in it; an example shows functional calls, too"
        lines += ["functional calls run on dwconv, wherever the model makes them"] if self.functional else []
        lines += self._of_the_example()
        lines += [str(self.kept)] if self.kept else []
        if self.ready or self.building:
            lines += [f"kernels of the calls so far: {self.ready} ready, {self.building} building"]
        alike: dict[str, list[str]] = {}
        for block in self.blocks:
            alike.setdefault(block.text, []).append(shown_name(block.name))
        rows = [(shown_name(row.name), row.text) for row in (*self.converted, *self.skipped, *self.called)]
        rows += [(names[0], text) for text, names in alike.items() if len(names) == 1]
        width = max((len(name) for name, _ in rows), default=0)
        lines += [f"  {name:<{width}}  {text}" for name, text in rows]
        return "\n".join(
            [*lines, *(f"  {text}: {', '.join(names)}" for text, names in alike.items() if len(names) > 1)]
        )

    def _of_the_example(self) -> list[str]:
        if self.discovery is None:
            return []
        if not self.discovery.layers:
            return ["no depthwise layer ran in the example: nothing to race"]
        lines = [str(race) for race in self.races]
        lines += [f"not all was raced: {race.problem}" for race in self.races if race.problem]
        if not any(layer.trains for layer in self.discovery.layers):
            lines += ["no backward pass of these layers ran in the example"]
        lines += [f"left out: {layer}" for layer in self.discovery.left_out]
        ran = {layer.name for layer in self.discovery.layers}
        idle = [shown_name(layer.name) for layer in self.converted if without_wrappers(layer.name) not in ran]
        lines += [f"did not run in the example: {', '.join(idle)}"] if idle else []
        with_silu = dict.fromkeys(shown_name(layer.name) for layer in self.discovery.layers if layer.silu_next)
        return lines + [f"SiLU runs in the kernel where that is faster: {', '.join(with_silu)}"] * bool(with_silu)


def summary(model: nn.Module) -> ConversionSummary:
    """What the latest ``convert`` of ``model`` did in this process; wrappers are looked through. Raises InvalidWorkload
    for a model that was not converted, and for a copy of one; InvalidArgument for what is no model."""
    check_model(model)
    found = _summaries.get(unwrapped(model))
    if found is None:
        raise InvalidWorkload(
            f"{type(unwrapped(model)).__name__} was not converted in this process, or is a copy of what was; call "
            "dwconv.convert(model)"
        )
    states = Counter(_states(unwrapped(model)))
    return dataclasses.replace(found, ready=states["ready"], building=states["building"])


def _states(model: nn.Module) -> Iterator[State]:
    """Of the kernel of each pass that calls of the model's layers had, decided or still to be decided."""
    own = {id(parameter) for parameter in model.parameters()}
    for plan in plans():
        if any(id(counted.weight) in own for counted in plan.tally.counted()):
            for each in plan.decisions.values():
                yield "building" if each.is_open else state_of(plan.problem, each, plan.device)


def kept_by(model: nn.Module) -> Kept | None:
    """What a step keeps, if the latest ``convert`` of ``model`` measured it."""
    found = _summaries.get(unwrapped(model))
    return found.kept if found else None


def remember(model: nn.Module, made: ConversionSummary) -> None:
    _summaries[unwrapped(model)] = made


_summaries: WeakKeyDictionary[nn.Module, ConversionSummary] = WeakKeyDictionary()


def shown_name(name: str) -> str:
    return name or "(the model itself)"


def without_wrappers(name: str) -> str:
    """The name of a layer in the model without its wrappers, as discovery has it."""
    while name.startswith(_WRAPPERS):
        name = name.partition(".")[2]
    return name


_WRAPPERS = ("module.", "_orig_mod.")
"""What DistributedDataParallel, DataParallel and torch.compile put before the names of layers."""
