"""Limits are measured once, kept whole or not at all, and believable."""

import dataclasses

import msgspec
import pytest

from dwconv.measure import limits as limits_module
from dwconv.measure.limits import Reading, cache_bytes, limits_path, measure_limits, with_limits
from dwconv.target import CpuTarget, Limits, cpu_target

TARGET = CpuTarget(device="test-cpu", threads=1, vector_bytes=32)
LIMITS = Limits(memory_gb_per_s=50.0, cache_gb_per_s=200.0, cache_bytes=1 << 25, peak_gflop_per_s=500.0)


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A cache folder, and a list of what was measured instead of measuring; its readings may be changed."""
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    calls = []

    def measure(target):
        calls.append(target)
        return measure.reading

    measure.reading = Reading(limits=LIMITS, disturbed=False)
    measure.calls = calls
    monkeypatch.setattr(limits_module, "measure_limits", measure)
    return measure


def test_measured_once_for_each_device(measured):
    assert with_limits(TARGET) == dataclasses.replace(TARGET, limits=LIMITS)
    assert with_limits(TARGET).limits == LIMITS
    assert measured.calls == [TARGET]
    with_limits(dataclasses.replace(TARGET, device="another"))
    assert len(measured.calls) == 2
    assert [path.name for path in limits_path(TARGET).parent.iterdir() if "test" in path.name] == ["test-cpu.json"]


def test_known_limits_are_left_alone(measured):
    known = dataclasses.replace(TARGET, limits=dataclasses.replace(LIMITS, peak_gflop_per_s=1.0))
    assert with_limits(known) is known and measured.calls == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: b"",
        lambda whole: b"\x00" * len(whole),
        lambda whole: whole.replace(b"500.0", b"0.0"),
        lambda whole: whole.replace(b"500.0", b'"fast"'),
        lambda whole: b"[]",
    ],
)
def test_a_damaged_file_is_measured_again_and_mended(measured, damage):
    with_limits(TARGET)
    path = limits_path(TARGET)
    path.write_bytes(damage(path.read_bytes()))
    assert with_limits(TARGET).limits == LIMITS
    assert len(measured.calls) == 2
    assert msgspec.json.decode(path.read_bytes(), type=Limits) == LIMITS


def test_a_reading_of_a_busy_machine_is_used_but_not_kept(measured):
    measured.reading = Reading(limits=LIMITS, disturbed=True)
    assert with_limits(TARGET).limits == LIMITS
    assert not limits_path(TARGET).exists()


def test_a_folder_that_cannot_be_written_costs_only_time(measured, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert with_limits(TARGET).limits == LIMITS


def test_real_limits_are_in_order():
    limits = measure_limits(cpu_target()).limits
    assert 0 < limits.memory_gb_per_s < 10_000 and 0 < limits.cache_gb_per_s < 100_000
    assert 1 < limits.peak_gflop_per_s < 1e6
    assert limits.cache_bytes == cache_bytes() >= 1 << 18
