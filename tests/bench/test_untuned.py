"""``bench untuned``: what is drawn, and how rows are summed up."""

from __future__ import annotations

import pytest

from bench.untuned import draws, summary
from dwconv.problems.layer_files import shipped_networks
from dwconv.problems.workload import PASSES

NETWORKS = shipped_networks()


def test_the_same_seed_draws_the_same_passes():
    one, again = (draws(NETWORKS, count=40, seed=14) for _ in range(2))
    assert one == again != draws(NETWORKS, count=40, seed=15)
    assert one[:7] == draws(NETWORKS, count=7, seed=14)
    assert {draw.workload.pass_ for draw in one} == set(PASSES)
    assert {draw.workload.layout for draw in one} == {"nchw", "nhwc"}
    assert {draw.network for draw in one} <= set(NETWORKS)


def test_draws_have_sizes_that_no_network_has():
    drawn = [draw.workload for draw in draws(NETWORKS, count=60, seed=3)]
    assert all(size == 1 or size % 2 for workload in drawn for size in workload.input_size)
    assert any(workload.channels % 2 for workload in drawn)
    assert len({workload.batch for workload in drawn}) > 10
    shapes = {(layer.channels, layer.input_size) for layers in NETWORKS.values() for layer in layers}
    assert not any((workload.channels, workload.input_size) in shapes for workload in drawn)


def row(*, predicted_us: float, race_us: float, runs: str = "dwconv") -> dict[str, object]:
    return {
        "pytorch_us": 200.0, "search_us": 100.0, "predicted_us": predicted_us, "race_us": race_us,
        "runs": {"predicted": runs, "race": "dwconv"},
    }  # fmt: skip


def test_speeds_are_shares_of_what_the_search_found():
    lines = summary([row(predicted_us=125.0, race_us=100.0), row(predicted_us=80.0, race_us=100.0)]).splitlines()
    predicted = next(line for line in lines if line.startswith("predicted, its configurations"))
    raced = next(line for line in lines if line.startswith("race, its configurations"))
    assert float(predicted.split()[3]) == pytest.approx(1.0)
    assert "1.60" in predicted and "(0 below)" in predicted
    assert float(raced.split()[3]) == pytest.approx(1.0)


def test_what_is_not_claimed_runs_on_pytorch():
    lines = summary([row(predicted_us=400.0, race_us=250.0, runs="pytorch")]).splitlines()
    runs = next(line for line in lines if line.startswith("predicted, what runs"))
    assert float(runs.split()[3]) == pytest.approx(0.5)
    raced = next(line for line in lines if line.startswith("race, its configurations"))
    assert "0.80" in raced and "(1 below)" in raced
