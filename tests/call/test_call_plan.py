"""CallPlan: kernels are built once, everything is said once, and nothing stops a training step."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch

import dwconv
from dwconv.call import call_plan, spending
from dwconv.call.call_plan import CallPlan, plan_for
from dwconv.errors import BuildError
from dwconv.kernels.kernel import Kernel
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import PASSES
from dwconv.records.log import TuningLog
from dwconv.schedules.space import Config
from tests import forked
from tests.planted_records import plant, record_of, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked")
WORKLOAD = workload_of()
OTHERS = "; others are not named: dwconv.report(model) lists those of a model"


def plan_of(*, batch: int = 2, width: int = 7, layout: str = "nhwc") -> CallPlan:
    workload = workload_of(shape=(batch, 8, 9, width), layout=layout)
    return plan_for(Problem.of(workload), torch.device("cpu"))


def test_kernels_are_loaded_once_and_serve_every_batch(logs, said):
    plant(logs / "log.jsonl", [WORKLOAD])
    kernels = {pass_: plan_of().kernels[pass_] for pass_ in PASSES}
    assert all(isinstance(kernel, Kernel) for kernel in kernels.values())
    assert not plan_of().is_pytorch
    assert plan_of(batch=2) is plan_of(batch=2)
    assert {pass_: plan_of(batch=5).kernels[pass_] for pass_ in PASSES} == kernels
    assert said() == []


def test_an_untuned_problem_is_named_once_with_the_command(logs, said):
    for batch in (2, 3, 2):
        assert plan_of(batch=batch).is_pytorch
        assert [plan_of(batch=batch).kernels[pass_] for pass_ in PASSES] == [None] * 3
    assert said() == [
        "fprop, dgrad, wgrad of 2×8×9×7 nhwc float32, kernel 3×3, padding 1 run on PyTorch's own op: untuned on "
        f"{cpu_target().device}; tune them: python -m dwconv.tune --shape 2,8,9,7 --kernel 3 --layout nhwc "
        f"--passes fprop,dgrad,wgrad{OTHERS}"
    ]
    for width in range(8, 30):  # sizes that change from step to step, as of sentences, would never end
        plan_of(width=width)
    assert len(said()) == 1


def test_a_layer_with_a_bias_that_is_tuned_is_not_named(logs, said):
    """Its dgrad needs a plan without the bias, of which fprop and wgrad are untuned, but never run."""
    plant(logs / "log.jsonl", [dataclasses.replace(WORKLOAD, bias=True)], baseline_us=1e6)
    layer = dwconv.nn.DepthwiseConv2d(8, 3, padding=1)
    x = torch.randn(2, 8, 9, 7, requires_grad=True)
    layer(x.to(memory_format=torch.channels_last)).sum().backward()
    assert said() == []


def test_sizes_are_forgotten_before_they_fill_the_memory(logs, said, monkeypatch):
    monkeypatch.setattr("dwconv.call.call_plan.MOST_PLANS", 3)
    first = plan_of()
    assert plan_of() is first
    for batch in (3, 4, 5):
        plan_of(batch=batch)
    assert plan_of() is not first


def test_only_the_untuned_passes_are_named(logs, said):
    plant(logs / "log.jsonl", [WORKLOAD], passes=["fprop", "dgrad"])
    assert plan_of().kernels["wgrad"] is None
    assert plan_of().kernels["dgrad"] is not None
    (message,) = said()
    assert message.startswith("wgrad of 2×8×9×7")
    assert message.endswith(f"--passes wgrad{OTHERS}")


def test_what_pytorch_does_faster_is_not_worth_a_word(logs, said):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1)
    assert plan_of().is_pytorch
    assert said() == []


def test_a_kernel_that_cannot_be_built_leaves_its_pass_to_pytorch_and_is_named_once(logs, said, monkeypatch):
    plant(logs / "log.jsonl", [WORKLOAD])

    def fail(artifact):
        raise BuildError("no such luck")

    monkeypatch.setattr(Kernel, "load", fail)
    for _ in range(2):
        assert plan_of().kernels["fprop"] is None
    assert said() == [
        f"{WORKLOAD.key} runs on PyTorch's own op: its tuned kernel could not be built: no such luck{OTHERS}"
    ]
    assert "no such luck" in dwconv.explain(*tensors(), padding=1)["fprop"].reason


def test_without_a_cache_kernels_are_built_and_one_line_says_that_they_are_not_kept(logs, said, tmp_path, monkeypatch):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    (tmp_path / "home").symlink_to(tmp_path / "unmounted")
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "home" / "cache"))
    assert all(isinstance(plan_of().kernels[pass_], Kernel) for pass_ in PASSES)
    (message,) = said()
    assert "are not kept" in message and f"{tmp_path / 'home'} is a link that leads nowhere" in message


@pytest.mark.parametrize(
    "error", [AssertionError(), ImportError("no libtvm.so")], ids=["AssertionError", "ImportError"]
)
@pytest.mark.parametrize("where", ["dwconv.kernels.kernel.Kernel.load", "dwconv.call.first_decisions.decisions"])
def test_no_error_of_choosing_or_building_stops_a_training_step(logs, said, monkeypatch, where, error):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)

    def fail(*arguments, **named):
        raise error

    monkeypatch.setattr(where, fail)
    x, w = (tensor.requires_grad_() for tensor in tensors())
    for _ in range(2):
        y, exact = dwconv.conv2d(x, w, padding=1), torch.nn.functional.conv2d(x, w, padding=1, groups=8)
        torch.testing.assert_close(y, exact)
        torch.testing.assert_close(*(torch.autograd.grad(each.sum(), (x, w)) for each in (y, exact)))
    (message,) = said()
    assert str(error) in message
    assert message.startswith("everything runs on PyTorch's own op: ") == where.endswith("decisions")


def test_ctrl_c_is_no_error_of_building(logs, said, monkeypatch):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)

    def interrupt(artifact):
        raise KeyboardInterrupt

    monkeypatch.setattr(Kernel, "load", interrupt)
    with pytest.raises(KeyboardInterrupt):
        dwconv.conv2d(*tensors(), padding=1)


def test_of_several_untuned_passes_every_reason_is_named(logs, said):
    TuningLog(logs / "log.jsonl").append(record_of(WORKLOAD.for_pass("wgrad"), config=Config.of("cpu.no_such")))
    plan_of()
    (message,) = said()
    assert f"untuned on {cpu_target().device}; no tuned configuration is valid any more" in message


def test_a_damaged_log_is_named_once_and_the_rest_of_it_used(logs, said):
    plant(logs / "log.jsonl", [WORKLOAD])
    with (logs / "log.jsonl").open("a") as file:
        file.write("garbage\n")
    assert plan_of().kernels["fprop"] is not None
    plan_of(batch=9)
    (message,) = said()
    assert message.startswith(f"log={logs / 'log.jsonl'}: 1 damaged line set aside; line 4: not a tuning record")


def test_the_kernels_of_another_number_of_threads_run_with_the_same_bits(logs, said):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6, threads=2)
    x = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)
    layer = dwconv.nn.DepthwiseConv2d(8, 3, padding=1, bias=False)

    def step():
        y = layer(x.requires_grad_())
        return (y.detach(), *torch.autograd.grad(y, (x, layer.weight), y.detach().sin()))

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first = step()
        for count in (1, 3):
            torch.set_num_threads(count)
            assert not plan_of().is_pytorch
            assert plan_of().decisions["fprop"].reason.endswith(" on 2 threads")
            assert all(map(torch.equal, step(), first))
    finally:
        torch.set_num_threads(before)
    assert said() == []


def test_what_was_fastest_on_few_threads_takes_all_at_a_larger_batch(logs, said):
    plant(logs / "log.jsonl", [WORKLOAD], passes=["fprop"], baseline_us=1e6)
    (record,) = TuningLog(logs / "log.jsonl").load().records
    target = cpu_target()
    if target.threads == 1:
        pytest.skip("one thread is all there is")
    alone = Config.of(record.config.template, **{**dict(record.config.values), "threads": 1})
    TuningLog(logs / "log.jsonl").append(dataclasses.replace(record, config=alone, confirmed=True))
    for batch, threads in ((1, 1), (2, 1), (3, target.threads)):
        assert plan_of(batch=batch).kernels["fprop"].artifact.candidate.config.threads == threads


def test_tvm_is_imported_only_for_a_kernel(logs):
    """Faster on PyTorch: nothing of TVM is needed."""
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1)
    program = (
        "import sys, torch, dwconv\n"
        "x = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)\n"
        "model = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False))\n"
        "assert len(dwconv.summary(dwconv.convert(model)).converted) == 1\n"
        "model(x).sum().backward()\n"
        "assert dwconv.explain(x, model[0].weight, padding=1)['fprop'].record\n"
        "assert 'tvm' not in sys.modules\n"
    )
    done = forked.run([sys.executable, "-W", "error", "-c", program], text=True, timeout=1200)
    assert (done.returncode, done.stderr) == (0, "")


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last), torch.randn(8, 1, 3, 3)


@pytest.mark.parametrize("way", ["interpreted", "compiled"], indirect=True)
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_what_kernels_save_in_calls_is_what_builds_may_take(logs, monkeypatch, way, layout):
    """A millisecond a pass, as measured; nothing where PyTorch's op runs, and nothing before a call."""
    monkeypatch.setattr(call_plan, "_SAVED_FOR_S", 0.0)
    monkeypatch.setattr(spending, "SURE", 1.0)
    monkeypatch.setattr(spending, "SHARE", 0.0)
    layer = workload_of(layout=layout)
    of_layout = {"template_layout": layout}
    plant(logs / "log.jsonl", [layer], passes=["fprop", "wgrad"], median_us=50.0, baseline_us=1050.0, **of_layout)
    plant(logs / "log.jsonl", [layer], passes=["dgrad"], median_us=50.0, baseline_us=1.0, **of_layout)
    dwconv.reset()
    assert spending.saved_s() == 0.0
    lies = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    x = torch.randn(layer.input_shape).to(memory_format=lies).requires_grad_()
    w = torch.nn.Parameter(torch.randn(8, 1, 3, 3))
    for steps in (1, 2, 3):
        dwconv.conv2d(x, w, padding=1).sum().backward()
        assert spending.saved_s() == pytest.approx(2e-3 * steps)
    with torch.no_grad():
        dwconv.conv2d(x, w, padding=1)
    before_s = spending.of_process.left_s
    assert spending.saved_s() == pytest.approx(7e-3)
    monkeypatch.setattr(spending, "saved_s", float)
    assert before_s - spending.of_process.left_s == pytest.approx(7e-3), "the budget has it"
    dwconv.reset()
    assert call_plan._saved_s() == 0.0
