"""``bench squeeze``: a step with squeeze-and-excite against one without it."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

from bench import squeeze
from bench.__main__ import main
from bench.models import BottleneckSizes, InvertedResidual, Network
from bench.rows_and_volumes import SqueezeExcite
from tests.bench.small_networks import TINY

pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")  # nothing is tuned


def small() -> nn.Module:
    row = BottleneckSizes(3, 8, 8, True, nn.ReLU, 1)
    blocks = [InvertedResidual(8, row) for _ in range(2)]
    return nn.Sequential(nn.Conv2d(3, 8, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))


SMALL = Network(name="small", make=small, batch=2, sample=(3, 9, 7))


def test_a_step_without_it_keeps_less(logs, tmp_path, capsys):
    code = main(["squeeze", "--model", "tests.bench.test_squeeze:SMALL", "--steps", "4", "--out", str(tmp_path)])
    (path,) = tmp_path.glob("squeeze-*.json")
    (row,) = json.loads(path.read_text())["rows"]
    assert code == 0 and row["squeeze_excites"] == 2
    low, high = row["at_most_interval"]
    assert 0 < low <= row["at_most"] <= high and min(row["median_ms"].values()) > 0
    images = row["kept_bytes"]["with"] - row["kept_bytes"]["without"]
    assert images >= 2 * 2 * 8 * 9 * 7 * 4  # of each, at least one image
    assert "2 squeeze-and-excites: a step with blocks" in capsys.readouterr().out


def test_what_is_left_out_gives_what_it_is_given():
    model = small()
    bare, x = copy.deepcopy(model), torch.randn(2, 8, 9, 7)
    assert squeeze.leave_out(bare) == 2 and squeeze.leave_out(model[1].block[0]) == 0
    (place,) = (name for name, each in model[1].named_modules() if isinstance(each, SqueezeExcite))
    assert bare[1].get_submodule(place)(x) is x and model[1].get_submodule(place)(x) is not x


def test_a_network_without_any_is_one_line(capsys):
    assert main(["squeeze", "--model", "tests.bench.small_networks:TINY"]) == 2
    assert f"{TINY.name} has no" in capsys.readouterr().err.replace("tests.bench.small_networks:TINY", TINY.name)
