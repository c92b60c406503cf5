"""Ops that C++ takes in PyTorch's dispatcher: the same bits as through Python, and what goes on to Python."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import dwconv
from dwconv import native
from dwconv.call import block_ops, silu_ops, torch_ops
from dwconv.call.call_plan import plans
from tests.native_needed import needs_native
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op. .*tune them"),
]
SHAPE = (2, 8, 9, 7)
GEOMETRY = ((1, 1), (1, 1, 1, 1), (1, 1), "nhwc")


@pytest.fixture(autouse=True)
def compiled():
    needs_native()


@pytest.fixture
def tuned(logs):
    plant(logs / "log.jsonl", [workload_of(), workload_of(bias=True)], baseline_us=1e6)


@pytest.fixture
def both_at_once(tuned, logs):
    plant(logs / "log.jsonl", [workload_of(block="none,none")], passes=["backward"], baseline_us=1e6)


def image(batch=2):
    return torch.randn(batch, *SHAPE[1:]).to(memory_format=torch.channels_last)


def calls_of_ops(x, dy, w, bias):
    sizes, kernel = list(x.shape), list(w.shape[2:])
    return {
        "fprop": lambda: torch_ops.fprop(x, w, None, *GEOMETRY),
        "fprop with bias": lambda: torch_ops.fprop(x, w, bias, *GEOMETRY),
        "dgrad": lambda: torch_ops.dgrad(dy, w, sizes, *GEOMETRY),
        "wgrad": lambda: torch_ops.wgrad(x, dy, kernel, *GEOMETRY),
        "wgrad_bias": lambda: torch_ops.wgrad_bias(x, dy, kernel, *GEOMETRY),
        "backward": lambda: torch_ops.backward(x, dy, w, *GEOMETRY),
    }


def ran_in_python():
    """How many passes of ops Python ran so far."""
    return sum(sum(plan.tally.ops.values()) for plan in plans())


def learn(call):
    """What the op gives in Python. The first op of a process may be before C++ stands in the dispatcher."""
    given = call()
    call()
    return given


@pytest.mark.parametrize("records", ["tuned", "both_at_once", "logs"])
def test_the_same_bits_as_through_python_and_counted(request, records):
    request.getfixturevalue(records)
    dwconv.reset()
    for name, call in calls_of_ops(image(), image(), torch.randn(8, 1, 3, 3), torch.randn(8)).items():
        python = learn(call)
        before, counted = ran_in_python(), sum(sum(plan.tally.counted_ops().values()) for plan in plans())
        ours = call()
        assert ran_in_python() == before, name
        passes = 2 if name == "backward" and records != "both_at_once" else 1
        assert sum(sum(plan.tally.counted_ops().values()) for plan in plans()) == counted + passes
        for one, other in zip(ours, python, strict=True) if isinstance(ours, tuple) else [(ours, python)]:
            assert torch.equal(one, other) and one.stride() == other.stride(), name


def test_an_activation_is_taken_too(logs):
    for epilogue in ("silu", "silu_gradient"):
        plant(logs / "log.jsonl", [dataclasses.replace(workload_of(), epilogue=epilogue)], passes=["fprop"])
    x, w, dy = image(), torch.randn(8, 1, 3, 3), image()
    calls = [
        lambda: silu_ops.fprop_silu(x, w, None, *GEOMETRY),
        lambda: silu_ops.silu_gradient(x, w, None, dy, *GEOMETRY),
    ]
    for call in calls:
        python, before = learn(call), ran_in_python()
        assert torch.equal(call(), python) and ran_in_python() == before


def test_both_gradients_of_pytorch_come_from_one_call(logs):
    x, dy, w = image(), image(), torch.randn(8, 1, 3, 3)
    for _ in range(4):  # Python's, and C++'s
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            dx, dw = torch_ops.backward(x, dy, w, *GEOMETRY)
        assert [each.count for each in seen.key_averages() if each.key == "aten::convolution_backward"] == [1]
    torch.testing.assert_close(dx, torch_ops.dgrad(dy, w, list(x.shape), *GEOMETRY))
    torch.testing.assert_close(dw, torch_ops.wgrad(x, dy, [3, 3], *GEOMETRY))


@pytest.mark.parametrize(("block", "bias"), [("bn+relu6,bn+relu6", False), ("none,ln", False), ("none,ln", True)])
def test_blocks_are_taken_too(logs, block, bias):
    workload = workload_of(block=block, bias=bias)
    plant(logs / "log.jsonl", [workload], baseline_us=1e6)
    x, w, pair = image(), torch.randn(8, 1, 3, 3), [torch.rand(8) + 0.5, torch.randn(8)]
    learnt = [*([torch.randn(8)] if bias else []), *(pair if "ln" in block else [*pair, *pair])]
    name, others = str(workload.block), GEOMETRY
    _, *kept = block_ops.block_forward(x, w, learnt, name, *others)
    y, statistics = kept[:1], kept[1:]
    norms = learnt if "ln" in block else [*pair, *statistics[:2], *pair, *statistics[2:]]
    for call in (
        lambda: block_ops.block_forward(x, w, learnt, name, *others),
        lambda: block_ops.block_backward(image(), x, y, w, norms, name, *others),
    ):
        torch.manual_seed(0)
        python = call()
        call()
        before = ran_in_python()
        torch.manual_seed(0)
        assert all(map(torch.equal, call(), python)) and ran_in_python() == before


def test_tensors_that_lie_otherwise_are_another_op(tuned):
    """A slice, an address that no kernel reads, memory that is gone, a neglected sign."""
    w = torch.randn(8, 1, 3, 3)
    whole = torch.randn(2, 12, *SHAPE[2:]).to(memory_format=torch.channels_last)
    odd = torch.frombuffer(bytearray(2 * 9 * 7 * 8 * 4 + 1), dtype=torch.float32, offset=1)
    images = [
        image(), image(batch=3), whole[:, :8], image().contiguous(),
        odd.view(2, 9, 7, 8).permute(0, 3, 1, 2).copy_(image()),
        torch._neg_view(image()),
    ]  # fmt: skip
    for _ in range(4):
        for x in images:
            y = torch_ops.fprop(x, w, None, *GEOMETRY)
            torch.testing.assert_close(y, torch.conv2d(x, w, padding=1, groups=8))
    gone = image()
    learn(lambda: torch_ops.fprop(gone, w, None, *GEOMETRY))
    gone.untyped_storage().resize_(0)
    with pytest.raises((RuntimeError, dwconv.errors.InvalidCall), match="no memory"):
        torch_ops.fprop(gone, w, None, *GEOMETRY)


def test_forgotten_ops_are_decided_anew(logs):
    x, w = image(), torch.randn(8, 1, 3, 3)
    call = lambda: torch_ops.fprop(x, w, None, *GEOMETRY)  # noqa: E731
    learn(call)
    plant(logs / "log.jsonl", [workload_of()], baseline_us=1e6)
    dwconv.reset()
    call()
    assert [plan.decisions["fprop"].provider for plan in plans()] == ["dwconv"] and ran_in_python() == 1
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        call()
        assert len(plans()) == 2, "it may be another kernel that is the fastest on as many threads"
    finally:
        torch.set_num_threads(threads)


def test_watchers_still_see_ops(tuned):
    x, w = image(), torch.randn(8, 1, 3, 3, requires_grad=True)
    call = lambda: torch_ops.fprop(x, w, None, *GEOMETRY)  # noqa: E731
    learn(call)
    with FlopCounterMode(display=False) as counter:
        y = call()
    assert counter.get_total_flops() == 2 * y.numel() * 9
    assert y.requires_grad and torch.autograd.grad(y.sum(), w)[0].shape == w.shape
    with torch.no_grad():
        assert not call().requires_grad
    with torch.inference_mode():
        assert call().is_inference()
    with torch.autocast("cpu", torch.bfloat16):
        assert call().dtype is torch.bfloat16
    tangent = torch.autograd.forward_ad
    with tangent.dual_level(), pytest.raises((NotImplementedError, RuntimeError)):
        torch_ops.fprop(tangent.make_dual(x, image()), w.detach(), None, *GEOMETRY)


def test_ops_of_many_threads(tuned):
    x, w, wrong = image(), torch.randn(8, 1, 3, 3), []
    exact = torch.conv2d(x, w, padding=1, groups=8)

    def work():
        for _ in range(200):
            if not torch.allclose(torch_ops.fprop(x, w, None, *GEOMETRY), exact, atol=1e-4):
                wrong.append(1)
            native.forget() if threading.get_ident() % 2 else None

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_open_plan_stays_in_python(tuned, monkeypatch):
    x, w = image(), torch.randn(8, 1, 3, 3)
    torch_ops.fprop(x, w, None, *GEOMETRY)
    (plan,) = plans()
    native.forget()
    monkeypatch.setattr(plan, "is_open", True)
    monkeypatch.setattr(plan, "meet", lambda weight: False)
    for _ in range(3):
        torch_ops.fprop(x, w, None, *GEOMETRY)
    assert plan.tally.ops["fprop"] == 4
    monkeypatch.setattr(plan, "is_open", False)
    for _ in range(3):
        torch_ops.fprop(x, w, None, *GEOMETRY)
    assert plan.tally.ops["fprop"] == 5
