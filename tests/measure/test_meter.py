"""The meter: what one reading makes of the runs that it saw."""

from __future__ import annotations

import pytest

from dwconv.measure import meter as meter_module
from dwconv.measure.clock.timing import Lap
from dwconv.measure.limits import Gauge
from dwconv.measure.meter import Meter, copies
from dwconv.problems.target import CpuTarget, cpu_target

TARGET = CpuTarget(device="test-cpu", threads=2, vector_bytes=32, cache_bytes=1 << 24)


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
        return Meter(TARGET)(Gauge())

    return read


def test_each_rate_is_its_own(reading):
    seconds = {"memory": 0.5, "cache": 0.05, "level 0": 0.01, "level 1": 0.1, "multiply-add 12": 0.002, "thread": 0.004}
    found = reading({**seconds, "region": 9e-6, "no region": 2e-6})
    limits = found.limits
    assert not found.contended
    assert (limits.memory_gb_per_s, limits.cache_gb_per_s) == pytest.approx((2.0, 20.0))
    assert [level.gb_per_s for level in limits.levels] == pytest.approx([100.0, 10.0])
    assert (limits.peak_gflop_per_s, limits.thread_gflop_per_s) == pytest.approx((500.0, 250.0))
    assert limits.region_us == pytest.approx(7.0) and limits.cache_bytes == TARGET.cache_bytes


def test_a_region_that_takes_milliseconds_was_not_measured(reading):
    """Threads waited for a core, though nothing else showed it."""
    found = reading({"thread": 0.004, "level 1": 0.1, "region": 11.6e-3, "no region": 2e-6})
    assert not found.contended
    assert found.limits.region_us == 0.0


def test_a_busy_machine_gives_a_reading_that_can_be_used(reading):
    found = reading({"thread": 0.004, "level 1": 0.1, "region": 8e-3, "no region": 2e-6}, lost=0.5)
    assert found.contended
    assert found.limits.peak_gflop_per_s == found.limits.thread_gflop_per_s == pytest.approx(250.0)
    assert found.limits.cache_gb_per_s == pytest.approx(10.0) and found.limits.region_us == 0.0


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
