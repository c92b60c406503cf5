"""Ranks that train together compute what one process computes with all of the batch, whichever way gradients go."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dwconv.errors import InvalidChoice, InvalidWorkload
from dwconv.parallel import Communication, communication, data_parallel
from dwconv.parallel.data import replicas
from dwconv.parallel.data.choose_way import TrainingExample
from dwconv.parallel.data.ways import CommunicationReport
from tests.parallel.jobs import WAYS, Net, fresh, learn, trained
from tests.parallel.ranks import needs_gloo

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
"""Of parameters after 20 steps, to one process on the whole batch: sums in another order."""
UNMEASURED = CommunicationReport(chosen=Communication(), reason="", world=1, backend="gloo", gradient_bytes=0)
OF_BFLOAT16 = {"rtol": 5e-2, "atol": 5e-3}
pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)], ids=["2 ranks", "4 ranks"])
def seen(request, tmp_path_factory):
    """By each rank: one job for many tests."""
    together = request.getfixturevalue("two_ranks" if request.param == 2 else "four_ranks")
    return together.run(learn, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def alone():
    """After the same steps in one process, on PyTorch's own layers."""
    return trained(fresh())


@needs_gloo
def test_the_parameters_are_those_of_one_process_on_the_whole_batch(seen, alone):
    """On all ranks to the bit; what is compressed comes out in other bits."""
    start = [parameter.detach() for parameter in fresh().parameters()]
    for way in WAYS:
        found = seen[0]["parameters"][str(way)]
        torch.testing.assert_close(found, alone, **(OF_BFLOAT16 if way.compressed else TOLERANCE))
        assert not any(map(torch.equal, found, start)), way
        for other in seen[1:]:
            assert all(map(torch.equal, found, other["parameters"][str(way)])), way
        farthest = max(float((one - other).abs().max()) for one, other in zip(found, alone, strict=True))
        assert (farthest > 1e-5) == way.compressed, way


@needs_gloo
def test_buckets_take_the_gradients_of_tuned_layers_as_they_are(seen):
    assert not any("strides" in message for rank in seen for message in rank["heard"])


@needs_gloo
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


@needs_gloo
def test_all_ranks_choose_alike_from_the_same_times(chosen):
    first = chosen[0]
    for other in chosen[1:]:
        assert first["chosen"] == other["chosen"]
        assert first["rows"] == other["rows"] and first["printed"] == other["printed"]
    names = [name for name, _, _ in first["rows"]]
    assert names == [
        "all-reduce after the backward pass",
        *(
            str(Communication(collective=collective, compressed=compressed))
            for compressed in (False, True)
            for collective in ("all-reduce", "reduce-scatter", "reduce-broadcast")
        ),
    ]
    assert all(step_us > exposed_us for _, step_us, exposed_us in first["rows"])
    assert first["synchronous_us"] == first["rows"][0][2]
    assert first["exposed_us"] is not None
    assert f"chosen: {first['chosen']}" in first["printed"]


@needs_gloo
def test_measuring_changes_nothing(chosen):
    """But that DistributedDataParallel gives all ranks the parameters of the first."""
    for rank in chosen:
        for name, value in chosen[0]["before"].items():
            assert torch.equal(rank["after"][name], value), name
        assert rank["gradients_stay"] and rank["random_numbers_stay"] and rank["optimizer_stays"]
        assert rank["hooks"] == 0
        assert all(rank["trains"])


# -- without a measurement -------------------------------------------------------------------------------------------


@needs_gloo
def test_without_an_example_it_is_pytorchs_own_way(one_rank):
    report = communication(data_parallel(Net()))
    assert report.chosen == Communication() and report.exposed_us is None and report.world == 1
    assert "nothing was measured: there was no example" in str(report)
    assert "there is one rank" in str(communication(data_parallel(Net(), torch.randn(2, 3, 9, 7))))


@needs_gloo
@pytest.mark.parametrize("asked", [{}, {"compress": True}], ids=str)
def test_bfloat16_is_tried_only_on_request(one_rank, monkeypatch, asked):
    """It changes the results."""
    contests = []
    monkeypatch.setattr(replicas, "_unmeasured", lambda *_, **__: None)  # as if there were other ranks
    monkeypatch.setattr(replicas, "choose", lambda contest: contests.append(contest) or UNMEASURED)
    data_parallel(Net(), torch.randn(2, 3, 9, 7), **asked)
    assert [contest.compress for contest in contests] == [bool(asked)]


@needs_gloo
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


class Masked(nn.Linear):
    """Gives back a mask of floats, too, which no parameter is behind."""

    def forward(self, x):
        return super().forward(x), (x > 0).float(), x.argmax()


def test_an_example_learns_from_the_outputs_that_have_a_gradient():
    model = Masked(3, 2)
    example = TrainingExample.of(model, torch.randn(4, 3), loss=None)
    example.step(model)
    model.requires_grad_(False)
    with pytest.raises(InvalidChoice, match="no output of Masked requires a gradient; give loss="):
        example.step(model)


def test_a_way_that_does_not_exist_is_named():
    with pytest.raises(InvalidChoice, match="collective=gossip is unknown; use one of all-reduce, reduce-scatter"):
        Communication(collective="gossip")
    with pytest.raises(InvalidChoice, match="bucket_mb=0 holds no gradient"):
        Communication(bucket_mb=0)


def test_the_error_of_a_process_that_is_no_rank_says_how_to_become_one():
    with pytest.raises(InvalidChoice, match=r"call it inside `with dwconv\.parallel\.ranks\(\):`"):
        data_parallel(Net())
