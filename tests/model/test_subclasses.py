"""Layers of classes that are not PyTorch's own: converted where they compute the same, and still what they were."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import dwconv
from dwconv.nn import DepthwiseConv1d, DepthwiseConv2d
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]
X = torch.randn(2, 8, 9, 7)


class EfficientNetConv(nn.Conv2d):
    """As transformers has it: arguments of its own, and nothing else."""

    def __init__(self, channels: int, kernel: int = 3) -> None:
        super().__init__(channels, channels, kernel, padding=1, groups=channels, bias=False)
        self.note = "its own"

    def extra_repr(self) -> str:
        return "its own words"


class Line(nn.Conv1d):
    pass


class Conv2dSame(nn.Conv2d):
    """As timm has it."""

    def forward(self, x):
        pads = []
        for axis in (-1, -2):
            size, kernel, stride, dilation = (
                x.shape[axis],
                self.kernel_size[axis],
                self.stride[axis],
                self.dilation[axis],
            )
            pad = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
            pads += [pad // 2, pad - pad // 2]
        return F.conv2d(F.pad(x, pads), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


def only(model):
    summary = dwconv.summary(dwconv.convert(model))
    assert (len(summary.converted), summary.skipped) == (1, ())
    return model


@pytest.fixture
def planted(logs):
    plant(logs / "log.jsonl", [workload_of(layout="nchw")], baseline_us=1e6, template_layout="nchw")


def test_a_subclass_that_computes_the_same_runs_on_kernels(planted):
    layer = EfficientNetConv(8)
    expected = layer(X)
    only(layer)
    torch.testing.assert_close(layer(X), expected, rtol=1e-4, atol=1e-5)
    assert "Dwconv" in layer(X).grad_fn.name()
    assert isinstance(layer, EfficientNetConv) and isinstance(layer, DepthwiseConv2d)
    assert repr(layer) == "DepthwiseEfficientNetConv(its own words)"
    assert type(layer) is type(only(EfficientNetConv(8))), "one class for all of them"
    assert isinstance(only(Line(8, 8, 3, groups=8)), DepthwiseConv1d)


def test_it_can_be_copied_and_pickled(planted):
    layer = only(EfficientNetConv(8))
    layer.weight.requires_grad_(False)
    for twin in (copy.deepcopy(layer), copy.copy(layer), *(pickle.loads(pickle.dumps(layer, p)) for p in (0, 2, 5))):
        assert type(twin) is type(layer) and twin.note == "its own" and not twin.weight.requires_grad
        assert torch.equal(twin(X), layer(X))


@pytest.mark.parametrize("method", ["forward", "_conv_forward", "__call__"])
def test_a_subclass_with_a_forward_of_its_own_stays(logs, method):
    def run(self, x, *parameters):
        return 2 * getattr(nn.Conv2d, method)(self, x, *parameters)

    layer = type("Twice", (nn.Conv2d,), {method: run})(8, 8, 3, groups=8)
    expected = layer(X)
    (left,) = dwconv.summary(dwconv.convert(layer)).skipped
    assert f"its {method} is its own" in left.text
    assert torch.equal(layer(X), expected)


@pytest.mark.parametrize("plain", [nn.Conv2d, EfficientNetConv])
def test_a_parametrised_layer_runs_on_kernels_and_can_be_freed_of_it(planted, plain):
    layer = plain(8) if plain is EfficientNetConv else nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
    parametrizations.weight_norm(layer)
    expected = layer(X)
    only(layer)
    for each in (layer, copy.deepcopy(layer)):
        torch.testing.assert_close(each(X), expected, rtol=1e-4, atol=1e-5)
        assert "Dwconv" in each(X).grad_fn.name()
        each(X).sum().backward()
        assert each.parametrizations.weight.original0.grad is not None
    parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer, DepthwiseConv2d) and isinstance(layer, plain) and not parametrize.is_parametrized(layer)
    torch.testing.assert_close(layer(X), expected, rtol=1e-4, atol=1e-5)
    assert type(only(plain(8) if plain is EfficientNetConv else nn.Conv2d(8, 8, 3, groups=8))) is type(layer)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [(9, 8), (12, 7), (2, 5)])
def test_padding_as_tensorflow_has_it_is_converted(logs, stride, size):
    layer = Conv2dSame(8, 8, (3, 4), stride=stride, dilation=(1, 2) if stride == 1 else 1, groups=8)
    x = torch.randn(2, 8, *size)
    expected = layer(x)
    assert isinstance(only(layer), Conv2dSame)
    torch.testing.assert_close(layer(x), expected)
    assert type(pickle.loads(pickle.dumps(layer))) is type(layer)


def test_padding_as_tensorflow_has_it_runs_on_kernels(logs):
    layer = Conv2dSame(8, 8, 3, stride=2, groups=8, bias=False)
    x = torch.randn(2, 8, 10, 10)
    expected = layer(x)
    workload = workload_of(shape=(2, 8, 10, 10), stride=2, layout="nchw")
    workload = dataclasses.replace(workload, padding=((0, 1), (0, 1)))
    plant(logs / "log.jsonl", [workload], baseline_us=1e6, template_layout="nchw")
    only(layer)
    assert "Dwconv" in layer(x).grad_fn.name()
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    compiled(x).sum().backward()
    (row,) = dwconv.report(layer).rows
    assert row.problem.padding == (0, 1, 0, 1) and row.passes[0].calls == 3, "the compiled call is known as the layer's"


def test_padding_as_tensorflow_has_it_at_an_absurd_stride_is_left_to_it(logs):
    """To look at what it computes would take an image of as many pixels."""
    layer = Conv2dSame(8, 8, 3, stride=2**40, groups=8)
    dwconv.convert(layer)
    assert type(layer) is Conv2dSame and layer(X).shape == (2, 8, 1, 1)


def test_what_fails_gives_every_layer_its_class_back(logs):
    model = nn.Sequential(EfficientNetConv(8), Conv2dSame(8, 8, 3, groups=8), nn.Flatten(), nn.Linear(3, 3))
    before = [type(module) for module in model]
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        dwconv.convert(model, X, functional=True)
    assert [type(module) for module in model] == before and type(model) is nn.Sequential


def test_a_layer_of_that_name_that_pads_otherwise_is_left(planted):
    class Flipped(nn.Conv2d):
        """The odd row and column of padding come first."""

        def forward(self, x):
            return F.conv2d(F.pad(x, (1, 0, 1, 0)), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    Flipped.__name__ = "Conv2dSame"
    model = nn.Sequential(Flipped(8, 8, 2, groups=8))
    dwconv.convert(model)
    assert type(model[0]) is Flipped


# -- layers made by the class of another -------------------------------------------------------------------------------


def of_class(plain, *arguments, **options):
    """One made by ``plain``, and one by the class of a converted layer of it, with the same parameters."""
    theirs = plain(*arguments, **options)
    ours = type(only(plain(8, 8, 3, groups=8)))(*arguments, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


@pytest.mark.parametrize("script", [False, True], ids=["", "scripted"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_layer_can_be_made_by_the_class_of_another(logs, axes, script):
    """As adapters of low rank are made: of any number of groups."""
    plain, x = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1], torch.randn(2, 8, *[7] * axes)
    for arguments, options in (
        ((8, 4, 3), {"stride": 2, "bias": False}),
        ((8, 16, 3, 1, 1), {"groups": 8}),
        ((8, 16), {"kernel_size": 3, "groups": 4, "padding_mode": "reflect", "padding": 1}),
        ((), {"in_channels": 8, "out_channels": 8, "kernel_size": 1}),
    ):
        theirs, ours = of_class(plain, *arguments, **options)
        assert repr(ours) == f"Depthwise{theirs}"
        torch.testing.assert_close((torch.jit.script(ours) if script else ours)(x), theirs(x), rtol=1e-4, atol=1e-5)
    for wrong in ({}, {"channels": 8}, {"channels": 8, "kernel_size": 3, "strides": 1}):
        with pytest.raises(TypeError):
            type(ours)(**wrong)


def test_so_can_one_of_a_users_own_class(planted):
    made = type(only(EfficientNetConv(8)))(8)
    assert made.note == "its own" and "Dwconv" in made(X).grad_fn.name()
    parametrised = nn.Conv2d(8, 8, 3, groups=8)
    parametrizations.weight_norm(parametrised)
    assert type(only(parametrised)).__bases__[0](8, 4, 1)(X).shape == (2, 4, 9, 7)


# -- classes that register their subclasses ----------------------------------------------------------------------------


class Registry(type):
    known: ClassVar[dict[str, type]] = {}

    def __new__(cls, name, bases, members, *, tag):
        return super().__new__(cls, name, bases, members)

    def __init__(cls, name, bases, members, *, tag):
        super().__init__(name, bases, members)
        Registry.known[name] = cls


class Hooked(nn.Conv2d):
    def __init_subclass__(cls, *, tag, **options):
        super().__init_subclass__(**options)
        Registry.known[cls.__name__] = cls


class Own(Hooked, tag="own"):
    pass


class Registered(nn.Conv2d, metaclass=Registry, tag="registered"):
    pass


@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("plain", [Own, Registered])
def test_no_class_of_ours_is_announced_as_one_of_the_users(planted, plain, functional):
    known = dict(Registry.known)
    layer, other = plain(8, 8, 3, padding=1, groups=8, bias=False), plain(8, 8, 3)
    expected = layer(X)
    dwconv.convert(layer, functional=functional)
    assert Registry.known == known
    torch.testing.assert_close(layer(X), expected, rtol=1e-4, atol=1e-5)
    assert "Dwconv" in layer(X).grad_fn.name()
    made = type(layer)
    assert isinstance(layer, plain) and isinstance(layer, made) and not isinstance(other, made)
    assert isinstance(made, type(plain))
    assert torch.equal(copy.deepcopy(layer)(X), layer(X))
    with pytest.raises(TypeError):
        type(plain)("Another", (made,), {})  # without its argument, as before
    assert Registry.known == known
