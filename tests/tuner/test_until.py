"""``--until``: a search ends near the limit of the device, or where little is left to gain."""

from __future__ import annotations

import json
import math

import pytest

from dwconv.problems.target import parse_target
from dwconv.tuner.choices import Choices, check_choices
from dwconv.tuner.expected_gain import TuningLeft, Until, bests_us, further_us
from dwconv.tuner.search.search_result import Stop
from tests import fake_tuning as fake
from tests.tune_command import SHAPE, error_of, plant, run
from tests.tuner.fake_search import tune

LIMIT_US = fake.TARGET.limits.limit_us(bytes_moved=fake.WORKLOAD.bytes, flops=fake.WORKLOAD.flops)


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    return plant(monkeypatch, tmp_path)


def test_a_search_ends_at_the_share_of_the_limit(log):
    runner = fake.FakeRunner()
    result = tune(log, runner, trials=64, until=Until(share=0.1, calls=10**6, step_us=1.0))
    times = [fake.time_us(config) for config in runner.measured]
    assert result.stopped is Stop.LIMIT and 1 < len(times) < 64
    assert times[-1] <= LIMIT_US / 0.1 < min(times[:-1])
    assert runner.confirmed, "its finalists are confirmed as ever"


def test_a_search_ends_where_all_it_may_gain_is_little_of_a_step(log):
    runner = fake.FakeRunner()
    result = tune(log, runner, trials=64, until=Until(share=0.5, calls=2, step_us=1e6))
    assert result.stopped is Stop.GAIN and 8 <= len(runner.measured) < 16
    for until in (Until(share=0.5, calls=2, step_us=1.0), Until(share=0.999, calls=2, step_us=1e6)):
        assert tune(log, fake.FakeRunner(), trials=64, until=until).stopped is Stop.TRIALS


def test_what_is_left_falls_with_the_trials_and_is_bound_by_the_limit():
    assert further_us([100.0] * 10, None) > further_us([100.0] * 20, None) > 0
    assert further_us([200.0] * 10 + [100.0] * 10, None) == 50.0, "as many trials again may gain as much"
    assert further_us([200.0] * 10 + [100.0] * 10, 99.0) == 1.0
    assert further_us([100.0] * 10, 120.0) == further_us([100.0] * 10, None), "such a limit is wrong"
    assert further_us([math.inf] * 9 + [100.0], None) == 100.0
    until = Until(share=0.9, calls=1, step_us=100.0)
    assert until.is_near(100.0, 96.0) and not until.is_near(100.0, 120.0) and not until.is_near(100.0, None)
    assert not until.is_near(math.inf, 96.0) and not until.is_little_left([math.inf] * 9, None)
    assert until.is_little_left([0.1] * 8, None) and not until.is_little_left([0.1] * 7, None)
    assert str(TuningLeft(us=3.1, step_us=100.0)) == "≤ 4 % of a step"


def test_the_first_record_of_each_configuration_is_a_trial():
    first, second, *_ = fake.space(fake.WORKLOAD, fake.TARGET)
    records = [fake.record(fake.WORKLOAD, config, median_us=us) for config, us in ((first, None), (second, 9.0))]
    assert bests_us([*records, records[0]]) == [math.inf, 9.0]


def test_the_command_says_what_is_left(capsys, fakes):
    options = (*SHAPE, "--passes", "fprop", "--trials", "64", "--until", "10%")
    assert run(*options) == 0
    out, err = capsys.readouterr()
    assert "tuning left: ≤ " in out and "% of a step" in out and "near the limit" in err
    assert run(*options, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    (result,) = answer["results"]
    left_us, step_us = answer["step"]["tuning_left_us"], answer["step"]["depthwise_us"]
    assert result["trials"] < 64 and 0 < left_us <= step_us - LIMIT_US
    assert f"tuning left: ≤ {math.ceil(100 * left_us / step_us)} % of a step" in out
    assert run(*SHAPE, "--passes", "fprop", "--trials", "8") == 0
    assert "tuning left" not in capsys.readouterr().out


@pytest.mark.parametrize("share", ["0", "-5%", "101%", "1.01", "many", "%", "95 %", "nan"])
def test_what_is_no_share_is_one_clear_line(capsys, fakes, share):
    assert "until" in error_of(capsys, *SHAPE, f"--until={share}")
    assert not fakes


def test_it_does_not_go_with_a_refresh_or_a_device_whose_limits_are_unknown(capsys, fakes):
    assert "leave out --until" in error_of(capsys, *SHAPE, "--until", "95%", "--refresh")
    with pytest.raises(ValueError, match=r"until=1\.5 is no share of a limit"):
        Choices(until=1.5)
    board = parse_target("cpu:aarch64,threads=4")
    choices = Choices(until=0.95)
    object.__setattr__(choices, "board", object())
    with pytest.raises(ValueError, match=r"until=0\.95 is a share of the device's limit, and those of .* are unknown"):
        check_choices(choices, board, [fake.WORKLOAD])
