"""Unvisited: draws configurations that a strategy has neither asked for nor been told of."""

from __future__ import annotations

import random

from dwconv.schedules.space import Config
from dwconv.tuner.search.spaces import SpaceUnion

ENUMERABLE = 50_000
"""Spaces up to this size are listed when random draws find nothing new any more."""


class Unvisited:
    """Draws configurations that were never asked or told before."""

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
        if len(found) < count and self._spaces.size <= ENUMERABLE:
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
