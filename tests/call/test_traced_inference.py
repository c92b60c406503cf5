"""Norms and activations around a convolution are one with it in evaluation where that is faster; whatever else code
does on the way gives the same numbers, and no statistic moves."""

from __future__ import annotations

import sys
import threading

import pytest
import torch
from torch import nn

from dwconv.problems.workload import BLOCK_PASSES, EVAL_PASSES
from tests.call.block_checks import alone_is_not_planted, each_way, plant_block
from tests.call.block_parts import (
    MODES,
    OTHERS,
    SIZE,
    WHOLE,
    Parts,
    assert_infers_the_same,
    assert_same,
    blocks_in_evaluation,
    drawn,
    in_double,
    in_evaluation,
    python_runs_no_block,
    ran,
    trace,
    written,
)
from tests.native_needed import both_ways

pytestmark = alone_is_not_planted


def known(logs, block: str = WHOLE, **other) -> None:
    plant_block(logs, block, passes=["inference"], **other)


@pytest.fixture
def planted(logs):
    known(logs)


@each_way([WHOLE, "none,bn+relu", "bn+silu,none", "bn,bn"], kinds=["", "in place", "written"])
def test_a_block_runs_as_one(logs, block, kind, way):
    known(logs, block)
    model = in_evaluation(block, inplace=kind == "in place")
    model = written(model).eval() if kind == "written" else model
    before = [buffer.clone() for buffer in model.buffers()]
    assert_infers_the_same(model)
    assert blocks_in_evaluation() == 2 and ran() == (0, 0)
    assert all(torch.equal(one, other) for one, other in zip(before, model.buffers(), strict=True))


def test_no_python_runs_where_cpp_can(planted, monkeypatch):
    model = in_evaluation()
    with torch.no_grad():
        expected = model(drawn())
        python_runs_no_block(monkeypatch)
        assert torch.equal(model(drawn()), expected) and blocks_in_evaluation() == 2


@both_ways
@pytest.mark.parametrize("block", [WHOLE, "none,bn+relu", "bn+silu,none"])
def test_a_bias_comes_off_the_mean(logs, block, way):
    """Of a block without a second norm it does not."""
    known(logs, block)
    assert_infers_the_same(in_evaluation(block, bias=True))
    assert blocks_in_evaluation() == 2 * (block != "bn+silu,none")


@pytest.mark.parametrize("is_autocast", [True, False], ids=["autocast", "as they are"])
@pytest.mark.parametrize(("name", "allowed"), [("bfloat16", 2e-2), ("float16", 3e-3)])
def test_images_of_16_bits(logs, name, allowed, is_autocast):
    known(logs, dtype=name)
    dtype = getattr(torch, name)
    model, x = in_evaluation(bias=True), drawn().detach().to(dtype)
    exact = in_double(model)
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


@pytest.mark.parametrize("other", ["a custom function", "in place", "looked at by Python", "a view", "not recorded"])
def test_whatever_else_is_done_is_right(planted, other):
    name, do = OTHERS[other]
    assert_infers_the_same(in_evaluation(between={name: do}))
    assert blocks_in_evaluation() == 0


REPLACED = {
    "no momentum": lambda model: setattr(model.bn1, "momentum", None),
    "a weight": lambda model: setattr(model.conv, "weight", nn.Parameter(model.conv.weight.detach() * 2)),
    "a norm's weight": lambda model: setattr(model.bn1, "weight", nn.Parameter(model.bn1.weight.detach() + 1)),
    "a statistic": lambda model: setattr(model.bn2, "running_mean", model.bn2.running_mean + 1),
    "a statistic, in place": lambda model: model.bn2.running_var.mul_(2),
    "all, loaded": lambda model: model.load_state_dict({k: v * 1.5 for k, v in model.state_dict().items()}),
    "all, made in inference_mode": lambda model: _made_in_inference_mode(model),
    "a weight that is a bias as well": lambda model: setattr(model.bn2, "bias", model.bn2.weight),
    "a mean that is a bias as well": lambda model: setattr(model.bn1, "running_mean", model.bn1.bias.detach()),
}


def _made_in_inference_mode(model: Parts) -> None:
    with torch.inference_mode():
        for module in model.modules():
            for name, each in module._parameters.items():
                setattr(module, name, None if each is None else nn.Parameter(each * 2, requires_grad=False))
            for name, each in module._buffers.items():
                setattr(module, name, each * 2)


