"""Discovery: the depthwise convolutions of a step, and that nothing is changed by it."""

from __future__ import annotations

import copy
import dataclasses
import random
import weakref
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import distributions, nn
from torch.nn.modules.module import _global_forward_hooks, register_module_forward_pre_hook
from torch.utils.checkpoint import checkpoint

import dwconv
from dwconv.discovery import DiscoveredLayer, discover
from dwconv.errors import InvalidWorkload
from dwconv.nn import LAYERS, DepthwiseConv2d
from dwconv.problems.workload import PASSES, Workload
from tests.model.test_subclasses import Conv2dSame
from tests.models import ConformerConvolution, TinyNet

IMAGE = torch.randn(2, 3, 12, 12)


def passes_by_name(model, example, **options):
    return {layer.name: layer.passes for layer in discover(model, example, **options).layers}


class Counting(nn.Module):
    """Changes what a model may change in its forward pass, and says so in nothing that it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(3, 3, 3, groups=3)
        self.norm = nn.BatchNorm2d(3)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("average", torch.zeros(1))
        self.seen = torch.zeros(1)
        self.calls, self.cache, self.fails = 0, [], False

    def forward(self, x):
        self.calls += 1
        self.cache.append(x)
        self.average = self.average + x.mean().detach()
        self.seen += 1
        self.late = True
        self.dropout.eval()
        self.register_forward_hook(lambda *_: None)
        self.depthwise.bias.requires_grad_(False)
        with torch.no_grad():
            self.depthwise.weight.mul_(0.5)
        random.random(), np.random.rand()
        y = self.norm(F.dropout(self.depthwise(x)))
        if self.fails:
            raise KeyError("the model's own error")
        return x.mul_(2).sum() + y.sum()


def state(model):
    """All of it: numbers, objects, and random states."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {
        "tensors": [(name, id(tensor), tensor.tolist(), tensor.requires_grad) for name, tensor in tensors],
        "gradients": [(id(p.grad), p.grad is not None and p.grad.tolist()) for p in model.parameters()],
        "modules": [(module.training, len(module._forward_hooks), sorted(vars(module))) for module in model.modules()],
        "attributes": (model.calls, list(model.cache), id(model.seen), model.seen.tolist()),
        "random": (torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())),
        "modes": (torch.is_grad_enabled(), len(_global_forward_hooks)),
    }


# -- what ran ----------------------------------------------------------------------------------------------------------


def test_every_layer_with_its_sizes_layout_and_passes():
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, groups=3, bias=False), nn.Conv2d(6, 6, 1), nn.Conv2d(6, 6, 3, stride=2, groups=6)
    )
    found = discover(model, IMAGE.to(memory_format=torch.channels_last))
    first, second = found.layers
    assert (first.name, first.passes, first.calls) == ("0", ("fprop", "wgrad"), 1), "the image needs no gradient"
    assert (second.name, second.passes, second.device) == ("2", PASSES, torch.device("cpu"))
    assert found.counts() == {
        workload.for_pass(pass_): 1
        for workload, passes in (
            (Workload(pass_="fprop", batch=2, channels=3, input_size=(12, 12), kernel=(3, 3), multiplier=2,
                      layout="nhwc"), first.passes),
            (Workload(pass_="fprop", batch=2, channels=6, input_size=(10, 10), kernel=(3, 3), stride=(2, 2),
                      layout="nhwc", bias=True), second.passes),
        )
        for pass_ in passes
    }  # fmt: skip


