"""Ranks that train together compute what one process computes with all of the batch, whichever way gradients go."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dwconv.discovery.step import ExampleStep
from dwconv.errors import InvalidChoice, InvalidWorkload
from dwconv.parallel import Communication, communication, data_parallel
from dwconv.parallel.data import choose_way as choosing
from dwconv.parallel.data import replicas
from dwconv.parallel.data.candidates import candidates
from dwconv.parallel.data.choose_way import Contest, choose, take_turns
from dwconv.parallel.data.ways import CommunicationReport
from tests.parallel.jobs import WAYS, Net, fresh, learn, trained
from tests.parallel.ranks import needs_gloo

pytestmark = [needs_gloo, pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")]

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
"""Of parameters after 20 steps, to one process on the whole batch: sums in another order."""
UNMEASURED = CommunicationReport(chosen=Communication(), reason="", world=1, gradient_bytes=0)
OF_BFLOAT16 = {"rtol": 5e-2, "atol": 5e-3}


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)], ids=["2 ranks", "4 ranks"])
def seen(request, tmp_path_factory):
    """By each rank: one job for many tests."""
    together = request.getfixturevalue("two_ranks" if request.param == 2 else "four_ranks")
    return together.run(learn, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def alone():
    """After the same steps in one process, on PyTorch's own layers."""
    return trained(fresh())


def test_the_parameters_are_those_of_one_process_on_the_whole_batch(seen, alone):
    """On all ranks to the bit; what is compressed comes out in other bits."""
    start = [parameter.detach() for parameter in fresh().parameters()]
    for way in WAYS:
        found = seen[0]["parameters"][str(way)]
        if way.powersgd_rank is None:
            torch.testing.assert_close(found, alone, **(OF_BFLOAT16 if way.compressed else TOLERANCE))
        else:
            moved, off = apart(alone, start), apart(found, alone)
            assert off < moved / 4, "low rank changes where the steps go, not that they go there"
        assert not any(map(torch.equal, found, start)), way
        for other in seen[1:]:
            assert all(map(torch.equal, found, other["parameters"][str(way)])), way
        farthest = max(float((one - other).abs().max()) for one, other in zip(found, alone, strict=True))
        assert (farthest > 1e-5) == bool(way.compression), way


def apart(some, others):
    """The distance between parameters."""
    return float(sum((one - other).square().sum() for one, other in zip(some, others, strict=True)).sqrt())


def test_buckets_take_the_gradients_of_tuned_layers_as_they_are(seen):
    assert not any("strides" in message for rank in seen for message in rank["heard"])


def test_no_weight_gradient_is_computed_for_frozen_layers(seen):
    for rank in seen:
        both, frozen = rank["passes"][False], rank["passes"][True]
        assert both["fprop"] == frozen["fprop"] == 2 and both["dgrad"] == frozen["dgrad"] == 2
        assert both["wgrad"] + both["wgrad_bias"] == 2
        assert frozen["wgrad"] + frozen["wgrad_bias"] == 0


# -- a choice by measurement -----------------------------------------------------------------------------------------


@pytest.fixture
def chosen(seen):
    """By each rank."""
    return [rank["choice"] for rank in seen]


def test_all_ranks_choose_alike_from_the_same_times(chosen):
    first = chosen[0]
    for other in chosen[1:]:
        assert first["chosen"] == other["chosen"]
        assert first["rows"] == other["rows"] and first["printed"] == other["printed"]
    assert [row.communication for row in first["rows"]] == [
        Communication(),
        Communication(compressed=True),
        Communication(powersgd_rank=2),
        *(
            Communication(collective=one)
            for one in ("after-backward", "redundant", "reduce-scatter", "reduce-broadcast")
        ),
    ]
    assert all(row.step_us > row.exposed_us for row in first["rows"])
    assert f"chosen: {first['chosen']}" in first["printed"]


def test_each_way_says_how_long_it_sends_and_waits_and_how_much(chosen, seen):
    rows = {row.communication: row for row in chosen[0]["rows"]}
    for way, row in rows.items():
        assert row.transfer_us > 0 and row.waiting_us >= 0, way
    default, bfloat16, powersgd = list(rows.values())[:3]
    assert default.sent_bytes > bfloat16.sent_bytes == default.sent_bytes / 2
    assert default.sent_bytes > powersgd.sent_bytes
    world = len(seen)
    gradients = sum(parameter.nbytes for parameter in fresh().parameters()) + 2 * 5 * 4
    assert default.sent_bytes == pytest.approx(gradients * 2 * (world - 1) / world)
    assert rows[Communication(collective="redundant")].sent_bytes == pytest.approx(gradients * (world - 1))
    assert all(row.transfer_us is None and row.sent_bytes is None for row in chosen[0]["finals"])


