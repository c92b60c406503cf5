"""``bench losses``: how far training with blocks as one comes from training without, and how far chance."""

from __future__ import annotations

import json

import pytest
from torch import nn

import dwconv
from bench import losses
from bench.__main__ import main
from bench.blocks import BlockCase
from bench.cases import BenchLayer
from bench.models import Network
from dwconv.problems.block import Block
from dwconv.problems.layer_files import Layer
from tests.planted_records import plant

STEPS = 12
pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")  # the convolution alone is untuned


def small() -> nn.Module:
    """Around the smallest block."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU6(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2),
    )  # fmt: skip


BATCH = 2
SMALLEST = BenchLayer(
    network="smallest",
    layer=Layer(
        channels=8, input_size=(9, 7), kernel=(3, 3), stride=(1, 1), padding=((1, 1), (1, 1)), count=1, dilation=(1, 1),
        block=Block.parse("bn+relu6,bn+relu6"),
    ),
)  # fmt: skip
SMALL = Network(name="small", make=small, batch=BATCH, sample=(3, *SMALLEST.layer.input_size))


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """The exit code and the rows of a run on planted records, of blocks that are worth it or not."""

    def run(*, baseline_us=1e6):
        log = tmp_path / "log.jsonl"
        case = BlockCase(batch=BATCH, dtype="float32")
        passes = [each.pass_ for each in case.passes(SMALLEST)]
        plant(log, [case.passes(SMALLEST)[0]], passes=passes, around_us=1e6, baseline_us=baseline_us)
        monkeypatch.setenv("DWCONV_TUNING_LOGS", "")
        options = ["--model", "tests.bench.test_losses:SMALL", "--steps", str(STEPS), "--seeds", "2", "--seconds", "0"]
        code = main(["losses", *options, "--log", str(log), "--out", str(tmp_path)])
        paths = list(tmp_path.glob("losses-*.json"))
        return code, json.loads(paths[0].read_text())["rows"] if paths else None

    return run


def test_what_is_right_is_as_near_as_chance(trained, capsys):
    code, rows = trained()
    assert code == 0 and [row["seed"] for row in rows] == [0, 1]
    for row in rows:
        assert row["as_one_a_step"] == 1 and len(row["chance"]) == 3 and len(row["blocks"]) == 6
        assert 0 < max(row["chance"]) < 1e-5 and 0 < max(row["blocks"]) < 1e-5
        for found in row["gradients"].values():
            assert 0 < found["plain"] < 1e-5 and found["blocks"] < 3
    assert "2 starts: losses " in capsys.readouterr().out


def test_a_wrong_gradient_is_seen(trained, monkeypatch):
    convert = dwconv.convert

    def wrongly(*given, **options):
        model = convert(*given, **options)
        model[-1].register_full_backward_pre_hook(lambda _, dy: (1.01 * dy[0],))
        return model

    monkeypatch.setattr(dwconv, "convert", wrongly)
    code, rows = trained()
    assert code == 0
    for row in rows:
        assert min(row["blocks"]) > 3 * max(row["chance"])
        assert all(found["blocks"] > 100 for found in row["gradients"].values())


def test_where_no_block_runs_as_one_nothing_is_compared(trained, capsys):
    code, rows = trained(baseline_us=1.0)
    assert code == 2 and rows is None
    assert capsys.readouterr().err.startswith("error: no block runs as one: give more --seconds")


def test_runs_are_apart_by_the_mean_of_all_steps():
    assert losses.distance([1.0, 2.0, 3.0, 4.0], [1.0, 2.5, 2.5, 4.0]) == 0.25