class Everywhere(nn.Module):
    """Depthwise convolutions that are no layers, and convolutions that are not depthwise."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 1, 3, 3))
        self.inner = nn.Identity()
        self.scripted = torch.jit.script(nn.Conv1d(4, 4, 3, groups=4))

    def forward(self, x):
        x = self.inner(x)
        y = F.conv2d(x, self.w, groups=4) + torch.conv2d(x, weight=self.w, groups=4)
        y = y + torch.convolution(x, self.w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 4)
        y = y + dwconv.conv2d(x, self.w)
        dense = F.conv2d(x, self.w.expand(4, 4, 3, 3)) + F.conv2d(x, self.w.expand(4, 2, 3, 3), groups=2)
        one = F.conv2d(x[:, :1], self.w)
        wide = F.conv_transpose2d(y, self.w, groups=4)
        line = dwconv.conv1d(x[:, :, 0], self.w[:, :, 0]) + self.scripted(x[:, :, 0])
        return y, {"rest": [dense, one, wide, line]}


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_functional_calls_are_found_wherever_they_are_made():
    layers = discover(Everywhere(), torch.randn(2, 4, 6, 6)).layers
    assert [(layer.name, by_axes(layer), layer.calls, layer.passes) for layer in layers] == [
        ("", (3, 3), 4, ("fprop", "wgrad")), ("", (3, 3), 1, PASSES), ("", (1, 3), 1, ("fprop", "wgrad")),
        ("scripted", (1, 3), 1, ("fprop", "wgrad")),
    ]  # fmt: skip


def by_axes(layer: DiscoveredLayer) -> tuple[int, ...]:
    return layer.problem.weight_shape[2:]


class EvenSame(nn.Module):
    """PyTorch pads by itself before it convolves, since the two sides differ."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 4, padding="same", groups=4))

    def forward(self, x):
        return self.body(x)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (TinyNet, (2, 3, 12, 12)),
        (ConformerConvolution, (2, 10, 16)),
        (EvenSame, (2, 3, 9, 9)),
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 1), Conv2dSame(8, 8, 3, stride=2, groups=8)), (2, 3, 10, 9)),
    ],
    ids=["TinyNet", "Conformer", "even padding=same", "padding as TensorFlow has it"],
)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.filterwarnings("error::dwconv.DwconvWarning")
def test_a_converted_model_gives_the_same_answer_and_no_warning(logs, make, shape):
    plain = make()
    converted = copy.deepcopy(plain)
    dwconv.convert(converted)
    x = torch.randn(shape)
    if make is EvenSame:  # not that of the image which PyTorch pads
        (layer,) = discover(plain, x).layers
        assert (layer.problem.input_shape, layer.problem.padding) == ((2, 4, 9, 9), (1, 2, 1, 2))
    found, later = discover(plain, x), discover(converted, x)
    assert found.layers and later == found
    pairs = zip(plain.modules(), converted.modules(), strict=True)
    known = discover(plain, x, converted=[module for module, other in pairs if isinstance(other, LAYERS)])
    assert [layer.is_functional for layer in known.layers] == [layer.is_functional for layer in later.layers]
    assert known == found and all(layer.is_functional for layer in found.layers)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = discover(plain, x)
        assert discover(converted, x) == lowered
    assert {layer.problem.dtype for layer in lowered.layers} == {torch.bfloat16}
    assert [layer.passes for layer in lowered.layers] == [layer.passes for layer in found.layers]


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("the layer's own error")


class GoesOn(nn.Module):
    """Calls a layer that fails, handles the error, and goes on without it."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.Sequential(Fails()))
        self.w = nn.Parameter(torch.randn(3, 1, 3, 3))
        self.last = nn.Conv2d(3, 3, 3, groups=3)

    def forward(self, x):
        try:
            self.fails(x)
        except ValueError:
            return self.last(F.conv2d(x, self.w, groups=3))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("by", ["the layer", "a hook after it", "a hook of all modules before it"])
def test_a_model_that_handles_an_error_goes_on_under_its_own_names(by):
    def fail(module, *_):
        if isinstance(module, Fails):
            raise ValueError("the hook's own error")

    model, hooks = GoesOn(), nullcontext()
    if by == "a hook after it":
        model.fails[1][0].forward = lambda x: x
        hooks = model.fails[1][0].register_forward_hook(fail)
    elif by == "a hook of all modules before it":
        hooks = register_module_forward_pre_hook(fail)
    with hooks:
        layers = discover(model, IMAGE).layers
    assert [(layer.name, layer.caller) for layer in layers] == [("fails.0", "fails.0"), ("", ""), ("last", "last")]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("blocks", [None, False], ids=["blocks", "no blocks"])
def test_an_error_of_the_model_comes_alone(blocks):
    model = nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.Sequential(nn.BatchNorm2d(3), Fails()))
    with pytest.raises(ValueError, match="the layer's own error"):
        dwconv.convert(model, IMAGE, blocks=blocks)
    assert type(model[0]) is nn.Conv2d


def test_frozen_weights_have_no_wgrad_and_inference_no_gradients():
    model = TinyNet()
    model.body[4].requires_grad_(False)
    assert passes_by_name(model, IMAGE) == {"body.1": PASSES, "body.4": ("fprop", "dgrad"), "body.6": PASSES}
    assert set(passes_by_name(model, IMAGE, trains=False).values()) == {("fprop",)}
    with torch.no_grad():
        assert set(passes_by_name(model, IMAGE).values()) == {("fprop",)}
        assert passes_by_name(model, IMAGE, trains=True)["body.1"] == PASSES
    double = discover(TinyNet().double(), IMAGE.double())
    assert len(double.left_out) == 3 and double.counts() == {}
    assert "left out: dwconv has no kernels for float64" in str(double)
    with torch.inference_mode():
        assert set(passes_by_name(model, IMAGE).values()) == {("fprop",)}
    model.requires_grad_(False)
    assert set(passes_by_name(model, IMAGE).values()) == {("fprop",)}
    with pytest.raises(InvalidWorkload, match="no output of TinyNet requires a gradient"):
        discover(model, IMAGE, trains=True)


def moved():
    """Activations are kept elsewhere until the backward pass, as with offloading."""
    return torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda tensor: tensor)


@pytest.mark.parametrize("saved", [nullcontext, moved])
def test_gradients_of_layers_of_the_same_sizes_are_distinguished(saved):
    model = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1, groups=3) for _ in range(3)))
    with saved():
        assert passes_by_name(model, IMAGE) == {"0": ("fprop", "wgrad"), "1": PASSES, "2": PASSES}


class Repeated(nn.Module):
    """A layer that runs three times, twice of them again in the backward pass; and another within checkpoints of
    checkpoints, beside a weight that is no parameter of the model."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1, groups=3)
        self.inner = nn.Conv1d(3, 3, 3, padding=1, groups=3)
        self.hidden = (nn.Parameter(torch.randn(3, 1, 3, 3)),)
        self.reentrant = reentrant

    def forward(self, x):
        x = self.layer(x)
        for _ in range(2):
            x = checkpoint(lambda x: self.layer(x).sin(), x, use_reentrant=self.reentrant)
        return checkpoint(self.again, x, use_reentrant=self.reentrant)

    def again(self, x):
        x = dwconv.conv2d(x, self.hidden[0]).flatten(2)
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


