"""MeasuredUnion: the search space of a pass, restricted to the configurations that were measured.

A search that is replayed can step nowhere else. Few of the neighbours of a configuration were measured, so a mutation
is one of the measured configurations that differ least from it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from bench.spaces.measured_spaces import MeasuredPass
from dwconv.errors import UnreadableSpaces
from dwconv.problems.target import Target
from dwconv.schedules.space import Config, ConfigSpace, Value
from dwconv.schedules.template import templates_for
from dwconv.tuner.search.spaces import SpaceUnion

CHANGED = 2
"""Knobs in which a mutation differs, at most, if anything so near was measured."""


class MeasuredUnion(SpaceUnion):
    """The union of a pass's spaces, as far as it was measured. Raises UnreadableSpaces if the templates have changed so
    that nothing of it is legal any more."""

    def __init__(self, measured: MeasuredPass, target: Target) -> None:
        workload = measured.workload
        super().__init__([template.space(workload, target) for template in templates_for(workload, target)])
        legal = super().adopt
        self._measured = {config: None for config in measured.us if legal(config) == config}
        self._drawn = [config for config in measured.drawn if config in self._measured]
        if not self._drawn:
            raise UnreadableSpaces(f"nothing that was drawn for {workload.key} is legal any more; measure it again")
        self.defaults = [config for config in self.defaults if config in self._measured]
        self._near: dict[Config, list[Config]] = {}
        self._next_to: dict[Config, list[Config]] = {}

    @property
    def size(self) -> int:
        return len(self._measured)

    def __iter__(self) -> Iterator[Config]:
        return iter(self._measured)

    def adopt(self, config: Config) -> Config | None:
        return config if config in self._measured else None

    def nearest(self, config: Config) -> Config | None:
        """The legal configuration nearest to ``config``, if it was measured."""
        legal = super().nearest(config)
        return legal if legal in self._measured else None

    def sample(self, rng: random.Random) -> Config | None:
        """One of those that were drawn evenly."""
        return rng.choice(self._drawn)

    def neighbours(self, config: Config) -> list[Config]:
        if config not in self._next_to:
            self._next_to[config] = [near for near in super().neighbours(config) if near in self._measured]
        return self._next_to[config]

    def mutate(self, config: Config, rng: random.Random) -> Config | None:
        if config not in self._near:
            self._near[config] = self._least_changed(config)
        near = self._near[config]
        return rng.choice(near) if near else None

    def _legal(self, space: ConfigSpace, values: dict[str, Value]) -> Config | None:
        return self.adopt(Config.of(space.template, **values))

    def _least_changed(self, config: Config) -> list[Config]:
        """Those that differ in ``CHANGED`` knobs at most; if there are none, in as few as possible."""
        changed = {other: _changed(config, other) for other in self._measured if other.template == config.template}
        del changed[config]
        most = max(CHANGED, min(changed.values(), default=0))
        return [other for other, knobs in changed.items() if knobs <= most]


def _changed(one: Config, other: Config) -> int:
    return sum(value != others for value, others in zip(one.values, other.values, strict=True))
