"""Results and gradients are tensors of their own, no views of anything, and lie as PyTorch's do: what may be done with
those in place may be done with ours, and whatever flattens gradients into buckets, as DDP does, need not copy."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import dwconv
from dwconv.call import torch_ops
from dwconv.call.call_plan import plans
from dwconv.problems.workload import PASSES
from tests.call.block_checks import plant_block
from tests.call.block_parts import drawn, ran
from tests.call.test_causal import CHANNELS, TAPS, inputs_of, plant_all, problem_of
from tests.call.test_traced_layer_norm import BLOCK, Net
from tests.native_needed import both_ways, go_through_python, needs_native
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")

SIZES = {
    "1-D": workload_of(shape=(2, 8, 1, 30), kernel=(1, 3), padding=(0, 1), layout="nchw"),
    "1-D, one side": dataclasses.replace(
        workload_of(shape=(2, 8, 1, 30), kernel=(1, 3), layout="nchw"), padding=((0, 0), (2, 0))
    ),
    "1-D without a batch": workload_of(shape=(1, 8, 1, 30), kernel=(1, 3), padding=(0, 1), layout="nchw"),
    "2-D": workload_of(),
    "2-D, one side": dataclasses.replace(workload_of(), padding=((2, 0), (1, 1))),
    "2-D without a batch": workload_of(shape=(1, 8, 9, 7), layout="nchw"),
    "3-D": workload_of(shape=(2, 8, 3, 5, 4), kernel=(3, 3, 3), layout="nchw"),
    "3-D without a batch": workload_of(shape=(1, 8, 3, 5, 4), kernel=(3, 3, 3), layout="nchw"),
}


@pytest.fixture(params=["native", "interpreted", "watched"])
def way(request, monkeypatch):
    """The road of the call, and within which context it is made."""
    if request.param == "interpreted":
        go_through_python(monkeypatch)
    else:
        needs_native()
    return (lambda: FlopCounterMode(display=False)) if request.param == "watched" else contextlib.nullcontext


def given(name, *, channels_last_weight=False):
    """x, weight and bias, and how they are convolved."""
    workload = SIZES[name]
    axes = 1 if name.startswith("1-D") else workload.axes
    x = torch.randn(workload.input_shape)
    x = x.to(memory_format=torch.channels_last) if workload.layout == "nhwc" else x
    x = x.squeeze(2).clone() if axes == 1 else x
    x = x[0].clone() if "without" in name else x
    w = torch.randn(8, 1, *workload.kernel[-axes:])
    w = w.to(memory_format=torch.channels_last) if channels_last_weight else w
    padding = workload.padding[-axes:] if "one side" in name else 1
    leaves = [x.requires_grad_(), w.requires_grad_(), torch.randn(8, requires_grad=True)]
    return leaves, lambda *tensors: getattr(dwconv, f"conv{axes}d")(*tensors, 1, padding)


def assert_own(y, leaves, *, gradients=True):
    """``y`` and the gradients of ``leaves`` are no views."""
    if gradients:
        for gradient in torch.autograd.grad(y.sin().sum(), leaves, retain_graph=True):
            assert not gradient._is_view()
        again = torch.autograd.grad(y.sin().sum(), leaves, create_graph=True)
        assert not any(gradient._is_view() for gradient in again)
    assert not y._is_view() and y._base is None
    y.detach_()


@pytest.mark.parametrize("passes", [PASSES, ("fprop",)], ids=["all tuned", "fprop tuned"])
@pytest.mark.parametrize("name", SIZES)
def test_what_a_convolution_gives_is_no_view(logs, way, name, passes):
    plant(logs / "log.jsonl", [SIZES[name]], passes=passes, baseline_us=1e6, template_layout=SIZES[name].layout)
    # Through the dispatcher a gradient goes through those of views that are images.
    gradients = way is contextlib.nullcontext or name in ("2-D", "2-D, one side", "3-D")
    for channels_last_weight in (False, True) if name == "2-D" else (False,):
        (x, w, b), run = given(name, channels_last_weight=channels_last_weight)
        for bias in (None, b):
            for _ in range(2):  # the first of its kind teaches
                with way():
                    assert_own(run(x, w, bias), [x, w], gradients=gradients)
                    with torch.no_grad():
                        assert_own(run(x, w, bias), [], gradients=False)
    assert any(kernel for plan in plans() for kernel in plan.kernels.values())


PATTERNS = {
    "causal with SiLU": lambda x, w, b: dwconv.causal_conv1d(x, w, b, activation="silu"),
    "causal with states": lambda x, w, b: dwconv.causal_conv1d(x, w, b, None, torch.ones(2, CHANNELS, TAPS - 1)),
    "SiLU that waits, transposed": lambda x, w, b: F.silu(
        F.conv1d(x, w.unsqueeze(1), b, padding=TAPS - 1, groups=CHANNELS)[..., : x.shape[2]].transpose(1, 2)
    ),
}


@pytest.mark.parametrize("tuned", [False, True], ids=["pytorch", "dwconv"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_nor_what_a_causal_convolution_gives(logs, way, pattern, tuned):
    if tuned:
        plant_all(logs, problem_of(layout="nchw"))
    given = inputs_of(problem_of(layout="nchw"), torch.float32)
    for trains in (True, False):
        for _ in range(2):
            with way(), dwconv.active(), torch.set_grad_enabled(trains):
                y = PATTERNS[pattern](*given)
                assert_own(y, given[2:] if trains else [], gradients=trains)


@both_ways
@pytest.mark.parametrize("trains", [True, False])
def test_nor_what_a_block_with_layer_norm_gives(logs, way, trains):
    plant_block(logs, BLOCK, bias=True)
    model, x = Net(), drawn()
    model.linear = nn.Identity()
    for _ in range(3):  # Python follows the first, and C++ the next ones
        with torch.set_grad_enabled(trains):
            assert_own(model(x), list(model.parameters()) if trains else [], gradients=trains)
    assert not trains or ran()[0]


# -- gradients of weights lie as the weights do ------------------------------------------------------------------------


FORMATS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
GEOMETRY = ((1, 1), (1, 1, 1, 1), (1, 1))


def images():
    return torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)


def weight_gradient(x, w):
    """As it comes, before it is accumulated, which may copy it."""
    seen = []
    hook = w.register_hook(lambda gradient: seen.append(gradient.stride()))
    dwconv.conv2d(x, w, padding=1).square().sum().backward()
    hook.remove()
    return seen[0]


@pytest.mark.parametrize("way", ["through_python", "calls_as_they_stay"])
@pytest.mark.parametrize("passes", [PASSES, ("fprop",)], ids=["all tuned", "fprop tuned"])
@pytest.mark.parametrize("lies", FORMATS)
def test_a_gradient_has_the_strides_of_its_weight(logs, request, way, passes, lies):
    """Where PyTorch's op runs wgrad beside a tuned fprop, too, whatever it makes of the layouts."""
    request.getfixturevalue(way)
    plant(logs / "log.jsonl", [workload_of()], passes=passes, baseline_us=1e6)
    x, w = images(), torch.randn(8, 1, 3, 3).to(memory_format=FORMATS[lies]).requires_grad_()
    assert [weight_gradient(x, w) for _ in range(3)] == [w.stride()] * 3


@pytest.mark.parametrize("tuned", [False, True], ids=["pytorch", "dwconv"])
def test_the_ops_lie_as_their_fake_implementations_say(logs, tuned):
    """Compiled code is made for the strides of the fakes, along axes of length 1, too."""
    if tuned:
        plant(logs / "log.jsonl", [workload_of()], baseline_us=1e6)
    x, dy = images(), images()
    for op in (torch_ops.wgrad, torch_ops.wgrad_bias):
        real = op(x, dy, [3, 3], *GEOMETRY, "nhwc")
        fake = op(x.to("meta"), dy.to("meta"), [3, 3], *GEOMETRY, "nhwc")
        pairs = [(real, fake)] if isinstance(real, torch.Tensor) else list(zip(real, fake, strict=True))
        assert all(one.stride() == other.stride() for one, other in pairs)
