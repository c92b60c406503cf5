"""What times show, and how near they are to what the device allows: on times and limits that the test plants."""

from __future__ import annotations

import dataclasses
import random

import pytest

from bench import evidence
from bench.evidence import (
    BeyondLimit,
    Control,
    Ratio,
    bandwidth,
    is_suspicious,
    percent_of_limit,
    ratio_of,
    summary_of,
    timed_again,
)
from dwconv.problems.target import CacheLevel, CpuTarget, Limits


def noisy(median, *, share, seed, rounds=31):
    drawn = random.Random(seed)
    return [median * (1 + share * drawn.uniform(-1, 1)) for _ in range(rounds)]


def row(ratio, *, interval=None, contention=0.0, verdict="faster", **about):
    return {
        "layer": "Tiny", "pass": "fprop", **about, "over_best_other": ratio, "best_other": "onednn-nhwc",
        "over_best_other_interval": list(interval or (ratio * 0.99, ratio * 1.01)), "contention": contention,
        "verdict": verdict,
    }  # fmt: skip


# -- ratios ----------------------------------------------------------------------------------------------------------


def test_a_ratio_is_of_medians_with_an_interval_around_it():
    ours, theirs = noisy(10, share=0.05, seed=1), noisy(20, share=0.05, seed=2)
    found = ratio_of(theirs, over=ours)
    assert found.value == sorted(theirs)[15] / sorted(ours)[15]
    low, high = found.interval
    assert 1.9 < low < found.value < high < 2.1
    assert ratio_of(theirs, over=ours) == found, "the same in every run"
    wider = ratio_of(noisy(20, share=0.4, seed=2), over=noisy(10, share=0.4, seed=1)).interval
    assert wider[1] - wider[0] > 3 * (high - low)


def test_what_slows_both_in_a_turn_widens_nothing():
    """Half of the turns are slow for both."""
    slow = [1.0 if turn % 2 else 3.0 for turn in range(31)]
    together = ratio_of([20 * each for each in slow], over=[10 * each for each in slow])
    assert together.interval == (2.0, 2.0)
    apart = ratio_of([20 * each for each in slow], over=[10 * each for each in reversed([*slow[1:], 1.0])])
    assert apart.interval[0] < 1 < 4 < apart.interval[1]


def test_the_fastest_of_the_others_counts_and_may_be_another_in_each_draw():
    ours, one, two = [10.0] * 30, noisy(20, share=0.3, seed=1, rounds=30), noisy(20, share=0.3, seed=2, rounds=30)
    alone = [ratio_of(each, over=ours) for each in (one, two)]
    both = ratio_of(one, two, over=ours)
    assert both.value == min(each.value for each in alone)
    assert both.interval[1] < max(each.interval[1] for each in alone)
    assert both.interval[0] <= min(each.interval[0] for each in alone)


# -- the control -----------------------------------------------------------------------------------------------------


def test_no_row_claims_more_than_the_control():
    control = Control(ratio=1.0, interval=(0.96, 1.02))
    assert control.verdict((1.05, 1.2)) == "faster" and control.verdict((0.8, 0.95)) == "slower"
    assert control.verdict((1.03, 1.2)) == "tie", "0.96 is farther from 1 than 1.02, and might have been 1.04"
    assert control.verdict((0.8, 0.97)) == "tie" and control.verdict((0.9, 1.1)) == "tie"
    exact = Control.over([])
    assert exact.verdict((1.001, 1.002)) == "faster" and exact.verdict((0.9, 1.0)) == "tie"


def test_a_control_of_several_holds_the_intervals_of_all():
    control = Control.over([Ratio(value=0.5, interval=(0.4, 0.9)), Ratio(value=2.0, interval=(1.1, 2.5))])
    assert control.as_row() == {"ratio": 1.0, "interval": [0.4, 2.5]}


# -- timed again -----------------------------------------------------------------------------------------------------


@pytest.fixture
def contended(monkeypatch):
    """Rows count as disturbed above 5 %, whatever the machine that runs the tests does."""
    monkeypatch.setattr(evidence.record, "CONTENDED", 0.05)


