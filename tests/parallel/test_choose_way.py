"""Which way gradients take, by planted times: real steps of one rank, whose clock is the test's."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dwconv.discovery.step import ExampleStep
from dwconv.errors import InvalidChoice
from dwconv.parallel import Communication, data_parallel, joining
from dwconv.parallel.data import choose_way as choosing
from dwconv.parallel.data import replicas
from dwconv.parallel.data.choose_way import Contest, choose, take_turns
from dwconv.parallel.data.ways import CommunicationReport
from dwconv.parallel.data.ways_to_try import worth_trying
from dwconv.parallel.joining import TimeLimit
from tests.parallel.jobs import Net
from tests.parallel.ranks import needs_gloo

pytestmark = [needs_gloo, pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")]

UNMEASURED = CommunicationReport(chosen=Communication(), reason="", world=1, gradient_bytes=0)
LOCAL_S = 0.010


@pytest.fixture
def group(one_rank):
    return dist.group.WORLD


class Large(Net):
    """With 2 MiB of gradients: two sizes of buckets beside the default."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(8, 65536, bias=False), nn.AdaptiveAvgPool1d(5))


def contest_of(model, example, group, *, compression="", seconds=1e9):
    step = ExampleStep.of(model, example, trains=True)
    return Contest(
        model=model, example=step, loss=None, group=group, options={}, compression=compression, seconds=seconds
    )  # fmt: skip


class Masked(nn.Linear):
    """Gives back a mask of floats, too, which no parameter is behind."""

    def forward(self, x):
        return super().forward(x), (x > 0).float(), x.argmax()


def test_an_example_learns_from_the_outputs_that_have_a_gradient(group):
    model = Masked(3, 2)
    contest = contest_of(model, torch.randn(4, 3), group)
    contest.step(model)
    assert all(parameter.grad is None for parameter in model.parameters())
    model.requires_grad_(False)
    with pytest.raises(InvalidChoice, match="no output of Masked requires a gradient; give loss="):
        contest.step(model)


def report_by(monkeypatch, group, seconds_of, *, model=None, **options):
    """The report, where a step takes ``seconds_of(its name, number of the round)``."""

    def planted(steps, *, rounds, limit, device):
        for step in steps.values():
            step()
        return {name: [seconds_of(name, number) for number in range(rounds)] for name in steps}

    monkeypatch.setattr(choosing, "take_turns", planted)
    return choose(contest_of(model or Large(), torch.randn(2, 3, 5, 5), group, **options))


@pytest.mark.parametrize("collective", ["all-reduce", "reduce-scatter", "reduce-broadcast", "redundant"])
def test_the_fastest_is_chosen_of_all_that_was_allowed(monkeypatch, group, collective):
    fastest = Communication(collective=collective, bucket_mb=3)

    def seconds_of(name, number):
        return LOCAL_S + {"no communication": 0.0, str(fastest): 0.001}.get(name, 0.004)

    report = report_by(monkeypatch, group, seconds_of)
    assert report.chosen == fastest
    assert report.local_us == pytest.approx(10_000)
    assert "3.00 ms a step less than" in report.reason
    tried = {row.communication for row in report.rows}
    assert tried == {way for ways in worth_trying(2.1, world=1, compression="") for way in ways}
    (row,) = (row for row in report.rows if row.communication == fastest)
    assert row.exposed_us == pytest.approx(1000)
    assert not any(way.compression for way in tried) and not report.left


def test_other_ways_come_at_the_best_bucket_size_first(monkeypatch, group):
    """Of exact all-reduces: what a size gains by compression says nothing of the others."""

    def seconds_of(name, number):
        return LOCAL_S + (0.001 if "bfloat16" in name else 0.002 if name == "buckets of 3 MiB" else 0.004)

    report = report_by(monkeypatch, group, seconds_of, compression="bfloat16")
    sizes = [row.communication.bucket_mb for row in report.rows]
    assert sizes[:5] == [None, None, None, 1, 3]
    assert sizes[5:9] == [3] * 4 and len(sizes) == len({row.communication for row in report.rows}) == 5 + 4 + 3 + 4
    assert report.chosen.compressed


