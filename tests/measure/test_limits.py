"""Limits are read a few times, the best is kept, whole or not at all, and they are believable; what one reading makes
of the runs that it saw."""

import dataclasses
import errno
import os
import stat

import msgspec
import pytest

from dwconv.errors import DwconvWarning, NoDevice
from dwconv.measure import limits as limits_module
from dwconv.measure import meter as meter_module
from dwconv.measure.clock.timing import Lap
from dwconv.measure.limits import (
    ENOUGH_READINGS,
    KeptLimits,
    LimitsReading,
    are_settled,
    doubt,
    known_limits,
    limits_path,
    with_limits,
)
from dwconv.measure.meter import Meter, copies, level_bytes
from dwconv.problems.target import CacheLevel, CpuTarget, Limits, cpu_target

TARGET = CpuTarget(device="test-cpu", threads=1, vector_bytes=32)
LIMITS = Limits(
    memory_gb_per_s=50.0,
    cache_gb_per_s=200.0,
    cache_bytes=TARGET.cache_bytes,
    peak_gflop_per_s=500.0,
    thread_gflop_per_s=300.0,
    levels=(CacheLevel(bytes=1 << 15, gb_per_s=400.0), CacheLevel(bytes=1 << 20, gb_per_s=100.0)),
    region_us=4.0,
)


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A cache folder, and a list of what was measured instead of measuring; its readings may be changed."""
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    calls = []

    def measure(target):
        calls.append(target)
        return measure.reading

    measure.reading = LimitsReading(limits=LIMITS, contended=False)
    measure.calls = calls
    monkeypatch.setattr(limits_module, "measure_limits", measure)
    return measure


def test_measured_for_each_device_until_there_are_enough_readings(measured):
    assert with_limits(TARGET) == dataclasses.replace(TARGET, limits=LIMITS)
    assert not are_settled(TARGET)
    for _ in range(ENOUGH_READINGS + 2):
        assert with_limits(TARGET).limits == LIMITS
    assert measured.calls == [TARGET] * ENOUGH_READINGS and are_settled(TARGET)
    with_limits(dataclasses.replace(TARGET, device="another"))
    assert len(measured.calls) == ENOUGH_READINGS + 1
    assert [path.name for path in limits_path(TARGET).parent.iterdir() if "test" in path.name] == ["test-cpu.json"]


def reading_of(*rates: float, contended: bool = False, **other: float) -> LimitsReading:
    """Of the levels' rates, and of what else differs from ``LIMITS``."""
    levels = tuple(
        CacheLevel(bytes=level.bytes, gb_per_s=rate)
        for level, rate in zip(LIMITS.levels, rates or (400.0, 100.0), strict=True)
    )
    return LimitsReading(limits=dataclasses.replace(LIMITS, levels=levels, **other), contended=contended)


def test_the_best_of_all_readings_is_kept_and_levels_that_changed_are_new(measured):
    for measured.reading in (
        reading_of(400.0, 90.0, memory_gb_per_s=23.0, region_us=9.0),
        reading_of(350.0, 100.0, peak_gflop_per_s=20.0),
        reading_of(1.0, 1.0, region_us=0.0),
    ):
        found = with_limits(TARGET)
    assert found.limits == LIMITS
    doubt(TARGET)
    levels = (CacheLevel(bytes=1 << 15, gb_per_s=1.0), CacheLevel(bytes=1 << 21, gb_per_s=2.0))
    measured.reading = LimitsReading(limits=dataclasses.replace(LIMITS, levels=levels), contended=False)
    assert [level.gb_per_s for level in with_limits(TARGET).limits.levels] == [400.0, 2.0]


def test_the_cache_is_what_the_target_has_now(measured):
    with_limits(TARGET)
    less = dataclasses.replace(TARGET, cache_bytes=1 << 20)
    assert known_limits(less).cache_bytes == with_limits(less).limits.cache_bytes == 1 << 20
    assert known_limits(TARGET) == LIMITS


