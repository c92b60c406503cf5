"""The options of the backend: ``torch.compile(model, backend="dwconv_concurrent", options={…})``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dwconv.concurrency.strategies import COMBINED, STRATEGIES
from dwconv.errors import InvalidChoice, one_line

MODELS = ("hill_climbing", "regression")
PLAIN = "plain"
RANDOM = "random:"
_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may set. Raises InvalidChoice for a value that makes no sense."""

    strategies: tuple[str, ...] = STRATEGIES
    """Those that may be used, alone and combined."""
    model: str = "hill_climbing"
    """The model of times by number of threads: ``hill_climbing`` or ``regression``."""
    workers: int | None = None
    """The most tasks at a time, not counting those on second hardware threads; as many as there are cores if None."""
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
    """This one runs, and nothing is measured: ``plain``, strategies such as ``S1+S3``, or one drawn by chance, such as
    ``random:7``."""

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
            known = ", ".join(STRATEGIES)
            raise InvalidChoice(
                f"schedule {_shown(self.schedule)} is unknown; use {PLAIN}, any of {known} joined by +, or "
                f"{RANDOM}SEED, a whole number"
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
    return name == PLAIN or tuple(sorted(name.split("+"))) in COMBINED


_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "model": ("a name", (str,)),
    "workers": ("a whole number", (int, type(None))),
    "memory": ("a share, such as 0.2", (int, float)),
    "seconds": ("a number of seconds", (int, float)),
    "fall_back": ("True or False", (bool,)),
    "log": ("True or False", (bool,)),
    "schedule": ("a name", (str, type(None))),
}


def read(given: Mapping[str, Any] | None) -> Options:
    """The options as they come from ``torch.compile``. Raises InvalidChoice, naming what is unknown."""
    values = dict(given or {})
    for name, value in values.items():
        if name == "strategies":
            if not isinstance(value, Sequence):
                names = ", ".join(STRATEGIES)
                raise InvalidChoice(f"strategies={_shown(value)} is not a list of names; use any of {names}")
            values[name] = (value,) if isinstance(value, str) else tuple(value)
        elif name not in _KINDS:
            known = ", ".join(sorted(("strategies", *_KINDS)))
            raise InvalidChoice(f"option {_shown(name)} is unknown; use any of {known}")
        elif type(value) not in _KINDS[name][1]:
            raise InvalidChoice(f"option {name}={_shown(value)} is not {_KINDS[name][0]}")
    return Options(**values)


def _shown(value: object) -> str:
    return one_line(repr(value), most=_SHOWN)
