"""Replay: searches on configurations that were measured once. No noise, no kernel: strategies are compared in a minute.

A table has hundreds of configurations of every pass, each timed beside the same reference. A search gets the time of
the table for whatever it proposes, and can step only to what was measured. Its best so far is compared with the best of
all that were drawn evenly.
"""

from __future__ import annotations

import json
import lzma
import math
import os
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.results import write_results
from dwconv.errors import UnreadableSpaces
from dwconv.problems.target import CacheLevel, CpuTarget, Limits, Target
from dwconv.problems.workload import Workload
from dwconv.records.record import Measurement, Status, TuningRecord
from dwconv.schedules.space import Config, ConfigSpace, Value
from dwconv.schedules.template import templates_for
from dwconv.settings import PATIENCE
from dwconv.tuner.search.loop import BATCH
from dwconv.tuner.search.search_state import IMPROVEMENT
from dwconv.tuner.search.spaces import SpaceUnion
from dwconv.tuner.search.strategies import Strategy, make_strategy
from dwconv.tuner.until import Until

FORMAT = 1
FOLDER = Path("bench/spaces")


# -- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MeasuredPass:
    """What was measured of one pass."""

    workload: Workload
    us: dict[Config, float | None]
    """Every configuration that was measured; None if it failed."""
    drawn: tuple[Config, ...]
    """Those that were drawn evenly, in the order of the draws."""
    starts: tuple[Config, ...]
    """Where a search starts that has the records of other devices, the most promising first."""
    untuned_starts: tuple[Config, ...]
    """The same without records of the layer itself."""


@dataclass(frozen=True, kw_only=True)
class MeasuredSpaces:
    """The passes that were measured on a device."""

    target: CpuTarget
    versions: dict[str, str]
    created: str
    passes: tuple[MeasuredPass, ...]


def tables(path: Path, *, layout: str) -> list[Path]:
    """``path``; if it is a folder, the tables of ``layout`` in it. Raises UnreadableSpaces if there are none."""
    if not path.is_dir():
        return [path]
    if found := sorted(path.glob(f"*-{layout}.json.xz")):
        return found
    raise UnreadableSpaces(f"{path} has no table of layout {layout}; name one that has")


def read_spaces(path: Path) -> MeasuredSpaces:
    """Raises UnreadableSpaces for a file that is not there, or is none."""
    try:
        fields = json.loads(lzma.decompress(path.read_bytes()))
        if fields["format"] != FORMAT:
            raise ValueError(f"format {fields['format']} is not {FORMAT}")
        if not fields["passes"]:
            raise ValueError("it has no passes")
        return MeasuredSpaces(
            target=_target(fields["target"]),
            versions=fields["versions"],
            created=fields["created"],
            passes=tuple(map(_read, fields["passes"])),
        )
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UnreadableSpaces(
            f"{path} is not a table of measured configurations: {error}; those that ship are in {FOLDER}"
        ) from None


def _read(fields: dict[str, Any]) -> MeasuredPass:
    us: dict[Config, float | None] = {}
    for rows in fields["templates"]:
        names = list(rows["knobs"])
        for values, time in zip(zip(*rows["knobs"].values(), strict=True), rows["us"], strict=True):
            us[Config.of(rows["template"], **dict(zip(names, values, strict=True)))] = time
    configs = list(us)
    drawn, starts, untuned = (
        tuple(configs[number] for number in fields[name]) for name in ("drawn", "starts", "untuned_starts")
    )
    workload = Workload.from_dict(fields["workload"])
    return MeasuredPass(workload=workload, us=us, drawn=drawn, starts=starts, untuned_starts=untuned)


def _target(fields: dict[str, Any]) -> CpuTarget:
    limits = fields["limits"]
    if limits is not None:
        levels = tuple(CacheLevel(**level) for level in limits["levels"])
        limits = Limits(**{**limits, "levels": levels})
    return CpuTarget(**{**fields, "limits": limits})


