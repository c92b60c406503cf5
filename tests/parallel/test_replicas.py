"""Ranks that train together compute what one process computes with all of the batch, whichever way gradients go."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dwconv.errors import InvalidChoice, InvalidWorkload
from dwconv.parallel import Communication, communication, data_parallel
from tests.parallel.jobs import WAYS, Net, fresh, learn, trained
from tests.parallel.ranks import needs_gloo

pytestmark = [needs_gloo, pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")]

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
"""Of parameters after 20 steps, to one process on the whole batch: sums in another order."""
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


def test_the_error_of_a_process_that_is_no_rank_says_how_to_become_one():
    with pytest.raises(InvalidChoice, match=r"call it inside `with dwconv\.parallel\.ranks\(\):`"):
        data_parallel(Net())


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
