"""What is counted: the calls of each layer, whatever way they take."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch
from torch import nn

import dwconv
from dwconv.call import tally as tally_module
from dwconv.call.call_plan import plans
from dwconv.call.tally import Tally
from tests.native_needed import both_ways
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked", "logs"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]

X = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)


def twins(*, bias=False):
    """Two layers that differ in their weights alone."""
    layers = (nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=bias) for _ in range(2))
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    dwconv.convert(model)
    return model


def calls(model, example=None):
    """The calls of every row, by the names of its layers."""
    report = dwconv.report(model, example)
    return {row.names: tuple(each.calls for each in row.passes) for row in report.rows}


def step(model, x=X):
    model(x).sum().backward()


@both_ways
@pytest.mark.parametrize("tuned", [True, False])
def test_each_layer_has_its_own_calls(logs, way, tuned):
    if tuned:
        plant(logs / "log.jsonl", [workload_of()], baseline_us=1e6)
    model = twins()
    for _ in range(3):
        step(model)
    with torch.no_grad():
        model[1](X)
    model[1](X)
    assert calls(model) == {("0",): (3, 3), ("1",): (5, 3, 4)}, "the input of the first needs no gradient"
    in_cpp, in_python = dwconv.report(model).calls_by_road
    if tuned:
        assert (in_cpp, in_python) == ((0, 8) if way == "interpreted" else (8, 0))
    else:
        assert (in_cpp, in_python) == (0, 0), "PyTorch's op runs"


@both_ways
def test_another_model_with_the_same_layers_counts_for_itself(way):
    model, other = twins(), twins()
    step(model)
    step(other)
    step(other)
    assert calls(model)["1",] == (1, 1, 1) and calls(other)["1",] == (2, 2, 2)


@both_ways
def test_a_model_that_is_gone_leaves_nothing_to_the_next(logs, way):
    """Not even if a weight of the next lies where one of it lay."""
    plant(logs / "log.jsonl", [workload_of()], baseline_us=1e6)
    for _ in range(4):
        model = twins()
        step(model)
        assert calls(model) == {("0",): (1, 1), ("1",): (1, 1, 1)}
        del model
    gc.collect()
    (plan,) = plans()
    assert len(plan.tally.counted()) == 0


def test_one_weight_in_two_layers_is_one_row():
    model = twins()
    model[1].weight = model[0].weight
    step(model)
    assert calls(model) == {("0", "1"): (2, 1, 2)}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tuned", [True, False])
def test_a_compiled_graph_is_counted_by_its_sizes(logs, tuned, bias):
    if tuned:
        plant(logs / "log.jsonl", [workload_of(bias=bias)], baseline_us=1e6)
    model = twins(bias=bias)
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        step(compiled)
    assert calls(compiled) == calls(model) == {("0", "1"): (6, 3, 6)}
    report = dwconv.report(compiled)
    assert report.rows[0].counted_for == 2 and report.rows[0].problem.bias == bias
    assert [each.per_step for each in report.passes] == [2, 1, 2]
    assert "6 in 2 layers" in str(report) and "replays of CUDA graphs are not counted" in str(report)
    assert report.model == "Sequential"
    assert calls(model, X) == {("0",): (6, 6), ("1",): (6, 3, 6)}


def test_eager_calls_of_a_layer_and_compiled_ones_are_one_row_where_nothing_else_has_its_sizes():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 5, padding="same", groups=8))
    model.append(nn.Conv2d(8, 8, 3, padding=1, groups=8, padding_mode="circular"))
    model.append(nn.Conv2d(8, 16, (3, 5), padding=(1, 2), groups=8, dilation=(1, 2), stride=(2, 1)))
    dwconv.convert(model)
    compiled = torch.compile(model, backend="aot_eager")
    for each in (compiled, model):
        step(each)
    assert [each[:1] for each in calls(model).values()] == [(2,)] * 4


def test_an_example_is_no_call():
    model = twins()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = dwconv.report(model, X)
    assert [row.names for row in report.rows] == [("0",), ("1",)] and not any(each.calls for each in report.passes)
    assert not calls(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    step(model)
    assert calls(model, X) == {("0",): (1, 1), ("1",): (1, 1, 1)}
    assert not any(map(any, calls(model, X[:1]).values())), "of other sizes"


# -- weights that are gone ---------------------------------------------------------------------------------------------


def test_a_weight_at_the_address_of_an_earlier_one_counts_for_itself(monkeypatch):
    monkeypatch.setattr(tally_module, "id", lambda _: 7, raising=False)
    tally = Tally()
    gone, here = torch.ones(1), torch.ones(1)
    for _ in range(3):
        tally.count(gone, for_x=True, for_w=True)
    del gone
    tally.count(here, for_x=False, for_w=True)
    (counted,) = tally.counted()
    assert counted.weight is here and dict(counted.passes) == {"fprop": 1, "dgrad": 0, "wgrad": 1}


def test_weights_that_are_made_anew_in_every_call_fill_no_memory(monkeypatch):
    places = itertools.count()
    monkeypatch.setattr(tally_module, "id", lambda _: next(places), raising=False)
    tally = Tally()
    for _ in range(100):
        tally.count(torch.ones(1), for_x=False, for_w=False)
    assert len(tally._of_weights) <= 2 and tally.counted() == []
