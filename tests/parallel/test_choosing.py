"""What is chosen, by planted times: real steps of one rank, whose clock is the test's."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dwconv.parallel import Communication, communication
from dwconv.parallel.data import choose_way as choosing
from dwconv.parallel.data.choose_way import Contest, TrainingExample, candidates, choose, longer_by_us, take_turns
from dwconv.parallel.data.ways import COLLECTIVES, GradientHook
from tests.parallel.jobs import Net
from tests.parallel.ranks import needs_gloo

pytestmark = needs_gloo
LOCAL_S = 0.010


@pytest.fixture
def group(one_rank):
    return dist.group.WORLD


class Large(Net):
    """With 2 MiB of gradients: two sizes of buckets beside the default."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(8, 65536, bias=False), nn.AdaptiveAvgPool1d(5))


def report_by(monkeypatch, group, seconds_of, *, compress=False, seconds=1e9, model=None):
    """The report, where a step takes ``seconds_of(its name, number of the round)``."""

    def planted(steps, *, rounds, group, device):
        for step in steps.values():
            step()
        return {name: [seconds_of(name, number) for number in range(rounds)] for name in steps}

    monkeypatch.setattr(choosing, "take_turns", planted)
    model = model or Large()
    contest = Contest(
        model=model, example=TrainingExample.of(model, torch.randn(2, 3, 5, 5), loss=None), group=group,
        hook=GradientHook(group, communication=Communication(), timeout=timedelta(seconds=30)), options={},
        compress=compress, seconds=seconds,
    )  # fmt: skip
    try:
        return choose(contest)
    finally:
        contest.hook.close()


def test_the_fastest_is_chosen_of_all_that_was_allowed(monkeypatch, group):
    fastest = Communication(collective="reduce-broadcast", bucket_mb=3)

    def seconds_of(name, number):
        return LOCAL_S + {"no communication": 0.0, str(fastest): 0.001}.get(name, 0.004)

    report = report_by(monkeypatch, group, seconds_of)
    assert report.chosen == fastest
    assert report.exposed_us == pytest.approx(1000) and report.synchronous_us == pytest.approx(4000)
    assert report.local_us == pytest.approx(10_000)
    assert "3.00 ms a step less than" in report.reason
    tried = {row.communication for row in report.rows} - {None}
    assert tried == {way for ways in candidates(2.1, compress=False).values() for way in ways}
    assert not any(way.compressed for way in tried) and not report.left


def test_bfloat16_is_chosen_only_where_it_is_allowed(monkeypatch, group):
    def seconds_of(name, number):
        return LOCAL_S + (0.001 if "bfloat16" in name else 0.004)

    assert report_by(monkeypatch, group, seconds_of, compress=True).chosen.compressed
    assert not report_by(monkeypatch, group, seconds_of).chosen.compressed


def test_the_default_stays_unless_it_is_beaten_in_three_rounds_of_four(monkeypatch, group):
    def seconds_of(name, number):
        """Faster in two rounds of three, and in the median."""
        other = name not in ("no communication", str(Communication()))
        return LOCAL_S + (0.003 if not other else 0.001 if number % 3 else 0.009)

    report = report_by(monkeypatch, group, seconds_of)
    assert report.chosen == Communication() and report.finals
    assert report.reason == "nothing beats DistributedDataParallel's default by more than the noise"


def test_a_machine_that_slows_down_meanwhile_decides_nothing(monkeypatch, group):
    """Everything takes three times as long after the first group of steps, the default in the finals, too."""
    fastest = Communication(collective="reduce-scatter", bucket_mb=1)
    calls = []

    def seconds_of(name, number):
        calls.append(name)
        slower = 1 if len(calls) < 30 else 3
        return slower * (LOCAL_S + {"no communication": 0.0, str(fastest): 0.003}.get(name, 0.004))

    assert report_by(monkeypatch, group, seconds_of).chosen == fastest


def test_what_there_is_no_time_for_is_named(monkeypatch, group):
    """The default is measured in any case."""
    report = report_by(monkeypatch, group, lambda name, number: LOCAL_S, seconds=1e-9)
    assert [row.communication for row in report.rows] == [None, Communication()]
    assert len(report.left) == 3 * len(COLLECTIVES) - 1
    assert "buckets of 3 MiB by all-reduce, reduce-scatter, reduce-broadcast" in str(report)


def test_nothing_of_a_measurement_stays_on_the_model(monkeypatch, group):
    """Wrappers leave hooks on the parameters while they live."""
    model = Large()
    report_by(monkeypatch, group, lambda name, number: LOCAL_S, model=model)
    called = []
    monkeypatch.setattr(GradientHook, "send", lambda *arguments: called.append(arguments))
    model(torch.randn(2, 3, 5, 5)).sum().backward()
    assert not called
    with pytest.raises(Exception, match="Large does not come from"):
        communication(model)


def test_candidates_suit_the_size_of_the_gradients():
    assert list(candidates(0.5, compress=False)) == [None]
    assert list(candidates(8.5, compress=False)) == [None, 1, 5, 9]
    assert list(candidates(54.4, compress=False)) == [None, 1, 5, 25, 55]
    assert all(len(ways) == 6 for ways in candidates(8.5, compress=True).values())
    assert all(ways[0].collective == "all-reduce" for ways in candidates(8.5, compress=True).values())


def test_steps_take_turns_and_each_round_begins_with_another(group):
    taken = []
    steps = {name: lambda name=name: taken.append(name) for name in "abc"}
    seconds = take_turns(steps, rounds=4, group=group, device=torch.device("cpu"))
    assert "".join(taken) == "abc" + "bca" + "cab" + "abc"
    assert list(seconds) == ["a", "b", "c"] and all(len(each) == 4 for each in seconds.values())


def test_differences_are_taken_round_by_round():
    """A machine that slows down in the middle slows down both."""
    assert longer_by_us([1.1, 5.1, 9.1], [1.0, 5.0, 9.0]) == pytest.approx((1e5, 1e5, 1e5))
