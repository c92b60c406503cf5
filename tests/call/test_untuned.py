"""Unmeasured calls: on a predicted kernel, on PyTorch's op, or stopped, as DWCONV_UNTUNED says."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

import dwconv
from dwconv.call.call_plan import plan_for
from dwconv.errors import InvalidSetting, Untuned
from dwconv.kernels.kernel import Kernel
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import PASSES
from dwconv.schedules.template import template
from tests.call.test_kernels_arrive import compiled, watched
from tests.planted_gain import default_of, plant_gain
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked", "through_python")
WORKLOAD = workload_of()
COMMAND = "python -m dwconv.tune --shape 2,8,9,7 --kernel 3 --layout nhwc --passes "


@pytest.fixture
def planted(logs, monkeypatch):
    return plant_gain(monkeypatch)


def tensors(*, batch=2, grad=True, dtype=torch.float32):
    x = torch.randn(batch, 8, 9, 7, dtype=dtype).to(memory_format=torch.channels_last)
    return x.requires_grad_(grad), torch.randn(8, 1, 3, 3, dtype=dtype, requires_grad=grad)


def step(convolve, x, w, **more):
    y = convolve(x, w, padding=1, **more)
    return [y.detach(), *torch.autograd.grad(y.sin().sum(), (x, w))]


def plan_of(*, batch=2):
    return plan_for(Problem.of(WORKLOAD.with_batch(batch)), torch.device("cpu"))


# -- predicted ---------------------------------------------------------------------------------------------------------


def test_predicted_kernels_run_without_a_warning(planted, said):
    x, w = tensors()
    for _ in range(2):
        torch.testing.assert_close(step(dwconv.conv2d, x, w), step(F.conv2d, x, w, groups=8), rtol=1e-4, atol=1e-4)
    assert {pass_: type(plan_of().kernels[pass_]) for pass_ in PASSES} == dict.fromkeys(PASSES, Kernel)
    assert said() == []


def test_a_predicted_kernel_serves_other_batch_sizes_whatever_is_expected_of_them(planted, said):
    """The last, smaller batch of an epoch blocks on no build."""
    kernel = plan_of(batch=32).kernels["fprop"]
    config = default_of(WORKLOAD.with_batch(32), cpu_target())
    space = template(config.template).space(WORKLOAD, cpu_target())
    planted.config = next(iter(space.neighbours(config)))
    planted.knows = lambda workload: workload.pass_ == "fprop"
    x, w = tensors(batch=5, grad=False)
    assert dwconv.explain(x, w, padding=1)["fprop"].config == f"{config.template} {config}"
    assert plan_of(batch=5).kernels["fprop"] is kernel
    dwconv.reset()
    assert plan_of(batch=5).kernels["fprop"].artifact.candidate.config == planted.config


# -- PyTorch's op, or an error -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("convolve", [dwconv.conv2d, compiled, watched])
@pytest.mark.parametrize("predicted", [False, True])
def test_an_unmeasured_call_is_stopped_where_the_user_says_so(planted, said, monkeypatch, convolve, predicted):
    monkeypatch.setenv("DWCONV_UNTUNED", "error")
    planted.knows = lambda workload: predicted
    x, w = tensors()
    for _ in range(2):
        with pytest.raises(Untuned) as raised:
            convolve(x, w, padding=1)
        message = str(raised.value)
        assert message.startswith("fprop") and f"untuned on {cpu_target().device}; tune them: {COMMAND}" in message
    explanation = dwconv.explain(x, w, padding=1)
    assert explanation["fprop"].reason.endswith("; a call fails, as DWCONV_UNTUNED=error requires")
    assert said() == []


def test_a_training_step_is_stopped_before_it_begins(logs, monkeypatch):
    monkeypatch.setenv("DWCONV_UNTUNED", "error")
    plant(logs / "log.jsonl", [WORKLOAD], passes=["fprop", "wgrad"], baseline_us=1)
    x, w = tensors()
    stopped = r"^dgrad of 2×8×9×7 .* must be tuned, as DWCONV_UNTUNED=error requires: untuned on"
    for _ in range(2):
        with pytest.raises(Untuned, match=stopped):
            dwconv.conv2d(x, w, padding=1)
    with torch.no_grad():
        dwconv.conv2d(x, w, padding=1)
    y = compiled(x, w, padding=1)
    with pytest.raises(Untuned, match=r"^dgrad of"):
        y.sum().backward()


def test_what_was_measured_is_not_stopped_with_a_bias_neither(logs, monkeypatch):
    """dgrad needs a plan without the bias, of which fprop and wgrad are untuned, but never run."""
    monkeypatch.setenv("DWCONV_UNTUNED", "error")
    biased = dataclasses.replace(WORKLOAD, bias=True)
    for baseline_us in (1, 1e6):
        (logs / "log.jsonl").unlink(missing_ok=True)
        plant(logs / "log.jsonl", [biased], baseline_us=baseline_us)
        dwconv.reset()
        x, w = tensors()
        for convolve in (dwconv.conv2d, compiled):
            step(convolve, x, w, bias=torch.zeros(8, requires_grad=True))


def test_calls_that_cannot_be_tuned_are_not_stopped(planted, monkeypatch):
    monkeypatch.setenv("DWCONV_UNTUNED", "error")
    x, w = tensors(dtype=torch.float64, grad=False)
    torch.testing.assert_close(dwconv.conv2d(x, w, padding=1), F.conv2d(x, w, padding=1, groups=8), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("setting", "words"), [("DWCONV_UNTUNED", "predict, wait, pytorch, error"), ("DWCONV_NAN", "spread, exact")]
)
@pytest.mark.parametrize("value", ["never", "a\nb" * 999])
def test_an_unknown_setting_stops_the_call(logs, said, monkeypatch, setting, words, value):
    monkeypatch.setenv(setting, value)
    for call in (dwconv.conv2d, dwconv.explain):
        with pytest.raises(
            InvalidSetting, match=rf"^{setting}={value[:1]}.* is unknown; use one of {words}$"
        ) as raised:
            call(*tensors(), padding=1)
        assert len(str(raised.value)) < 200 and raised.value.exit_code == 2
    assert said() == []


# -- the layers of an example ------------------------------------------------------------------------------------------


class Three(torch.nn.Module):
    def __init__(self, *, layers: int = 3) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Conv2d(8, 8, 3 + 2 * number, padding=1 + number, groups=8) for number in range(layers)
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("trains", [True, False])
def test_one_warning_counts_the_untuned_layers_of_an_example(logs, said, monkeypatch, trains):
    monkeypatch.setenv("DWCONV_UNTUNED", "pytorch")
    x = torch.randn(2, 8, 9, 7)
    with torch.set_grad_enabled(trains):
        model = dwconv.convert(Three(), x, seconds=0)
        assert said() == []
        model(x)
        model(x)
    passes = 8 if trains else 3  # x needs no gradient
    assert said() == [
        f"{passes} passes of 3 depthwise layers run on PyTorch's own op, untuned: layers.0, layers.1, layers.2; tune "
        "them: dwconv.tune(model, example_inputs); dwconv.report(model) lists all"
    ]


def test_tuned_layers_do_not_count_and_one_is_named_with_its_command(logs, said, monkeypatch):
    monkeypatch.setenv("DWCONV_UNTUNED", "pytorch")
    x = torch.randn(2, 8, 9, 7)
    tuned = workload_of(shape=(2, 8, 9, 7), layout="nchw")
    plant(logs / "log.jsonl", [dataclasses.replace(tuned, bias=True)], baseline_us=1e6, template_layout="nchw")
    dwconv.convert(Three(), x, seconds=0)(x)
    (line,) = said()
    assert " passes of 2 depthwise layers run on PyTorch's own op, untuned: layers.1, layers.2; tune" in line
    dwconv.reset()
    dwconv.convert(Three(layers=2), x, seconds=0)(x)
    line = said()[-1]
    assert "kernel 5×5, padding 2 with a bias run on PyTorch's own op" in line and "--kernel 5" in line
