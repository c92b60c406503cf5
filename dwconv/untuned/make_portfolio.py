"""Make the portfolio from tuning records: learn the gain over PyTorch's op, and how far off that is.

A prediction is judged on what the trees have not seen: on each network without the records of its layers, and on each
device without its records. Its error is the real gain of the configuration that would run, the first of the starts,
over the predicted gain; so what that one loses against the best is part of it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from dwconv.problems.layer_files import Layer
from dwconv.problems.workload import Sizes, Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.untuned.evidence import MeasuredConfigs, best_records, evidence, of_workload
from dwconv.untuned.other_size import adopted, band, octaves_between, predicted_power
from dwconv.untuned.portfolio_file import Errors, Portfolio, kinds, sort_of
from dwconv.untuned.starts import starts
from dwconv.untuned.trees import Trees, grow

LEAST_WORKLOADS = 16
"""With fewer nothing is learnt."""
_LEAST_ERRORS = 12
"""Errors of a pass, layout and type to judge it by; with fewer, those of all passes and layouts of the type count."""
_TAIL = 0.05
_USUAL_LOSS = 0.2
"""What the first start loses against the best where it was not measured, as a power of two."""
_UNKNOWN_DEVICE = 2.0
"""Errors on another device are assumed to be so many times as large as on the only one that was measured."""


def make_portfolio(records: Iterable[TuningRecord], networks: Mapping[str, Sequence[Layer]]) -> Portfolio:
    """``networks`` are the layers of well-known networks: a prediction is judged on one that it was not made from. What
    is a layer of none of them counts as a network of its own. Takes a minute or two."""
    names: dict[tuple[int, Sizes, Sizes, Sizes, Sizes], str] = {}
    for network, layers in networks.items():
        for layer in layers:
            sizes = (layer.channels, layer.input_size, layer.kernel, layer.stride, layer.dilation)
            names.setdefault(sizes, network)

    def network_of(workload: Workload) -> str:
        sizes = (workload.channels, workload.input_size, workload.kernel, workload.stride, workload.dilation)
        return names.get(sizes, workload.for_pass("dgrad").batchless_key)

    return learn(evidence(records), network=network_of)


def learn(measured: Sequence[MeasuredConfigs], *, network: Callable[[Workload], str]) -> Portfolio:
    """``network`` names the network that a workload is a layer of."""
    by_sort: dict[str, list[MeasuredConfigs]] = defaultdict(list)
    for one in measured:
        by_sort[sort_of(one.workload)].append(one)
    by_sort = {sort: of_sort for sort, of_sort in sorted(by_sort.items()) if len(of_sort) >= LEAST_WORKLOADS}
    known: dict[str, Errors] = {}
    other: dict[str, Errors] = {}
    for of_sort in by_sort.values():
        found = _errors(of_sort, group=lambda one: network(one.workload))
        known |= found
        # How fast PyTorch's op is in 16 bits hangs on instructions that some CPUs have: one device says nothing of
        # others.
        is_judged = _devices(of_sort) > 1 or of_sort[0].workload.dtype != "float32"
        other |= _errors(of_sort, group=lambda one: one.target.device) if is_judged else _wider(found)
    usual = by_sort.get("", [])
    sizes = _errors_at_other_sizes(usual, leaves_out_device=False)
    return Portfolio(
        devices=tuple(sorted({one.target.device for one in measured})),
        workloads=len({one.workload.key for one in measured}),
        trees={sort: gain_trees(of_sort) for sort, of_sort in by_sort.items()},
        known_device=known,
        other_device=other,
        other_size=sizes,
        other_size_other_device=(
            _errors_at_other_sizes(usual, leaves_out_device=True) if _devices(usual) > 1 else _wider(sizes)
        ),
    )


def _devices(measured: Sequence[MeasuredConfigs]) -> int:
    return len({one.target.device for one in measured})


def gain_trees(measured: Sequence[MeasuredConfigs]) -> Trees:
    """Trees that predict the gain of the best configuration, as a power of two."""
    return grow([of_workload(one.workload) for one in measured], [_best_gain(one) for one in measured])


def _errors(measured: Sequence[MeasuredConfigs], *, group: Callable[[MeasuredConfigs], str]) -> dict[str, Errors]:
    """The errors on each group, predicted from the others, by ``kinds``."""
    errors: dict[str, list[float]] = defaultdict(list)
    for left_out in sorted({group(one) for one in measured}):
        rest = [one for one in measured if group(one) != left_out]
        if len(rest) < LEAST_WORKLOADS:
            continue
        trees, known = gain_trees(rest), best_records(rest)
        for one in measured:
            if group(one) == left_out:
                first = starts(one.workload, one.target, known, most=1)
                error = _real_power(one, first[0].config if first else None) - trees.predict(of_workload(one.workload))
                for kind in kinds(one.workload):
                    errors[kind].append(error)
    return {name: _summary(found) for name, found in sorted(errors.items()) if not name or len(found) >= _LEAST_ERRORS}


def _errors_at_other_sizes(measured: Sequence[MeasuredConfigs], *, leaves_out_device: bool) -> dict[str, Errors]:
    """From each size of a layer to each other, by the distance; no smaller than those at smaller distances."""
    summaries: dict[str, Errors] = {}
    least = 0.0
    for name, errors in sorted(errors_by_octaves(measured, leaves_out_device=leaves_out_device).items()):
        if len(errors) >= _LEAST_ERRORS:
            summary = _summary(errors)
            least = min(least, summary.least)
            summaries[name] = msgspec.structs.replace(summary, least=least)
    return summaries


def errors_by_octaves(measured: Sequence[MeasuredConfigs], *, leaves_out_device: bool) -> dict[str, list[float]]:
    """The real gain over the expected one, as powers of two, of each layer at each size, from each of its other sizes
    on the same device. The trees do not know the layer; nor the device, if that is left out too."""
    by_layer: dict[tuple[str, str], list[MeasuredConfigs]] = defaultdict(list)
    for one in measured:
        by_layer[one.target.device, one.workload.layer].append(one)
    errors: dict[str, list[float]] = defaultdict(list)
    for (device, layer), sizes in sorted(by_layer.items()):
        if len({one.workload.input_size for one in sizes}) < 2:
            continue
        rest = [
            one
            for one in measured
            if one.workload.layer != layer and not (leaves_out_device and one.target.device == device)
        ]
        if len(rest) < LEAST_WORKLOADS:
            continue
        trees = gain_trees(rest)
        for one in sizes:
            for other in sizes:
                name = band(octaves_between(one.workload, other.workload))
                config = adopted(other.best, one.workload, one.target)
                if name and config and one.workload.input_size != other.workload.input_size:
                    known_power = _real_power(other, other.best)
                    power = predicted_power(trees, one.workload, other.workload, known_power=known_power)
                    errors[name].append(_real_power(one, config) - power)
    return dict(errors)


def _real_power(one: MeasuredConfigs, config: Config | None) -> float:
    """The gain of a configuration as a power of two; where it was not measured, the best one's less the usual loss."""
    real = one.gain(config) if config else None
    return _best_gain(one) - _USUAL_LOSS if real is None else math.log2(real)


def _best_gain(one: MeasuredConfigs) -> float:
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
