"""How near a time is to what the device allows, on limits that the test plants."""

from __future__ import annotations

import dataclasses

import pytest

from bench import evidence
from bench.evidence import bandwidth, percent_of_limit
from dwconv.errors import BeyondLimit
from dwconv.problems.target import CacheLevel, CpuTarget, Limits

LIMITS = Limits(
    memory_gb_per_s=10, cache_gb_per_s=50, cache_bytes=1 << 20, peak_gflop_per_s=100,
    levels=(CacheLevel(bytes=1 << 14, gb_per_s=100),),
)  # fmt: skip
TARGET = CpuTarget(
    device="made-up-2t", threads=2, vector_bytes=32, cache_bytes=1 << 20, others_cache_bytes=1 << 20, limits=LIMITS
)


def gb_per_s(kilobytes, caches="warm"):
    return bandwidth(LIMITS, bytes_moved=kilobytes << 10, target=TARGET, caches=caches)


def test_tensors_come_as_fast_as_the_level_that_holds_them():
    assert gb_per_s(32) == 200, "16 KiB of each thread"
    assert gb_per_s(33) == gb_per_s(2048) == 50, "what others may use of the last level counts: it may be free"
    assert gb_per_s(8192) == pytest.approx(1 / (0.25 / 50 + 0.75 / 15)), "three quarters at most read from memory"


def test_cold_tensors_come_from_memory_but_for_what_the_copies_leave():
    assert gb_per_s(1024, "cold") == pytest.approx(1 / (0.5 / 50 + 0.5 / 15))
    assert gb_per_s(1, "cold") == 50, "512 copies of it fit the cache"
    assert gb_per_s(8192, "cold") == gb_per_s(8192)


def percent(us, *, flops=0):
    return percent_of_limit("Tiny, fprop", us, bytes_moved=1 << 20, flops=flops, target=TARGET)


def test_the_least_time_is_that_of_traffic_or_arithmetic():
    assert percent(1000) == pytest.approx(100 * (1 << 20) / 50e3 / 1000)
    assert percent(1000, flops=50_000_000) == pytest.approx(50)


@pytest.fixture
def measured_again(monkeypatch):
    """What the limits are when they are measured again, and whether they were doubted."""
    found = {"limits": LIMITS, "doubted": 0}
    monkeypatch.setattr(evidence, "doubt", lambda target: found.update(doubted=found["doubted"] + 1))

    def with_limits(target):
        assert target.limits is None, "limits that are known are not measured"
        return dataclasses.replace(target, limits=found["limits"])

    monkeypatch.setattr(evidence, "with_limits", with_limits)
    return found


def test_a_time_that_the_device_does_not_allow_names_its_row(measured_again):
    with pytest.raises(BeyondLimit, match=r"^Tiny, fprop: 500.0 µs is 200 % of .* with warm caches") as raised:
        percent(500, flops=100_000_000)
    assert measured_again["doubted"] == 1 and "\n" not in str(raised.value) and raised.value.exit_code == 2


def test_limits_that_were_measured_too_low_are_no_fault_of_the_row(measured_again):
    measured_again["limits"] = dataclasses.replace(LIMITS, peak_gflop_per_s=400)
    assert percent(500, flops=100_000_000) == pytest.approx(50)


def test_a_little_over_the_limit_is_within_its_error(measured_again):
    assert percent(1000, flops=104_000_000) == pytest.approx(104) and not measured_again["doubted"]
    with pytest.raises(BeyondLimit):
        percent(1000, flops=106_000_000)