@pytest.mark.parametrize(
    ("asked", "compression"), [(True, "bfloat16"), ("bfloat16", "bfloat16"), ("powersgd", "PowerSGD")]
)
def test_compression_is_chosen_only_where_it_is_allowed_and_named(monkeypatch, group, asked, compression):
    """It changes the results."""

    def seconds_of(name, number):
        return LOCAL_S + (0.001 if compression in name else 0.002 if "as " in name else 0.004)

    contests = []
    monkeypatch.setattr(replicas, "_unmeasured", lambda *_, **__: None)  # as if there were other ranks
    monkeypatch.setattr(replicas, "choose", lambda contest: contests.append(contest) or UNMEASURED)
    for compress in (False, asked):
        data_parallel(Net(), torch.randn(2, 3, 9, 7), compress=compress)
    exact, allowed = (report_by(monkeypatch, group, seconds_of, compression=each.compression) for each in contests)
    assert not exact.chosen.compression and all(not row.communication.compression for row in exact.rows)
    assert (
        compression in str(allowed.chosen) and f"{allowed.chosen.compression} changes the gradients" in allowed.reason
    )


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
    fastest = Communication(bucket_mb=1)
    calls = []

    def seconds_of(name, number):
        calls.append(name)
        slower = 1 if len(calls) < 40 else 3
        return slower * (LOCAL_S + {"no communication": 0.0, str(fastest): 0.003}.get(name, 0.004))

    assert report_by(monkeypatch, group, seconds_of).chosen == fastest


def test_what_there_is_no_time_for_is_named(monkeypatch, group):
    """The default is measured in any case, unless it takes long."""
    monkeypatch.setattr(choosing, "_ALWAYS_S", 3600.0)
    report = report_by(monkeypatch, group, lambda name, number: LOCAL_S, seconds=1e-9)
    first = [Communication(), Communication(collective="after-backward")]
    assert [row.communication for row in report.rows] == first
    assert {*first, *report.left} == {way for ways in worth_trying(2.1, world=1, compression="") for way in ways}
    assert "not measured, since time was up: buckets of 1 MiB; buckets of 3 MiB; redundant, buckets" in str(report)


