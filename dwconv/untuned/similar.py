"""Similar workloads: their best configurations are where a search starts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config

_KERNEL_WEIGHT = 3.0
"""Doubling the kernel changes more than doubling the map or the number of channels."""
_STRIDE_WEIGHT = 6.0
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
        if record.status is Status.OK and _comparable(workload, other):
            known = bests.get(other)
            bests[other] = record if known is None or record.rank < known.rank else known
    found: dict[Config, Similar] = {}
    for other in sorted(bests, key=lambda other: (_distance(workload, other), other.key)):
        octaves = _distance(workload, other) + _octaves(workload.batch, other.batch)
        config = bests[other].config
        found.setdefault(config, Similar(config=config, octaves=octaves))
    return list(found.values())[:count]


def _comparable(one: Workload, other: Workload) -> bool:
    return _sort(one) == _sort(other)


def _sort(workload: Workload) -> tuple[object, ...]:
    return workload.pass_, workload.layout, workload.axes, workload.is_row


def _distance(one: Workload, other: Workload) -> float:
    """How far apart the sizes are, as powers of two."""
    sizes = zip((one.channels, *one.output_size), (other.channels, *other.output_size), strict=True)
    kernels, strides = zip(one.kernel, other.kernel, strict=True), zip(one.stride, other.stride, strict=True)
    return (
        _between_types(one.dtype, other.dtype)
        + sum(_octaves(*pair) for pair in sizes)
        + _KERNEL_WEIGHT * sum(_octaves(*pair) for pair in kernels)
        + _STRIDE_WEIGHT * sum(_octaves(*pair) for pair in strides)
    )


def _between_types(one: DType, other: DType) -> float:
    if one == other:
        return 0.0
    return _SAME_WIDTH if ITEMSIZE[one] == ITEMSIZE[other] else _OTHER_WIDTH


def _octaves(one: int, other: int) -> float:
    return abs(math.log2(one / other))
