"""Transposed layers, and convert: the same model, on the kernels of the convolutions that undo them."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import dwconv
from dwconv.call.call_plan import plans
from dwconv.discovery import discover
from dwconv.nn import DepthwiseConvTranspose1d, DepthwiseConvTranspose2d, DepthwiseConvTranspose3d
from tests.call.test_transposed import LAYERS, options_of, problem_of, tune
from tests.planted_records import plant

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]
KINDS = [
    (DepthwiseConvTranspose1d, nn.ConvTranspose1d, 1),
    (DepthwiseConvTranspose2d, nn.ConvTranspose2d, 2),
    (DepthwiseConvTranspose3d, nn.ConvTranspose3d, 3),
]
LAYER = LAYERS["2-D stride 2"]


class Decoder(nn.Module):
    """(N, 8, 5, 6) -> (N, 8, 10, 12), by a layer, or by a call on its weight."""

    def __init__(self, *, calls: bool = False) -> None:
        super().__init__()
        self.mix = nn.Conv2d(8, 8, 1)
        self.up = nn.ConvTranspose2d(8, 8, 3, groups=8, **options_of(LAYER))
        self.calls = calls

    def forward(self, x):
        x = self.mix(x)
        return F.conv_transpose2d(x, self.up.weight, groups=8, **options_of(LAYER)) if self.calls else self.up(x)


def images():
    return torch.randn(LAYER["shape"]).to(memory_format=torch.channels_last)


def trained(model, x):
    y = model(x)
    y.square().sum().backward()
    return y.detach(), {name: each.grad for name, each in model.named_parameters()}


@pytest.mark.parametrize(("ours", "pytorchs", "axes"), KINDS)
def test_a_layer_is_pytorchs_with_groups(logs, ours, pytorchs, axes):
    options = {"stride": 2, "padding": 1, "output_padding": 1, "dilation": 2}
    torch.manual_seed(0)
    layer = ours(6, 3, multiplier=2, **options)
    torch.manual_seed(0)
    other = pytorchs(6, 12, 3, groups=6, **options)
    x = torch.randn(2, 6, *[5] * axes)
    assert torch.equal(layer(x), other(x))
    assert torch.equal(layer(x[0]), other(x[0]))
    assert torch.equal(layer(x, output_size=[11] * axes), other(x, output_size=[11] * axes))
    assert isinstance(layer, pytorchs) and type(layer) == pytorchs  # noqa: E721  as tables of classes compare
    assert layer.state_dict().keys() == other.state_dict().keys()
    with pytest.raises(ValueError, match="requested an output size"):
        layer(x, output_size=[99] * axes)
    assert torch.equal(torch.jit.script(layer)(x), other(x))


@pytest.mark.parametrize("bad", [{"kernel_size": 0}, {"stride": 0}, {"output_padding": -1}, {"multiplier": 0}])
def test_a_layer_of_wrong_sizes_is_refused(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=name):
        DepthwiseConvTranspose2d(4, **{"kernel_size": 3, **bad})


def test_convert_swaps_it(logs):
    tune(logs, LAYER)
    x, plain = images(), Decoder().to(memory_format=torch.channels_last)
    model = dwconv.convert(copy.deepcopy(plain))
    assert type(model.up) is DepthwiseConvTranspose2d
    assert "up  8 channels, kernel 3×3, transposed, stride 2×2" in str(dwconv.summary(model))
    torch.testing.assert_close(trained(model, x), trained(plain, x))
    assert [each.provider for plan in plans() for each in plan.decisions.values()] == ["dwconv"] * 3
    report = dwconv.report(model)
    (row,) = report.rows
    assert row.names == ("up",) and row.is_transposed and "transposed" in str(report)
    assert {each.pass_: each.calls for each in row.passes} == {"fprop": 1, "dgrad": 1, "wgrad": 1}
    again = pickled(model)
    assert torch.equal(again(x), model(x))
    assert type(dwconv.revert(model).up) is nn.ConvTranspose2d


def pickled(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def test_a_report_of_forward_calls_alone(logs):
    tune(logs, LAYER)
    model = dwconv.convert(Decoder().to(memory_format=torch.channels_last))
    with torch.no_grad():
        model(images())
        model(images())
    (row,) = dwconv.report(model).rows
    assert {each.pass_: (each.calls, each.per_step) for each in row.passes} == {"dgrad": (2, 1.0)}


def test_an_example_shows_it(logs):
    model, x = Decoder().to(memory_format=torch.channels_last), images()
    for of in (model, dwconv.convert(copy.deepcopy(model))):
        (layer,) = discover(of, x).layers
        assert (layer.name, layer.passes, layer.is_transposed, layer.trains) == (
            "up",
            ("fprop", "dgrad", "wgrad"),
            True,
            True,
        )
        assert layer.problem == problem_of(LAYER)
        (layer,) = discover(of, x, trains=False).layers
        assert (layer.passes, layer.trains) == (("dgrad",), False)
    assert dwconv.layers(model, x).layers[0].passes == ("fprop", "dgrad", "wgrad")


@pytest.mark.usefixtures("brief_timing")
def test_an_example_is_raced_for_it(logs):
    model = dwconv.convert(Decoder().to(memory_format=torch.channels_last), images())
    summary = dwconv.summary(model)
    (race,) = summary.races
    raced = race.won + race.lost + race.failed + race.inconclusive + race.without_kernels + race.left
    assert {each.pass_ for each in raced} == {"fprop", "dgrad", "wgrad"}
    (row,) = dwconv.report(model, images()).rows
    assert row.is_transposed and {each.pass_ for each in row.passes} == {"fprop", "dgrad", "wgrad"}


@pytest.mark.parametrize("functional", [None, True, False])
def test_calls_of_the_function_run_under_convert(logs, functional):
    tune(logs, LAYER)
    plain, x = Decoder(calls=True).to(memory_format=torch.channels_last), images()
    model = dwconv.convert(copy.deepcopy(plain), x, functional=functional, seconds=0)
    torch.testing.assert_close(trained(model, x), trained(plain, x))
    assert ("DwconvTransposed" in model(x).grad_fn.name()) is (functional is not False)


def test_an_output_size_is_another_output_padding(logs):
    """On the kernels, as in PyTorch."""
    tune(logs, LAYER)
    options = {name: value for name, value in options_of(LAYER).items() if name != "output_padding"}
    plain = nn.ConvTranspose2d(8, 8, 3, groups=8, **options).to(memory_format=torch.channels_last)
    layer, x = dwconv.convert(copy.deepcopy(plain)), images()
    y = layer(x, output_size=(10, 12))
    assert "DwconvTransposed" in y.grad_fn.name()
    torch.testing.assert_close(y, plain(x, output_size=(10, 12)))
    assert layer(x).shape == plain(x).shape == (2, 8, 9, 11)


def test_an_export_has_pytorchs_op(logs):
    tune(logs, LAYER)
    plain, x = Decoder().to(memory_format=torch.channels_last), images()
    program = torch.export.export(dwconv.convert(copy.deepcopy(plain)), (x,))
    ops = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert "aten.conv_transpose2d.input" in ops and not any("dwconv" in each for each in ops)
    torch.testing.assert_close(program.module()(x), plain(x))


class Up(nn.ConvTranspose2d):
    """A user's own."""