def chosen_on_a_clock(monkeypatch, group, seconds_of, **options):
    """The report, and the seconds spent, where every step takes ``seconds_of(its name)``, also those that warm up."""
    now = [0.0]

    def wrapped(model, way, *, init_sync=True, **others):
        now[0] += seconds_of("parameters") if init_sync else 0.0
        found = nn.parallel.DistributedDataParallel(model)
        found.goes = str(way)
        return found

    def step(contest, model):
        now[0] += seconds_of(getattr(model, "goes", "no communication"))

    monkeypatch.setattr(choosing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(joining, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(choosing, "wrapped", wrapped)
    monkeypatch.setattr(Contest, "step", step)
    report = choose(contest_of(Large(), torch.randn(2, 3, 5, 5), group, **options))
    return report, now[0]


@pytest.mark.parametrize(
    ("compression", "seconds", "chosen", "said"),
    [
        ("", 60, "buckets of 1, then 25 MiB", "a step takes 8.0 s, so there was no time to measure another way"),
        ("bfloat16", 50, "buckets of 1, then 25 MiB", "a step takes 8.0 s, so there was no time"),
        ("bfloat16", 80, "buckets of 1, then 25 MiB, as bfloat16", "3600.00 ms a step less than"),
        ("powersgd", 100, "buckets of 1, then 25 MiB, as PowerSGD of rank 2", "7000.00 ms a step less than"),
        ("powersgd", 1000, "buckets of 1, then 25 MiB, as PowerSGD of rank 2", "7000.00 ms a step less than"),
    ],
)
def test_on_a_slow_link_it_takes_no_longer_than_it_may(monkeypatch, group, compression, seconds, chosen, said):
    """Of 60 MiB at 0.1 Gbit/s: what there is no time for is left, and the default stays where nothing is measured."""

    def seconds_of(name):
        kinds = {"no comm": 0.7, "bfloat16": 4.4, "PowerSGD": 1.0, "after": 8.5, "parameters": 6.0}
        return next((taken for kind, taken in kinds.items() if kind in name), 8.0)

    report, spent_s = chosen_on_a_clock(monkeypatch, group, seconds_of, compression=compression, seconds=seconds)
    assert str(report.chosen) == chosen and said in report.reason
    assert spent_s <= 1.2 * seconds
    measured = {row.communication for row in report.rows}
    every = {way for ways in worth_trying(2.1, world=1, compression=compression) for way in ways}
    assert measured.isdisjoint(report.left) and measured | {*report.left, Communication()} == every


@pytest.mark.parametrize("compression", ["", "powersgd"])
@pytest.mark.parametrize("quick_steps", [0, 1, 2, 7, 20, 60, 200, 400])
def test_no_step_begins_once_the_time_is_up(monkeypatch, group, compression, quick_steps):
    """Whenever other work makes steps a hundred times as slow as those were that the time was planned by. What was
    measured in part decides nothing."""
    steps, slow_s = [], 20.0

    def seconds_of(name):
        if name == "parameters":
            return 0.0
        steps.append(name)
        if len(steps) > quick_steps + 1:  # the first one builds what is built, before the time counts
            return slow_s
        return 0.1 if "no comm" in name else 0.15 if "PowerSGD" in name else 0.2

    report, spent_s = chosen_on_a_clock(monkeypatch, group, seconds_of, compression=compression, seconds=60)
    assert spent_s < 60 + 2 * slow_s
    measured = {row.communication for row in report.rows}
    every = {way for ways in worth_trying(2.1, world=1, compression=compression) for way in ways}
    assert measured.isdisjoint(report.left) and measured | {*report.left, Communication()} == every
    assert not measured or report.rows[0].communication == Communication()
    if not report.finals or min(row.rounds for row in report.finals) < 3:
        assert report.chosen == Communication() and "time" in report.reason
    assert f"chosen: {report.chosen}" in str(report)


def time_is_up():
    """What ranks see whose clocks began at different moments."""
    limit, early = TimeLimit(60.0), TimeLimit(60.0)
    early._began_s -= 100.0 * dist.get_rank()
    return limit.is_over(), early.is_over(), early.elapsed_s()


def test_time_is_up_on_all_ranks_as_soon_as_on_one(two_ranks):
    (one, first, elapsed_s), other = two_ranks.run(time_is_up)
    assert (one, first, elapsed_s) == other and not one and first and elapsed_s > 100


def test_what_is_faster_in_two_rounds_of_three_is_not_chosen_on_a_slow_link(monkeypatch, group):
    taken = []

    def seconds_of(name):
        if "bfloat16" not in name:
            return 0.5 if "no comm" in name else 8.0
        taken.append(name)
        return 9.0 if len(taken) == 3 else 4.0

    report, _ = chosen_on_a_clock(monkeypatch, group, seconds_of, compression="bfloat16", seconds=90)
    assert len(taken) >= 4 and report.chosen == Communication() and len(report.rows) == 2


def test_nothing_of_a_measurement_stays_on_the_model(monkeypatch, group):
    """Wrappers leave hooks on the parameters while they live."""
    model = Large()
    report_by(monkeypatch, group, lambda name, number: LOCAL_S, model=model)
    assert not any(
        parameter._backward_hooks or parameter._post_accumulate_grad_hooks for parameter in model.parameters()
    )
    alive = [each for each in gc.get_objects() if isinstance(each, nn.parallel.DistributedDataParallel)]
    assert not any(each.module is model for each in alive)


def test_candidates_suit_the_size_of_the_gradients_and_the_ranks():
    for megabytes, sizes in ((0.5, [None]), (8.5, [None, 1, 5, 9]), (54.4, [None, 1, 5, 25, 55])):
        by_size = worth_trying(megabytes, world=2, compression="")
        assert [ways[0].bucket_mb for ways in by_size] == sizes
        assert all("redundant" in [way.collective for way in ways] for ways in by_size)
        assert [way.collective for ways in by_size for way in ways].count("after-backward") == 1
    for megabytes, sizes in (
        (0.5, [None]),
        (8.5, [1]),
    ):  # others would send more than an all-reduce, for one round less
        of_four = worth_trying(megabytes, world=4, compression="")
        assert [way.bucket_mb for ways in of_four for way in ways if way.collective == "redundant"] == sizes
    assert all(ways[1].compressed for ways in worth_trying(8.5, world=2, compression="bfloat16"))
    assert not any(way.powersgd_rank for ways in worth_trying(8.5, world=2, compression="bfloat16") for way in ways)
    assert all(ways[2].powersgd_rank for ways in worth_trying(8.5, world=2, compression="powersgd"))


def test_steps_take_turns_and_each_round_begins_with_another(group):
    taken = []
    steps = {name: lambda name=name: taken.append(name) for name in "abc"}
    seconds = take_turns(steps, rounds=4, limit=TimeLimit(3600.0), device=torch.device("cpu"))
    assert "".join(taken) == "abc" + "bca" + "cab" + "abc"
    assert list(seconds) == ["a", "b", "c"] and all(len(each) == 4 for each in seconds.values())