@pytest.mark.usefixtures("contended")
def test_disturbed_and_wide_rows_are_timed_once_more_after_all_others(capsys):
    rows = [row(2.0), row(3.0, contention=0.2), row(1.0, interval=(0.9, 1.1)), {"failed": "boom"}]
    assert [is_suspicious(each) for each in rows] == [False, True, True, False]
    asked = []

    def again(number):
        asked.append(number)
        return row(1.5, contention=0.3 if number == 1 else 0.0)

    found = timed_again(rows, again, threads=1)
    assert asked == [1, 2] and "2 of 4 rows again" in capsys.readouterr().out
    assert found[0] is rows[0] and found[3] is rows[3]
    assert found[1]["over_best_other"] == 3.0, "the second time was disturbed more"
    other = row(1.5)
    assert found[1]["other_timing"] == {
        "over_best_other": 1.5,
        "over_best_other_interval": other["over_best_other_interval"],
        "contention": 0.3,
    }
    assert found[2]["over_best_other"] == 1.5 and found[2]["other_timing"]["over_best_other"] == 1.0


@pytest.mark.usefixtures("contended")
def test_which_of_two_timings_stands_does_not_depend_on_the_ratio():
    wide = [row(1.0, interval=(0.8, 1.3)), row(9.0, interval=(8.0, 10.0))]
    found = timed_again(wide, lambda number: row(5.0, interval=(4.0, 6.5)), threads=1)
    assert [each["over_best_other"] for each in found] == [5.0, 9.0], "the narrower of each"


def test_a_row_that_fails_the_second_time_keeps_the_first():
    wide = row(1.0, interval=(0.8, 1.3))
    assert timed_again([wide], lambda number: {"failed": "boom"}, threads=1) == [wide]


# -- the summary -----------------------------------------------------------------------------------------------------


def test_the_summary_begins_with_what_was_lost():
    rows = [row(1 + number / 10, layer=f"L{number}") for number in range(20)]
    rows[5] |= row(1.05, layer="L5", verdict="slower")
    rows[0]["verdict"] = "tie"
    rows.append({"layer": "L20", "pass": "wgrad", "caches": "warm", "failed": "it crashed"})
    lines = summary_of(rows, Control(ratio=1.0, interval=(0.9, 1.1))).splitlines()
    assert lines[1] == "slower than the best other: 1 of 21 rows; ties 1, faster 18, failed 1"
    assert "0.900 to 1.100" in lines[2]
    assert lines[4] == "  L20, wgrad, warm: failed: it crashed"
    assert lines[5].startswith("  slower 1.05 (") and lines[5].endswith("× onednn-nhwc: L5, fprop")
    assert lines[6].endswith("L0, fprop") and len(lines) == 5 + 10
    lost = [row(0.5, layer=f"L{number}", verdict="slower") for number in range(15)]
    assert summary_of(lost, Control.over([])).count("  slower") == 15, "all that lost"


LIMITS = Limits(
    memory_gb_per_s=10, cache_gb_per_s=50, cache_bytes=1 << 20, peak_gflop_per_s=100,
    levels=(CacheLevel(bytes=1 << 14, gb_per_s=100),),
)  # fmt: skip
TARGET = CpuTarget(
    device="made-up-2t", threads=2, vector_bytes=32, cache_bytes=1 << 20, others_cache_bytes=1 << 20, limits=LIMITS
)


def gb_per_s(kilobytes):
    return bandwidth(LIMITS, bytes_moved=kilobytes << 10, target=TARGET)


def test_tensors_come_as_fast_as_the_level_that_holds_them():
    assert gb_per_s(32) == 200, "16 KiB of each thread"
    assert gb_per_s(33) == gb_per_s(2048) == 50, "what others may use of the last level counts: it may be free"
    assert gb_per_s(8192) == pytest.approx(1 / (0.25 / 50 + 0.75 / 15)), "three quarters at most read from memory"


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
    with pytest.raises(BeyondLimit, match=r"^Tiny, fprop: 500.0 µs is 200 % of ") as raised:
        percent(500, flops=100_000_000)
    assert measured_again["doubted"] == 1 and "\n" not in str(raised.value) and raised.value.exit_code == 2


def test_limits_that_were_measured_too_low_are_no_fault_of_the_row(measured_again):
    measured_again["limits"] = dataclasses.replace(LIMITS, peak_gflop_per_s=400)
    assert percent(500, flops=100_000_000) == pytest.approx(50)


def test_a_little_over_the_limit_is_within_its_error(measured_again):
    assert percent(1000, flops=104_000_000) == pytest.approx(104) and not measured_again["doubted"]
    with pytest.raises(BeyondLimit):
        percent(1000, flops=106_000_000)
