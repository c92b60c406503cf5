"""Starts: the configurations of a workload that are known to be good before anything is measured on this device."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dwconv.errors import InvalidConfig
from dwconv.problems.target import Target
from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config, ConfigSpace
from dwconv.schedules.template import ScheduleTemplate, estimated_us, templates_for

SIMILAR = 4
"""Workloads whose best configurations are starts."""
NEAR = 3.0
"""Powers of two up to which the nearest workload predicts more than an estimate."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A legal configuration of a workload, and why it is likely to be good."""

    config: Config
    reason: str
    """``the default of its template``, ``the best of a similar workload``, …"""


def starts(
    workload: Workload, target: Target, records: Iterable[TuningRecord], *, most: int | None = None
) -> list[Start]:
    """The configurations to start from, the most promising first, all legal and different. Beyond ``most`` none is
    looked for, which takes a quarter of a second less.

    ``records`` may be of any device; what is not legal on ``target`` is adopted by its nearest legal neighbour.
    Raises NoTemplate if nothing can run the workload."""
    return list(itertools.islice(_starts(workload, target, records), most))


def _starts(workload: Workload, target: Target, records: Iterable[TuningRecord]) -> Iterator[Start]:
    spaces = {template.name: template.space(workload, target) for template in _templates(workload, target)}
    seen: set[Config] = set()
    for wanted, reason in _wanted(workload, target, records, spaces):
        if wanted.template in spaces:
            try:
                config = spaces[wanted.template].nearest(wanted)
            except InvalidConfig:
                continue
            if config not in seen:
                seen.add(config)
                yield Start(config=config, reason=reason)


def _wanted(
    workload: Workload, target: Target, records: Iterable[TuningRecord], spaces: dict[str, ConfigSpace]
) -> Iterator[tuple[Config, str]]:
    """In the order of what they reached on another device than the records are from, alone and with those before.

    Share of the speed that 20 s of search find, 93 passes of drawn layers: the best of the nearest workload 0.86, the
    least estimate 0.88, the first of them that is chosen here 0.89, both least estimates and the nearest 0.96, with the
    default 0.97, with three more that are near 0.99."""
    usable = [record for record in records if record.fast_math == target.fast_math]
    similar = bests_of_similar(workload, usable, count=SIMILAR)
    near = [(each.config, "the best of a similar workload") for each in similar]
    is_near = bool(similar) and similar[0].octaves <= NEAR
    yield from near[:1] if is_near else ()
    yield from ((config, "of least estimated cost") for config in by_formula(workload, target))
    yield from near[:1]
    for space in spaces.values():
        try:
            yield space.default, "the default of its template"
        except InvalidConfig:
            continue
    yield from near[1:]


def _templates(workload: Workload, target: Target) -> list[ScheduleTemplate[Any]]:
    """Those of the workload's own layout, if there are any: others copy the images first."""
    fits = templates_for(workload, target)
    return [template for template in fits if template.layout == workload.layout] or fits


# -- similar workloads ---------------------------------------------------------------------------------------------

_KERNEL_WEIGHT = 3.0
"""Doubling the kernel changes more than doubling the map or the number of channels."""
_STRIDE_WEIGHT = 6.0
_DILATION_WEIGHT = 1.0
"""With a dilation neighbouring taps share no row, or no column: fewer tiles of outputs read the same."""
_SAME_WIDTH, _OTHER_WIDTH = 1.0, 4.0
"""How far apart bfloat16 and float16 are, and numbers of another width."""


@dataclass(frozen=True, kw_only=True)
class Similar:
    """The best configuration of a workload that is similar to another."""

    config: Config
    octaves: float
    """How far apart the sizes of the two are, batch and all, as powers of two."""


def bests_of_similar(workload: Workload, records: Iterable[TuningRecord], *, count: int) -> list[Similar]:
    """The best configuration of each of the ``count`` nearest workloads of the same pass and layout, the nearest first:
    ``workload`` itself and the same at other batch sizes, if there are records of them. ``records`` are of one kind of
    arithmetic. Whether a configuration is legal for ``workload`` is not checked here."""
    bests: dict[Workload, TuningRecord] = {}
    for record in records:
        other = record.workload
        if record.status is Status.OK and _sort(workload) == _sort(other):
            known = bests.get(other)
            bests[other] = record if known is None or record.rank < known.rank else known
    found: dict[Config, Similar] = {}
    for other in sorted(bests, key=lambda other: (_distance(workload, other), other.key)):
        octaves = _distance(workload, other) + _octaves(workload.batch, other.batch)
        config = bests[other].config
        found.setdefault(config, Similar(config=config, octaves=octaves))
    return list(found.values())[:count]


