"""Norms and activations around a convolution are one with it in evaluation where that is faster; whatever else code
does on the way gives the same numbers, and no statistic moves."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dwconv.call.awaited_block import AwaitedBlock, started
from dwconv.errors import InvalidCall
from tests.call.block_parts import (
    CHANNELS,
    MODES,
    OTHERS,
    SIZE,
    WHOLE,
    Parts,
    assert_infers_the_same,
    assert_same,
    blocks_in_evaluation,
    drawn,
    in_evaluation,
    learnt,
    passes_that_ran,
)
from tests.native_needed import needs_native
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")  # the convolution alone is not planted


def known(logs, block: str = WHOLE, **other) -> None:
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=block, **other)], passes=["inference"])


@pytest.fixture(params=["", "learnt"])
def planted(logs, request):
    """Whether Python follows such blocks for the first time, or C++ does, as far as they are the same."""
    known(logs)
    if not request.param:
        yield
        return
    needs_native()
    with learnt(in_evaluation(), in_evaluation(inplace=True)):
        yield


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inplace", [False, True], ids=["", "in place"])
@pytest.mark.parametrize("block", [WHOLE, "none,bn+relu", "bn+silu,none", "bn,bn"])
def test_a_block_runs_as_one(logs, block, inplace, mode):
    known(logs, block)
    model = in_evaluation(block, inplace=inplace)
    before = [buffer.clone() for buffer in model.buffers()]
    for _ in range(2):
        assert_infers_the_same(model, MODES[mode])
    assert blocks_in_evaluation() == 2 and passes_that_ran() == {"forward": 0, "backward": 0}
    assert all(torch.equal(one, other) for one, other in zip(before, model.buffers(), strict=True))


@pytest.mark.parametrize("block", [WHOLE, "none,bn+relu", "bn+silu,none"])
def test_a_bias_comes_off_the_mean(logs, block):
    """Of a block without a second norm it does not."""
    known(logs, block)
    model = in_evaluation(block, bias=True)
    for _ in range(2):
        assert_infers_the_same(model)
    assert blocks_in_evaluation() == 2 * (block != "bn+silu,none")


@pytest.mark.parametrize("is_autocast", [True, False], ids=["autocast", "as they are"])
@pytest.mark.parametrize(("name", "allowed"), [("bfloat16", 2e-2), ("float16", 3e-3)])
def test_images_of_16_bits(logs, name, allowed, is_autocast):
    known(logs, dtype=name)
    dtype = getattr(torch, name)
    model, x = in_evaluation(bias=True), drawn().detach().to(dtype)
    exact = copy.deepcopy(model).double()
    if not is_autocast:
        model.conv.to(dtype)
        exact.conv.load_state_dict(model.conv.state_dict())
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=is_autocast):
        found = [model(x) for _ in range(2)]
    with torch.no_grad():
        expected = exact(x.double())
    for z in found:
        assert z.dtype is dtype
        torch.testing.assert_close(z.double(), expected, rtol=allowed, atol=allowed * float(expected.abs().max()))
    assert blocks_in_evaluation() == 2


# -- whatever else is done ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("other", OTHERS)
def test_whatever_else_is_done_is_right(planted, other, mode):
    model = in_evaluation()
    name, do = OTHERS[other]
    model.between = {name: do}
    assert_infers_the_same(model, MODES[mode])
    assert blocks_in_evaluation() == ("last norm" in other) * (1 + other.startswith("twice"))


@pytest.mark.parametrize("name", ["bn1", "act1", "conv", "bn2"])
@pytest.mark.parametrize("inplace", [False, True], ids=["", "in place"])
def test_what_is_used_after_the_block_as_well_is_right(planted, name, inplace):
    class Skipping(Parts):
        def forward(self, x: Tensor) -> Tensor:
            kept = []
            self.between = {name: lambda h: (kept.append(h), h)[1]}
            z = super().forward(x)
            return z + kept[0] * 0.5

    assert_infers_the_same(in_evaluation(kind=Skipping, inplace=inplace))
    assert blocks_in_evaluation() == 1


def test_a_second_activation_of_the_same_norm_is_right(logs):
    """In place, which must not show in what came of the norm before."""
    known(logs, "bn+hardswish,bn")

    def both(h: Tensor) -> Tensor:
        first = F.hardswish(h)
        F.hardswish(h, inplace=True)
        return h * 2 + first

    model = in_evaluation("bn+hardswish,bn")
    model.between = {"bn1": both}
    assert_infers_the_same(model)
    assert blocks_in_evaluation() == 0


MODES_OF_NORMS = {
    "all train": lambda model: model.train(),
    "the first trains": lambda model: model.bn1.train(),
    "the second trains": lambda model: model.bn2.train(),
    "no momentum, all train": lambda model: [setattr(model.train().bn1, "momentum", None)],
    "statistics of the batch": lambda model: setattr(
        model, "bn2", nn.BatchNorm2d(CHANNELS, track_running_stats=False).eval()
    ),
    "without weights": lambda model: setattr(model, "bn1", nn.BatchNorm2d(CHANNELS, affine=False).eval()),
    "another eps": lambda model: setattr(model.bn2, "eps", 0.1),
    "another activation": lambda model: setattr(model, "act1", nn.ReLU()),
    "a hook": lambda model: model.act1.register_forward_hook(lambda _, given, h: h + 1),
    "another dilation": lambda model: setattr(model.conv, "dilation", (2, 2)),
}
STILL_ONE = {
    "no momentum": lambda model: setattr(model.bn1, "momentum", None),
    "frozen in a model that trains": lambda model: (model.train(), model.bn1.eval(), model.bn2.eval()),
    "PyTorch's layer": lambda model: setattr(model.conv, "__class__", nn.Conv2d),
    "one value per channel": lambda model: None,
}


@pytest.mark.parametrize("change", MODES_OF_NORMS)
def test_statistics_are_those_that_pytorch_takes(planted, change):
    model = in_evaluation()
    MODES_OF_NORMS[change](model)
    assert_infers_the_same(model)
    assert blocks_in_evaluation() == 0


@pytest.mark.parametrize("change", STILL_ONE)
def test_what_changes_no_number_stays_one(logs, change):
    shape = (1, 8, 1, 1) if "one value" in change else SIZE
    plant(logs / "cpu.jsonl", [workload_of(shape=shape, block=WHOLE)], passes=["inference"])
    model = in_evaluation()
    STILL_ONE[change](model)
    assert_infers_the_same(model, x=drawn(shape).detach())
    assert blocks_in_evaluation() == 1


def test_train_evaluate_train_evaluate(logs):
    """Every epoch: each mode as one, with the statistics of its moment."""
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)], passes=["forward", "backward", "inference"])
    model = Parts(WHOLE)
    for epoch in (1, 2):
        assert_same(model.train(), drawn(), steps=1)
        assert_infers_the_same(model.eval())
        assert blocks_in_evaluation() == epoch and passes_that_ran() == {"forward": epoch, "backward": epoch}


def test_gradients_in_evaluation_are_pytorchs(planted):
    """As of a frozen model that something else learns through."""
    assert_same(in_evaluation(), drawn(), steps=1)
    assert blocks_in_evaluation() == 0


def test_a_gradient_from_the_middle_on_is_recorded(planted):
    model, x = in_evaluation(), drawn().detach()
    with torch.no_grad():
        h = started(x, model.place)
        h = model.act1(model.bn1(h))
    assert isinstance(h, AwaitedBlock)
    z = model.act2(model.bn2(model.conv(h)))
    z.sum().backward()
    assert model.conv.weight.grad is not None and model.bn1.weight.grad is None and blocks_in_evaluation() == 0


# -- who looks ---------------------------------------------------------------------------------------------------------


def test_it_is_what_it_stands_for(planted):
    model, kept = in_evaluation(), {}
    model.between = {name: lambda h, name=name: kept.setdefault(name, h) for name in ("bn1", "conv")}
    with torch.no_grad():
        model(drawn())
        y = kept["conv"]
        h = F.relu6(model.bn1(drawn()))
        expected = F.conv2d(h, model.conv.weight, padding=1, groups=CHANNELS)
    assert isinstance(y, AwaitedBlock) and y.shape == SIZE and y.dtype is torch.float32 and not y.requires_grad
    assert y.stride() == expected.stride() and "AwaitedBlock" not in repr(y)
    torch.testing.assert_close(y.clone(), expected, rtol=1e-4, atol=1e-4)


def test_what_has_changed_is_not_read(planted):
    """x before the block has ended, or later what a hook has kept."""
    model, x = in_evaluation(), drawn().detach().clone(memory_format=torch.preserve_format)
    kept = []
    model.between = {"act1": lambda h: (kept.append(h), h)[1]}
    with torch.no_grad():
        model(x)
        model.bn1.running_mean += 1
        with pytest.raises(InvalidCall, match="after a weight or a statistic of its norm1 changed in place; clone"):
            kept[0].sum()
        model.between = {"act1": lambda h: (x.add_(1), h)[1]}
        with pytest.raises(InvalidCall, match="after x changed in place"):
            model(x)


def waits(model: Parts, x: Tensor) -> bool:
    return isinstance(started(x, model.place), AwaitedBlock)


def test_it_waits_only_where_it_can_be_one(planted):
    model, x = in_evaluation(), drawn().detach()
    assert not waits(model, x)  # what is to come may be recorded
    with torch.inference_mode():
        assert waits(model, x) and waits(model, torch.ones(SIZE).to(memory_format=torch.channels_last))
    with torch.no_grad():
        assert waits(model, x) and waits(model, drawn((5, 8, 9, 7)))  # a kernel is of any batch
        others = (x.double(), x.contiguous(), drawn((2, 8, 9, 9)), drawn((2, 4, 9, 7)), drawn((0, 8, 9, 7)), x[0])
        assert not any(waits(model, other) for other in others)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not waits(model, x)
        assert torch.equal(torch.func.vmap(lambda each: started(each, model.place))(x[None]), x[None])


@pytest.mark.parametrize("mode", [contextlib.nullcontext, *MODES.values()])
def test_it_does_not_wait_where_it_was_measured_to_be_slower(logs, mode):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)], passes=["inference"], baseline_us=20.0)
    with mode():
        assert not waits(in_evaluation(), drawn().detach())


def test_a_kernel_that_cannot_be_had_is_none_too_many(logs, monkeypatch):
    """It was measured, and is wrong here."""
    known(logs)
    monkeypatch.setattr("dwconv.call.loaded.fault_in", lambda *_: "gave wrong results when it was checked here")
    with pytest.warns(match="its tuned kernel gave wrong results"):
        assert_infers_the_same(in_evaluation())
    assert_infers_the_same(in_evaluation())
    assert blocks_in_evaluation() == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_tracers_and_compilers_see_pytorchs_functions(planted):
    model, x = in_evaluation(), drawn().detach()
    exact = copy.deepcopy(model).double()
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x).double(), exact(x.double()), rtol=1e-4, atol=1e-4)
        assert "batch_norm" in str(torch.jit.trace(model, x, check_trace=False).inlined_graph)
    assert blocks_in_evaluation() == 0
