"""SpaceUnion: the spaces of all templates that fit a workload, searched as one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

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
            raise NoTemplate(f"no legal configuration for this workload in {names or 'no template'}")

    @classmethod
    def of(cls, workload: Workload, target: Target) -> SpaceUnion:
        """Raises NoTemplate, saying why, if no template can run ``workload`` on ``target``."""
        return cls([template.space(workload, target) for template in templates_for(workload, target)])

    @property
    def size(self) -> int:
        """Configurations before the rules."""
        return sum(space.size for space in self.by_template.values())

    def __iter__(self) -> Iterator[Config]:
        """Every legal configuration; the templates take turns."""
        nothing = object()
        for turn in itertools.zip_longest(*self.by_template.values(), fillvalue=nothing):
            yield from (config for config in turn if isinstance(config, Config))

    def adopt(self, config: Config) -> Config | None:
        """``config`` as its space writes it; None if it is not, or no longer, legal."""
        space = self.by_template.get(config.template)
        if space is None:
            return None
        try:
            return space.check(config.to_dict())
        except InvalidConfig:
            return None

    def nearest(self, config: Config) -> Config | None:
        """The legal configuration nearest to ``config``, of another workload; None if there is no such template here,
        or nothing legal is near."""
        space = self.by_template.get(config.template)
        if space is None:
            return None
        try:
            return space.nearest(config)
        except InvalidConfig:
            return None

    def sample(self, rng: random.Random) -> Config | None:
        """A legal configuration: the template drawn evenly, then the configuration."""
        return self.by_template[rng.choice(list(self.by_template))].sample(rng, attempts=200)

    def neighbours(self, config: Config) -> list[Config]:
        """Legal configurations of the same template, one step away in one knob."""
        return self.by_template[config.template].neighbours(config)

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
