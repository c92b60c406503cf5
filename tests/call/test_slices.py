"""Slices of the channels of a tensor, as ``chunk`` and ``split`` give them and as Mamba passes its x: kernels read them
where they are."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import dwconv
from dwconv.call import call_plan, plan_kernels, process_kernels
from dwconv.call.call_plan import plans
from dwconv.errors import DwconvWarning
from dwconv.kernels import operand
from dwconv.kernels.kernel import Kernel
from dwconv.kernels.operand import x_pitch_of
from dwconv.problems.problem import Problem
from dwconv.problems.workload import PASSES
from tests.call.test_causal import CHANNELS, TAPS, plant_all, problem_of
from tests.native_needed import both_ways
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked")
COPIES = {"aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy", "aten::cat"}


def copies_of(run) -> list[str]:
    """What ``run`` copied, by the names of PyTorch's ops."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    names = [event.name for event in seen.events()]
    assert any(name.startswith("dwconv::") for name in names), "a kernel ran"
    return [name for name in names if name in COPIES]


def pitches_that_ran() -> set[tuple[str, int | None]]:
    """(pass, pitch of the x that its kernel reads)"""
    kernels = [
        each for plan in plans() for some in (plan.kernels, *plan.kernels.of_slices.values()) for each in some.values()
    ]
    return {(each.workload.pass_, each.x_pitch) for each in kernels if each is not None}


SIZES = {
    "1-D": workload_of(shape=(2, 8, 1, 30), kernel=(1, 3), padding=(0, 1), bias=True),
    "2-D": workload_of(bias=True),
    "3-D": workload_of(shape=(2, 8, 3, 5, 4), kernel=(3, 3, 3), bias=True),
    "NCHW": workload_of(layout="nchw", bias=True),
    "a batch of 1": workload_of(shape=(1, 8, 9, 7), bias=True),
}


def whole_tensor(name: str, *, channels: int) -> Tensor:
    """With more channels than the layer, NHWC or NCHW."""
    n, _, *size = SIZES[name].input_shape
    size = size[1:] if name == "1-D" else size
    whole = torch.randn(n, *size, channels).movedim(-1, 1)
    return whole.contiguous() if name == "NCHW" else whole


def step(x: Tensor, w: Tensor, bias: Tensor, *, ours: bool) -> list[Tensor]:
    axes = x.dim() - 2
    function = getattr(dwconv if ours else F, f"conv{axes}d")
    y = function(x, w, bias, 1, 1, 1, x.shape[1])
    return [y.detach(), *torch.autograd.grad(y.sin().sum(), (x, w, bias))]


def check(x: Tensor, w: Tensor, bias: Tensor) -> None:
    exact = [each.detach().double().requires_grad_() for each in (x, w, bias)]
    for got, wanted in zip(step(x, w, bias, ours=True), step(*exact, ours=False), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-4)


def parameters(name: str) -> tuple[Tensor, Tensor]:
    kernel_size = SIZES[name].kernel[name == "1-D" :]
    return torch.randn(8, 1, *kernel_size, requires_grad=True), torch.randn(8, requires_grad=True)


@both_ways
@pytest.mark.parametrize("name", SIZES)
def test_kernels_read_slices_in_place(logs, way, name):
    plant(logs / "log.jsonl", [SIZES[name]], template_layout=SIZES[name].layout, baseline_us=1e6)
    whole, (w, bias) = whole_tensor(name, channels=20), parameters(name)
    for first in (0, 5, 12):
        x = whole[:, first : first + 8].requires_grad_()
        check(x, w, bias)  # teaches
        check(x, w, bias)
    assert pitches_that_ran() == {("fprop", 20), ("wgrad", 20), ("dgrad", None)}
    axes = x.dim() - 2
    convolve = getattr(dwconv, f"conv{axes}d")
    assert copies_of(lambda: convolve(x, w, bias, 1, 1)) == []
    y = convolve(x, w, bias, 1, 1)
    dy = torch.randn_like(y)
    assert copies_of(lambda: torch.autograd.grad(y, (x, w), dy)) == []


