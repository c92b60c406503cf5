"""The short ways through autograd, in C++ and in Python: everything that PyTorch lets one do around an op still
happens."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import dwconv
from dwconv.call import fast_path, torch_ops
from tests.native_needed import go_through_python, needs_native
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked")
WORKLOAD = workload_of()


@pytest.fixture(autouse=True, params=["compiled", "interpreted"])
def way(request, logs, monkeypatch, at_once):
    """The road of the calls that follow the first of their kind."""
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    if at_once:
        plant(logs / "log.jsonl", [workload_of(block="none,none")], passes=["backward"], baseline_us=1e6)
    if request.param == "interpreted":
        go_through_python(monkeypatch)
    else:
        needs_native()
    convolve(*leaves())
    return request.param


@pytest.fixture
def at_once(request):
    """Whether both gradients come from one kernel."""
    return getattr(request, "param", False)


apart_and_at_once = pytest.mark.parametrize("at_once", [False, True], indirect=True, ids=["apart", "at once"])


def leaves() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(WORKLOAD.input_shape).to(memory_format=torch.channels_last)
    return x.requires_grad_(), torch.randn(8, 1, 3, 3, requires_grad=True)


def convolve(x, w):
    return dwconv.conv2d(x, w, padding=1)


def exact(x, w):
    return F.conv2d(x, w, padding=1, groups=8)


def check(ours, reference):
    torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-4)


@apart_and_at_once
def test_calls_pass_no_dispatcher(monkeypatch, way):
    x, w = leaves()
    for name in ("fprop", "dgrad", "wgrad", "wgrad_bias"):
        monkeypatch.setattr(f"dwconv.call.torch_ops.{name}", None)
    y = convolve(x, w)
    assert ("CppNode" in y.grad_fn.name()) == (way == "compiled")
    assert "DwconvConvolution" in y.grad_fn.name()
    check(torch.autograd.grad(y.sin().sum(), (x, w)), torch.autograd.grad(exact(x, w).sin().sum(), (x, w)))


FORWARD = {
    "call/functional.py", "call/watchers.py", "call/fast_path.py", "call/tally.py", "call/passes.py",
    "kernels/kernel.py",
}  # fmt: skip
BACKWARD = {
    "call/fast_path.py", "call/gradients.py", "call/watchers.py", "call/passes.py", "kernels/kernel.py",
}  # fmt: skip
"""The files that a repeated call enters in Python. All others decide, build and check, once for each size."""


@apart_and_at_once
def test_a_repeated_call_enters_few_files(way, at_once):
    x, w = leaves()
    for _ in range(2):
        convolve(x, w).sum().backward()
    y, forward = entered(lambda: convolve(x, w))
    _, backward = entered(lambda: y.backward(torch.ones_like(y)))
    assert forward == ({"call/functional.py"} if way == "compiled" else FORWARD)
    both = {"kernels/operand.py"} if at_once else set()  # this kernel's tensors are compared with what it reads
    assert backward == (set() if way == "compiled" else BACKWARD | both)


def entered(run: Callable[[], Any]) -> tuple[Any, set[str]]:
    """What ``run`` returns, and the files of dwconv with a function that it called."""
    folder, files = Path(dwconv.__file__).parent, set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(folder):
            files.add(path.relative_to(folder).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        return run(), files
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_weights_gradient_is_taken_as_it_is_and_has_the_layout_of_pytorchs(memory_format):
    """DDP warns of any other stride, even of an axis of length 1."""
    x, w = leaves()
    weight = torch.nn.Parameter(w.detach().to(memory_format=memory_format))
    convolve(x, weight)  # teaches
    y = convolve(x, weight)
    y.sum().backward()
    assert weight.grad.stride() == weight.stride()
    assert x.grad.stride() == x.stride() == y.stride()
    (gradient,) = torch.autograd.grad(convolve(x, weight).sum(), weight, create_graph=True)  # by the ops
    assert gradient.stride() == weight.stride()
    check(gradient, weight.grad)
    y = torch_ops.fprop(x, weight, None, (1, 1), (1, 1, 1, 1), (1, 1), "nhwc")
    assert torch.autograd.grad(y.sum(), weight)[0].stride() == weight.stride()


@pytest.mark.parametrize("needed", [(True, False), (False, True)])
def test_only_what_is_needed_is_computed_and_kept(needed):
    x, w = (tensor.requires_grad_(needs) for tensor, needs in zip((t.detach() for t in leaves()), needed, strict=True))
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: packed.append(saved) or saved, lambda saved: saved):
        y = convolve(x, w)
    assert [any(saved.shape == kept.shape for saved in packed) for kept in (w, x)] == list(needed)
    of = [tensor for tensor in (x, w) if tensor.requires_grad]
    check(torch.autograd.grad(y.sin().sum(), of), torch.autograd.grad(exact(x, w).sin().sum(), of))


def test_without_gradients_there_is_no_graph():
    x, w = leaves()
    with torch.no_grad():
        assert convolve(x, w).grad_fn is None
    with torch.inference_mode():
        assert convolve(x, w).is_inference()
    assert convolve(x.detach(), w.detach()).grad_fn is None


@apart_and_at_once
def test_a_gradient_may_lie_as_it_likes():
    """Expanded from one number, contiguous, a slice, and not aligned."""
    x, w = leaves()
    n, c, *size = WORKLOAD.output_shape
    sliced = torch.randn(n, c + 4, *size).to(memory_format=torch.channels_last)[:, 2 : c + 2]
    moved = torch.randn(n * c * size[0] * size[1] + 1)[1:].view(n, *size, c).movedim(-1, 1)
    for dy in (torch.ones(()).expand(WORKLOAD.output_shape), torch.randn(WORKLOAD.output_shape), sliced, moved):
        ours, reference = (torch.autograd.grad(function(x, w), (x, w), dy) for function in (convolve, exact))
        check(ours, reference)


@apart_and_at_once
def test_hooks_checkpoints_and_saved_tensor_hooks_are_heeded():
    x, w = leaves()
    reference = torch.autograd.grad(exact(x, w).sin().sum() * 2, (x, w))
    y = convolve(x, w)
    y.register_hook(lambda gradient: gradient * 2)
    check(torch.autograd.grad(y.sin().sum(), (x, w)), reference)

    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: packed.append(saved) or saved, lambda saved: saved):
        y = convolve(x, w)
    assert len(packed) == 2
    check(torch.autograd.grad(y.sin().sum() * 2, (x, w)), reference)
    with torch.autograd.graph.saved_tensors_hooks(
        torch.Tensor.clone, lambda kept: kept.movedim(1, 0).contiguous().movedim(0, 1)
    ):
        y = convolve(x, w)
    check(torch.autograd.grad(y.sin().sum() * 2, (x, w)), reference)

    y = checkpoint(convolve, x, w, use_reentrant=False)
    check(torch.autograd.grad(y.sin().sum() * 2, (x, w)), reference)


def test_a_tensor_changed_since_is_an_error():
    x, w = leaves()
    y = convolve(x, w)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@apart_and_at_once
def test_gradients_of_gradients_and_batches_of_them_go_through_the_ops():
    x, w = leaves()
    dys = torch.randn(3, *WORKLOAD.output_shape)
    second, batched = [], []
    for function in (convolve, exact):
        dx, dw = torch.autograd.grad(function(x, w).sin().sum(), (x, w), create_graph=True)
        second.append(torch.autograd.grad(dx.sin().sum() + dw.sin().sum(), (x, w)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what has no rule for batches, and is called once for each
            batched.append(torch.autograd.grad(function(x, w), (x, w), dys, is_grads_batched=True))
    check(*second)
    check(*batched)


def test_calls_are_forgotten_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr("dwconv.call.fast_path.MOST_PLANS", 3)
    _, w = leaves()
    for batch in range(1, 9):
        convolve(torch.randn(batch, 8, 9, 7).to(memory_format=torch.channels_last), w)
    assert len(fast_path._known) <= 3


@apart_and_at_once
def test_a_profile_names_the_passes(at_once):
    x, w = leaves()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        convolve(x, w).sum().backward()
    named = {event.key for event in profiler.key_averages() if event.key.startswith("dwconv::")}
    assert named == {"dwconv::fprop", *(["dwconv::backward"] if at_once else ["dwconv::dgrad", "dwconv::wgrad"])}
