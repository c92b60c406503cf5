"""SpaceUnion: the spaces of all templates that fit a workload, searched as one.

    Unvisited   draws configurations that a strategy has neither proposed nor seen measured
    Features    a configuration as numbers that a regression can learn from

Knobs are taken as logarithms there, since tile sizes act by their ratios. Combinations of knobs are spelt out: how many
tiles a knob makes of the axis in its name, how much of the last tile is wasted, how many outputs all tiles hold.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config, ConfigSpace, Value
from dwconv.schedules.template import templates_for


class SpaceUnion:
    """The spaces of several templates, by name; templates without a legal configuration are left out."""

    def __init__(self, spaces: Sequence[ConfigSpace]) -> None:
        self.by_template: dict[str, ConfigSpace] = {}
        self.defaults: list[Config] = []
        """Each template's configuration to start from."""
        for space in spaces:
            try:
                self.defaults.append(space.default)
            except InvalidConfig:
                continue
            self.by_template[space.template] = space
        if not self.by_template:
            names = ", ".join(space.template for space in spaces)
            raise NoTemplate(f"no valid configuration for this workload in {names or 'no template'}")

    @classmethod
    def of(cls, workload: Workload, target: Target) -> SpaceUnion:
        """Raises NoTemplate, saying why, if no template can run ``workload`` on ``target``."""
        return cls([template.space(workload, target) for template in templates_for(workload, target)])

    @property
    def size(self) -> int:
        """Configurations before the rules."""
        return sum(space.size for space in self.by_template.values())

    @property
    def can_be_listed(self) -> bool:
        return self.size <= ENUMERABLE

    def __iter__(self) -> Iterator[Config]:
        """Every legal configuration; the templates take turns."""
        nothing = object()
        for turn in itertools.zip_longest(*self.by_template.values(), fillvalue=nothing):
            yield from (config for config in turn if isinstance(config, Config))

    def adopt(self, config: Config) -> Config | None:
        """``config`` as its space writes it; None if it is not, or no longer, legal."""
        return self._found(config, lambda space: space.check(config.to_dict()))

    def nearest(self, config: Config) -> Config | None:
        """The legal configuration nearest to ``config``, of another workload; None if there is no such template here,
        or nothing legal is near."""
        return self._found(config, lambda space: space.nearest(config))

    def _found(self, config: Config, find: Callable[[ConfigSpace], Config]) -> Config | None:
        space = self.by_template.get(config.template)
        try:
            return find(space) if space is not None else None
        except InvalidConfig:
            return None

    def sample(self, rng: random.Random) -> Config | None:
        """A legal configuration: the template drawn evenly, then the configuration."""
        return self.by_template[rng.choice(list(self.by_template))].sample(rng, attempts=200)

    def neighbours(self, config: Config) -> list[Config]:
        """Legal configurations of the same template, one step away in one knob."""
        return self.by_template[config.template].neighbours(config)

    def two_apart(self, config: Config) -> list[Config]:
        """Legal configurations of the same template that differ in two knobs."""
        return self.by_template[config.template].two_apart(config)

    def mutate(self, config: Config, rng: random.Random) -> Config | None:
        """``config`` with one or two knobs drawn again; None if that is illegal."""
        space = self.by_template[config.template]
        values = dict(config.values)
        free = [knob for knob in space.knobs if len(knob.values) > 1]
        for knob in rng.sample(free, k=min(len(free), rng.choice((1, 1, 2)))):
            values[knob.name] = rng.choice([value for value in knob.values if value != values[knob.name]])
        return self._legal(space, values)

    def cross(self, mother: Config, father: Config, rng: random.Random) -> Config | None:
        """Each knob from one of two configurations; None if their templates differ, or if the result is illegal."""
        if mother.template != father.template:
            return None
        values = {
            name: rng.choice((hers, his)) for (name, hers), (_, his) in zip(mother.values, father.values, strict=True)
        }
        return self._legal(self.by_template[mother.template], values)

    def _legal(self, space: ConfigSpace, values: dict[str, Value]) -> Config | None:
        config = Config.of(space.template, **values)
        return config if space.why_illegal(config) is None else None


