"""Norms and activations around a convolution train as one with it where that is faster; whatever else code does on the
way gives the same numbers, gradients and running statistics."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dwconv.call import blocks
from dwconv.call.awaited_block import AwaitedBlock, started
from dwconv.call.call_plan import plans
from dwconv.errors import InvalidCall
from tests.call.block_parts import (
    CHANNELS,
    OTHERS,
    SIZE,
    WHOLE,
    Doubled,
    Packed,
    Parts,
    assert_same,
    drawn,
    learnt,
    passes_that_ran,
    step,
)
from tests.native_needed import both_ways, needs_native
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")  # the convolution alone is not planted


@pytest.fixture(params=["", "learnt"])
def planted(logs, request):
    """Whether Python follows such blocks for the first time, or C++ does, as far as they are the same."""
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)])
    if not request.param:
        yield
        return
    needs_native()
    with learnt(Parts(WHOLE), Parts(WHOLE, inplace=True)):
        yield


@both_ways
@pytest.mark.parametrize("inplace", [False, True], ids=["", "in place"])
@pytest.mark.parametrize("block", [WHOLE, "none,bn+relu", "bn+silu,none", "bn,bn"])
def test_a_block_runs_as_one(logs, block, inplace, way):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=block)])
    assert_same(Parts(block, inplace=inplace), drawn())
    assert passes_that_ran() == {"forward": 2, "backward": 2}
    assert not [plan for plan in plans() if not plan.problem.block and plan.problem.dtype is torch.float32]


@both_ways
@pytest.mark.parametrize("block", [WHOLE, "none,bn+relu", "bn+silu,none"])
def test_running_variances_are_of_as_many_values_as_their_image_has(logs, block, way):
    """With a stride x has four times as many as y."""
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, stride=(2, 2), block=block)])
    model = Parts(block, stride=2)
    for norm in (model.bn1, model.bn2):
        norm.momentum = 1.0
    assert_same(model, drawn())
    assert passes_that_ran()["forward"] == 2


@both_ways
@pytest.mark.parametrize("is_autocast", [False, True], ids=["", "autocast"])
def test_no_python_runs_where_cpp_can(logs, way, is_autocast, monkeypatch):
    dtype = torch.bfloat16 if is_autocast else torch.float32
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE, dtype=str(dtype).removeprefix("torch."))])
    model, x = Parts(WHOLE), drawn().detach().to(dtype).requires_grad_()
    if way == "compiled":
        for name in ("_block_forward", "_block_backward", "block_forward", "block_backward"):
            monkeypatch.setattr(blocks, name, None)
    with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
        z = model(x)
        if way == "compiled":
            z.sum().backward()
    assert passes_that_ran()["forward"] == 1 and model.conv.weight.dtype is torch.float32
    if way == "compiled":
        assert "CppNode" in z.grad_fn.name() and "DwconvBlock" in z.grad_fn.name()
        assert model.conv.weight.grad.dtype is torch.float32 and passes_that_ran()["backward"] == 1
    else:
        assert "CppNode" not in z.grad_fn.name()


@both_ways
def test_saved_tensors_may_come_back_lying_otherwise(planted, way):
    model, x = Parts(WHOLE), drawn()
    expected = step(copy.deepcopy(model), x)
    with torch.autograd.graph.saved_tensors_hooks(Packed, lambda packed: packed.copy):
        z = model(x * 1)
    weights = torch.linspace(-1, 1, z.numel(), dtype=torch.float64).view(z.shape).to(z.dtype)
    found = torch.autograd.grad((z * weights).sum(), [x, *model.parameters()])
    for got, wanted in zip(found, expected[1:], strict=False):
        torch.testing.assert_close(got, wanted)


@both_ways
@pytest.mark.parametrize("lies", ["channels first", "channels last", "negated"])
def test_the_gradient_of_the_result_may_lie_in_any_way(planted, lies, way):
    model, x = Parts(WHOLE), drawn()
    dz = torch.randn(SIZE, generator=torch.Generator().manual_seed(2))
    given = dz.contiguous(memory_format=torch.contiguous_format if lies == "channels first" else torch.channels_last)
    given = (-given)._neg_view() if lies == "negated" else given
    found = torch.autograd.grad(model(x), [x, *model.parameters()], given)
    exact, x = copy.deepcopy(model).double(), x.detach().double().requires_grad_()
    expected = torch.autograd.grad(exact(x), [x, *exact.parameters()], dz.double())
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=1e-3)


def test_a_frozen_first_norm_and_weight_get_no_gradient(planted):
    model, x = Parts(WHOLE), drawn()
    model.bn1.requires_grad_(False)
    model.conv.requires_grad_(False)
    assert_same(model, x)
    model(x).sum().backward()
    assert model.bn1.weight.grad is None and model.conv.weight.grad is None and model.bn2.weight.grad is not None


@pytest.mark.parametrize("block", [WHOLE, "none,bn+relu", "bn+silu,none"])
def test_a_second_norm_takes_a_bias_away_again(logs, block):
    """The running mean learns of it, and its gradient is zero. Nothing takes it away where there is no such norm."""
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=block)])
    model = Parts(block, bias=True)
    assert_same(model, drawn())
    ran = 0 if block == "bn+silu,none" else 2
    assert passes_that_ran() == {"forward": ran, "backward": ran}


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_nan_and_infinity_of_a_bias_propagate(planted, number):
    model = Parts(WHOLE, bias=True)
    with torch.no_grad():
        model.conv.bias[3] = number
    z = model(drawn())
    assert z[:, 3].isnan().all() and z[:, :3].isfinite().all() and passes_that_ran()["forward"] == 1


DTYPES = {"bfloat16": (torch.bfloat16, 2e-2), "float16": (torch.float16, 3e-3)}


@both_ways
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("is_autocast", [True, False], ids=["autocast", "as they are"])
@pytest.mark.parametrize("name", DTYPES)
def test_images_of_16_bits(logs, name, is_autocast, bias, way):
    """Norms hold float32; a weight does under autocast. Half of the bits are kept for the backward pass."""
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE, dtype=name)])
    dtype, allowed = DTYPES[name]
    model, x = Parts(WHOLE, bias=bias), drawn().detach().to(dtype).requires_grad_()
    exact = copy.deepcopy(model).double()
    if not is_autocast:
        model.conv.to(dtype)
        exact.conv.load_state_dict(model.conv.state_dict())
    with torch.autocast("cpu", dtype, enabled=is_autocast):
        found = step(model, x)
    expected = step(exact, x.detach().double().requires_grad_())
    assert found[0].dtype is dtype and passes_that_ran() == {"forward": 1, "backward": 1}
    for got, wanted in zip(found, expected, strict=True):
        scale = float(wanted.abs().max())
        torch.testing.assert_close(got.double(), wanted.double(), rtol=allowed, atol=allowed * max(1.0, scale))


@pytest.mark.parametrize(
    "case", ["looked at inside, used outside", "autocast in another type", "float32 under autocast"]
)
def test_images_of_16_bits_one_by_one(logs, case):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE, dtype=dtype) for dtype in ("bfloat16", "float32")])
    model, x = Parts(WHOLE, bias=True), drawn()
    exact = copy.deepcopy(model).double()
    kept = []
    if case == "looked at inside, used outside":
        model.between = {"conv": lambda y: (kept.append(y), y * 2)[1]}
        exact.between = {"conv": lambda y: y * 2}
    x = x if case == "float32 under autocast" else x.detach().bfloat16().requires_grad_()
    lowered = torch.float16 if case == "autocast in another type" else torch.bfloat16
    with torch.autocast("cpu", lowered):
        z = model(x)
    expected = exact(x.detach().double())
    torch.testing.assert_close(z.double(), expected, rtol=3e-2, atol=0.1)
    assert passes_that_ran()["forward"] == 0


# -- whatever else is done -------------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("other", OTHERS)
def test_whatever_else_is_done_is_right(planted, other, way):
    model = Parts(WHOLE)
    name, do = OTHERS[other]
    model.between = {name: do}
    assert_same(model, drawn())
    assert passes_that_ran()["forward"] == (2 * (1 + other.startswith("twice")) if "last norm" in other else 0)


@pytest.mark.parametrize("name", ["bn1", "act1", "conv", "bn2"])
@pytest.mark.parametrize("inplace", [False, True], ids=["", "in place"])
def test_what_is_used_after_the_block_as_well_is_right(planted, name, inplace):
    """As a skip connection does. It is computed again, and the statistics learn once."""

    class Skipping(Parts):
        def forward(self, x: Tensor) -> Tensor:
            kept = []
            self.between = {name: lambda h: (kept.append(h), h)[1]}
            z = super().forward(x)
            return z + kept[0] * 0.5

    assert_same(Skipping(WHOLE, inplace=inplace), drawn())
    assert passes_that_ran() == {"forward": 2, "backward": 2}


def test_what_is_used_before_and_after_is_right(planted):
    class Gated(Parts):
        def forward(self, x: Tensor) -> Tensor:
            kept = []
            self.between = {"act1": lambda h: (kept.append(h.mean()), h)[1]}
            return super().forward(x) * kept[0]

    assert_same(Gated(WHOLE), drawn())
    assert passes_that_ran()["forward"] == 0


CHANGES = {
    "a norm that does not train": lambda model: model.bn2.eval(),
    "a norm without weights": lambda model: setattr(model, "bn1", nn.BatchNorm2d(CHANNELS, affine=False)),
    "another norm": lambda model: setattr(model, "bn1", nn.GroupNorm(2, CHANNELS)),
    "instance norm": lambda model: setattr(model, "bn2", nn.InstanceNorm2d(CHANNELS, affine=True)),
    "another eps": lambda model: setattr(model.bn2, "eps", 1e-2),
    "another dilation": lambda model: setattr(model.conv, "dilation", (2, 2)),
    "another activation": lambda model: setattr(model, "act1", nn.ReLU()),
    "a dense convolution": lambda model: setattr(model, "conv", nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)),
    "fewer groups": lambda model: (
        setattr(model.conv, "groups", CHANNELS // 2),
        setattr(model.conv, "weight", nn.Parameter(torch.randn(CHANNELS, 2, 3, 3))),
    ),
    "a hook on its input": lambda model: model.conv.register_forward_pre_hook(lambda _, given: (given[0] * 2,)),
    "a hook on its result": lambda model: model.act1.register_forward_hook(lambda _, given, h: h + 1),
    "a backward hook": lambda model: model.bn2.register_full_backward_hook(lambda _, dx, dz: (dx[0] * 2,)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_since_is_right(planted, change):
    model = Parts(WHOLE)
    CHANGES[change](model)
    assert_same(model, drawn())
    assert passes_that_ran()["forward"] == 0


STILL_ONE = {
    "no momentum": lambda model: [setattr(norm, "momentum", None) for norm in (model.bn1, model.bn2)],
    "all of the last batch": lambda model: setattr(model.bn1, "momentum", 1.0),
    "frozen weights": lambda model: model.bn1.requires_grad_(False),
    "a frozen bias": lambda model: setattr(model.conv, "bias", nn.Parameter(torch.ones(CHANNELS), False)),
    "a frozen convolution": lambda model: model.conv.requires_grad_(False),
    "no statistics": lambda model: setattr(model, "bn2", nn.BatchNorm2d(CHANNELS, track_running_stats=False)),
    "PyTorch's layer": lambda model: setattr(model.conv, "__class__", nn.Conv2d),
    "a hook that reads sizes": lambda model: model.act1.register_forward_hook(lambda _, given, h: h.shape and None),
}


@pytest.mark.parametrize("change", STILL_ONE)
def test_norms_of_every_kind_learn_as_they_do(planted, change):
    model = Parts(WHOLE)
    STILL_ONE[change](model)
    assert_same(model, drawn(), steps=3)
    assert passes_that_ran() == {"forward": 3, "backward": 3}


# -- who looks -------------------------------------------------------------------------------------------------------


def test_it_is_what_it_stands_for(planted):
    model, x = Parts(WHOLE), drawn()
    kept = {}
    model.between = {name: lambda h, name=name: kept.setdefault(name, h) for name in ("bn1", "conv", "bn2")}
    model(x * 1)
    exact = copy.deepcopy(model).double()
    h = F.relu6(F.batch_norm(x.double(), None, None, exact.bn1.weight, exact.bn1.bias, True))
    y = kept["conv"]
    assert isinstance(y, AwaitedBlock) and y.shape == SIZE and y.dtype is torch.float32 and y.requires_grad
    assert (y.dim(), y.size(2), y.stride()) == (4, 9, exact.conv(h).stride())
    torch.testing.assert_close(y.detach().double(), exact.conv(h).detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(copy.deepcopy(y.detach()), pickle.loads(pickle.dumps(y.detach())))
    assert "AwaitedBlock" not in repr(y) and y.is_contiguous(memory_format=torch.channels_last)


@both_ways
def test_twice_differentiable(logs, way):
    def second(model, x):
        z = model(x * 1)
        first = torch.autograd.grad(z.pow(2).sum(), [x, *model.parameters()], create_graph=True)
        return torch.autograd.grad(sum(each.pow(2).sum() for each in first), [x, *model.parameters()])

    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block="bn+silu,none")])
    model, x = Parts("bn+silu,none"), drawn()
    expected = second(copy.deepcopy(model).double(), x.detach().double().requires_grad_())
    for got, wanted in zip(second(model, x), expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=2e-3, atol=2e-3)
    assert passes_that_ran()["forward"] == 1


@both_ways
def test_twice_differentiable_through_code_in_between(planted, way):
    def second(model, x):
        model.between = {"act1": Doubled.apply}
        first = torch.autograd.grad(model(x * 1).pow(2).sum(), [x, model.bn1.weight], create_graph=True)
        return torch.autograd.grad(sum(each.pow(2).sum() for each in first), [x, *model.parameters()])

    model, x = Parts(WHOLE), drawn()
    expected = second(copy.deepcopy(model).double(), x.detach().double().requires_grad_())
    for got, wanted in zip(second(model, x), expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=2e-3, atol=2e-3)


@both_ways
def test_gradients_add_up(planted, way):
    model, x = Parts(WHOLE), drawn()
    exact = copy.deepcopy(model).double()
    for each, given in ((model, x), (exact, x.detach().double())):
        for _ in range(3):
            each(given).square().sum().backward()
    for ours, theirs in zip(model.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(planted, reentrant):
    class Checkpointed(Parts):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=reentrant) * 2

    model, x = Checkpointed(WHOLE), drawn()
    exact = copy.deepcopy(model).double()
    for each, given in ((model, x), (exact, x.detach().double().requires_grad_())):
        each(given).square().sum().backward()
    assert passes_that_ran()["backward"] == 1
    for ours, theirs in zip([x, *model.parameters()], [given, *exact.parameters()], strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-3, atol=1e-3)


def waits(model: Parts, x: Tensor) -> bool:
    return isinstance(started(x, model.place), AwaitedBlock)


def test_it_waits_only_where_it_can_be_one(planted):
    model, x = Parts(WHOLE), drawn()
    assert waits(model, x) and waits(model, drawn((5, 8, 9, 7)))  # a kernel is of any batch
    with torch.no_grad():
        assert not waits(model, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not waits(model, x)
        assert model(x).dtype is torch.bfloat16
    others = {
        "double": x.double(), "contiguous": x.detach().contiguous(), "another size": drawn((2, 8, 9, 9)),
        "other channels": drawn((2, 4, 9, 7)), "empty": drawn((0, 8, 9, 7)), "an image": x[0],
        "a subclass": nn.Buffer(x),
    }  # fmt: skip
    for name, other in others.items():
        assert waits(model, other) is (name == "a subclass"), name
    place = dataclasses.replace(model.place, weight_shape=(CHANNELS, 1, 15, 15))
    assert started(x, place) is x
    with torch.inference_mode():
        inside = torch.ones(SIZE).to(memory_format=torch.channels_last)
    assert not waits(model, inside)
    assert torch.equal(torch.func.vmap(lambda each: started(each, model.place))(x[None]), x[None])


def test_it_does_not_wait_where_it_was_measured_to_be_slower(logs):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)], baseline_us=20.0)
    model = Parts(WHOLE)
    assert not waits(model, drawn())
    assert_same(model, drawn())


def test_one_value_per_channel_is_pytorchs_error(logs):
    plant(logs / "cpu.jsonl", [workload_of(shape=(1, 8, 1, 1), block=WHOLE)])
    model = Parts(WHOLE)
    assert waits(model, drawn((1, 8, 1, 1)))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        model(drawn((1, 8, 1, 1)))


def test_compiled_code_is_right(planted):
    model, x = Parts(WHOLE), drawn()
    exact = copy.deepcopy(model).double()
    torch._dynamo.reset()
    z = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(z.double(), exact(x.double()), rtol=1e-4, atol=1e-4)
    assert passes_that_ran() == {"forward": 0, "backward": 0}


def test_what_has_changed_is_not_read(planted):
    model, x = Parts(WHOLE), drawn()
    kept = []
    model.between = {"act1": lambda h: (kept.append(h), h)[1]}
    model(x * 1).sum().backward()
    with torch.no_grad():
        model.bn1.weight.add_(1)
    with pytest.raises(InvalidCall, match="after the weight of its norm1 changed in place"):
        kept[0].sum()


@both_ways
def test_gradients_are_not_of_what_has_changed(planted, way):
    model, x = Parts(WHOLE), drawn()
    model.between = {"act1": Doubled.apply}
    z = model(x * 1)
    with torch.no_grad():
        model.bn1.weight.add_(1)
    with pytest.raises((InvalidCall, RuntimeError), match="after the weight of its norm1 changed in place"):
        z.sum().backward()


def test_without_kernels_the_ops_are_pytorchs(logs):
    """As where a kernel could not be built: forward and backward run one after the other, inside of the ops."""
    x, w = drawn(), torch.randn(CHANNELS, 1, 3, 3, requires_grad=True)
    norms = [torch.randn(CHANNELS, requires_grad=True) for _ in range(4)]
    geometry = ((1, 1), (1, 1, 1, 1), (1, 1), "nhwc")
    z, y, *statistics = blocks.block_forward(x, w, norms, WHOLE, *geometry)
    exact = [each.detach().double().requires_grad_() for each in (x, w, *norms)]
    h = F.relu6(F.batch_norm(exact[0], None, None, *exact[2:4], True))
    expected_y = F.conv2d(h, exact[1], padding=1, groups=CHANNELS)
    expected = F.hardswish(F.batch_norm(expected_y, None, None, *exact[4:], True))
    found = torch.autograd.grad(z.square().sum(), [x, w, *norms])
    wanted = torch.autograd.grad(expected.square().sum(), exact)
    moments = [torch.var_mean(each, (0, 2, 3), correction=0) for each in (exact[0], expected_y)]
    means = [each for variance, mean in moments for each in (mean, variance)]
    for got, right in zip([z, y, *statistics, *found], [expected, expected_y, *means, *wanted], strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-3, atol=1e-3)