# -- what a search can step to -----------------------------------------------------------------------------------------

CHANGED = 2
"""Knobs in which a mutation differs, at most, if anything so near was measured."""


class MeasuredUnion(SpaceUnion):
    """The union of a pass's spaces, as far as it was measured. Raises UnreadableSpaces if the templates have changed so
    that none of it is valid any more."""

    def __init__(self, measured: MeasuredPass, target: Target) -> None:
        workload = measured.workload
        super().__init__([template.space(workload, target) for template in templates_for(workload, target)])
        legal = super().adopt
        self._measured = {config: None for config in measured.us if legal(config) == config}
        self._drawn = [config for config in measured.drawn if config in self._measured]
        if not self._drawn:
            raise UnreadableSpaces(f"no drawn configuration of {workload.key} is valid any more; name another table")
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


# -- searches on it ----------------------------------------------------------------------------------------------------

SEEDS = 5
TRIALS = (8, 16, 32, 64)
GOALS = {8: 1.10, 32: 1.05}
"""By trials: the best so far may be this many times as slow as the best that was drawn."""


def evolve(measured: MeasuredPass, target: Target, *, seed: int) -> Strategy:
    """The default search, with the records of other devices."""
    return _strategy(measured, target, seed=seed, starts=measured.starts)


def evolve_untuned(measured: MeasuredPass, target: Target, *, seed: int) -> Strategy:
    """The default search of a layer that no device has a record of."""
    return _strategy(measured, target, seed=seed, starts=measured.untuned_starts)


def evolve_alone(measured: MeasuredPass, target: Target, *, seed: int) -> Strategy:
    """The default search without anything to start from but the defaults."""
    return _strategy(measured, target, seed=seed, starts=())


def drawn(measured: MeasuredPass, target: Target, *, seed: int) -> Strategy:
    """Random configurations."""
    spaces = MeasuredUnion(measured, target)
    return make_strategy("random", spaces=spaces, workload=measured.workload, seed=seed, target=target)


def _strategy(measured: MeasuredPass, target: Target, *, seed: int, starts: Sequence[Config]) -> Strategy:
    spaces = MeasuredUnion(measured, target)
    return make_strategy("evolve", spaces=spaces, workload=measured.workload, seed=seed, target=target, starts=starts)


MakeStrategy = Callable[..., Strategy]
STRATEGIES: dict[str, MakeStrategy] = {
    "evolve": evolve,
    "evolve, layer untuned": evolve_untuned,
    "evolve, no starts": evolve_alone,
    "random": drawn,
}