ENUMERABLE = 50_000
"""Spaces up to this size are listed when random draws find nothing new any more."""


class Unvisited:
    """Draws configurations that are neither proposed nor measured yet."""

    def __init__(self, spaces: SpaceUnion, *, seed: int) -> None:
        self._spaces = spaces
        self._rng = random.Random(seed)
        self._seen: set[Config] = set()

    def mark(self, config: Config) -> Config | None:
        """Remember ``config`` as seen. Returns it as its space writes it; None if it is not in the space."""
        adopted = self._spaces.adopt(config)
        if adopted is not None:
            self._seen.add(adopted)
        return adopted

    def is_new(self, config: Config) -> bool:
        return config not in self._seen

    def take(self, configs: list[Config]) -> list[Config]:
        self._seen.update(configs)
        return configs

    def defaults(self, count: int) -> list[Config]:
        return self.take([config for config in self._spaces.defaults if self.is_new(config)][:count])

    def draw(self, count: int) -> list[Config]:
        """Up to ``count``, drawn evenly."""
        found = self._drawn(count)
        if len(found) < count and self._spaces.can_be_listed:
            rest = [config for config in self._spaces if self.is_new(config) and config not in found]
            found += self._rng.sample(rest, k=min(len(rest), count - len(found)))
        return self.take(found)

    def _drawn(self, count: int) -> list[Config]:
        found: dict[Config, None] = {}
        for _ in range(20 * count):
            if len(found) == count:
                break
            config = self._spaces.sample(self._rng)
            if config is not None and self.is_new(config):
                found[config] = None
        return list(found)


_LEVELS = ("block", "tile", "thread", "threads", "vthread", "vectors", "vector", "group", "split")
"""First words of knob names that are sizes along an axis, at one level of the partition."""


class Features:
    """Turns configurations of one workload into rows of numbers; NaN where a template has no such knob."""

    def __init__(self, spaces: SpaceUnion, workload: Workload) -> None:
        self._templates = list(spaces.by_template)
        self._choices: dict[str, tuple[Value, ...]] = {}
        """Values of every knob; a word stands for its position."""
        for space in spaces.by_template.values():
            for knob in space.knobs:
                known = self._choices.get(knob.name, ())
                self._choices[knob.name] = tuple(dict.fromkeys((*known, *knob.values)))
        *_, height, width = workload.result_size
        self._extents = {
            "h": height, "w": width, "c": workload.out_channels, "n": workload.batch,
            "kh": workload.kernel[-2], "kw": workload.kernel[-1],
        }  # fmt: skip
        self._sized = [name for name in self._choices if _level(name) and _axis(name) in self._extents]
        self._levels = sorted({_level(name) for name in self._sized})

    def rows(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        """(len(configs), number of features)."""
        return np.array([self._row(config) for config in configs], dtype=np.float32)

    def _row(self, config: Config) -> list[float]:
        values = dict(config.values)
        row = [float(config.template == template) for template in self._templates]
        for name, choices in self._choices.items():
            row.append(_number(values[name], choices) if name in values else math.nan)
        outputs = dict.fromkeys(self._levels, 0.0)
        for name in self._sized:
            size, extent = values.get(name), self._extents[_axis(name)]
            if not isinstance(size, int) or size < 1:
                row += [math.nan, math.nan]
                continue
            tiles = -(-extent // size)
            row += [math.log2(tiles), tiles * size / extent]
            outputs[_level(name)] += math.log2(size)
        return row + list(outputs.values()) + [sum(outputs.values())]


def _number(value: Value, choices: tuple[Value, ...]) -> float:
    if isinstance(value, int):
        return math.log2(value) if value > 0 else float(value - 1)
    return float(choices.index(value))


def _level(name: str) -> str:
    first = name.partition("_")[0]
    return first if first in _LEVELS else ""


def _axis(name: str) -> str:
    return name.rpartition("_")[2]