@both_ways
@pytest.mark.parametrize("change", REPLACED)
def test_what_is_replaced_between_calls_is_read_anew(planted, change, way):
    model = in_evaluation()
    assert_infers_the_same(model)
    REPLACED[change](model)
    assert_infers_the_same(model)
    assert blocks_in_evaluation() == 4


def test_one_value_per_channel_is_none(logs):
    """It lies in both ways, and PyTorch's ops give it now in one, now in the other."""
    plant_block(logs, WHOLE, shape=(1, 8, 1, 1), passes=["inference"])
    assert_infers_the_same(in_evaluation(), x=drawn((1, 8, 1, 1)).detach())
    assert blocks_in_evaluation() == 0


def test_frozen_in_a_model_that_trains_it_is_right(planted):
    model = in_evaluation()
    model.train()
    model.bn1.eval(), model.bn2.eval()
    trace(model)
    assert_infers_the_same(model)


@both_ways
def test_train_evaluate_train_evaluate(logs, way):
    """Every epoch: each mode as one, with the statistics of its moment; with gradients, evaluation is one by one."""
    plant_block(logs, WHOLE, passes=[*BLOCK_PASSES, *EVAL_PASSES])
    model = Parts(WHOLE)
    for epoch in (1, 2):
        assert_same(model.train(), drawn())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
            model(drawn())  # as to count anew: statistics learn, one by one
        for mode in MODES.values():
            assert_infers_the_same(model.eval(), mode)
        assert_same(model, drawn(), steps=1)
        assert blocks_in_evaluation() == 4 * epoch
        assert ran() == (2 * epoch, 2 * epoch)


@both_ways
def test_it_is_one_only_where_it_can_be(planted, way):
    model, x = in_evaluation(), drawn().detach()

    def is_one(x: torch.Tensor) -> bool:
        before = blocks_in_evaluation()
        model(x)
        return blocks_in_evaluation() > before

    for _ in range(2):
        assert not is_one(x)  # what is to come may be recorded
        with torch.inference_mode():
            assert is_one(x) and is_one(torch.ones(SIZE).to(memory_format=torch.channels_last))
        with torch.no_grad():
            assert is_one(x) and is_one(drawn((5, 8, 9, 7)))  # a kernel is of any batch
            assert not is_one(x.contiguous()) and not is_one(drawn((2, 8, 9, 9))) and not is_one(drawn((0, 8, 9, 7)))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert not is_one(x)
            before = blocks_in_evaluation()
            assert torch.allclose(torch.func.vmap(model)(x[None])[0], model(x), atol=1e-4)
            assert blocks_in_evaluation() == before + 1


def test_images_of_inference_mode_are_not_trained_on(planted):
    """As in PyTorch, whatever was learnt of them."""
    model = in_evaluation()
    with torch.inference_mode():
        x = drawn().detach() * 1
    with torch.no_grad():
        model(x)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        model.train()(x)
    assert blocks_in_evaluation() == 1


def test_it_is_not_one_where_it_was_measured_to_be_slower(logs):
    plant_block(logs, WHOLE, passes=["inference"], baseline_us=20.0)
    with torch.no_grad():
        in_evaluation()(drawn().detach())
    assert blocks_in_evaluation() == 0


def test_a_kernel_that_cannot_be_had_is_none_too_many(planted, monkeypatch):
    """It was measured, and is wrong here."""
    monkeypatch.setattr(
        "dwconv.call.process_kernels.fault_in", lambda *_: "gave wrong results when it was checked here"
    )
    with pytest.warns(match="its tuned kernel gave wrong results"):
        assert_infers_the_same(in_evaluation())
    assert blocks_in_evaluation() == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_tracers_and_compilers_see_pytorchs_functions(planted):
    model, x = in_evaluation(), drawn().detach()
    exact = in_double(model)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x).double(), exact(x.double()), rtol=1e-4, atol=1e-4)
        assert "batch_norm" in str(torch.jit.trace(model, x, check_trace=False).inlined_graph)
    assert blocks_in_evaluation() == 0


@both_ways
def test_threads_evaluate_side_by_side(planted, way):
    """From the first call on. Whether one of them is in no_grad is its own affair."""
    model, x, found = in_evaluation(), drawn().detach(), []
    interval = sys.getswitchinterval()

    def evaluate() -> None:
        with torch.no_grad():
            found.extend(model(x) for _ in range(20))

    threads = [threading.Thread(target=evaluate) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    with torch.no_grad():
        expected = in_double(model)(x.double())
    assert len(found) == 80 and all(torch.allclose(z.double(), expected, atol=1e-4) for z in found)
