"""revert: the model as it was before convert, for tools that look for PyTorch's classes."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.ao.quantization.quantize_fx import prepare_fx
from torch.fx.experimental.optimization import fuse

import dwconv
from dwconv.errors import DwconvWarning
from dwconv.model.converted_classes import traced_class
from dwconv.nn import DepthwiseConv2d
from tests.models import TinyNet

pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning", "ignore::DeprecationWarning")


def classes(model):
    """Themselves: one that ``convert`` made equals what it was made of."""
    return [id(type(module)) for module in model.modules()]


def test_the_model_is_what_it_was(logs):
    model = nn.ModuleDict({"net": TinyNet(), "line": nn.Conv1d(4, 4, 3, groups=4)})
    before, parameters, modules = classes(model), list(model.parameters()), list(model.modules())
    dwconv.convert(model)
    assert classes(model) != before
    assert dwconv.revert(model) is model
    assert classes(model) == before
    assert list(map(id, model.parameters())) == list(map(id, parameters))
    assert list(map(id, model.modules())) == list(map(id, modules))
    assert classes(dwconv.revert(model)) == before, "again"
    assert len(dwconv.summary(dwconv.convert(model)).converted) == 4


def test_a_class_made_of_ours_stays_and_is_named(logs):
    """Its plain class would forget what the subclass computes."""

    class Doubled(DepthwiseConv2d):
        def forward(self, x):
            return 2 * super().forward(x)

    model = nn.Sequential(Doubled(4, 3), DepthwiseConv2d(4, 3))
    with pytest.warns(DwconvWarning, match="not reverted: 0, a Doubled: a class made of dwconv's"):
        dwconv.revert(model)
    assert type(model[0]) is Doubled and type(model[1]) is nn.Conv2d


def test_a_converted_layer_in_a_module_that_makes_functional_calls_is_reverted_too(logs):
    """Both classes go back, of a module that calls one layer as it is and the weight of another, and of a layer whose
    own calls are taken."""
    layer = dwconv.convert(nn.Conv2d(4, 4, 3, groups=4), functional=True)
    assert isinstance(layer, DepthwiseConv2d) and type(layer) is not DepthwiseConv2d
    assert type(dwconv.revert(layer)) is nn.Conv2d

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.called = nn.Conv2d(4, 4, 3, groups=4)
            self.used = nn.Conv2d(4, 4, 3, groups=4)

        def forward(self, x):
            return nn.functional.conv2d(self.called(x), self.used.weight, self.used.bias, groups=4)

    model, x = nn.Sequential(Block(), Block()), torch.randn(2, 4, 12, 10)
    before, y = classes(model), model(x)
    dwconv.convert(model, functional=True)
    dwconv.convert(model[0], functional=True)  # a class more for the inner module, which has converted layers
    assert all(type(layer) is DepthwiseConv2d for block in model for layer in block.children())
    assert type(model) is not nn.Sequential and type(model[0]) is not Block
    torch.testing.assert_close(model(x), y)
    assert classes(dwconv.revert(model)) == before
    torch.testing.assert_close(model(x), y)


@pytest.fixture
def reverted(logs):
    """A model as tools get it: converted, trained for a step, and reverted."""
    torch.manual_seed(0)
    model = TinyNet()
    dwconv.convert(model)
    model(torch.randn(4, 3, 12, 10)).sum().backward()
    dwconv.revert(model)
    return model.eval()


def test_a_reverted_model_fuses(reverted):
    x = torch.randn(4, 3, 12, 10)
    y = reverted(x)
    fused = fuse(reverted)
    assert not [module for module in fused.modules() if isinstance(module, nn.BatchNorm2d)]
    torch.testing.assert_close(fused(x), y, rtol=1e-4, atol=1e-5)
    fused = quantization.fuse_modules(reverted, [["body.1", "body.2"]])
    assert type(fused.body[2]) is nn.Identity
    torch.testing.assert_close(fused(x), y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learns", [False, True], ids=["prepare", "prepare_qat"])
@pytest.mark.parametrize("fuses", [False, True], ids=["", "fused"])
@pytest.mark.filterwarnings(
    "ignore:Please use quant_min", "ignore:torch.quantize_per_tensor", "ignore:must run observer"
)
def test_a_converted_model_is_quantised_as_the_plain_one(logs, learns, fuses):
    torch.manual_seed(0)
    layers = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU()
    plain = nn.Sequential(quantization.QuantStub(), *layers, quantization.DeQuantStub()).train(learns)
    converted = dwconv.convert(copy.deepcopy(plain), functional=learns)
    x, ran = torch.randn(4, 8, 12, 10), []
    assert not hasattr(converted[1], "qconfig")
    for model in (plain, converted):
        if fuses:
            fuse_modules = quantization.fuse_modules_qat if learns else quantization.fuse_modules
            model = fuse_modules(model, [["1", "2", "3"]])
        model.qconfig = quantization.get_default_qat_qconfig() if learns else quantization.get_default_qconfig()
        model = (quantization.prepare_qat if learns else quantization.prepare)(model)
        model(x)
        quantised = quantization.convert(model.eval())
        ran += [[type(module).__name__ for module in quantised.modules()], quantised(x)]
    assert "quantized" in type(quantised[1]).__module__
    assert ran[0] == ran[2]
    torch.testing.assert_close(ran[1], ran[3])


def test_a_traced_graph_calls_dwconv(logs):
    """torch.fx sees through the layer to the call, which then runs as before."""
    model, x = TinyNet(), torch.randn(4, 3, 12, 10)
    dwconv.convert(model)
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes].count(dwconv.conv2d) == 3
    torch.testing.assert_close(traced(x), model(x))


def test_what_has_a_block_is_quantised_too(logs):
    """Its class is another than that of its kind."""
    layer = nn.Sequential()
    layer.__class__ = traced_class(nn.Sequential, ())
    layer.qconfig = None
    assert type(layer) is not nn.Sequential
    layer.qconfig = "any"
    assert type(layer) is nn.Sequential and layer.qconfig == "any"


def test_fx_quantisation_of_a_converted_model_names_revert(logs):
    x, engine = torch.randn(2, 8, 9, 7), torch.backends.quantized.engine
    model = dwconv.convert(nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.ReLU())).eval()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        prepare_fx(model, quantization.get_default_qconfig_mapping(engine), (x,))
    (told,) = [str(each.message) for each in seen if isinstance(each.message, DwconvWarning)]
    assert "dwconv.revert(model)" in told