@pytest.mark.filterwarnings("ignore::dwconv.DwconvWarning", "ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("converts", [False, True])
def test_calls_are_counted_those_of_checkpoints_again(converts, reentrant):
    """No hook on gradients runs for those of the example: an optimizer would step, DDP would send them."""
    model, image, told = Repeated(reentrant=reentrant), IMAGE.clone().requires_grad_(), []
    if converts:
        dwconv.convert(model, image, seconds=0)
    trained = [*model.parameters(), *model.hidden]
    buckets = [parameter.expand_as(parameter).grad_fn.next_functions[0][0] for parameter in trained]
    for parameter, bucket in zip(trained, buckets, strict=True):
        parameter.grad = torch.ones_like(parameter)
        parameter.register_post_accumulate_grad_hook(told.append)
        bucket.register_hook(lambda *_: told.append("a bucket"))
    before = [id(parameter.grad) for parameter in trained]
    counts = {name: Counter() for name in ("layer", "", "inner")}
    for layer in discover(model, image).layers:
        counts[layer.name].update(dict.fromkeys(layer.passes, layer.calls))
    assert counts == {
        "layer": {"fprop": 5, "dgrad": 3, "wgrad": 3},
        "": {"fprop": 2, "dgrad": 1, "wgrad": 1},
        "inner": {"fprop": 3 if reentrant else 1, "dgrad": 1, "wgrad": 1},  # else only what is needed runs again
    }
    assert not told and image.grad is None and [id(parameter.grad) for parameter in trained] == before
    assert all(bool((parameter.grad == 1).all()) for parameter in trained)
    model(image).sum().backward()
    assert len(told) >= 2 * len(trained), "as in every step of a training"


# -- inputs, outputs, wrappers -----------------------------------------------------------------------------------------


@dataclass
class Output:
    loss: torch.Tensor
    names: tuple[str, ...] = ()


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held) -> None:
        self.held = held


RESULTS = {
    "a spectrum": lambda y: torch.stft(y.flatten(0, 2), 8, window=torch.ones(8), return_complex=True),
    "a distribution": lambda y: distributions.Normal(y, 1.0),
    "a dataclass": lambda y: Output(loss=Output(loss=y)),
    "an object": lambda y: Slotted([Slotted(y)]),
    "an iterator": lambda y: (each for each in y),
    "sparse": lambda y: y.to_sparse(),
    "nested": lambda y: torch.nested.as_nested_tensor(list(y)),
}


class Gives(nn.Module):
    def __init__(self, kind) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, groups=3)
        self.kind = kind

    def forward(self, x):
        return self.kind(self.layer(x))


