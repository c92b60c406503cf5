"""``bench untuned``: what is drawn, and how rows are summed up."""

from __future__ import annotations

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


def test_speeds_are_shares_of_what_the_search_found_of_all_and_of_what_runs():
    rows = [row(predicted_us=125.0, race_us=100.0), row(predicted_us=80.0, race_us=100.0)]
    rows.append(row(predicted_us=400.0, race_us=250.0, runs="pytorch"))
    lines = [line.split()[-3:] for line in summary(rows).splitlines()[2:]]
    assert lines == [
        ["0.630", "0.50", "3"],  # (0.8 · 1.25 · 0.25)^⅓
        ["1.000", "1.60", "2"],
        ["0.737", "0.80", "3"],
        ["0.737", "0.80", "3"],
    ]
