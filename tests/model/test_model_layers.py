"""``dwconv.layers``: the layers of a model as a file that ``python -m dwconv.tune --layers`` tunes."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from torch import nn

import dwconv
from dwconv.commands.tune_arguments import parser_of_tune, workloads_from
from dwconv.discovery import discover
from dwconv.errors import InvalidWorkload
from tests.models import ConformerConvolution, TinyNet

IMAGE = torch.randn(2, 3, 12, 12)


def workloads_in(path, *options):
    """What the command would tune, and how often each occurs."""
    parser = parser_of_tune()
    return workloads_from(parser, parser.parse_args(["--layers", str(path), *options]))


class Causal(nn.Module):
    """(N, C, L), as in Mamba: one padding before, none after; then kernels that PyTorch pads unevenly."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1d = nn.Conv1d(6, 6, 4, groups=6)
        self.even_1d = nn.Conv1d(6, 6, 2, groups=6, padding="same")
        self.even = nn.Conv2d(6, 6, 4, groups=6, padding="same", bias=False)
        self.tall = nn.Conv2d(6, 6, (1, 3), stride=(2, 1), groups=6)

    def forward(self, x):
        y = self.even_1d(self.conv1d(nn.functional.pad(x, (3, 0))))
        return self.tall(self.even(y[:, :, None].expand(-1, -1, 4, -1)))[:, :, :1]


def frozen() -> nn.Module:
    model = TinyNet()
    model.body[1].weight.requires_grad_(False)
    return model


@pytest.mark.filterwarnings("ignore:Using padding=:UserWarning")  # PyTorch of its own op
@pytest.mark.parametrize(
    ("model", "example"),
    [
        (TinyNet(), IMAGE),
        (TinyNet().to(memory_format=torch.channels_last), IMAGE.to(memory_format=torch.channels_last)),
        (frozen(), IMAGE),
        (ConformerConvolution(), torch.randn(2, 20, 16)),
        (Causal(), torch.randn(3, 6, 17)),
        (nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1, groups=8) for _ in range(3))), torch.randn(1, 8, 9, 9)),
    ],
    ids=["nchw", "nhwc", "frozen", "1-D", "uneven", "alike"],
)
def test_the_command_tunes_exactly_what_the_model_runs(tmp_path, model, example):
    path = tmp_path / "layers.json"
    dwconv.layers(model, example).save(path)
    found = workloads_in(path)
    assert found and found == Counter(discover(model, example).counts())
    options = ("--dtype", "float16", "--layout", "nhwc", "--bias", "--batch", "99")
    assert workloads_in(path, *options) == found, "the options are for layers that say nothing of it"


def test_types_are_those_of_the_run(tmp_path):
    path = tmp_path / "layers.json"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        listed = dwconv.layers(TinyNet(), IMAGE, trains=False)
    listed.save(str(path))
    assert {workload.dtype for workload in workloads_in(path)} == {"bfloat16"}
    assert {workload.pass_ for workload in workloads_in(path)} == {"fprop"}
    assert list(json.loads(path.read_text())) == ["TinyNet"] and str(listed).startswith("TinyNet: 3 depthwise layers")


def test_models_without_layers_are_refused():
    with pytest.raises(InvalidWorkload, match="no depthwise convolution ran in Linear: there are no layers to list"):
        dwconv.layers(nn.Linear(3, 3), torch.randn(2, 3))
    with pytest.raises(InvalidWorkload, match="of TinyNet can be tuned: dwconv has no kernels for float64"):
        dwconv.layers(TinyNet().double(), IMAGE.double())


# -- of a loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("converts", [False, True])
def test_a_loop_lists_each_layer_at_the_sizes_that_it_meets(tmp_path, converts):
    model = TinyNet()
    model = dwconv.convert(model) if converts else model
    path = tmp_path / "layers.json"
    with dwconv.collect(path):
        for size in (12, 12, 14):
            model(torch.randn(2, 3, size, size)).sum().backward()
        with torch.no_grad():
            model(torch.randn(2, 3, 12, 12))
    wanted = Counter[object]()
    for size, steps in ((12, 2), (14, 1)):
        for workload, count in dwconv.layers(model, torch.randn(2, 3, size, size)).discovery.counts().items():
            wanted[workload] += steps * count
            wanted[workload] += count * (size == 12 and workload.pass_ == "fprop")
    assert workloads_in(path) == wanted


def test_a_layer_with_many_sizes_is_listed_once(tmp_path):
    layer, path = nn.Conv1d(4, 4, 3, groups=4, bias=False), tmp_path / "layers.json"
    with dwconv.collect(path, name="speech"):
        for length in (64, 65, 65, 70, 127, 128, 129, 129, 300):
            layer(torch.randn(1, 4, length))
    (network,) = json.loads(path.read_text()).items()
    assert network[0] == "speech"
    (listed,) = network[1]
    assert (listed["I"], listed["n"], listed["sizes"]) == ([65], 9, [[129], [300]])


def test_a_loop_that_fails_leaves_what_it_ran(tmp_path):
    path = tmp_path / "layers.json"
    with pytest.raises(KeyboardInterrupt), dwconv.collect(path):
        nn.Conv2d(4, 4, 3, groups=4)(torch.randn(1, 4, 8, 8))
        raise KeyboardInterrupt
    assert len(workloads_in(path)) == 1


def test_a_file_that_cannot_be_written_is_named_before_the_loop(tmp_path):
    with pytest.raises(InvalidWorkload, match=r"layers=.*no/layers\.json cannot be written"):
        dwconv.collect(tmp_path / "no" / "layers.json").__enter__()
    with (
        pytest.warns(dwconv.DwconvWarning, match="was not written: no depthwise") as caught,
        dwconv.collect(tmp_path / "a"),
    ):
        nn.Conv2d(4, 4, 3)(torch.randn(0, 4, 8, 8))
        nn.Conv2d(4, 4, 3, groups=4)(torch.randn(0, 4, 8, 8))
    assert caught[0].filename == __file__ and not (tmp_path / "a").exists()
