"""Which kernels of a workload go into a pack: those that a call would run here, by the records."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from dwconv.dispatch import legality
from dwconv.dispatch.advantage import why_not_faster
from dwconv.dispatch.knowledge import is_computed, is_current, measured
from dwconv.errors import InvalidConfig
from dwconv.problems.block import NOTHING
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate


@dataclass(frozen=True, kw_only=True)
class PackedChoice:
    """The record that decides what runs a workload, and the kernels that this takes."""

    record: TuningRecord
    target: Target
    """The target that the kernels are built for: on a CPU perhaps another number of threads."""
    candidates: tuple[Candidate, ...]
    """None where PyTorch's op is faster; two where larger batches take more threads."""


def choose(workload: Workload, target: Target, known: Database) -> PackedChoice | None:
    """None if ``known`` has no record that decides: measured on ``target`` with the versions installed; or, for a GPU
    that is not here, computed. Nor has a pack a kernel for both gradients that is computed to be slower than two."""
    ways = [workload]
    if workload.bias and workload.epilogue == "none":  # which comes after the bias
        ways.append(dataclasses.replace(workload, bias=False))
    for way in ways:
        for found_on, record in _records(way, target, known):
            if target.present and why_not_faster(record, found_on, sweeps=way != workload):
                return PackedChoice(record=record, target=found_on, candidates=())
            if not target.present and _is_computed_slower_at_once(record, target, known):
                return None
            if choice := _legal(record, found_on):
                return choice
    return None


def _is_computed_slower_at_once(record: TuningRecord, target: Target, known: Database) -> bool:
    """Whether it is of both gradients of a layer, and dgrad and wgrad were computed to take less time together."""
    if record.workload.block != NOTHING:
        return False
    apart = [next(_records(record.workload.convolution(pass_), target, known), None) for pass_ in ("dgrad", "wgrad")]
    times_us = [found[1].time_us / found[1].workload.batch for found in apart if found]
    return len(times_us) == len(apart) and sum(times_us) <= record.time_us / record.workload.batch


def _legal(record: TuningRecord, target: Target) -> PackedChoice | None:
    try:
        config, _ = legality.runnable(record, target, adopts=False, broken={})
    except InvalidConfig:
        return None
    configs = dict.fromkeys([config, legality.on_all_threads(config, target)])
    candidates = tuple(Candidate(record.workload, each) for each in configs)
    return PackedChoice(record=record, target=target, candidates=candidates)


def _records(workload: Workload, target: Target, known: Database) -> Iterator[tuple[Target, TuningRecord]]:
    """With the target of the measurement, in the order in which dispatch takes them; or, where nothing can be measured,
    those of least computed cost first, at the nearest batch size."""
    if target.present:
        yield from measured(workload, target, current=True, known=known)
        return
    found = [
        record
        for record in known.at_any_batch(workload, target.device)
        if is_computed(record) and not record.fast_math and is_current(record)
    ]
    found.sort(key=lambda one: (abs(math.log(one.workload.batch / workload.batch)), one.rank))
    yield from ((target, record) for record in found)