@pytest.mark.parametrize("kind", ["subclass", "lazy", "parametrised"])
def test_kinds_of_layers(logs, kind):
    tune(logs, LAYER)
    options = {"kernel_size": 3, "groups": 8, **options_of(LAYER)}
    if kind == "lazy":
        layer = nn.LazyConvTranspose2d(8, **options)
    else:
        layer = (Up if kind == "subclass" else nn.ConvTranspose2d)(8, 8, **options)
    layer = parametrizations.weight_norm(layer) if kind == "parametrised" else layer
    plain, model = copy.deepcopy(layer), dwconv.convert(nn.Sequential(layer))
    x = images()
    y = model(x)
    assert isinstance(model[0], DepthwiseConvTranspose2d)
    assert kind != "subclass" or isinstance(model[0], Up)
    assert "DwconvTransposed" in y.grad_fn.name()
    if kind != "lazy":
        torch.testing.assert_close(y, plain(x))


def test_what_stays_is_listed(logs):
    class Own(nn.ConvTranspose2d):
        def forward(self, input, output_size=None):
            return super().forward(input, output_size) + 1

    model = nn.Sequential(nn.ConvTranspose2d(4, 4, 2, groups=2), nn.ConvTranspose2d(4, 4, 2), Own(4, 4, 2, groups=4))
    text = str(dwconv.summary(dwconv.convert(model)))
    assert "0  stays ConvTranspose2d: groups=2 of 4 channels is not depthwise" in text
    assert "2  stays Own: its forward is its own" in text
    assert "\n  1 " not in text


def test_a_tied_convolution_shares_the_kernels(logs):
    """A convolution and the layer that undoes it, with one weight: one plan, counted apart."""
    plant(logs / "log.jsonl", [problem_of(LAYER).workload("fprop")], baseline_us=1e6)
    down = nn.Conv2d(8, 8, 3, 2, 1, groups=8, bias=False)
    up = nn.ConvTranspose2d(8, 8, 3, groups=8, bias=False, **options_of(LAYER))
    up.weight = down.weight
    model = dwconv.convert(nn.Sequential(down, up).to(memory_format=torch.channels_last))
    x = torch.randn(2, 8, 10, 12).to(memory_format=torch.channels_last)
    model(x).sum().backward()
    (plan,) = plans()
    sums = sum((each.passes for each in plan.tally.counted()), start=plan.tally.counted_ops())
    assert sums == {"fprop": 2, "dgrad": 1, "wgrad": 2}