def _sort(workload: Workload) -> tuple[object, ...]:
    """What similar workloads have in common."""
    return workload.pass_, workload.layout, workload.axes, workload.is_row


def _distance(one: Workload, other: Workload) -> float:
    """How far apart the sizes are, as powers of two."""
    sizes = zip((one.channels, *one.output_size), (other.channels, *other.output_size), strict=True)
    kernels, strides = zip(one.kernel, other.kernel, strict=True), zip(one.stride, other.stride, strict=True)
    dilations = zip(_dilation(one), _dilation(other), strict=True)
    return (
        _between_types(one.dtype, other.dtype)
        + sum(_octaves(*pair) for pair in sizes)
        + _KERNEL_WEIGHT * sum(_octaves(*pair) for pair in kernels)
        + _STRIDE_WEIGHT * sum(_octaves(*pair) for pair in strides)
        + _DILATION_WEIGHT * sum(_octaves(*pair) for pair in dilations)
    )


def _dilation(workload: Workload) -> Iterator[int]:
    """Along each axis; 1 where there is one tap."""
    return (step if taps > 1 else 1 for step, taps in zip(workload.dilation, workload.kernel, strict=True))


def _between_types(one: DType, other: DType) -> float:
    if one == other:
        return 0.0
    return _SAME_WIDTH if ITEMSIZE[one] == ITEMSIZE[other] else _OTHER_WIDTH


def _octaves(one: int, other: int) -> float:
    return abs(math.log2(one / other))


# -- least estimated cost ------------------------------------------------------------------------------------------

CHOSEN = 2
"""Configurations that are chosen. The best of two is 3 % faster than the first alone, on average."""
LISTED = 256
"""Up to this size, before the rules, a space is looked through from end to end."""
DRAWN = 150
"""Configurations that are drawn from a larger space, legal or not; the best of them is climbed from, too."""
STEPS = 12
"""Steps of a climb, each to the neighbour of least estimate: few climbs take half as many."""
APART = 2
"""Knobs in which the chosen ones differ, at least: what misjudges the first misjudges those next to it as well."""


def by_formula(workload: Workload, target: Target, *, count: int = CHOSEN) -> list[Config]:
    """Up to ``count`` legal configurations of least estimated cost among all templates that fit, the least first, no
    two of them alike. Nothing is built or measured: it takes some 30 ms. The same ones every time.

    Raises NoTemplate if nothing can run the workload."""
    estimate = functools.cache(functools.partial(_estimate, workload, target))
    found: list[Config] = []
    for template in templates_for(workload, target):
        if template.estimate_us is not None:
            found += _promising(template.space(workload, target), estimate)
    chosen: list[Config] = []
    for config in sorted(dict.fromkeys(found), key=lambda config: (estimate(config), str(config))):
        if len(chosen) < count and all(_are_apart(config, other) for other in chosen):
            chosen.append(config)
    return chosen


def _estimate(workload: Workload, target: Target, config: Config) -> float:
    return estimated_us(workload, config, target)


def _promising(space: ConfigSpace, estimate: Callable[[Config], float]) -> list[Config]:
    """All of a small space. Of a large one what is looked at on the way from its default, and from the best of some
    that are drawn, down to where no neighbour has a smaller estimate."""
    if space.size <= LISTED:
        return list(space)
    try:
        starts = [space.default]
    except InvalidConfig:
        return []
    drawn = list(_drawn(space))
    if drawn:
        starts.append(min(drawn, key=estimate))
    return [*drawn, *(config for start in starts for config in _climb(space, start, estimate))]


def _drawn(space: ConfigSpace) -> Iterator[Config]:
    rng = random.Random(0)
    for _ in range(DRAWN):
        values = {knob.name: rng.choice(knob.values) for knob in space.knobs}
        config = Config.of(space.template, **values)
        if space.why_illegal(config) is None:
            yield config


def _climb(space: ConfigSpace, start: Config, estimate: Callable[[Config], float]) -> Iterator[Config]:
    """Every configuration that is looked at."""
    at = start
    yield at
    for _ in range(STEPS):
        near = space.neighbours(at)
        yield from near
        best = min(near, key=estimate, default=at)
        if estimate(best) >= estimate(at):
            return
        at = best


def _are_apart(one: Config, other: Config) -> bool:
    return one.template != other.template or (
        sum(value != others for value, others in zip(one.values, other.values, strict=True)) >= APART
    )