@pytest.mark.parametrize("kind", RESULTS.values(), ids=RESULTS)
@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested")
def test_a_result_of_any_kind_is_differentiated(kind):
    for model, example in ((Gives(kind), IMAGE), (dwconv.convert(Gives(kind)), {"x": IMAGE})):
        assert passes_by_name(model, example) == {"layer": ("fprop", "wgrad")}


def test_arguments_in_a_tuple_and_what_is_no_example():
    assert discover(nn.Bilinear(2, 2, 2), (torch.ones(1, 2), torch.ones(1, 2))).layers == ()
    with pytest.raises(InvalidWorkload, match="example_inputs is of type str; give a tensor"):
        discover(TinyNet(), "image")


def test_wrappers_are_looked_through():
    model = TinyNet()
    found = discover(model, IMAGE)
    assert discover(nn.DataParallel(model), IMAGE) == found
    assert discover(torch.compile(model), IMAGE) == found
    partly = copy.deepcopy(model)
    partly.body[4].compile(backend="aot_eager")
    assert discover(partly, IMAGE) == found
    dwconv.convert(partly)
    assert discover(partly, IMAGE) == found


def test_an_example_elsewhere_is_one_clear_line():
    message = r"the example is on meta, the parameters are on cpu; move the example with \.to\('cpu'\)"
    with pytest.raises(InvalidWorkload, match=message):
        discover(TinyNet(), IMAGE.to("meta"))


# -- what is left as it was --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True], ids=["works", "fails"])
def test_nothing_is_changed(fails):
    model, image = Counting(), torch.randn(2, 3, 8, 8)
    model.fails = fails
    (model.norm(image).square().mean() + model.depthwise(image).sum()).backward()
    graph = (model.norm.weight * torch.ones(3, requires_grad=True)).sum()
    before, given = state(model), image.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if fails:
            with pytest.raises(KeyError, match="the model's own error"):
                discover(model, image)
        else:
            assert [layer.passes for layer in discover(model, image).layers] == [("fprop", "wgrad")]
        assert torch.is_autocast_cache_enabled()
    after = state(model)
    assert {what for what in before if after[what] != before[what]} == set()
    assert torch.equal(image, given)
    graph.backward()  # what was recorded before is still valid


class Draws(nn.Module):
    """Holds generators of random numbers in every way, and draws from each."""

    def __init__(self) -> None:
        super().__init__()
        self.own, in_list, in_sampler, in_function, self.seeded = (torch.Generator().manual_seed(0) for _ in range(5))
        self.listed = [{"one": (in_list,)}]
        self.sampler = torch.utils.data.RandomSampler(range(9), generator=in_sampler)
        self.draw = lambda: torch.rand(2, generator=in_function)
        self.of_numpy, self.legacy = np.random.default_rng(0), np.random.RandomState(0)
        self.of_python, self.of_the_system = random.Random(0), random.SystemRandom()

    def forward(self, x):
        return x * self.drawn()[0]

    def drawn(self):
        listed = self.listed[0]["one"][0]
        numbers = [torch.rand(2, generator=each).tolist() for each in (self.own, listed, self.seeded)]
        self.seeded.manual_seed(7)
        numbers += [list(self.sampler), self.draw().tolist(), self.of_numpy.random(), self.of_python.random()]
        self.of_the_system.random()
        return torch.rand(()), *numbers, self.legacy.randn()


def test_generators_that_it_holds_go_on_as_if_nothing_had_been():
    model, twin = (nn.Sequential(Draws(), nn.Conv2d(3, 3, 3, groups=3)) for _ in range(2))
    for each in (model, twin):
        each[0].drawn()  # one number of a pair is kept for later, by numpy
    dwconv.convert(model, IMAGE, seconds=0)
    assert model[0].drawn()[1:] == twin[0].drawn()[1:]


def test_no_activation_is_kept():
    kept = []

    class Keeper(nn.Module):
        def forward(self, x):
            y = x * 1
            kept.append(weakref.ref(y))
            return y

    model = nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), Keeper(), nn.Conv2d(3, 3, 3, groups=3))
    found = discover(model, IMAGE)
    assert len(found.layers) == 2 and kept[0]() is None


def test_a_double_of_a_layer_is_one_layer_by_its_first_name():
    shared = DepthwiseConv2d(3, 3, padding=1)
    (layer,) = discover(nn.Sequential(nn.Identity(), shared, shared), IMAGE.clone().requires_grad_()).layers
    assert (layer.name, layer.calls) == ("1", 2)
    assert dataclasses.replace(layer, calls=1) != layer
