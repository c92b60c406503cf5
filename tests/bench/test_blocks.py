"""``bench blocks``: the rivals compute the same, and what they keep is counted."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from torch import nn

from bench import blocks
from bench.__main__ import main
from bench.cases import BLOCK_NETWORKS, BenchLayer, listed_layers
from dwconv.problems.block import Block
from dwconv.problems.layer_files import Layer
from dwconv.problems.target import Limits
from dwconv.problems.workload import BLOCK_PASSES
from tests.bench.gpu_runs import StillClock
from tests.planted_records import plant

LIMITS = Limits(memory_gb_per_s=20, cache_gb_per_s=50, cache_bytes=1 << 20, peak_gflop_per_s=100)
SMALL = BenchLayer(
    network="small",
    layer=Layer(
        channels=8,
        input_size=(6, 7),
        kernel=(3, 3),
        stride=(1, 1),
        padding=((1, 1), (1, 1)),
        count=2,
        dilation=(1, 1),
        block=Block.parse("bn+relu6,bn+hardswish"),
    ),
)


def test_networks_list_blocks():
    layers = listed_layers(BLOCK_NETWORKS)
    assert len(layers) > 30 and all(each.layer.block for each in layers)
    first, *_ = blocks.BlockCase(batch=4, dtype="float32").workloads(layers[0])
    assert first.pass_ == "forward" and first.batch == 4


@pytest.mark.parametrize("tuned", [False, True], ids=["", "tuned"])
@pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")
def test_it_writes_what_it_measured_and_whether_the_block_ran_as_one(tmp_path, capsys, monkeypatch, tuned):
    monkeypatch.setattr(blocks, "listed_layers", lambda networks: (SMALL,))
    monkeypatch.setattr(blocks, "with_limits", lambda target: dataclasses.replace(target, limits=LIMITS))
    monkeypatch.setattr(blocks, "CpuClock", StillClock)
    case = blocks.BlockCase(batch=2, dtype="float32")
    if tuned:
        plant(tmp_path / "log.jsonl", case.passes(SMALL)[:1], passes=BLOCK_PASSES, baseline_us=1e6)
    options = ["--seconds", "0", "--batch", "2", "--log", str(tmp_path / "log.jsonl"), "--out", str(tmp_path)]
    monkeypatch.setenv("DWCONV_TUNING_LOGS", "")
    assert main(["blocks", *options]) == 0
    out = capsys.readouterr().out
    assert "over eager       1.00, least 1.00, 1 blocks" in out and (", one by one" in out) is not tuned
    (path,) = tmp_path.glob("blocks-*.json")
    results = json.loads(path.read_text())
    (row,) = results["rows"]
    assert row["runs_as_one"] is tuned
    assert results["control"]["interval"] == pytest.approx([1.0, 1.0]) and results["machine"]["cores"] >= 1
    assert row["over_eager_interval"] == row["over_best_other_interval"] == pytest.approx([1.0, 1.0])
    assert row["verdict"] == "tie" and row["caches"] == "warm" and row["refused"] == {}
    assert set(row["median_us"]) == {blocks.PLAIN, blocks.OTHER_LAYOUT, blocks.CONVERTED, blocks.AS_ONE}
    assert max(row["difference"].values()) < 0.02 and row["count"] == 2 and row["kept_bytes"]


def test_what_differs_shows():
    x, dz = torch.randn(2, 3, 5, 5), torch.randn(2, 3, 5, 5)
    torch.manual_seed(1)
    plain, other = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
    steps = {blocks.PLAIN: blocks.step_of(plain, x, dz), "other": blocks.step_of(other, x, dz)}
    exact = steps[blocks.PLAIN]()
    differences, refused = blocks.differences_of(steps, exact)
    assert differences.keys() == {"other"} and differences["other"] > 0.1
    assert refused["other"].startswith("wrong: ")
    same = {blocks.PLAIN: steps[blocks.PLAIN], "same": steps[blocks.PLAIN]}
    assert blocks.differences_of(same, exact) == ({"same": 0.0}, {})


def test_results_that_are_no_numbers_are_wrong():
    steps = {
        blocks.PLAIN: lambda: (torch.ones(2), torch.ones(2)),
        "nan": lambda: (torch.ones(2), torch.full((2,), torch.nan)),
    }
    assert "nan" in blocks.differences_of(steps, steps[blocks.PLAIN]())[1]


def test_what_vanishes_may_be_off_as_far_as_pytorch_is():
    """By its rounding alone: relative to what is left of it that is more than all."""
    exact = (torch.ones(4), torch.full((4,), 1e-6))

    def off_by(much):
        return lambda: (torch.ones(4), torch.full((4,), 1e-6 + much))

    steps = {blocks.PLAIN: off_by(1e-3), "as far": off_by(-1.9e-3), "farther": off_by(-2.1e-3)}
    assert set(blocks.differences_of(steps, exact)[1]) == {"farther"}


def test_what_is_kept_is_counted_once_without_parameters():
    x = torch.randn(2, 4, 8, 8)
    model = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Sigmoid(), nn.Conv2d(4, 4, 3, padding=1))
    assert blocks.kept_bytes(model, x) == 2 * x.nbytes  # what each convolution read: the second, too, for Sigmoid


def test_an_activation_in_place_at_the_start_leaves_the_input():
    x, dz = torch.randn(2, 3, 5, 5), torch.ones(2, 3, 5, 5)
    given = x.clone()
    blocks.step_of(nn.Sequential(nn.Identity(), nn.ReLU(inplace=True), nn.Conv2d(3, 3, 1)), x, dz)()
    assert torch.equal(x, given)
