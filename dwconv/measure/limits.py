"""Limits: how fast this CPU can copy and multiply, to compare measurements with.

They are measured in a process of its own, under the settings that kernels are timed under (``measure.meter``), and kept
for each device. Other work on the machine can only make a reading worse, so the best of several readings is kept: the
first can be used at once, and the first few runs measure again.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dwconv import settings
from dwconv.errors import NotKept
from dwconv.kernels.entry import message
from dwconv.problems.target import CacheLevel, CpuTarget, Limits, check_present
from dwconv.system import private_files

ENOUGH_READINGS = 3
"""After so many uncontended readings the limits are not measured again."""
EXCEEDED = 1.05
"""A kernel that is this many times as fast as the limit shows that the limit is wrong."""
_TIMEOUT_S = 60.0


@message
@dataclass(frozen=True, kw_only=True)
class LimitsReading:
    """A measurement of the limits; ``contended`` if the machine was too busy to trust it."""

    limits: Limits
    contended: bool


def with_limits(target: CpuTarget) -> CpuTarget:
    """``target`` with its limits: from the cache folder, or measured now, which takes a second or two and the start
    of a process.

    Raises WorkerDied if the measuring process cannot start or ends, NoDevice if the device is not here."""
    if target.limits is not None:
        return target
    path = limits_path(target)
    kept = _read(path)
    if kept is None or kept.readings < ENOUGH_READINGS:
        reading = measure_limits(target)
        known = kept or KeptLimits(limits=reading.limits, readings=0)
        kept = KeptLimits(
            limits=_better(known.limits, reading.limits), readings=known.readings + (not reading.contended)
        )
        _write(path, kept)
    return dataclasses.replace(target, limits=_here(kept.limits, target))


def known_limits(target: CpuTarget) -> Limits | None:
    """The limits in the cache folder; None if there are none. Nothing is measured."""
    kept = _read(limits_path(target))
    return _here(kept.limits, target) if kept else None


def are_settled(target: CpuTarget) -> bool:
    """False if ``with_limits`` would measure."""
    kept = _read(limits_path(target))
    return kept is not None and kept.readings >= ENOUGH_READINGS


def doubt(target: CpuTarget) -> None:
    """Make the next runs measure the limits again: a kernel was faster than they allow."""
    kept = _read(limits_path(target))
    if kept is not None:
        _write(limits_path(target), dataclasses.replace(kept, readings=0))


def limits_path(target: CpuTarget) -> Path:
    """The file with the limits of a device."""
    return settings.cache_folder() / "limits" / f"{target.device}.json"


def measure_limits(target: CpuTarget) -> LimitsReading:
    """Measure now. Raises what ``with_limits`` raises."""
    check_present(target)
    # Late: where kernels come from packs, psutil may be missing; what is known of the limits is read there, too.
    from dwconv.measure.processes.process import IsolatedProcess

    meter = IsolatedProcess("dwconv.measure.meter:Meter", target, threads=target.threads, vector_set=target.vector_set)
    try:
        reading: LimitsReading = meter.call(None, timeout_s=_TIMEOUT_S)
    finally:
        meter.kill()
    return reading


# -- on disk ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class KeptLimits:
    """The best of all readings so far, and how many of them were uncontended."""

    limits: Limits
    readings: int


def _here(limits: Limits, target: CpuTarget) -> Limits:
    """What was measured, with the cache that ``target`` has now: another container may have less of it."""
    return dataclasses.replace(limits, cache_bytes=target.cache_bytes)


_RATES = ("memory_gb_per_s", "cache_gb_per_s", "peak_gflop_per_s", "thread_gflop_per_s")


def _better(first: Limits, second: Limits) -> Limits:
    """The larger of each rate, and the smaller time; of caches that have changed, ``second``'s."""
    known = {level.bytes: level.gb_per_s for level in first.levels}
    levels = tuple(
        CacheLevel(bytes=level.bytes, gb_per_s=max(level.gb_per_s, known.get(level.bytes, 0.0)))
        for level in second.levels
    )
    return dataclasses.replace(
        second,
        **{name: max(getattr(first, name), getattr(second, name)) for name in _RATES},
        levels=levels,
        region_us=min(filter(None, (first.region_us, second.region_us)), default=0.0),
    )


def _read(path: Path) -> KeptLimits | None:
    """None if there is no file, or not a whole one."""
    try:
        kept = msgspec.json.decode(private_files.read(path) or b"", type=KeptLimits)
    except msgspec.MsgspecError:
        return None
    return kept if _is_sound(kept.limits) else None


def _is_sound(limits: Limits) -> bool:
    rates = (limits.memory_gb_per_s, limits.cache_gb_per_s, limits.cache_bytes, limits.peak_gflop_per_s)
    levels = (number for level in limits.levels for number in (level.bytes, level.gb_per_s))
    perhaps_none = (limits.region_us, limits.thread_gflop_per_s)
    positive = all(math.isfinite(rate) and rate > 0 for rate in (*rates, *levels))
    return bool(limits.levels) and positive and all(math.isfinite(each) and each >= 0 for each in perhaps_none)


def _write(path: Path, kept: KeptLimits) -> None:
    """Write the file. If the folder cannot be written, the next run measures again."""
    try:
        private_files.write(path, msgspec.json.encode(kept), durable=True)
    except NotKept as error:
        private_files.tell_not_kept(error)
