"""explain: what would run, and why, without doing any of it."""

from __future__ import annotations

import dataclasses
import warnings
from unittest.mock import ANY

import pytest
import torch

import dwconv
from dwconv.dispatch.decision import DispatchDecision
from dwconv.errors import InvalidWorkload
from dwconv.kernels.kernel import Kernel
from dwconv.problems.target import cpu_target, parse_target
from dwconv.records.log import TuningLog
from dwconv.reporting import explanation
from dwconv.reporting.explanation import PassExplanation
from dwconv.schedules.template import template
from tests.planted_gain import default_of, plant_gain
from tests.planted_records import plant, record_of, workload_of

DEVICE = cpu_target().device
X, W = torch.zeros(2, 8, 9, 7).to(memory_format=torch.channels_last), torch.zeros(8, 1, 3, 3)


@pytest.fixture(autouse=True)
def silence(monkeypatch):
    """Nothing may be warned of, built or loaded."""
    monkeypatch.setattr(Kernel, "load", ANY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_untuned(logs):
    assert str(dwconv.explain(X, W, padding=1)) == (
        f"2×8×9×7 nhwc float32, kernel 3×3, padding 1 on {DEVICE}\n"
        f"  fprop  pytorch  untuned on {DEVICE}\n"
        f"  dgrad  pytorch  untuned on {DEVICE}\n"
        f"  wgrad  pytorch  untuned on {DEVICE}\n"
        "  known from no tuning log\n"
        "  calls go to PyTorch's op, as without dwconv\n"
        "  race: dwconv.convert(model, example_inputs) times a few configurations of each layer\n"
        "  tune: python -m dwconv.tune --shape 2,8,9,7 --kernel 3 --layout nhwc --passes fprop,dgrad,wgrad"
    )


def test_tuned(logs):
    plant(logs / "log.jsonl", [workload_of()], passes=["fprop"], baseline_us=80)
    plant(logs / "log.jsonl", [workload_of(bias=True)], passes=["wgrad"], baseline_us=80)
    (logs / "torn.jsonl").write_text("{")
    explanation = dwconv.explain(X, W, torch.zeros(8), padding=1)
    fprop, wgrad = explanation["fprop"], explanation["wgrad"]
    assert [each.provider for each in explanation.passes] == ["pytorch", "pytorch", "dwconv"]
    assert (
        fprop.reason == "onednn-nhwc is faster: 80.0 µs, dwconv 50.0 µs + 50.0 µs for the bias + 10.0 µs for the call"
    )
    assert (wgrad.measured.median_us, wgrad.pytorch[0], wgrad.pytorch[1].median_us) == (50, "onednn-nhwc", 80)
    assert wgrad.config.startswith("cpu.wgrad_nhwc ")
    lines = str(explanation).splitlines()
    assert lines[0].endswith(f"padding 1 with a bias on {DEVICE}")
    assert "  wgrad  dwconv   1.60× as fast as onednn-nhwc" in lines
    assert "         dwconv 50.0 µs (±1.0 µs), onednn-nhwc 80.0 µs (±1.0 µs)" in lines
    assert f"  known from {logs / 'log.jsonl'}, {logs / 'torn.jsonl'}" in lines
    assert any("1 damaged line set aside" in line for line in lines)
    assert lines[-1].endswith("--bias --passes fprop,dgrad")


def test_predicted(logs, monkeypatch):
    """What is expected of the workload, and what was measured with another PyTorch."""
    wgrad = workload_of(pass_="wgrad")
    record = record_of(wgrad, config=default_of(wgrad, cpu_target()), median_us=50, baseline_us=70)
    TuningLog(logs / "log.jsonl").append(
        dataclasses.replace(record, versions={**record.versions, "torch": "2.1.0+cpu"}),
    )
    planted = plant_gain(monkeypatch)
    planted.knows = lambda workload: workload.pass_ == "fprop"
    explanation = dwconv.explain(X[::2], W, padding=1)
    assert str(explanation).splitlines()[1:] == [
        "  fprop  dwconv   predicted: 12.3× as fast as PyTorch's op, at least 6.1× in 95 of 100 cases "
        "(as it was planted)",
        f"         {explanation['fprop'].config}",
        f"  dgrad  pytorch  untuned on {DEVICE}",
        "  wgrad  pytorch  predicted 1.40×, at least 1.12×, which saves 7.5 µs and takes 10.0 µs for the call: "
        "PyTorch's op runs until it is measured (measured with PyTorch 2.1.0+cpu at batch 2: predicted until it is "
        "raced again)",
        "         dwconv 50.0 µs (±1.0 µs), onednn-nhwc 70.0 µs (±1.0 µs)",
        f"         {record.config.template} {record.config}",
        f"  known from {logs / 'log.jsonl'}",
        f"  calls go {explanation.road}",
        "  race: dwconv.convert(model, example_inputs) times a few configurations of each layer",
        "  tune: python -m dwconv.tune --shape 1,8,9,7 --kernel 3 --layout nhwc --passes fprop,dgrad,wgrad",
    ]
    assert explanation["fprop"].config.startswith("cpu.fprop_nhwc block_h=")
    assert explanation["fprop"].expected.gain == 12.3 and explanation["fprop"].measured is None
    assert explanation["wgrad"].expected.gain == 1.4 and explanation["dgrad"].expected is None
    planted.at_least = 0.8
    doubted = dwconv.explain(X, W, padding=1)["fprop"]
    assert doubted.provider == "pytorch" and str(doubted).splitlines()[1] == f"         {doubted.config}"
    assert doubted.config.startswith("cpu.fprop_nhwc block_h=")
    planted.at_least = 6.1
    (copy,) = dwconv.explain(X[:1].expand(2, -1, -1, -1), W, padding=1)["fprop"].copies
    assert copy.startswith("copies x first (0.0 MB): it is expanded")


def test_a_copy_of_what_a_kernel_cannot_read_where_it_lies(logs):
    plant(logs / "log.jsonl", [workload_of(), workload_of(layout="nchw")], baseline_us=1e6)
    apart = torch.zeros(2, 8, 18, 7).to(memory_format=torch.channels_last)[:, :, ::2]
    for x, reason in ((apart, "not dense in"), (X.contiguous(), "reads nhwc, the tensor is nchw")):
        explanation = dwconv.explain(x, W, padding=1)
        for pass_ in ("fprop", "wgrad"):
            (copy,) = explanation[pass_].copies
            assert copy.startswith("copies x first") and reason in copy
        assert explanation["dgrad"].copies == () and f"         {copy}" in str(explanation).splitlines()
    assert dwconv.explain(X, W, padding=1)["fprop"].copies == ()


def test_bank_conflicts_are_named_where_they_take_long():
    """Of the kernel that would run on a GPU: copied as they lie, rows that threads read together share banks."""
    workload, target = (
        workload_of(shape=(64, 96, 56, 56), kernel=(7, 7), padding=3, layout="nchw"),
        parse_target("cuda:sm_90"),
    )
    known = template("cuda.fprop_nchw")
    space = known.space(workload, target)
    copied = {"planes": 1, "block_h": 56, "tile_h": 14, "threads_w": 28, "vthread_w": 1, "pipeline": 2, "turns": 4}
    found = {}
    for name, knobs in (("default", {}), ("copied", copied)):
        config = space.check({**space.default.to_dict(), **knobs})
        runs = DispatchDecision(provider="dwconv", reason="", workload=workload, target=target, config=config)
        found[name] = explanation._conflicts(runs)
        on_cpu = dataclasses.replace(runs, target=cpu_target())
        assert explanation._conflicts(on_cpu) == ""
    (work,) = known.works(workload, config, target)
    assert work.transactions_a_request > 1.2
    taken = f"bank conflicts: {work.transactions_a_request:.1f} transactions a request of shared memory, computed to "
    assert found["default"] == "" and found["copied"].startswith(taken)
    made = PassExplanation(
        pass_="fprop", provider="dwconv", reason="", record=None, config="", conflicts=found["copied"]
    )
    assert str(made).splitlines()[-1] == f"         {taken}{found['copied'].removeprefix(taken)}"
    assert explanation._conflicts(DispatchDecision(provider="pytorch", reason="")) == ""


def test_it_takes_what_the_call_takes(logs):
    assert dwconv.explain(torch.zeros(8, 40), torch.zeros(16, 1, 5), stride=2, padding=(2,), groups=8).call == (
        "1×8×1×40 nchw float32, kernel 1×5, stride 1×2, padding 0×0×2×2, multiplier 2"
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert "bfloat16" in dwconv.explain(X, W).call
    assert dwconv.explain(X.double(), W.double())["fprop"].reason == "dwconv has no kernels for float64"
    with pytest.raises(InvalidWorkload, match="weight has 6 dimensions"):
        dwconv.explain(torch.zeros(1, 2, 3, 3, 3, 3), torch.zeros(2, 1, 3, 3, 3, 3))


def test_a_transposed_call_is_the_convolution_whose_dgrad_it_is(logs):
    plant(logs / "log.jsonl", [workload_of(shape=(2, 8, 10, 8), stride=2)], baseline_us=140)
    x = torch.zeros(2, 8, 5, 4).to(memory_format=torch.channels_last)
    explanation = dwconv.explain(x, W, None, 2, 1, transposed=True, output_padding=1)
    assert explanation.problem.input_shape == (2, 8, 10, 8)
    assert str(explanation).startswith(
        "2×8×10×8 nhwc float32, kernel 3×3, stride 2, padding 1, transposed: its forward pass is the dgrad on "
    )
    assert [each.provider for each in explanation.passes] == ["dwconv"] * 3
    assert not any(each.copies for each in explanation.passes)
    assert explanation.road.startswith("through Python, as those of all transposed")
    with pytest.raises(InvalidWorkload, match="output_padding=2 is not below stride=2"):
        dwconv.explain(x, W, None, 2, 1, dilation=3, transposed=True, output_padding=2)
    with pytest.raises(InvalidWorkload, match="a transposed convolution is in none"):
        dwconv.explain(x, W, transposed=True, block="bn+relu6,bn+relu6")