def test_limits_in_doubt_are_measured_again_and_can_only_rise(measured):
    for _ in range(ENOUGH_READINGS):
        with_limits(TARGET)
    doubt(TARGET)
    assert not are_settled(TARGET)
    for measured.reading in (reading_of(memory_gb_per_s=100.0), reading_of()):
        assert with_limits(TARGET).limits.memory_gb_per_s == 100.0


def test_known_limits_are_left_alone(measured):
    known = dataclasses.replace(TARGET, limits=dataclasses.replace(LIMITS, peak_gflop_per_s=1.0))
    assert with_limits(known) is known and measured.calls == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole.replace(b"500.0", b"0.0"),
        lambda whole: whole.replace(b"400.0", b"-1.0"),
        lambda whole: whole.replace(b"4.0", b"-4.0"),
        lambda whole: whole.replace(b"levels", b"others"),
    ],
)
def test_a_damaged_file_is_measured_again_and_mended(measured, damage):
    with_limits(TARGET)
    path = limits_path(TARGET)
    path.write_bytes(damage(path.read_bytes()))
    assert with_limits(TARGET).limits == LIMITS
    assert len(measured.calls) == 2
    assert msgspec.json.decode(path.read_bytes(), type=KeptLimits) == KeptLimits(limits=LIMITS, readings=1)


def test_a_reading_of_a_busy_machine_is_used_but_does_not_count(measured):
    measured.reading = reading_of(contended=True)
    for _ in range(ENOUGH_READINGS + 1):
        assert with_limits(TARGET).limits == LIMITS
    assert len(measured.calls) == ENOUGH_READINGS + 1


def test_what_another_user_kept_is_measured_again(measured, monkeypatch):
    before = os.umask(0)
    try:
        with_limits(TARGET)
    finally:
        os.umask(before)
    path = limits_path(TARGET)
    assert [stat.S_IMODE(kept.stat().st_mode) for kept in (path, path.parent)] == [0o600, 0o700]
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    monkeypatch.setattr(limits_module, "limits_path", lambda target: path)
    with pytest.warns(DwconvWarning, match="measurements are not kept"):
        assert with_limits(TARGET).limits == LIMITS
    assert len(measured.calls) == 2


def test_a_full_disk_leaves_the_limits_as_they_were(measured, monkeypatch):
    with_limits(TARGET)
    path = limits_path(TARGET)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(DwconvWarning, match="measurements are not kept"):
        assert with_limits(TARGET).limits == LIMITS
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


def test_what_is_not_here_is_not_measured():
    with pytest.raises(NoDevice, match="not run"):
        with_limits(dataclasses.replace(TARGET, vector_set="neon", present=False))


@pytest.mark.slow
def test_real_limits_are_in_order(tmp_path, monkeypatch):
    """Other work can take a core or a cache from one reading: the best of a few is in order, as it is kept."""
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    target = cpu_target()
    for _ in range(20):
        doubt(target)
        limits = with_limits(target).limits
        if limits.levels[0].gb_per_s > limits.levels[-1].gb_per_s:
            break
    assert 0 < limits.memory_gb_per_s < 10_000 and 0 < limits.cache_gb_per_s < 100_000
    assert 1 < limits.peak_gflop_per_s < 1e6 and 1 < limits.thread_gflop_per_s < 1e5
    assert limits.cache_bytes == target.cache_bytes
    assert tuple(level.bytes for level in limits.levels) == level_bytes(target)
    assert all(0 < level.gb_per_s < 100_000 for level in limits.levels)
    assert limits.levels[0].gb_per_s > limits.levels[-1].gb_per_s
    assert 0 <= limits.region_us < 1e5


# -- one reading -------------------------------------------------------------------------------------------------------

METERED = CpuTarget(device="test-cpu", threads=2, vector_bytes=32, cache_bytes=1 << 24)


class FakeClock:
    """Every call takes what the call itself says."""

    def __init__(self, lost: float) -> None:
        self.lost = lost

    def lap(self, call, *, times: int) -> Lap:
        assert times == 1
        return Lap(seconds=call(), lost=self.lost)


