"""Knob, Config, ConfigSpace: one integer decision, a choice of all of them, and all legal choices."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any

from dwconv.errors import InvalidConfig

Value = int | str


@dataclass(frozen=True)
class Knob:
    """One decision: its name in the field's words, and the values it may take, in their natural order; none where there
    is no choice, and a configuration without the knob means ``absent``."""

    name: str
    values: tuple[Value, ...]
    absent: Value | None
    """The meaning of a configuration without the knob, written before there was one; None: it is wrong. Where it is not
    among the values it is legal, and no search comes to it."""

    def __init__(self, name: str, values: Sequence[Value], *, absent: Value | None = None) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "values", tuple(dict.fromkeys(values)))
        object.__setattr__(self, "absent", absent)
        if not self.values and absent is None:
            raise InvalidConfig(f"knob {name} has no values")


@dataclass(frozen=True)
class Config:
    """A value for every knob of one template. Knobs read as attributes: ``config.block_h``."""

    template: str
    values: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, template: str, /, **values: Value) -> Config:
        return cls(template, tuple(values.items()))

    def __getattr__(self, name: str) -> Any:
        """Only for what is not among the attributes yet: all knobs become attributes. Rules read them again and again,
        while a space is listed a million times."""
        fields = self.__dict__
        knobs = dict(fields.get("values", ()))
        if name not in knobs:
            raise AttributeError(f"config of {fields.get('template')} has no knob {name}")
        fields.update(knobs | fields)
        return knobs[name]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values)

    def to_dict(self) -> dict[str, Value]:
        """``{"template": …, knob: value, …}``; ``ConfigSpace.check`` reads it back."""
        return {"template": self.template, **dict(self.values)}


@dataclass(frozen=True)
class Rule:
    """A reason that makes a configuration illegal: ``broken`` is true for those that break it; ``reason`` says why."""

    reason: str
    broken: Callable[[Config], bool]
    of: tuple[str, ...] = ()
    """The knobs that ``broken`` reads, if these are few: they are drawn together, so that none breaks the rule."""


Limit = tuple[str, Callable[[Any], bool]]
"""A reason that makes a cut illegal, and its test."""


def rules_of(cut_of: Callable[[Config], Any], limits: Iterable[Limit]) -> list[Rule]:
    """Limits of cuts, as rules of configurations. Those of one configuration are checked one after the other."""
    cut = lru_cache(maxsize=4)(cut_of)

    def rule(reason: str, test: Callable[[Any], bool]) -> Rule:
        return Rule(reason, lambda config: test(cut(config)))

    return [rule(*limit) for limit in limits]


_NAME = attrgetter("name")
MOST_LISTED = 500_000
"""Configurations before the rules, that are looked through one by one: a few seconds."""
MOST_NEAR = 1000
"""Configurations that are looked at for a legal one near another: three or four steps in every direction."""


@dataclass(frozen=True)
class ConfigSpace:
    """All configurations of one template for one workload on one target.

    ``preferred`` names the values of the default, or is a function that finds them, which may take seconds; where no
    legal configuration has them all, ``default`` takes the legal one that is nearest.
    """

    template: str
    knobs: tuple[Knob, ...]
    fixed: tuple[Knob, ...]
    """Knobs of the template that leave no choice here: configurations are written without them."""
    rules: tuple[Rule, ...]
    _preferred: Mapping[str, Value] | Callable[[], Mapping[str, Value]] = field(repr=False, compare=False)

    def __init__(
        self,
        template: str,
        *knobs: Knob,
        rules: Sequence[Rule] = (),
        preferred: Mapping[str, Value] | Callable[[], Mapping[str, Value]] | None = None,
    ) -> None:
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "knobs", tuple(knob for knob in knobs if knob.values))
        object.__setattr__(self, "fixed", tuple(knob for knob in knobs if not knob.values))
        object.__setattr__(self, "rules", tuple(rules))
        object.__setattr__(self, "_preferred", preferred or {})

    @property
    def size(self) -> int:
        """Configurations before the rules."""
        return math.prod(len(knob.values) for knob in self.knobs)

    def __iter__(self) -> Iterator[Config]:
        """Every legal configuration, in order of the knobs."""
        for values in itertools.product(*(knob.values for knob in self.knobs)):
            config = self._config(values)
            if self.why_illegal(config) is None:
                yield config

    def why_illegal(self, config: Config) -> str | None:
        """The reason of the first rule that ``config`` breaks; None if it is legal."""
        for rule in self.rules:  # no generator: while a space is listed, making one takes as long as a rule
            if rule.broken(config):
                return rule.reason
        return None

    def sample(self, rng: random.Random, *, attempts: int = 1000) -> Config | None:
        """A legal configuration drawn evenly; None if none was found.

        Where ``attempts`` draws found none, legal ones are rare, and all of them are listed, once, unless the space is
        too large for that: then None."""
        if not all(choices for _, choices, _, _ in self._drawn_together):
            return None
        for _ in range(attempts):
            config = self._config(self._drawn(rng))
            if self.why_illegal(config) is None:
                return config
        legal = _listed(self) if self.size <= MOST_LISTED else ()
        return rng.choice(legal) if legal else None

    def _drawn(self, rng: random.Random) -> list[Value]:
        """A value of each knob, legal or not, but for rules of few knobs: what ``rng.choice`` gives, in a third of its
        time."""
        found: dict[int, Value] = {}
        draw = rng.getrandbits
        for positions, choices, count, bits in self._drawn_together:
            at = draw(bits)
            while at >= count:
                at = draw(bits)
            found.update(zip(positions, choices[at], strict=True))
        return [found[position] for position in range(len(self.knobs))]

    @cached_property
    def _drawn_together(self) -> list[tuple[tuple[int, ...], list[tuple[Value, ...]], int, int]]:
        """Of the knobs that rules of few knobs join, and of each other one: positions, what they may be together, how
        many that are, and the bits of that number."""
        names = [knob.name for knob in self.knobs]
        joined = [{name} for name in names]
        for rule in self.rules:
            if rule.of and {*rule.of} <= {*names}:
                met = [group for group in joined if group & {*rule.of}]
                joined = [group for group in joined if group not in met] + [set().union(*met)]
        found = []
        for group in sorted(joined, key=lambda group: min(map(names.index, group))):
            positions = tuple(sorted(map(names.index, group)))
            choices = list(self._together([self.knobs[position] for position in positions]))
            found.append((positions, choices, len(choices), len(choices).bit_length()))
        return found

    def _together(self, knobs: Sequence[Knob]) -> Iterator[tuple[Value, ...]]:
        names = [knob.name for knob in knobs]
        rules = [rule for rule in self.rules if rule.of and {*rule.of} <= {*names}]
        for values in itertools.product(*(knob.values for knob in knobs)):
            part = Config(self.template, tuple(zip(names, values, strict=True)))
            if not any(rule.broken(part) for rule in rules):
                yield values

    def neighbours(self, config: Config) -> list[Config]:
        """Legal configurations that differ in one knob by one step."""
        found = []
        values = [value for _, value in config.values]
        for position, knob in enumerate(self.knobs):
            at = _nearest(knob.values, values[position])
            for step in (at - 1, at + 1):
                if 0 <= step < len(knob.values):
                    near = self._config([*values[:position], knob.values[step], *values[position + 1 :]])
                    if self.why_illegal(near) is None:
                        found.append(near)
        return found

    def two_apart(self, config: Config) -> list[Config]:
        """Legal configurations that differ in two knobs, by whatever values: some pay only together."""
        found, values = [], [value for _, value in config.values]
        for one, other in itertools.combinations(range(len(self.knobs)), 2):
            for first, second in itertools.product(self.knobs[one].values, self.knobs[other].values):
                if first == values[one] or second == values[other]:
                    continue
                changed = [*values]
                changed[one], changed[other] = first, second
                near = self._config(changed)
                if self.why_illegal(near) is None:
                    found.append(near)
        return found

    @cached_property
    def default(self) -> Config:
        """The configuration to start from: the preferred one, or the nearest that is legal.

        Raises InvalidConfig if the space has no legal configuration."""
        preferred = self._preferred
        return self._nearest_legal(preferred() if callable(preferred) else preferred)

    def nearest(self, config: Config) -> Config:
        """The legal configuration nearest to ``config``, which was chosen for another workload or another machine: for
        each knob the nearest value, the default's where ``config`` has none; where that is illegal, the legal one that
        is fewest steps away.

        Raises InvalidConfig if no legal configuration is near."""
        wanted = {**{knob.name: knob.absent for knob in self.knobs if knob.absent is not None}, **dict(config.values)}
        if any(knob.name not in wanted for knob in self.knobs):
            wanted = {**dict(self.default.values), **wanted}
        return self._nearest_legal(wanted, most=MOST_NEAR)

    def _nearest_legal(self, wanted: Mapping[str, Value], *, most: int | None = None) -> Config:
        """``most``: configurations to look at."""
        start = tuple(_nearest(knob.values, wanted.get(knob.name, knob.values[0])) for knob in self.knobs)
        frontier, seen = [start], {start}
        looked_at = 0
        while frontier:  # breadth first: one knob, one step further away at a time
            for at in frontier:
                config = self._config([knob.values[i] for knob, i in zip(self.knobs, at, strict=True)])
                if self.why_illegal(config) is None:
                    return config
                looked_at += 1
                if looked_at == most:
                    raise InvalidConfig(f"{self.template} has no valid configuration near {config}")
            frontier = list(dict.fromkeys(near for at in frontier for near in self._steps(at) if near not in seen))
            seen.update(frontier)
        raise InvalidConfig(f"{self.template} has no valid configuration for this workload")

    def check(self, fields: Mapping[str, Any]) -> Config:
        """Read a configuration from plain data. Raises InvalidConfig, naming the knob and the value."""
        if reason := self.why_damaged(fields):
            raise InvalidConfig(reason)
        values = {**{knob.name: knob.absent for knob in self.knobs if knob.absent is not None}, **fields}
        for knob in self.knobs:
            if knob.name not in values:
                raise InvalidConfig(f"{self.template} needs a value for knob {knob.name}")
            if values[knob.name] not in (*knob.values, knob.absent):
                raise InvalidConfig(self._no_value(knob, values[knob.name]))
        for knob in self.fixed:
            if values.get(knob.name, knob.absent) != knob.absent:
                raise InvalidConfig(self._no_value(knob, values[knob.name]))
        config = self._config([values[knob.name] for knob in self.knobs])
        if reason := self.why_illegal(config):
            raise InvalidConfig(f"{config} is not valid in {self.template}: {reason}")
        return config

    def why_damaged(self, fields: Mapping[str, Any]) -> str | None:
        """Why no workload and no machine makes ``fields`` a configuration of this template: a knob that it does not
        have, or a value of another kind; None if they may be one."""
        knobs = {knob.name: knob for knob in (*self.knobs, *self.fixed)}
        for name, value in fields.items():
            if name == "template":
                continue
            if name not in knobs:
                return f"{self.template} has no knob {name}"
            if type(value) not in map(type, knobs[name].values or (knobs[name].absent,)):
                return self._no_value(knobs[name], value)
        return None

    def _no_value(self, knob: Knob, value: object) -> str:
        return f"{knob.name}={value!r} is not one of {list(knob.values) or [knob.absent]} in {self.template}"

    def _config(self, values: Sequence[Value]) -> Config:
        return Config(self.template, tuple(zip(map(_NAME, self.knobs), values, strict=True)))

    def _steps(self, at: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for position, knob in enumerate(self.knobs):
            for step in (at[position] - 1, at[position] + 1):
                if 0 <= step < len(knob.values):
                    yield (*at[:position], step, *at[position + 1 :])


@lru_cache(maxsize=8)
def _listed(space: ConfigSpace) -> tuple[Config, ...]:
    return tuple(space)


def fastest_legal(
    choices: Iterable[Mapping[str, Value]], rules: Sequence[Rule], estimate: Callable[[Config], float]
) -> dict[str, Value]:
    """The choice of least estimate, of those that break no rule; empty if all break one."""
    configs = [Config.of("", **values) for values in choices]
    legal = [config for config in configs if not any(rule.broken(config) for rule in rules)]
    best = min(legal, key=estimate, default=None)
    return dict(best.values) if best else {}


def divisors(number: int, *, most: int | None = None) -> list[int]:
    """Divisors of ``number`` in rising order, up to ``most``."""
    return [d for d in range(1, (most or number) + 1) if number % d == 0]


def _nearest(values: tuple[Value, ...], wanted: Value) -> int:
    """Position of ``wanted``, or of the number nearest to it, or of the first value."""
    if wanted in values:
        return values.index(wanted)
    if not isinstance(wanted, int):
        return 0
    distances = [(abs(value - wanted), at) for at, value in enumerate(values) if isinstance(value, int)]
    return min(distances)[1] if distances else 0