def test_a_watched_call_reads_them_in_place_too(logs):
    plant(logs / "log.jsonl", [SIZES["2-D"]], baseline_us=1e6)
    whole, (w, bias) = whole_tensor("2-D", channels=16).requires_grad_(), parameters("2-D")
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda whole, w, bias: dwconv.conv2d(whole.chunk(2, 1)[1], w, bias, padding=1), backend="aot_eager",
        fullgraph=True,
    )  # fmt: skip
    y, expected = compiled(whole, w, bias), dwconv.conv2d(whole.chunk(2, 1)[1], w, bias, padding=1)
    assert torch.equal(y, expected) and y.stride() == expected.stride()
    for got, wanted in zip(*(torch.autograd.grad(each.sum(), (whole, w, bias)) for each in (y, expected)), strict=True):
        assert torch.equal(got, wanted)
    assert pitches_that_ran() == {("fprop", 16), ("wgrad", 16), ("dgrad", None)}
    with torch.no_grad():
        compiled(whole, w, bias)
        assert copies_of(lambda: compiled(whole, w, bias)) == []


class Mixer(nn.Module):
    """x and z lie in one tensor, as in Mamba."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.in_proj = nn.Linear(6, 2 * CHANNELS)
        self.conv1d = nn.Conv1d(CHANNELS, CHANNELS, TAPS, padding=TAPS - 1, groups=CHANNELS)

    def forward(self, hidden: Tensor) -> Tensor:
        x, z = self.in_proj(hidden).transpose(1, 2).chunk(2, dim=1)
        assert x.stride() == (2 * CHANNELS * x.shape[2], 1, 2 * CHANNELS)
        return self.convolved(x) * z.sigmoid()

    def convolved(self, x: Tensor) -> Tensor:
        return F.silu(self.conv1d(x)[..., : x.shape[2]])


def test_mambas_block_copies_nothing_before_its_kernels(logs):
    plant_all(logs, problem_of())
    model, hidden = Mixer(), torch.randn(2, 37, 6)
    exact = Mixer().double()
    exact(hidden.double()).pow(2).sum().backward()
    with dwconv.active():
        for _ in range(2):
            model.zero_grad()
            model(hidden).pow(2).sum().backward()
        with torch.no_grad():
            x, _ = model.in_proj(hidden).transpose(1, 2).chunk(2, dim=1)
            assert copies_of(lambda: model.convolved(x)) == []
    assert pitches_that_ran() == {("fprop", 2 * CHANNELS), ("wgrad", 2 * CHANNELS), ("dgrad", None)}
    for ours, wanted in zip(model.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.double(), wanted.grad, rtol=1e-4, atol=1e-4)


# -- tensors that lie otherwise than the kernel was taught -------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("lies", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [8, 16])
def test_hooks_may_bring_back_what_was_saved_with_other_strides(logs, way, channels, lies):
    """As those do that keep it elsewhere meanwhile."""
    plant(logs / "log.jsonl", [SIZES["2-D"]], baseline_us=1e6)
    x, (w, bias) = whole_tensor("2-D", channels=channels)[:, :8].requires_grad_(), parameters("2-D")
    check(x, w, bias)  # teaches

    def elsewhere(saved: Tensor) -> Tensor:
        return saved.detach().clone(memory_format=lies) if saved.dim() == 4 else saved

    with torch.autograd.graph.saved_tensors_hooks(elsewhere, elsewhere):
        check(x, w, bias)


@both_ways
def test_kernels_are_built_for_a_few_pitches(logs, way, monkeypatch):
    plant(logs / "log.jsonl", [SIZES["2-D"]], baseline_us=1e6)
    w, bias = parameters("2-D")
    monkeypatch.setattr(plan_kernels, "MOST_PITCHES", 1)
    for channels in (16, 17, 18, 16):
        for _ in range(2):
            check(whole_tensor("2-D", channels=channels)[:, :8].requires_grad_(), w, bias)
    assert {pitch for pass_, pitch in pitches_that_ran() if pass_ == "fprop"} == {0, 16}


@pytest.mark.parametrize(
    ("name", "pitch", "in_place"),
    [("2-D", 64, True), ("2-D", 128, False), ("2-D", 192, True), ("1-D", 1024, True), ("NCHW", 1024, True)],
)
def test_pitches_that_meet_in_the_cache_are_copied_where_pixels_are_read_often(logs, name, pitch, in_place):
    workload = SIZES[name]
    plant(logs / "log.jsonl", [workload], template_layout=workload.layout, baseline_us=1e6)
    made = call_plan.plan_for(Problem.of(workload), torch.device("cpu")).decisions
    assert [plan_kernels.reads_slices(made[pass_], pitch) for pass_ in PASSES] == [in_place, False, in_place]


@both_ways
def test_a_kernel_that_is_wrong_on_slices_alone_does_not_run(logs, way, monkeypatch):
    plant(logs / "log.jsonl", [SIZES["2-D"]], baseline_us=1e6)
    x, (w, bias) = whole_tensor("2-D", channels=16)[:, :8].requires_grad_(), parameters("2-D")
    fault_of = process_kernels.fault_of
    monkeypatch.setattr(
        process_kernels,
        "fault_of",
        lambda kernel, *where: "planted" if kernel.x_pitch else fault_of(kernel, *where),
    )
    with pytest.warns(DwconvWarning, match="pitch16 has its x copied.*planted"):
        check(x, w, bias)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(x, w, bias)
    assert pitches_that_ran() == {("fprop", 0), ("wgrad", 0), ("dgrad", None)}


def test_a_kernel_of_slices_takes_other_tensors_through_a_copy(logs):
    plant(logs / "log.jsonl", [SIZES["2-D"]], baseline_us=1e6)
    x, (w, bias) = whole_tensor("2-D", channels=16)[:, :8].requires_grad_(), parameters("2-D")
    check(x, w, bias)
    (plan,) = plans()
    own = plan.kernels.at(16)["fprop"]
    assert isinstance(own, Kernel)
    expected = own(x.detach(), w.detach(), bias.detach())
    for other in (x.detach().contiguous(), x.detach().clone(), torch.cat([x.detach()] * 3, 1)[:, 8:16]):
        assert torch.equal(own(other, w.detach(), bias.detach()), expected)


def test_explain_names_no_copy(logs):
    plant(logs / "log.jsonl", [SIZES["2-D"]], baseline_us=1e6)
    x, (w, bias) = whole_tensor("2-D", channels=16)[:, :8], parameters("2-D")
    explained = dwconv.explain(x, w, bias, padding=1)
    assert explained["fprop"].provider == "dwconv"
    assert explained["fprop"].copies == explained["wgrad"].copies == ()
    every_other_row = torch.randn(2, 18, 7, 8).movedim(-1, 1)[:, :, ::2]
    (copy,) = dwconv.explain(every_other_row, w, bias, padding=1)["fprop"].copies
    assert copy.startswith("copies x first")


# -- what is a slice ---------------------------------------------------------------------------------------------------


def test_what_is_a_slice_of_channels(monkeypatch):
    nhwc, nchw = torch.empty(2, 5, 7, 20).movedim(-1, 1), torch.empty(2, 20, 5, 7)
    assert x_pitch_of(nhwc[:, 3:11], layout="nhwc") == x_pitch_of(nchw[:, 3:11], layout="nchw") == 20
    assert x_pitch_of(nhwc[:, :1], layout="nhwc") == 20
    assert x_pitch_of(nhwc[:1, 3:11, :1], layout="nhwc") == 20
    volumes = torch.empty(2, 3, 5, 6, 20).movedim(-1, 1)
    assert x_pitch_of(volumes[:, 3:11], layout="nhwc") == 20
    dense = [(nhwc, "nhwc"), (nchw, "nchw"), (nchw[:1, 3:11], "nchw"), (nhwc[:1, :8, :1, :1], "nhwc")]
    no_slices = [
        (nhwc[:, 3:11], "nchw"), (nchw[:, 3:11], "nhwc"), (nhwc[:, ::2], "nhwc"), (nhwc[:, 3:11, 1:], "nhwc"),
        (nhwc[:, 3:11, :, ::2], "nhwc"), (nhwc[:1, 3:11].expand(2, -1, -1, -1), "nhwc"),
        (nhwc[:, :8, :, :1].expand(-1, -1, -1, 7), "nhwc"), (nchw[:, 3:11, 1:], "nchw"),
        (nhwc[:, :1].expand(-1, 8, -1, -1), "nhwc"),
    ]  # fmt: skip
    for tensor, layout in dense + no_slices:
        assert x_pitch_of(tensor, layout=layout) == 0
    monkeypatch.setattr(operand, "MOST_ELEMENTS", 2 * 5 * 7 * 20)
    assert x_pitch_of(nhwc[:, 3:11], layout="nhwc") == 20
    monkeypatch.setattr(operand, "MOST_ELEMENTS", 2 * 5 * 7 * 20 - 1)
    assert x_pitch_of(nhwc[:, 3:11], layout="nhwc") == 0
