"""Other size: what is expected of a layer at a size that was never measured, where the same layer was measured at
another size on the same device.

Its best configuration there is adopted by the nearest legal one here. The gain is what the trees predict here, and half
of what they were off there: the two sizes share what is special in the layer and the device, but only in part. How far
off that is was measured on layers that the logs know at several sizes, each predicted from the others; it grows with
the distance in octaves, of height, width and batch together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload, by
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import estimated_us, fitting, template, templates_for
from dwconv.untuned.evidence import of_workload
from dwconv.untuned.gain import Expected
from dwconv.untuned.portfolio_file import Portfolio, shipped, sort_of
from dwconv.untuned.trees import Trees

OCTAVES = (1.0, 3.0)
"""Distances up to which errors are judged together. Beyond the last, a size predicts no more than other layers do."""
_SHARE = 0.5
"""Of what the trees were off at the other size. With less or with more of it, errors are larger."""


def octaves_between(one: Workload, other: Workload) -> float:
    """How far apart the sizes of two workloads of one layer are: doubling the height, the width or the batch is 1."""
    pairs = zip((*one.input_size, one.batch), (*other.input_size, other.batch), strict=True)
    return sum(abs(math.log2(size / others)) for size, others in pairs)


def expected_from(
    record: TuningRecord, workload: Workload, target: Target, *, portfolio: Portfolio | None = None
) -> Expected | None:
    """What is expected of ``workload``, from a record of the same layer at another size on ``target``; None if the size
    is too far away, its configuration cannot run here, or errors of such predictions are not known. ``portfolio`` is
    the shipped one unless given."""
    known = portfolio or shipped()
    other, config = record.alternative, adopted(record.config, workload, target)
    measured = adopted(record.config, record.workload, target)  # the record's own, unless its machine had other caches
    if other is None or record.measurement is None or measured is None:
        return None
    if target.kind == "cuda":
        return _on_cuda(record, workload, target, measured)
    is_known = target.device in known.devices
    errors = known.other_size if is_known else known.other_size_other_device
    octaves = octaves_between(workload, record.workload)
    error = next((errors[_name(most)] for most in OCTAVES if octaves <= most and _name(most) in errors), None)
    if config is None or error is None or sort_of(workload) or template(config.template).estimate_us is None:
        return None
    there_us = record.measurement.median_us
    known_power = math.log2(other[1].median_us / there_us)
    power = predicted_power(known.trees[""], workload, record.workload, known_power=known_power)
    slower = estimated_us(workload, config, target) / estimated_us(record.workload, measured, target)
    judged = f"judged on {error.workloads} pairs of sizes{'' if is_known else ' on other devices'}"
    return Expected(
        config=config,
        us=there_us * slower,
        gain=2 ** (power + error.middle),
        at_least=2 ** (power + error.least),
        reason=f"the best of the same layer at another size; {judged}",
        source=by(record.workload.input_shape),
    )


def _on_cuda(record: TuningRecord, workload: Workload, target: Target, measured: Config) -> Expected | None:
    """The gain that was measured at the other size, as no trees know of GPUs; only for a kernel of any size, which
    is no build more than one. Where the ``measured`` one is of another template, the gain is less by as much as the
    kernel is estimated to be slower."""
    lost, octaves = _LOST_ON_CUDA.get(workload.pass_), octaves_between(workload, record.workload)
    config, there = (_of_any_size(measured, own, target) for own in (workload, record.workload))
    if config is None or there is None or lost is None or octaves > OCTAVES[-1]:
        return None
    assert record.alternative is not None and record.measurement is not None, "it was checked"
    measured_us = estimated_us(record.workload, measured, target)
    as_fast = min(1.0, measured_us / estimated_us(record.workload, there, target))
    gain = record.alternative[1].median_us / record.measurement.median_us * as_fast
    return Expected(
        config=config,
        us=record.measurement.median_us * estimated_us(workload, config, target) / measured_us,
        gain=gain,
        at_least=gain * 2**-lost,
        reason="the best of the same layer at another size; judged on pairs of layers of other sizes on an H200",
        source=by(record.workload.input_shape),
    )


def _of_any_size(config: Config, workload: Workload, target: Target) -> Config | None:
    """The nearest legal configuration; if the template has no kernels of any size, the default of the one that has."""
    if template(config.template).any_size:
        return adopted(config, workload, target)
    try:
        return templates_for(workload.with_any_size(), target)[0].space(workload, target).default
    except (NoTemplate, InvalidConfig):
        return None


_LOST_ON_CUDA: dict[str, float] = {"fprop": 0.69, "dgrad": 1.19, "wgrad": 0.80}
"""The part of a gain, as a power of two, that 95 of 100 pairs of layers do not lose from one to the other, which have
the kernel, the stride, the type and the layout in common, and of which channels, height and width are 3 octaves apart
at most: 42, 32 and 42 pairs that were measured on an H200, in channels_last."""


def expected_from_nearest(
    records: Iterable[TuningRecord], workload: Workload, target: Target, *, portfolio: Portfolio | None = None
) -> Expected | None:
    """What is expected from ``records`` of several sizes: by the nearest that predicts anything."""
    nearest = sorted(records, key=lambda record: (octaves_between(workload, record.workload), record.workload.key))
    found = (expected_from(record, workload, target, portfolio=portfolio) for record in nearest)
    return next((each for each in found if each), None)


def adopted(config: Config, workload: Workload, target: Target) -> Config | None:
    """The legal configuration of ``workload`` that is nearest to that of another size; None if there is none."""
    try:
        return fitting(config.template, workload, target).space(workload, target).nearest(config)
    except InvalidConfig:
        return None


def predicted_power(trees: Trees, workload: Workload, known: Workload, *, known_power: float) -> float:
    """The gain as a power of two, from that of another size."""
    return trees.predict(of_workload(workload)) + _SHARE * (known_power - trees.predict(of_workload(known)))


def band(octaves: float) -> str | None:
    """Which errors are judged together at that distance; None: it is too far."""
    return next((_name(most) for most in OCTAVES if octaves <= most), None)


def _name(octaves: float) -> str:
    """``1 octave``, as the portfolio's file has it."""
    return f"{octaves:g} octave{'s' if octaves > 1 else ''}"
