"""Learn: the gain over PyTorch's op from records, and how far off a prediction may be.

A prediction is judged on what the trees have not seen: on each network without the records of its layers, and on each
device without its records. Its error is the real gain of the configuration that would run, the first of the starts,
over the predicted gain; so what that one loses against the best is part of it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.untuned.evidence import Measured, best_records
from dwconv.untuned.other_size import errors_by_octaves
from dwconv.untuned.portfolio_file import NOTHING, Errors, GainModel, kinds
from dwconv.untuned.regimes import sort_of
from dwconv.untuned.starts import first_start
from dwconv.untuned.trees import Growth, Trees, grow
from dwconv.untuned.workload_features import of_workload

LEAST_WORKLOADS = 16
"""With fewer nothing is learnt."""
_LEAST_ERRORS = 12
"""Errors of a pass, layout and type to judge it by; with fewer, those of all passes and layouts of the type count."""
_GROWTH = Growth(trees=100, depth=4)
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
    return grow(rows, [_best_gain(one) for one in measured], growth=_GROWTH)


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