def test_measuring_changes_nothing(chosen):
    """But that DistributedDataParallel gives all ranks the parameters of the first."""
    for rank in chosen:
        for name, value in chosen[0]["before"].items():
            assert torch.equal(rank["after"][name], value), name
        assert rank["gradients_stay"] and rank["random_numbers_stay"] and rank["optimizer_stays"]
        assert rank["hooks"] == 0
        assert all(rank["trains"])


# -- without a measurement -------------------------------------------------------------------------------------------


def test_without_an_example_it_is_pytorchs_own_way(one_rank):
    report = communication(data_parallel(Net()))
    assert report.chosen == Communication() and report.world == 1
    assert "nothing was measured: there was no example" in str(report)
    assert "there is one rank" in str(communication(data_parallel(Net(), torch.randn(2, 3, 9, 7))))


def test_bad_input_is_one_line(one_rank):
    with pytest.raises(InvalidChoice, match="bucket_cap_mb=5 would be overridden; use communication="):
        data_parallel(Net(), bucket_cap_mb=5)
    with pytest.raises(InvalidWorkload, match="no parameter of Linear is trained"):
        data_parallel(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(InvalidWorkload, match=r"already; give its \.module"):
        data_parallel(data_parallel(Net()))
    with pytest.raises(InvalidWorkload, match="Linear does not come from"):
        communication(nn.Linear(2, 2))
    with pytest.raises(InvalidChoice, match="seconds=0 leaves no time"):
        data_parallel(Net(), seconds=0)
    with pytest.raises(InvalidChoice, match="bucket_mb=0 holds no gradient"):
        Communication(bucket_mb=0)
    with pytest.raises(InvalidChoice, match="collective='gossip' is unknown; use one of all-reduce, reduce-scatter"):
        Communication(collective="gossip")
    with pytest.raises(InvalidChoice, match="powersgd_rank=0"):
        Communication(powersgd_rank=0)
    for other in ({"compressed": True}, {"collective": "redundant"}):
        with pytest.raises(InvalidChoice, match="powersgd_rank=1 sends its matrices by all-reduce"):
            Communication(powersgd_rank=1, **other)
    with pytest.raises(InvalidChoice, match="compress='gzip' is unknown; use True, bfloat16 or powersgd"):
        data_parallel(Net(), compress="gzip")
    scaled = nn.Sequential(nn.Linear(2, 2))
    scaled.scale = nn.Parameter(torch.ones(()))
    for asked in ({"compress": "powersgd"}, {"communication": Communication(powersgd_rank=1)}):
        with pytest.raises(InvalidWorkload, match=r"scale is a single number, .* give it a shape of \(1,\)"):
            data_parallel(scaled, **asked)


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


def test_the_error_of_a_process_that_is_no_rank_says_how_to_become_one():
    with pytest.raises(InvalidChoice, match=r"call it inside `with dwconv\.parallel\.ranks\(\):`"):
        data_parallel(Net())


# -- what is chosen, by planted times: real steps of one rank, whose clock is the test's -------------------------------


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


def report_by(monkeypatch, group, seconds_of, *, model=None, **options):
    """The report, where a step takes ``seconds_of(its name, number of the round)``."""

    def planted(steps, *, rounds, group, device):
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
    assert tried == {way for ways in candidates(2.1, world=1, compression="") for way in ways}
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
    """The default is measured in any case."""
    report = report_by(monkeypatch, group, lambda name, number: LOCAL_S, seconds=1e-9)
    first = [Communication(), Communication(collective="after-backward")]
    assert [row.communication for row in report.rows] == first
    assert {*first, *report.left} == {way for ways in candidates(2.1, world=1, compression="") for way in ways}
    assert "not measured, since time was up: buckets of 1 MiB; buckets of 3 MiB; redundant, buckets" in str(report)


def chosen_on_a_clock(monkeypatch, group, seconds_of, **options):
    """The report, and the seconds spent, where every step takes ``seconds_of(its name)``, also those that warm up."""
    now = [0.0]

    def wrapped(model, way, **others):
        found = nn.parallel.DistributedDataParallel(model)
        found.goes = str(way)
        return found

    def step(contest, model):
        now[0] += seconds_of(getattr(model, "goes", "no communication"))

    monkeypatch.setattr(choosing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
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
        kinds = {"no comm": 0.7, "bfloat16": 4.4, "PowerSGD": 1.0, "after": 8.5}
        return next((taken for kind, taken in kinds.items() if kind in name), 8.0)

    report, spent_s = chosen_on_a_clock(monkeypatch, group, seconds_of, compression=compression, seconds=seconds)
    assert str(report.chosen) == chosen and said in report.reason
    assert spent_s <= 1.2 * seconds
    measured = {row.communication for row in report.rows}
    every = {way for ways in candidates(2.1, world=1, compression=compression) for way in ways}
    assert measured.isdisjoint(report.left) and measured | {*report.left, Communication()} == every


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
        by_size = candidates(megabytes, world=2, compression="")
        assert [ways[0].bucket_mb for ways in by_size] == sizes
        assert all("redundant" in [way.collective for way in ways] for ways in by_size)
        assert [way.collective for ways in by_size for way in ways].count("after-backward") == 1
    for megabytes, sizes in (
        (0.5, [None]),
        (8.5, [1]),
    ):  # others would send more than an all-reduce, for one round less
        of_four = candidates(megabytes, world=4, compression="")
        assert [way.bucket_mb for ways in of_four for way in ways if way.collective == "redundant"] == sizes
    assert all(ways[1].compressed for ways in candidates(8.5, world=2, compression="bfloat16"))
    assert not any(way.powersgd_rank for ways in candidates(8.5, world=2, compression="bfloat16") for way in ways)
    assert all(ways[2].powersgd_rank for ways in candidates(8.5, world=2, compression="powersgd"))


def test_steps_take_turns_and_each_round_begins_with_another(group):
    taken = []
    steps = {name: lambda name=name: taken.append(name) for name in "abc"}
    seconds = take_turns(steps, rounds=4, group=group, device=torch.device("cpu"))
    assert "".join(taken) == "abc" + "bca" + "cab" + "abc"
    assert list(seconds) == ["a", "b", "c"] and all(len(each) == 4 for each in seconds.values())


# -- what DistributedDataParallel can do, with a measured way ---------------------------------------------------------


class Parts(nn.Module):
    """In two types of numbers; one layer is frozen, and one does not run."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)
        self.unused, self.last = nn.Linear(4, 4), nn.Linear(4, 2).double()

    def forward(self, x):
        return self.last(self.frozen(self.first(x)).double())


def gradients_of(wrap):
    """After each of two steps, whose gradients add up over two passes without communication before."""
    torch.manual_seed(0)
    model = Parts()
    parallel = wrap(model)
    found = []
    for step in range(2):
        model.zero_grad()
        numbers = torch.Generator().manual_seed(10 * step + dist.get_rank())
        with parallel.no_sync():
            for _ in range(2):
                parallel(torch.randn(3, 4, generator=numbers)).mean().backward()
        parallel(torch.randn(2, 4, generator=numbers)).mean().backward()  # an uneven last batch
        found += [None if each.grad is None else each.grad.clone() for each in model.parameters()]
    return found


def both_ways():
    options = {"find_unused_parameters": True}
    plain = gradients_of(lambda model: nn.parallel.DistributedDataParallel(model, **options))
    example = torch.randn(3, 4)
    ours = gradients_of(lambda model: data_parallel(model, example, seconds=0.1, **options))
    return plain, ours


def test_gradients_add_up_with_unused_and_frozen_layers_as_with_pytorchs_own(two_ranks):
    answers = two_ranks.run(both_ways)
    for plain, ours in answers:
        assert [each is None for each in ours] == [each is None for each in plain]
        torch.testing.assert_close([each for each in ours if each is not None], [e for e in plain if e is not None])
    assert set(answers[0][1][2:4]) == {None}, "frozen layers have no gradient"
    assert all(torch.equal(*pair) for pair in zip(answers[0][1], answers[1][1], strict=True) if pair[0] is not None)
