"""Autocast around calls that C++ takes: the bits and the casts are those of PyTorch's own layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dwconv
from dwconv import native
from dwconv.call import fast_path
from dwconv.call.call_plan import plans
from tests.native_needed import go_through_python, needs_native
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked")
WORKLOADS = [workload_of(dtype="bfloat16", bias=bias) for bias in (False, True)]
ARGUMENTS = (1, 1, 1, None, 2)


@pytest.fixture(autouse=True)
def tuned(logs) -> None:
    needs_native()
    plant(logs / "log.jsonl", WORKLOADS, baseline_us=1e6)


@pytest.fixture
def autocast() -> Iterator[None]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield


def leaves() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(WORKLOADS[0].input_shape).to(memory_format=torch.channels_last).requires_grad_()
    return x, torch.randn(8, 1, 3, 3, requires_grad=True), torch.randn(8, requires_grad=True)


def convolve(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    return dwconv.conv2d(x, w, bias, padding=1)


def exact(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.conv2d(x, w, bias, padding=1, groups=8)


def casts(call: Callable[[], object]) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        call()
    return sum(event.count for event in profiler.key_averages() if event.key == "aten::_to_copy")


def gradients(function: Callable[..., Tensor], *given: Tensor) -> list[Tensor]:
    y = function(*given)
    return [y, *torch.autograd.grad(y, given, torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype))]


@pytest.mark.parametrize("bias", [False, True])
def test_a_backward_pass_inside_autocast_stays_in_cpp(monkeypatch, bias) -> None:
    given = leaves()[: 2 + bias]
    found = []
    for is_inside in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            convolve(*given)  # teaches
            y = convolve(*given)
            assert "CppNode" in y.grad_fn.name()
        monkeypatch.setattr(fast_path._WatchedBackward, "__call__", None)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_inside):
            found.append(torch.autograd.grad(y, given, torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype)))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("is_slice", [False, True])
def test_the_same_bits_as_through_python(monkeypatch, autocast, bias, is_slice) -> None:
    x, *others = leaves()[: 2 + bias]
    if is_slice:
        whole = torch.zeros(2, 12, 9, 7).to(memory_format=torch.channels_last)
        whole[:, 2:10] = x.detach()
        x = whole[:, 2:10].requires_grad_()
    convolve(x, *others)
    compiled = gradients(convolve, x, *others)
    assert "CppNode" in compiled[0].grad_fn.next_functions[0][0].name() or "CppNode" in compiled[0].grad_fn.name()
    go_through_python(monkeypatch)
    dwconv.reset()
    monkeypatch.setattr(native, "convolve", native._no_result)
    assert all(map(torch.equal, compiled, gradients(convolve, x, *others)))


def test_calls_through_python_are_counted_by_the_weight_of_their_layer(monkeypatch, autocast) -> None:
    """Not by the one that was lowered."""
    x, w, _ = leaves()
    go_through_python(monkeypatch)
    monkeypatch.setattr(native, "convolve", native._no_result)
    dwconv.reset()
    for _ in range(2):
        convolve(x, w)
    (plan,) = plans()
    assert [(each.weight is w, each.passes["wgrad"]) for each in plan.tally.counted()] == [(True, 2)]


def test_a_weight_is_cast_once_for_all_calls_without_gradients_as_pytorchs_is() -> None:
    x, w, _ = leaves()

    def three_calls(function: Callable[..., Tensor]) -> None:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(3):
                function(x.detach(), w)

    three_calls(convolve)
    assert casts(lambda: three_calls(convolve)) == casts(lambda: three_calls(exact)) == 4, "x three times, w once"


def test_a_weight_may_change_in_place_between_the_passes_as_with_pytorch(autocast) -> None:
    """What the backward pass reads is the weight as it was lowered."""
    x, w, bias = leaves()
    convolve(x, w, bias)
    dy = torch.ones(WORKLOADS[0].output_shape, dtype=torch.bfloat16)
    found = []
    for changes in (False, True):
        y = convolve(x, w, bias)
        assert "CppNode" in y.grad_fn.name()
        if changes:
            with torch.no_grad():
                w.mul_(2)
        found.append(torch.autograd.grad(y, (x, w, bias), dy))
    assert all(map(torch.equal, *found)) and all(each.dtype == torch.float32 for each in found[0])


def test_a_weight_without_memory_is_an_error(autocast) -> None:
    """As FSDP releases it between two uses."""
    x, w, _ = leaves()
    convolve(x, w)
    w.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"a tensor of \[8, 1, 3, 3\] has no memory"):
        convolve(x, w)


def test_gradients_can_be_differentiated_again_unless_the_weight_has_changed(autocast) -> None:
    x, w, _ = leaves()
    convolve(x, w)

    def penalty(function: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        y = function(x, w)
        (dx,) = torch.autograd.grad(y.float().square().sum(), x, create_graph=True)
        return torch.autograd.grad(dx.square().sum(), (x, w))

    for ours, exact_ones in zip(penalty(convolve), penalty(exact), strict=True):
        torch.testing.assert_close(ours, exact_ones, rtol=3e-2, atol=3e-2 * float(exact_ones.abs().max()))
    y = convolve(x, w)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="was modified in place after the forward pass"):
        torch.autograd.grad(y.float().sum(), x, create_graph=True)


def test_a_call_that_is_not_known_is_not_cast(autocast) -> None:
    x, w, _ = leaves()
    assert casts(lambda: native.convolve(x, w, None, *ARGUMENTS)) == 0
    assert native.convolve(x, w, None, *ARGUMENTS) is None


def test_a_weight_that_was_cast_without_gradients_has_them_again(autocast) -> None:
    """In evaluation and in inference mode, then in training, all under one autocast."""
    for first in (torch.no_grad, torch.inference_mode):
        x, w, _ = leaves()
        with first():
            for _ in range(2):
                convolve(x, w)
        convolve(x, w)
        ours = gradients(convolve, x, w)
        torch.testing.assert_close(
            ours[1:], [each.float() for each in gradients(convolve, x.bfloat16(), w.bfloat16())[1:]]
        )


def test_what_is_learnt_under_autocast_is_known_outside_it(autocast) -> None:
    x, w, _ = (leaf.detach() for leaf in leaves())
    convolve(x, w)
    with torch.autocast("cpu", enabled=False):
        assert native.convolve(x, w, None, *ARGUMENTS) is None
        lowered = native.convolve(x.bfloat16(), w.bfloat16(), None, *ARGUMENTS)
    assert torch.equal(lowered, native.convolve(x, w, None, *ARGUMENTS))
    assert native.convolve(x.double(), w, None, *ARGUMENTS) is None
