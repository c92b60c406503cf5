"""Norms and activations around a convolution train as one with it where that is faster; whatever else code does on the
way gives the same numbers, gradients and running statistics."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dwconv.call import block_ops, guarded_forward
from dwconv.call.call_plan import plans
from dwconv.call.frozen_forward import plain_class
from dwconv.errors import InvalidCall
from tests.call.block_checks import alone_is_not_planted, assert_runs_as_one, each_way, plant_block
from tests.call.block_parts import (
    CHANNELS,
    OTHERS,
    SIZE,
    WHOLE,
    Parts,
    assert_same,
    assert_same_where_saved_tensors_lie_otherwise,
    drawn,
    in_double,
    python_runs_no_block,
    ran,
    step,
    trace,
    written,
)
from tests.native_needed import both_ways

pytestmark = alone_is_not_planted


@pytest.fixture
def planted(logs):
    plant_block(logs, WHOLE)


@each_way([WHOLE, "none,bn+relu", "bn+silu,none", "bn,bn"], kinds=["", "in place", "written"])
def test_a_block_runs_as_one(logs, block, kind, way):
    plant_block(logs, block)
    assert_runs_as_one(block, kind)
    assert not [plan for plan in plans() if not plan.problem.block and plan.problem.dtype is torch.float32]


@both_ways
@pytest.mark.parametrize("block", [WHOLE, "none,bn+relu", "bn+silu,none"])
def test_running_variances_are_of_as_many_values_as_their_image_has(logs, block, way):
    """With a stride x has four times as many as y."""
    plant_block(logs, block, stride=2)
    model = Parts(block, stride=2)
    model.bn1.momentum = model.bn2.momentum = 1.0
    trace(model)
    assert_same(model, drawn())
    assert ran() == (2, 2)


@pytest.mark.parametrize("kind", ["", "written"])
@pytest.mark.parametrize("is_autocast", [False, True], ids=["", "autocast"])
@both_ways
def test_no_python_runs_where_cpp_can(logs, way, is_autocast, kind, monkeypatch):
    dtype = torch.bfloat16 if is_autocast else torch.float32
    plant_block(logs, WHOLE, dtype=str(dtype).removeprefix("torch."))
    model, x = Parts(WHOLE), drawn().detach().to(dtype).requires_grad_()
    model = written(model) if kind else model
    with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
        z = model(x)
        if way == "compiled":
            python_runs_no_block(monkeypatch)
            z = model(x)
            z.sum().backward()
            assert model.bn1.num_batches_tracked == 2 and ran() == (2, 1)
            assert model.conv.weight.grad.dtype is torch.float32
            storages = {each.grad.untyped_storage().data_ptr() for each in model.parameters()}
            assert len(storages) == 1 + is_autocast, "gradients share an allocation, but for one that autograd casts"
    assert ("CppNode" in z.grad_fn.name()) is (way == "compiled") and "DwconvBlock" in z.grad_fn.name()


@both_ways
def test_saved_tensors_may_come_back_lying_otherwise(planted, way):
    assert_same_where_saved_tensors_lie_otherwise(Parts(WHOLE))
    assert ran()[0] == 3


@both_ways
@pytest.mark.parametrize("lies", ["channels first", "channels last", "negated"])
def test_the_gradient_of_the_result_may_lie_in_any_way(planted, lies, way):
    model, x = Parts(WHOLE), drawn()
    dz = torch.randn(SIZE, generator=torch.Generator().manual_seed(2))
    given = dz.contiguous(memory_format=torch.contiguous_format if lies == "channels first" else torch.channels_last)
    given = (-given)._neg_view() if lies == "negated" else given
    exact, double = in_double(model), x.detach().double().requires_grad_()
    expected = torch.autograd.grad(exact(double), [double, *exact.parameters()], dz.double())
    for _ in range(2):
        found = torch.autograd.grad(model(x), [x, *model.parameters()], given)
        for got, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=1e-3)


@both_ways
@pytest.mark.parametrize("is_later", [False, True], ids=["", "there now"])
@pytest.mark.parametrize("block", [WHOLE, "none,bn+relu", "bn+silu,none"])
def test_a_second_norm_takes_a_bias_away_again(logs, block, way, is_later):
    """The running mean learns of it, and its gradient is zero. Nothing takes it away where there is no such norm."""
    plant_block(logs, block)
    model = Parts(block, bias=not is_later)
    if is_later:
        model.conv.bias = nn.Parameter(torch.ones(CHANNELS))
    assert_same(model, drawn())
    assert ran() == ((0, 0) if block == "bn+silu,none" else (2, 2))


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_nan_and_infinity_of_a_bias_propagate(planted, number):
    model = Parts(WHOLE, bias=True)
    with torch.no_grad():
        model.conv.bias[3] = number
    for _ in range(2):
        z = model(drawn())
        assert z[:, 3].isnan().all() and z[:, :3].isfinite().all()
    assert ran()[0] == 2


DTYPES = {"bfloat16": (torch.bfloat16, 2e-2), "float16": (torch.float16, 3e-3)}


@both_ways
@pytest.mark.parametrize("is_autocast", [True, False], ids=["autocast, with a bias", "as they are"])
@pytest.mark.parametrize("name", DTYPES)
def test_images_of_16_bits(logs, name, is_autocast, way):
    """Norms hold float32; a weight does under autocast. Half of the bits are kept for the backward pass."""
    plant_block(logs, WHOLE, dtype=name)
    dtype, allowed = DTYPES[name]
    model, x = Parts(WHOLE, bias=is_autocast), drawn().detach().to(dtype).requires_grad_()
    exact = in_double(model)
    if not is_autocast:
        model.conv.to(dtype)
        exact.conv.load_state_dict(model.conv.state_dict())
    for _ in range(2):
        with torch.autocast("cpu", dtype, enabled=is_autocast):
            found = step(model, x)
        expected = step(exact, x.detach().double().requires_grad_())
        assert found[0].dtype is dtype
        for got, wanted in zip(found, expected, strict=True):
            scale = float(wanted.abs().max())
            torch.testing.assert_close(got.double(), wanted.double(), rtol=allowed, atol=allowed * max(1.0, scale))
    assert ran() == (2, 2)


# -- whatever else is done ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", OTHERS)
def test_whatever_else_is_done_is_right(planted, other):
    name, do = OTHERS[other]
    assert_same(Parts(WHOLE, between={name: do}), drawn())
    assert ran() == (0, 0)


def test_a_model_that_is_as_it_was_again_has_its_block_again(planted, monkeypatch):
    monkeypatch.setattr(guarded_forward, "_RETRY", 3)
    model = Parts(WHOLE)
    hook = model.act1.register_forward_hook(lambda _, given, h: h + 1)
    assert_same(model, drawn(), steps=1)
    hook.remove()
    assert_same(model, drawn(), steps=4)
    assert ran() == (1, 1)


STILL_ONE = {
    "all of the last batch": lambda model: setattr(model.bn1, "momentum", 1.0),
    "a frozen bias": lambda model: setattr(model.conv, "bias", nn.Parameter(torch.ones(CHANNELS), False)),
    "a weight that is a bias as well": lambda model: setattr(model.bn2, "bias", model.bn2.weight),
    "another weight": lambda model: setattr(model.conv, "weight", nn.Parameter(torch.randn(CHANNELS, 1, 3, 3))),
    "another statistic": lambda model: setattr(model.bn2, "running_mean", torch.ones(CHANNELS)),
    "a weight that lies otherwise": lambda model: setattr(
        model.conv, "weight", nn.Parameter(torch.randn(CHANNELS, 1, 3, 3).transpose(2, 3))
    ),
}


@both_ways
@pytest.mark.parametrize("change", STILL_ONE)
def test_what_is_no_part_of_the_trace_is_read_in_every_step(planted, change, way):
    model = Parts(WHOLE)
    assert_same(model, drawn())
    STILL_ONE[change](model)
    assert_same(model, drawn())
    assert ran() == (4, 4)


def test_a_momentum_of_every_step(planted):
    model = Parts(WHOLE)
    model.bn2.momentum = None
    exact = in_double(model)
    for number in range(9):
        model.bn1.momentum = exact.bn1.momentum = number / 10
        step(model, drawn()), step(exact, drawn().detach().double().requires_grad_())
        for got, wanted in zip(model.buffers(), exact.buffers(), strict=True):
            torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-4, atol=1e-5)
    assert ran() == (9, 9) and model.bn1.num_batches_tracked == model.bn2.num_batches_tracked == 9


# -- gradients of other kinds ------------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("between", [False, True], ids=["", "code in between"])
def test_twice_differentiable(logs, between, way):
    def second(model, x):
        z = model(x * 1)
        first = torch.autograd.grad(z.pow(2).sum(), [x, *model.parameters()], create_graph=True)
        return torch.autograd.grad(sum(each.pow(2).sum() for each in first), [x, *model.parameters()])

    plant_block(logs, "bn+silu,none")
    model, x = Parts("bn+silu,none", between={"act1": torch.sin} if between else {}), drawn()
    expected = second(in_double(model), x.detach().double().requires_grad_())
    for _ in range(2):
        for got, wanted in zip(second(model, x), expected, strict=True):
            torch.testing.assert_close(got.double(), wanted, rtol=2e-3, atol=2e-3)
    assert ran()[0] == 2 * (not between)


@both_ways
def test_twice_differentiable_under_autocast(logs, way):
    """Down to the weight before autocast lowered it."""

    def second(model, x):
        (dx,) = torch.autograd.grad(model(x).double().pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(dx.double().pow(2).sum(), model.conv.weight)[0].double()

    plant_block(logs, "bn+silu,none", dtype="float16")
    model, x = Parts("bn+silu,none"), drawn().detach().half().requires_grad_()
    expected = second(in_double(model), x.detach().double().requires_grad_())
    for _ in range(2):
        with torch.autocast("cpu", torch.float16):
            found = second(model, x)
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2 * float(expected.abs().max()))
    assert ran()[0] == 2


@both_ways
def test_gradients_add_up(planted, way):
    model, x = Parts(WHOLE), drawn()
    exact = in_double(model)
    for each, given in ((model, x), (exact, x.detach().double())):
        for _ in range(3):
            each(given).square().sum().backward()
    for ours, theirs in zip(model.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(planted, reentrant):
    model, x = Parts(WHOLE), drawn()
    exact = in_double(model)
    for each, given in ((model, x), (exact, x.detach().double().requires_grad_())):
        checkpoint(each, given, use_reentrant=reentrant).square().sum().backward()
    for ours, theirs in zip([x, *model.parameters()], [given, *exact.parameters()], strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-3, atol=1e-3)
    for ours, theirs in zip(model.buffers(), exact.buffers(), strict=True) if reentrant else ():
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-4, atol=1e-5)
    assert ran()[1] == 1


@both_ways
def test_gradients_are_not_of_what_has_changed(planted, way):
    model = Parts(WHOLE)
    for _ in range(2):
        z = model(drawn())
        with torch.no_grad():
            model.bn1.weight.add_(1)
        with pytest.raises((InvalidCall, RuntimeError), match=r"modified by an inplace operation|changed in place"):
            z.sum().backward()


# -- where it can be one -----------------------------------------------------------------------------------------------


@both_ways
def test_it_is_one_only_where_it_can_be(planted, way):
    model = Parts(WHOLE)

    def is_one(x: Tensor) -> bool:
        before = ran()[0]
        model(x)
        return ran()[0] > before

    x = drawn()
    for _ in range(2):
        assert is_one(x) and is_one(drawn((5, 8, 9, 7))) and is_one(x.detach())  # a kernel is of any batch
        with torch.no_grad():
            assert not is_one(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not is_one(x) and model(x).dtype is torch.bfloat16
        assert not is_one(x.detach().contiguous()) and not is_one(drawn((2, 8, 9, 9)))
        assert not is_one(x.detach().as_subclass(type("Own", (Tensor,), {})))
        with torch.inference_mode():
            inside = torch.ones(SIZE).to(memory_format=torch.channels_last)
        with pytest.raises(RuntimeError):
            model(inside)
    with torch.no_grad():
        torch.func.vmap(lambda each: model.act1(each) * 1)(x[None])
    assert ran()[0] == 6


def test_it_is_not_one_where_it_was_measured_to_be_slower(logs):
    plant_block(logs, WHOLE, baseline_us=20.0)
    assert_same(Parts(WHOLE), drawn())
    assert ran() == (0, 0)


def test_one_value_per_channel_is_pytorchs_error(logs):
    plant_block(logs, WHOLE, shape=(1, 8, 1, 1))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        Parts(WHOLE)(drawn((1, 8, 1, 1)))


def test_another_number_of_threads_has_a_plan_of_its_own(planted):
    threads, model = torch.get_num_threads(), Parts(WHOLE)
    assert_same(model, drawn())
    torch.set_num_threads(threads + 1)
    try:
        assert_same(model, drawn())
    finally:
        torch.set_num_threads(threads)
    of_blocks = [plan for plan in plans() if plan.problem.block]
    assert {plan.target.threads: plan.tally.counted_ops()["forward"] for plan in of_blocks}[threads] == 2


# -- what stays --------------------------------------------------------------------------------------------------------


LEFT = {
    "": lambda model: None,
    "a norm that knows its model": lambda model: object.__setattr__(model.bn1, "owner", [model]),
    "a method of its own": lambda model: setattr(model, "_again", model.forward),
}


@pytest.mark.parametrize("kind", ["", "written"])
@both_ways
@pytest.mark.parametrize("what", LEFT)
def test_a_model_that_is_gone_leaves_no_weights(planted, kind, what, way):
    model = written(Parts(WHOLE)) if kind else Parts(WHOLE)
    LEFT[what](model)
    if kind:
        model.act1 = model.act1
    else:
        trace(model)
    for _ in range(2):
        step(model, drawn())
        with torch.no_grad():
            model.eval()(drawn())
        model.train()
    left = [weakref.ref(each) for each in (model, *model.modules(), *model.parameters(), *model.buffers())]
    assert ran()[0]
    del model
    gc.collect()
    assert not any(each() is not None for each in left)


def test_without_kernels_the_ops_are_pytorchs(logs):
    """As where a kernel could not be built: forward and backward run one after the other, inside of the ops."""
    x, w = drawn(), torch.randn(CHANNELS, 1, 3, 3, requires_grad=True)
    norms = [torch.randn(CHANNELS, requires_grad=True) for _ in range(4)]
    z, y, *statistics = block_ops.block_forward(x, w, norms, WHOLE, (1, 1), (1, 1, 1, 1), (1, 1), "nhwc")
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


@both_ways
@pytest.mark.parametrize("kind", ["apart", "other momenta", "shared"])
def test_running_statistics_with_gaps_learn_together(planted, way, kind):
    """As those of a GPU do; norms that share a buffer learn one after the other."""
    model = Parts(WHOLE)
    for norm in (model.bn1, model.bn2):
        for name in ("running_mean", "running_var"):
            setattr(norm, name, getattr(norm, name).repeat_interleave(2)[::2])
    model.bn2.momentum = 0.7 if kind == "other momenta" else model.bn1.momentum
    if kind == "shared":
        model.bn2.running_mean, model.bn2.running_var = model.bn1.running_mean, model.bn1.running_var
        model.bn2.num_batches_tracked = model.bn1.num_batches_tracked
    trace(model)
    plain = copy.deepcopy(model)
    plain.__class__ = plain_class(type(plain))
    for _ in range(3):
        for each in (model, plain):
            each(drawn()).sum().backward()
    assert ran() == (3, 3)
    for name, wanted in plain.named_buffers():
        torch.testing.assert_close(model.get_buffer(name), wanted, msg=name)
