"""Make a portfolio from tuning records: its configurations, and the model of the gain over PyTorch's op.

For each regime, those that were among the best for one of its workloads are tried on all of its workloads: the first is
the one that is best on average, the next the one that helps most where those before are slow, and so on. What a
configuration costs a workload it was never measured on is predicted by trees grown from all that was measured.

A prediction of the gain is judged on what the trees have not seen: on each network without the records of its layers,
and on each device without its records. Its error is the real gain of the configuration that would run, the first of the
starts, over the predicted gain; so what that one loses against the best is part of it.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.problems.layer_files import Layer
from dwconv.problems.workload import Sizes, Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import fitting
from dwconv.untuned.evidence import Measured, best_records, evidence, of_candidate, of_workload
from dwconv.untuned.other_size import errors_by_octaves
from dwconv.untuned.portfolio_file import NOTHING, Errors, GainModel, Portfolio, kinds, regimes, sort_of
from dwconv.untuned.starts import first_start
from dwconv.untuned.trees import Growth, Trees, grow

_LayerSizes = tuple[int, Sizes, Sizes, Sizes]


def make_portfolio(records: Iterable[TuningRecord], networks: Mapping[str, Sequence[Layer]]) -> Portfolio:
    """``networks`` are the layers of well-known networks: a prediction is judged on one that it was not made from. What
    is a layer of none of them counts as a network of its own. Takes a minute or two."""
    measured = evidence(records)
    names: dict[_LayerSizes, str] = {}
    for network, layers in networks.items():
        for layer in layers:
            names.setdefault((layer.channels, layer.input_size, layer.kernel, layer.stride), network)

    def network_of(workload: Workload) -> str:
        sizes = (workload.channels, workload.input_size, workload.kernel, workload.stride)
        return names.get(sizes, workload.for_pass("dgrad").batchless_key)

    return Portfolio(
        devices=tuple(sorted({one.target.device for one in measured})),
        workloads=len({one.workload.key for one in measured}),
        configs=choose(measured),
        gain=learn(measured, network=network_of),
    )


# -- which configurations ------------------------------------------------------------------------------------------

MOST = 4
"""Configurations of a regime."""
_LEAST_WORKLOADS = 5
"""A regime with fewer is not known: the wider one counts."""
_WINNERS = 3
"""Configurations of a workload that are candidates for all others."""
_LEAST_HELP = 0.005
"""A further configuration that makes workloads only this much faster on average is left out."""
_CHOICE_GROWTH = Growth(trees=200, depth=6)
_MOST_LOSS = 3.0
"""Losses beyond this are no different: such a configuration never wins."""


def choose(measured: Sequence[Measured]) -> dict[str, tuple[Config, ...]]:
    """The configurations of each regime, the most useful first."""
    chosen: dict[str, tuple[Config, ...]] = {}
    by_template: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for one in measured:
        *_, whole = regimes(one.best.template, one.workload)
        by_template[whole, one.best.template].append(one)
    for (whole, template), workloads in sorted(by_template.items()):
        losses = _Losses(template, workloads)
        for name, members in _by_regime(template, losses.workloads).items():
            if len({one.workload.batchless_key for one in members}) >= _LEAST_WORKLOADS or name == whole:
                chosen[name] = tuple(_cover(losses, members, pool=_pool(template, members, chosen)))
    return chosen


def _by_regime(template: str, workloads: Sequence[Measured]) -> dict[str, list[Measured]]:
    """The workloads of each regime, the narrowest regimes first."""
    found: dict[tuple[int, str], list[Measured]] = defaultdict(list)
    for one in workloads:
        for width, name in enumerate(regimes(template, one.workload)):
            found[width, name].append(one)
    return {name: found[width, name] for width, name in sorted(found)}


def _pool(template: str, members: Sequence[Measured], chosen: Mapping[str, Sequence[Config]]) -> list[Config]:
    """The candidates of a regime: what was chosen for the narrower regimes of its workloads; where there are none, the
    best of the workloads themselves."""
    pool: dict[Config, None] = {}
    for one in members:
        narrower = next((chosen[name] for name in regimes(template, one.workload) if name in chosen), None)
        own = sorted((config for config in one.costs if config.template == template), key=one.costs.__getitem__)
        pool.update(dict.fromkeys(own[:_WINNERS] if narrower is None else narrower))
    return list(pool)


def _cover(losses: _Losses, workloads: Sequence[Measured], *, pool: list[Config]) -> list[Config]:
    """Up to ``MOST`` of the pool, greedily."""
    rows = [losses.of(one, pool) for one in workloads]
    reached = [_MOST_LOSS] * len(rows)
    found: list[Config] = []
    left = list(range(len(pool)))
    while left and len(found) < MOST:
        sums = {at: sum(math.log(min(most, row[at])) for most, row in zip(reached, rows, strict=True)) for at in left}
        best = min(left, key=lambda at: (sums[at], at))
        if sum(map(math.log, reached)) - sums[best] < _LEAST_HELP * len(rows):
            break
        found.append(pool[best])
        left.remove(best)
        reached = [min(most, row[best]) for most, row in zip(reached, rows, strict=True)]
    return found


class _Losses:
    """How many times as long as the best a configuration takes, of one template and many workloads: as measured, or as
    trees predict it."""

    def __init__(self, template: str, measured: Sequence[Measured]) -> None:
        self._spaces: dict[int, ConfigSpace] = {}
        for one in measured:
            with contextlib.suppress(NoTemplate, InvalidConfig):  # what ran on another device may not run here
                space = fitting(template, one.workload, one.target).space(one.workload, one.target)
                self._spaces[id(one)] = space
        self.workloads = [one for one in measured if id(one) in self._spaces]
        names = {name for one in self.workloads for config in one.costs for name, _ in config.values}
        self._knobs = tuple(sorted(names))
        self._trees = self._grown(template)

    def of(self, one: Measured, configs: Sequence[Config]) -> list[float]:
        """Of each configuration, as the space of the workload adopts it."""
        import numpy as np

        adopted = [_adopted(config, self._spaces[id(one)]) for config in configs]
        rows = [of_candidate(one.workload, config or one.best, knobs=self._knobs) for config in adopted]
        predicted = np.exp(self._trees.predict_all(np.array(rows, dtype=np.float32)))
        losses = []
        for config, guess in zip(adopted, map(float, predicted), strict=True):
            known = one.loss(config) if config else _MOST_LOSS
            losses.append(min(max(guess if known is None else known, 1.0), _MOST_LOSS))
        return losses

    def _grown(self, template: str) -> Trees:
        rows, labels = [], []
        for one in self.workloads:
            for config in one.costs:
                if config.template == template:
                    rows.append(of_candidate(one.workload, config, knobs=self._knobs))
                    labels.append(math.log(min(one.loss(config) or 1.0, _MOST_LOSS)))
        return grow(rows, labels, growth=_CHOICE_GROWTH)


def _adopted(config: Config, space: ConfigSpace) -> Config | None:
    try:
        return space.nearest(config)
    except InvalidConfig:
        return None


# -- the gain, and its errors --------------------------------------------------------------------------------------

LEAST_WORKLOADS = 16
"""With fewer nothing is learnt."""
_LEAST_ERRORS = 12
"""Errors of a pass, layout and type to judge it by; with fewer, those of all passes and layouts of the type count."""
_GAIN_GROWTH = Growth(trees=100, depth=4)
_TAIL = 0.05
_USUAL_LOSS = 0.2
"""What the first start loses against the best where it was not measured, as a power of two."""
_UNKNOWN_DEVICE = 2.0
"""Errors on another device are assumed to be so many times as large as on the only one that was measured."""

Group = Callable[[Workload], str]


def learn(measured: Sequence[Measured], *, network: Group) -> GainModel | None:
    """``network`` names the network that a workload is a layer of; None if there is too little to learn from."""
    by_sort: dict[str, list[Measured]] = defaultdict(list)
    for one in measured:
        by_sort[sort_of(one.workload)].append(one)
    usual = by_sort.pop("", [])
    if len(usual) < LEAST_WORKLOADS:
        return None
    known, other = _errors_of_sort(usual, network=network)
    sizes = _errors_at_other_sizes(usual, leaves_out_device=False)
    model = GainModel(
        trees=gain_trees(usual),
        known_device=known,
        other_device=other,
        other_size=sizes,
        other_size_other_device=(
            _errors_at_other_sizes(usual, leaves_out_device=True) if _devices(usual) > 1 else _wider(sizes)
        ),
    )
    for sort, of_sort in sorted(by_sort.items()):
        if len(of_sort) >= LEAST_WORKLOADS:
            known, other = _errors_of_sort(of_sort, network=network)
            model = replace(
                model,
                others=model.others | {sort: gain_trees(of_sort)},
                known_device=model.known_device | known,
                other_device=model.other_device | other,
            )
    return model


def _errors_of_sort(measured: Sequence[Measured], *, network: Group) -> tuple[dict[str, Errors], dict[str, Errors]]:
    """The errors on networks that are not known, and on devices that are not."""
    known = _errors(measured, group=lambda one: network(one.workload))
    # How fast PyTorch's op is in 16 bits hangs on instructions that some CPUs have: one device says nothing of others.
    if _devices(measured) > 1 or measured[0].workload.dtype != "float32":
        return known, _errors(measured, group=lambda one: one.target.device)
    return known, _wider(known)


def _devices(measured: Sequence[Measured]) -> int:
    return len({one.target.device for one in measured})


def gain_trees(measured: Sequence[Measured]) -> Trees:
    """Trees that predict the gain of the best configuration, as a power of two."""
    rows = [of_workload(one.workload) for one in measured]
    return grow(rows, [_best_gain(one) for one in measured], growth=_GAIN_GROWTH)


def _errors(measured: Sequence[Measured], *, group: Callable[[Measured], str]) -> dict[str, Errors]:
    """The errors on each group, predicted from the others, by ``kinds``."""
    errors: dict[str, list[float]] = defaultdict(list)
    for left_out in sorted({group(one) for one in measured}):
        rest = [one for one in measured if group(one) != left_out]
        if len(rest) < LEAST_WORKLOADS:
            continue
        trees, known = gain_trees(rest), best_records(rest)
        for one in measured:
            if group(one) == left_out:
                first = first_start(one.workload, one.target, known, portfolio=NOTHING)
                error = _real_power(one, first.config if first else None) - trees.predict(of_workload(one.workload))
                for kind in kinds(one.workload):
                    errors[kind].append(error)
    return {name: _summary(found) for name, found in sorted(errors.items()) if not name or len(found) >= _LEAST_ERRORS}


def _errors_at_other_sizes(measured: Sequence[Measured], *, leaves_out_device: bool) -> dict[str, Errors]:
    """From each size of a layer to each other, by the distance; no smaller than those at smaller distances."""
    found = errors_by_octaves(
        measured,
        grown=lambda rest: gain_trees(rest) if len(rest) >= LEAST_WORKLOADS else None,
        real_power=_real_power,
        leaves_out_device=leaves_out_device,
    )
    summaries: dict[str, Errors] = {}
    least = 0.0
    for name, errors in sorted(found.items()):
        if len(errors) >= _LEAST_ERRORS:
            summary = _summary(errors)
            least = min(least, summary.least)
            summaries[name] = replace(summary, least=least)
    return summaries


def _real_power(one: Measured, config: Config | None) -> float:
    """The gain of a configuration as a power of two; where it was not measured, the best one's less the usual loss."""
    real = one.gain(config) if config else None
    return _best_gain(one) - _USUAL_LOSS if real is None else math.log2(real)


def _best_gain(one: Measured) -> float:
    gain = one.gain(one.best)
    assert gain is not None, "the best was measured"
    return math.log2(gain)


def _summary(errors: list[float]) -> Errors:
    low = sorted(errors)[math.floor(_TAIL * len(errors))]
    return Errors(middle=round(statistics.median(errors), 3), least=round(low, 3), workloads=len(errors))


def _wider(known: dict[str, Errors]) -> dict[str, Errors]:
    return {
        name: Errors(middle=errors.middle, least=errors.least * _UNKNOWN_DEVICE, workloads=0)
        for name, errors in known.items()
    }