@pytest.fixture
def reading(monkeypatch):
    """Takes a reading of calls of made-up times, by name, on a machine that takes a share of the time."""

    def read(seconds: dict[str, float], *, lost: float = 0.0):
        def make_rates(self):
            usual = ("memory", "cache", "level 0", "level 1", "convolution", "multiply-add 8", "multiply-add 12")
            names = (*usual, "thread", "region", "no region")
            return {
                name: meter_module._Rate(call=lambda name=name: seconds.get(name, 1.0), work=10**9) for name in names
            }

        monkeypatch.setattr(Meter, "_make_rates", make_rates)
        monkeypatch.setattr(meter_module, "level_bytes", lambda target: (1 << 15, 1 << 20))
        monkeypatch.setattr(meter_module, "CpuClock", lambda: FakeClock(lost))
        monkeypatch.setattr(meter_module, "_TURN_S", 1e-6)
        monkeypatch.setattr(meter_module, "_EXTRA_S", 1e-4)
        return Meter(METERED)(None)

    return read


def test_each_rate_is_its_own(reading):
    seconds = {"memory": 0.5, "cache": 0.05, "level 0": 0.01, "level 1": 0.1, "multiply-add 12": 0.002, "thread": 0.004}
    found = reading({**seconds, "region": 9e-6, "no region": 2e-6})
    limits = found.limits
    assert not found.contended
    assert (limits.memory_gb_per_s, limits.cache_gb_per_s) == pytest.approx((2.0, 20.0))
    assert [level.gb_per_s for level in limits.levels] == pytest.approx([100.0, 10.0])
    assert (limits.peak_gflop_per_s, limits.thread_gflop_per_s) == pytest.approx((500.0, 250.0))
    assert limits.region_us == pytest.approx(7.0) and limits.cache_bytes == METERED.cache_bytes


@pytest.mark.parametrize("lost", [0.0, 0.5])
def test_a_region_whose_threads_waited_for_a_core_was_not_measured(reading, lost):
    """It takes milliseconds, though nothing else may show it. The rest of the reading can be used."""
    found = reading({"thread": 0.004, "level 1": 0.1, "region": 11.6e-3, "no region": 2e-6}, lost=lost)
    assert found.contended == (lost > 0) and found.limits.region_us == 0.0
    assert found.limits.peak_gflop_per_s == found.limits.thread_gflop_per_s == pytest.approx(250.0)
    assert found.limits.cache_gb_per_s == pytest.approx(10.0)


def test_one_long_run_is_a_turn(reading, monkeypatch):
    """As of memory on a machine with much cache; and time that others have used up takes no run away."""
    monkeypatch.setattr(meter_module, "_TURNS", 1)
    found = reading({}, lost=0.5)
    assert found.limits.memory_gb_per_s == found.limits.cache_gb_per_s == 1.0


@pytest.mark.parametrize(
    ("inner", "cache_bytes", "expected"),
    [
        ((1, 2), 1 << 24, (1, 2, 1 << 23)),
        ((1 << 15, 1 << 23), 1 << 24, (1 << 15, 1 << 23)),
        ((1,), 1 << 30, (1, 1 << 24)),
    ],
)
def test_a_thread_has_its_share_of_the_last_level(monkeypatch, inner, cache_bytes, expected):
    monkeypatch.setattr(meter_module.cpu_facts, "inner_cache_bytes", lambda: inner)
    target = CpuTarget(device="test-cpu", threads=2, vector_bytes=32, cache_bytes=cache_bytes)
    assert meter_module.level_bytes(target) == expected


def test_a_copy_counts_every_byte_that_it_reads_and_writes():
    """Half of 64 KiB to the other half and back, three times: 64 KiB read and 64 KiB written each time."""
    target = cpu_target(threads=1)
    call, moved = copies(target, working_set_bytes=1 << 16, turns=3)
    call()
    assert moved == 3 * 2 * (1 << 16)
