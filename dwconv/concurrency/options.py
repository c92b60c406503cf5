"""The options of the backend: ``torch.compile(model, backend="dwconv_concurrent", options={…})``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dwconv.concurrency import strategies
from dwconv.errors import InvalidChoice, one_line

MODELS = ("hill_climbing", "regression")
GRADIENTS = "gradients"
STRATEGIES = (*strategies.STRATEGIES, GRADIENTS)
PLAIN = "plain"
RANDOM = "random:"
_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may set. Raises InvalidChoice for a value that makes no sense."""

    strategies: tuple[str, ...] = STRATEGIES
    """Those that may be used, alone and combined; ``gradients`` runs dgrad and wgrad of a convolution at once."""
    model: str = "hill_climbing"
    """The model of times by number of threads: ``hill_climbing`` or ``regression``."""
    workers: int | None = None
    """The most tasks at a time; as many as there are cores if None."""
    memory: float = 0.2
    """By which share the peak of the results may grow over that of plain order."""
    seconds: float = 30.0
    """About how long a graph may be measured in its first step. 0 measures nothing: a kept choice runs, else plain
    execution."""
    fall_back: bool = True
    """Plain execution runs where nothing is faster. False: the fastest schedule runs, whatever plain takes."""
    log: bool = True
    """Keep what was chosen, and use what is kept."""
    schedule: str | None = None
    """This one runs, and nothing is measured: ``plain``, strategies such as ``S1+S3``, ``gradients``, or one drawn by
    chance, such as ``random:7``."""

    @property
    def asked(self) -> str:
        """The options on which a choice depends, as text: what is chosen under others is another choice."""
        strategies = "+".join(name for name in STRATEGIES if name in self.strategies)
        workers = "all" if self.workers is None else self.workers
        return f"{strategies} {self.model} workers={workers} memory={self.memory} fall_back={self.fall_back}"

    def __post_init__(self) -> None:
        for name in self.strategies:
            if name not in STRATEGIES:
                raise InvalidChoice(f"strategy {_shown(name)} is unknown; use any of {', '.join(STRATEGIES)}")
        if self.model not in MODELS:
            raise InvalidChoice(f"model {_shown(self.model)} is unknown; use one of {', '.join(MODELS)}")
        if self.schedule is not None and not _is_schedule(self.schedule):
            raise InvalidChoice(
                f"schedule {_shown(self.schedule)} is unknown; use {PLAIN}, {GRADIENTS}, strategies such as S1+S3, "
                f"or {RANDOM}SEED with a whole number"
            )
        if self.workers is not None and self.workers < 1:
            raise InvalidChoice(f"workers={self.workers} is too few; use 1 or more")
        for name in ("memory", "seconds"):
            if not getattr(self, name) >= 0:
                raise InvalidChoice(f"{name}={getattr(self, name)} is negative; use 0 or more")


def _is_schedule(name: str) -> bool:
    if name.startswith(RANDOM):
        seed = name.removeprefix(RANDOM)
        return seed.isascii() and seed.isdecimal()
    parts = name.split("+")
    combined = all(each in STRATEGIES and each != GRADIENTS for each in parts) and len(set(parts)) == len(parts)
    return name in (PLAIN, GRADIENTS) or combined


def read(given: Mapping[str, Any] | None) -> Options:
    """The options as they come from ``torch.compile``. Raises InvalidChoice, naming what is unknown."""
    known = {each.name for each in fields(Options)}
    values: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if name not in known:
            raise InvalidChoice(f"option {_shown(name)} is unknown; use any of {', '.join(sorted(known))}")
        if name == "strategies":
            value = _names(value)
        elif type(value) not in _TYPES[name]:
            raise InvalidChoice(f"option {name}={_shown(value)} is not {_MEANT[name]}")
        values[name] = value
    return Options(**values)


_MEANT = {
    "model": "a name", "workers": "a whole number", "memory": "a share, such as 0.2", "seconds": "a number of seconds",
    "fall_back": "True or False", "log": "True or False", "schedule": "a name",
}  # fmt: skip
_TYPES: dict[str, Collection[type]] = {
    "model": (str,), "workers": (int, type(None)), "memory": (int, float), "seconds": (int, float),
    "fall_back": (bool,), "log": (bool,), "schedule": (str, type(None)),
}  # fmt: skip


def _names(value: object) -> tuple[str, ...]:
    """One name, or several."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence):
        raise InvalidChoice(f"strategies={_shown(value)} is not a list of names; use any of {', '.join(STRATEGIES)}")
    return tuple(value)


def _shown(value: object) -> str:
    return one_line(repr(value), most=_SHOWN)
