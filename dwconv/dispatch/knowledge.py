"""Knowledge: what records are worth. Dispatch, the report, the search, the race, packs and ``show`` read here
what is known of a workload.

A record is current if it was made with the versions installed. Of a candidate its last word counts: one that worked,
and was wrong later, is out. Contended times, computed ones and other devices' decide nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from dwconv.dispatch import legality, loaded_packs
from dwconv.dispatch.advantage import beats_pytorch
from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.problems.block import NOTHING
from dwconv.problems.target import CpuTarget, Target
from dwconv.records.database import Database
from dwconv.records.record import Status
from dwconv.records.record import is_current as is_of
from dwconv.schedules.template import can_run
from dwconv.system import versions

if TYPE_CHECKING:
    from dwconv.problems.workload import Workload
    from dwconv.records.record import TuningRecord


@cache
def database() -> Database:
    """The records of this process, read when they are first needed: those of loaded packs, then those of the logs.
    Where nothing can be built, logs say nothing that could run, unless a pack has kernels for every layer."""
    usual = Database.usual() if versions.can_build() or loaded_packs.are_for_every_layer() else Database.load()
    return usual.behind(loaded_packs.records(), loaded_packs.logs())


def measured(
    workload: Workload, target: Target, *, current: bool, known: Database | None = None
) -> Iterator[tuple[Target, TuningRecord]]:
    """The records that may decide, those that count most first, with what they were measured on: ``target``, then the
    same CPU with other numbers of threads, the nearest first; a kernel runs on as many threads as PyTorch uses,
    whatever it was tuned for. On each of them all batch sizes, the nearest first. ``current``: those made with the
    versions installed, or those made with others. ``known`` are the records to read, those of this process by
    default."""
    known = database() if known is None else known
    devices = known.devices(workload)
    of_target = [target] if target.device in devices else []
    for one in (*of_target, *_on_other_threads(target, devices)):
        yield from ((one, record) for record in measured_here(workload, one, current=current, known=known))


def _on_other_threads(target: Target, devices: list[str]) -> list[CpuTarget]:
    """Those of ``devices`` that are the CPU of ``target`` with other numbers of threads, the nearest first."""
    if not isinstance(target, CpuTarget):
        return []
    names = (device for device in devices if device != target.device)
    others = [other for name in names if (other := target.named(name)) is not None]
    return sorted(others, key=lambda other: (abs(math.log(other.threads / target.threads)), -other.threads))


def measured_here(workload: Workload, target: Target, *, current: bool, known: Database) -> Iterator[TuningRecord]:
    """Records of ``workload`` for exactly this target."""
    fast_math = target.fast_math
    for records in known.ranked_by_batch(workload, target.device, is_current=is_current, fast_math=fast_math):
        yield from (record for record in records if is_current(record) == current)


def best_here(workload: Workload, target: Target, *, known: Database) -> TuningRecord | None:
    """The record of the candidate that is the best of exactly this workload on this target, as far as is known: as it
    was measured with the versions installed, or with others, or as it was computed."""
    for current in (True, False):
        for record in measured_here(workload, target, current=current, known=known):
            if record.workload == workload:
                return record
    of_target = known.records(workload, target.device)
    computed = [each for each in of_target if is_computed(each) and each.fast_math == target.fast_math]
    return min(computed, key=lambda each: each.rank, default=None)


def at_other_sizes(workload: Workload, target: Target, *, known: Database) -> Iterator[TuningRecord]:
    """The best record of the same layer on ``target`` at each other input size, made with the versions installed: at
    the measured batch size that is nearest."""
    for other in known.other_sizes(workload, target.device):
        yield from itertools.islice(measured_here(other, target, current=True, known=known), 1)


def at_any_size(workload: Workload, target: Target, *, known: Database) -> tuple[tuple[Target, TuningRecord], ...]:
    """The best record of a kernel of any size of the layer for each choice of sizes that one was measured at, made with
    the versions installed, and what it was made on: ``target``, or the same CPU with the nearest number of threads of
    which there are any. Asking costs nothing after the first time."""
    key = workload.layer, workload.is_row, target.device, target.fast_math
    if (found := known.fastest_at_any_size.get(key)) is None:
        any_size = workload.with_any_size()
        for one in (target, *_on_other_threads(target, known.devices_of_layer(any_size))):
            sizes = [each for each in known.at_sizes(any_size, one.device) if each.is_row == workload.is_row]
            best: dict[Workload, TuningRecord] = {}
            for record in (record for each in sizes for record in measured_here(each, one, current=True, known=known)):
                best.setdefault(record.workload.with_batch(workload.batch), record)
            found = tuple((one, record) for record in best.values())
            if found:
                break
        assert found is not None, "the target itself is among them"
        known.fastest_at_any_size[key] = found
    return found


def failed(workload: Workload, target: Target, *, known: Database) -> list[TuningRecord]:
    """The records of candidates of a workload, at any batch size, that do not work here with the versions installed."""
    found = known.failed(workload, target.device, is_current=is_current, fast_math=target.fast_math)
    return [record for record in found if is_current(record)]


def inconclusive(workload: Workload, target: Target, *, known: Database) -> bool:
    """True if a candidate of a workload, at any batch size, was timed here with the versions installed while other work
    took so much of the machine that the time does not count."""
    return any(
        each.status is Status.OK
        and each.measured
        and each.inconclusive
        and each.fast_math == target.fast_math
        and is_current(each)
        for each in known.at_any_batch(workload, target.device)
    )


def is_known(workload: Workload, target: Target, known: Database, *, broken: legality.Broken) -> bool:
    """True if ``known`` has what runs the workload fastest on ``target``, at its own batch size: a kernel that is
    confirmed; or PyTorch's op, for it was faster than all kernels that were measured, or none of them worked. A block
    has one of any size beside it: none is predicted."""
    of_all_batches = measured_here(workload, target, current=True, known=known)
    worked = [record for record in of_all_batches if serves(record, workload)]
    if any(record.confirmed and _is_legal(record, target, broken) for record in worked):
        return not _lacks_any_size(workload, target, known)
    tried = worked or [record for record in failed(workload, target, known=known) if record.workload == workload]
    return bool(tried) and not any(beats_pytorch(record, target) for record in worked)


def serves(record: TuningRecord, workload: Workload) -> bool:
    """True if a record is of a kernel for exactly this workload, or of one of any size that runs it."""
    return record.workload in (workload, _with_any_size(workload))


def _is_legal(record: TuningRecord, target: Target, broken: legality.Broken) -> bool:
    try:
        legality.runnable(record, target, adopts=False, broken=broken)
    except (InvalidConfig, NoTemplate):
        return False
    return True


def _lacks_any_size(workload: Workload, target: Target, known: Database) -> bool:
    """True of a block that could have a kernel of any size, of which none was measured."""
    general = _with_any_size(workload)
    if not (workload.block and general and isinstance(target, CpuTarget) and versions.can_build()):
        return False
    return can_run(general, target) and not known.at_sizes(general, target.device)


def _with_any_size(workload: Workload) -> Workload | None:
    return None if workload.block == NOTHING else workload.with_any_size()


def is_computed(record: TuningRecord) -> bool:
    """True if the candidate's time was computed, and never measured."""
    return record.status is Status.OK and record.measurement is not None and not record.measured


def is_current(record: TuningRecord) -> bool:
    """True if it was made with the versions installed. Of a kernel of a pack, the TVM that
    generated it counts."""
    tvm = loaded_packs.tvm_of(record)
    return is_of(record, {**versions.installed(), "tvm": tvm} if tvm else versions.installed())