SHARES = (0.95, 0.98, 0.99)
"""For ``tune --until``, with the passes of the table as a step."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A search that ``tune --until`` ends."""

    trials: int
    slower: float
    """Its best over that of the whole search."""


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A search of one pass."""

    strategy: str
    workload: str
    seed: int
    ratios: dict[int, float]
    """By trials: the best so far over the best that was drawn."""
    trials: int
    """Of the whole search, with the usual limits."""
    us: float
    """The best of it."""
    until: dict[float, Ended]
    """By the share."""


def replay(path: Path, *, folder: Path) -> None:
    """Replay all strategies on the table ``path``, print a table, and write the result to ``folder``. Raises
    UnreadableSpaces."""
    spaces = read_spaces(path)
    found = _replayed(spaces)
    rows = [summary(name, [one for one in found if one.strategy == name]) for name in STRATEGIES]
    ends = [until_summary(name, share, found) for name in ("evolve", "evolve, layer untuned") for share in SHARES]
    print(f"{len(spaces.passes)} passes, {SEEDS} seeds\n\n{table(rows)}\n\n{until_table(ends)}")
    passes = [_of_pass(measured, found) for measured in spaces.passes]
    facts = {"table": path.name, "measured": spaces.created, "measured_versions": spaces.versions, "passes": passes}
    facts["until"] = ends
    write_results(f"replay-{spaces.passes[0].workload.layout}", target=spaces.target, rows=rows, folder=folder, **facts)


def _replayed(spaces: MeasuredSpaces) -> list[Replayed]:
    """Every search of every pass, on all cores; of a single pass, here."""
    step_us = sum(min(_us(measured, measured.drawn)) for measured in spaces.passes)
    of_pass = partial(replayed, target=spaces.target, step_us=step_us)
    if len(spaces.passes) == 1:
        return of_pass(spaces.passes[0])
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return [one for found in pool.map(of_pass, spaces.passes) for one in found]


def replayed(measured: MeasuredPass, *, target: Target, step_us: float) -> list[Replayed]:
    """Every strategy with every seed on one pass, of a step that takes so long."""
    return [
        _searched(measured, target, name=name, seed=seed, step_us=step_us)
        for name in STRATEGIES
        for seed in range(SEEDS)
    ]


def _searched(measured: MeasuredPass, target: Target, *, name: str, seed: int, step_us: float) -> Replayed:
    found_us = bests_us(measured, STRATEGIES[name](measured, target, seed=seed), device=target.device)
    whole = usual_end(found_us)
    best_us = found_us[whole - 1]
    limit_us = _limit_us(measured.workload, target)
    until = {}
    for share in SHARES:
        ends = Until(share=share, calls=1, step_us=step_us)
        trials = next((at for at in range(1, whole) if _is_over(ends, found_us[:at], limit_us)), whole)
        until[share] = Ended(trials=trials, slower=found_us[trials - 1] / best_us)
    return Replayed(
        strategy=name,
        workload=measured.workload.key,
        seed=seed,
        ratios=ratios(measured, found_us),
        trials=whole,
        us=best_us,
        until=until,
    )


def _is_over(until: Until, found_us: Sequence[float], limit_us: float | None) -> bool:
    return until.is_near(found_us[-1], limit_us) or until.is_little_left(found_us, limit_us)


def _limit_us(workload: Workload, target: Target) -> float | None:
    limits = target.limits
    return limits.limit_us(bytes_moved=workload.bytes, flops=workload.flops) if limits else None


def usual_end(found_us: Sequence[float]) -> int:
    """After how many trials a search with the usual limits is over, but for that of time."""
    since = 0
    for at, best_us in enumerate(found_us):
        since = 0 if not at or best_us <= found_us[at - 1] * IMPROVEMENT else since + 1
        if since >= PATIENCE:
            return at + 1
    return len(found_us)


def bests_us(measured: MeasuredPass, strategy: Strategy, *, device: str) -> list[float]:
    """The best after each trial; infinite until one has worked."""
    found: list[float] = []
    while len(found) < max(TRIALS):
        stop = next(trials for trials in TRIALS if trials > len(found))
        proposed = strategy.ask(min(BATCH, stop - len(found)))
        if not proposed:
            break
        for config, us in zip(proposed, _us(measured, proposed), strict=True):
            strategy.tell(_record(measured, config, device=device))
            found.append(min([us, *found[-1:]]))
    return found


def ratios(measured: MeasuredPass, found_us: Sequence[float]) -> dict[int, float]:
    """By trials: the best so far over the best that was drawn."""
    of_drawn_us = min(_us(measured, measured.drawn))
    return {trials: ([math.inf, *found_us][: trials + 1])[-1] / of_drawn_us for trials in TRIALS}


def _us(measured: MeasuredPass, configs: Iterable[Config]) -> list[float]:
    return [math.inf if (us := measured.us[config]) is None else us for config in configs]


def _record(measured: MeasuredPass, config: Config, *, device: str) -> TuningRecord:
    us = measured.us[config]
    return TuningRecord(
        workload=measured.workload,
        config=config,
        device=device,
        status=Status.WRONG if us is None else Status.OK,
        measurement=None if us is None else Measurement(median_us=us, spread_us=0.0, rounds=1),
    )


def summary(name: str, found: Sequence[Replayed]) -> dict[str, Any]:
    """A strategy's geometric mean over passes and seeds by trials; and the passes that reach each goal, in the median
    seed and in the worst."""
    row: dict[str, Any] = {"strategy": name, "passes": len({one.workload for one in found})}
    for trials in TRIALS:
        row[f"ratio_{trials}"] = statistics.geometric_mean(one.ratios[trials] for one in found)
    for trials, goal in GOALS.items():
        near = [
            sum(one.ratios[trials] <= goal for one in found if one.seed == seed)
            for seed in sorted({one.seed for one in found})
        ]
        row[f"near_{trials}"] = {"within": round(goal - 1, 2), "median": statistics.median(near), "worst": min(near)}
    return row


def until_summary(name: str, share: float, found: Sequence[Replayed]) -> dict[str, Any]:
    """Trials with ``tune --until`` and without, and how much slower a step of all passes is, and the slowest of them in
    the median seed."""
    by_seed: dict[int, list[Replayed]] = {}
    mine = [one for one in found if one.strategy == name]
    for one in mine:
        by_seed.setdefault(one.seed, []).append(one)
    steps = [
        sum(one.us * one.until[share].slower for one in each) / sum(one.us for one in each) for each in by_seed.values()
    ]
    return {
        "strategy": name,
        "until": share,
        "trials": round(statistics.mean(one.until[share].trials for one in mine), 1),
        "whole_trials": round(statistics.mean(one.trials for one in mine), 1),
        "step_slower": round(statistics.median(steps), 4),
        "step_slower_worst": round(max(steps), 4),
        "pass_slower": round(
            statistics.median(max(one.until[share].slower for one in each) for each in by_seed.values()), 3
        ),
    }


def until_table(rows: Sequence[dict[str, Any]]) -> str:
    """The summaries, a line each."""
    heads = ("tune --until", "trials", "instead of", "step slower by (worst)", "slowest pass")
    lines = [f"{heads[0]:42}{heads[1]:>8}{heads[2]:>12}{heads[3]:>24}{heads[4]:>14}"]
    for row in rows:
        name = f"{row['strategy']}, {row['until']:.0%}"
        step = f"{row['step_slower'] - 1:.1%} ({row['step_slower_worst'] - 1:.1%})"
        lines.append(f"{name:42}{row['trials']:8g}{row['whole_trials']:12g}{step:>24}{row['pass_slower'] - 1:14.1%}")
    return "\n".join(lines)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The summaries, a line each."""
    trials = "".join(f"{f'{count} trials':>11}" for count in TRIALS)
    goals = "".join(f"{f'{goal - 1:.0%} at {count} (worst)':>20}" for count, goal in GOALS.items())
    lines = [f"{'best so far / best drawn':26}{trials}{goals}"]
    for row in rows:
        means = "".join(f"{row[f'ratio_{count}']:11.3f}" for count in TRIALS)
        near = [row[f"near_{count}"] for count in GOALS]
        counts = "".join(f"{one['median']:g} ({one['worst']})".rjust(20) for one in near)
        lines.append(f"{row['strategy']:26}{means}{counts}")
    return "\n".join(lines)


def _of_pass(measured: MeasuredPass, found: Sequence[Replayed]) -> dict[str, Any]:
    """The times of a pass, and the median over seeds of each strategy's ratios."""
    mine = [one for one in found if one.workload == measured.workload.key]
    medians = {
        name: {
            str(count): round(statistics.median(one.ratios[count] for one in mine if one.strategy == name), 3)
            for count in TRIALS
        }
        for name in STRATEGIES
    }
    return {
        "workload": measured.workload.key,
        "configurations": len(measured.us),
        "failures": sum(us is None for us in measured.us.values()),
        "drawn": len(measured.drawn),
        "best_drawn_us": min(_us(measured, measured.drawn)),
        "best_us": min(_us(measured, measured.us)),
        "ratios": medians,
    }
