"""Dispatch of a layer that was measured at other sizes only; and of sizes without end."""

from __future__ import annotations

import dataclasses
import threading
import warnings

import pytest
import torch
from torch.nn import functional as F

import dwconv
from dwconv.call import first_decisions, process_kernels
from dwconv.call.call_plan import plan_for
from dwconv.dispatch import locked
from dwconv.dispatch.decide import decide, decide_on
from dwconv.dispatch.kernel_state import MOST_SIZES, KernelState, OfAnySize
from dwconv.dispatch.of_problem import decisions
from dwconv.errors import DwconvWarning
from dwconv.kernels.kernel import Kernel
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target, parse_target
from dwconv.problems.workload import LAYOUTS, PASSES
from dwconv.records.record import AtSize, Status
from dwconv.schedules.template import Candidate, templates_for
from dwconv.untuned import other_size
from dwconv.untuned.portfolio_file import Errors, Portfolio
from dwconv.untuned.trees import Trees
from tests.planted_gain import default_of, plant_gain
from tests.planted_records import record_of, workload_of, write

pytestmark = pytest.mark.usefixtures("threads_as_asked", "through_python")
TARGET = cpu_target()
SIZE = "2×8×18×18"
FIGURES = "at least 5.7× in 95 of 100 cases (the best of the same layer at another size; judged on 22 pairs of sizes)"


@pytest.fixture(autouse=True)
def planted(logs, monkeypatch):
    """Nothing is expected but what the layer itself did: half of 2⁶, and of that at worst 2⁻⁰·⁵."""
    planted = plant_gain(monkeypatch)
    planted.knows = lambda workload: False
    errors = {"3 octaves": Errors(middle=0.0, least=-0.5, workloads=22)}
    trees = {"": Trees(base=0.0, trees=())}
    portfolio = Portfolio(devices=(TARGET.device,), trees=trees, other_size=errors)
    monkeypatch.setattr(other_size, "shipped", lambda: portfolio)
    return planted


def at(size, **more):
    return workload_of(shape=(2, 8, size, size), **more)


def tuned(workload, *, gain=64.0, **facts):
    record = record_of(workload, config=default_of(workload, TARGET), median_us=50.0, baseline_us=50.0 * gain)
    return dataclasses.replace(record, **facts)


def test_the_same_layer_at_another_size_decides(logs):
    write(logs, tuned(at(18)))
    decision = decide(at(20), "cpu")
    assert decision.reason == f"predicted from {SIZE}: 8.0× as fast as PyTorch's op, {FIGURES}"
    assert (decision.provider, decision.record, decision.workload) == ("dwconv", None, at(20))
    assert decision.command.startswith("python -m dwconv.tune --shape 2,8,20,20 ")
    x = torch.randn(2, 8, 20, 20).to(memory_format=torch.channels_last)
    assert f"predicted from {SIZE}: " in str(dwconv.explain(x, torch.randn(8, 1, 3, 3), padding=1))


def test_the_nearest_size_decides_and_the_best_record_there(logs):
    write(logs, tuned(at(28), gain=4.0), tuned(at(18)), tuned(at(14), gain=4.0))
    assert decide(at(20), "cpu").reason.startswith(f"predicted from {SIZE}: 8.0×")


def test_a_layer_that_gained_nothing_runs_on_pytorchs_op(logs):
    write(logs, tuned(at(18), gain=1.1))
    decision = decide(at(20), "cpu")
    assert decision.provider == "pytorch"
    assert decision.reason.startswith(f"predicted 1.05× from {SIZE}, but perhaps only 0.74×: PyTorch's op runs until")


@pytest.mark.parametrize(
    "record",
    [
        tuned(at(18), device="another-cpu-avx2-2t"),
        dataclasses.replace(tuned(at(18)), versions={**tuned(at(18)).versions, "torch": "2.1.0"}),
        record_of(at(18), config=default_of(at(18), TARGET), status=Status.CRASHED),
        record_of(at(18), config=default_of(at(18), TARGET), computed=True),
        tuned(at(18, stride=2)),
        tuned(at(18, kernel=(5, 5), padding=2)),
        tuned(workload_of(shape=(2, 16, 18, 18))),
        tuned(at(18, layout="nchw")),
        tuned(at(120)),
    ],
    ids=["device", "version", "crashed", "computed", "stride", "kernel", "channels", "layout", "far"],
)
def test_other_layers_devices_and_versions_say_nothing(logs, record):
    write(logs, record)
    assert "predicted from" not in decide(at(20), "cpu").reason


# -- measured kernels of any size -------------------------------------------------------------------------------------


def any_size_tuned(workload, **more):
    return tuned(workload.with_any_size(), **more)


def test_a_measured_kernel_of_any_size_serves_the_layer_at_every_size(logs, planted):
    planted.knows = lambda workload: True
    write(logs, *(any_size_tuned(at(18).for_pass(pass_), gain=3.0) for pass_ in PASSES), tuned(at(20), gain=2.0))
    for size, reason in (
        (18, "3.00× as fast as onednn-nhwc, by a kernel of any size"),
        (20, "2.00× as fast as onednn-nhwc"),
        (200, "3.00× as fast as onednn-nhwc, by a kernel of any size, measured at 2×8×18×18"),
    ):
        (plan,) = plans_of([size])
        decision = plan.decisions["fprop"]
        assert (decision.provider, decision.reason, decision.command) == ("dwconv", reason, "")
        assert decision.workload == (at(20) if size == 20 else at(18).with_any_size())
    assert not planted.asked, "what was measured is not predicted"
    other = decide(dataclasses.replace(at(200), bias=True), "cpu").reason
    assert (
        other
        == "1.50× as fast as onednn-nhwc, by a kernel of any size, measured at 2×8×18×18, with a sweep for the bias"
    )


@pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")
def test_what_is_decided_once_for_all_sizes_is_what_each_would_be_decided(logs, monkeypatch):
    """Two kernels of any size, faster on images of 14×14 pixels and more; and one that was built for 36×36."""
    decided = []
    monkeypatch.setattr(
        first_decisions, "decisions", lambda *given, **more: decided.append(given) or decisions(*given, **more)
    )

    def anew(plans):
        return [decisions(plan.problem, plan.device, state=process_kernels.state)[0] for plan in plans]

    of_any = [any_size_tuned(at(size).for_pass(pass_), gain=2.0) for size in (30, 60) for pass_ in PASSES]

    def wide(height):
        return workload_of(shape=(2, 8, height, 34), kernel=(1, 3), padding=(0, 1))

    of_any += [any_size_tuned(wide(4).for_pass(pass_)) for pass_ in PASSES]
    write(logs, *of_any, tuned(at(36).for_pass("dgrad"), gain=3.0))
    sizes = [34, 35, 36, 37, 70, 71, 8, 9, 13, 14, 33, 72]
    plans = plans_of(sizes)
    assert [plan.decisions for plan in plans] == anew(plans)
    assert len(decided) == len([34, 36, 70, 8, 9, 13]), "PyTorch's op runs 8, 9 and 13"
    pytorch = [plan.problem.input_shape[2] for plan in plans if plan.is_pytorch]
    assert pytorch == [8, 9, 13]
    rows = [Problem.of(wide(height)) for height in (5, 6, 1)]
    plans += [plan_for(row, torch.device("cpu")) for row in rows]
    assert [plan.decisions for plan in plans] == anew(plans), "an image of height 1 is another layer, to kernels"
    problem = dataclasses.replace(plans[0].problem, input_shape=(2, 8, 40, 40))
    locked.agree(problem, torch.device("cpu"), made := plans[6].decisions)
    assert plan_for(problem, torch.device("cpu")).decisions == made
    locked.agreed.clear()
    process_kernels.state.broken[Candidate(of_any[0].workload, of_any[0].config)] = "it is broken"
    plans = plans_of([38, 39])
    assert [plan.decisions for plan in plans] == anew(plans)
    assert "measured at 2×8×60×60" in plans[0].decisions["fprop"].reason


@pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")
@pytest.mark.parametrize(("name", "value"), [("DWCONV_NAN", "exact"), ("DWCONV_UNTUNED", "predict")])
def test_what_was_decided_for_all_sizes_holds_as_long_as_the_settings_do(logs, monkeypatch, name, value):
    write(logs, *(any_size_tuned(at(18).for_pass(pass_), gain=3.0) for pass_ in PASSES))
    decided = []
    monkeypatch.setattr(
        first_decisions, "decisions", lambda *given, **more: decided.append(given) or decisions(*given, **more)
    )
    plans_of([20, 22])
    assert len(decided) == 1
    with monkeypatch.context() as patch:
        patch.setenv(name, value)
        plans_of([24])
    assert len(decided) == 2
    plans_of([26])
    assert len(decided) == 2


def test_one_that_is_slower_or_saves_less_than_a_call_leaves_it_to_pytorchs_op(logs):
    write(logs, any_size_tuned(at(18), gain=1.5), any_size_tuned(at(100, stride=2), gain=1.01))
    assert decide(at(30), "cpu").provider == "dwconv"
    small = decide(at(6), "cpu")
    assert small.provider == "pytorch"
    assert small.reason == (
        "onednn-nhwc is faster: 8.3 µs, dwconv 5.6 µs + 10.0 µs for the call, measured at 2×8×18×18 and computed for "
        "this size"
    )
    assert "onednn-nhwc is faster" in decide(at(60, stride=2), "cpu").reason


def test_the_nearest_of_the_sizes_that_one_was_tuned_for_decides(logs):
    one = any_size_tuned(at(18))
    times = {size: dataclasses.replace(one.measurement, median_us=us) for size, us in ((36, 100.0), (72, 4000.0))}
    one = dataclasses.replace(
        one,
        workload=dataclasses.replace(one.workload, also_at=tuple((size, size) for size in times)),
        others=tuple(
            AtSize(input_size=(s, s), measurement=taken, providers=one.providers) for s, taken in times.items()
        ),
    )
    write(logs, one)
    assert decide(at(18), "cpu").reason.startswith("64.00× as fast")
    assert decide(at(40), "cpu").reason.startswith(
        "32.00× as fast as onednn-nhwc, by a kernel of any size, measured at 2×8×36×36"
    )
    assert "onednn-nhwc is faster" in decide(at(80), "cpu").reason
    assert decide(at(40), "cpu").workload == one.workload, "its kernel is one for all of them"


def test_what_a_search_found_for_several_sizes_goes_before_what_was_raced(logs):
    several = any_size_tuned(at(18), gain=3.0, confirmed=True)
    several = dataclasses.replace(several, workload=dataclasses.replace(several.workload, also_at=((30, 30),)))
    other = AtSize(input_size=(30, 30), measurement=several.measurement, providers=several.providers)
    raced = any_size_tuned(at(22), gain=4.0, confirmed=True, raced=True)
    write(logs, dataclasses.replace(several, others=(other,)), raced, any_size_tuned(at(18), raced=True))
    assert decide(at(23), "cpu").reason.startswith("3.00× as fast")
    assert decide(at(200), "cpu").reason.startswith("3.00× as fast")
    assert decide(at(22), "cpu").reason == "4.00× as fast as onednn-nhwc, by a kernel of any size", (
        "it was measured here"
    )
    write(logs, any_size_tuned(at(400), gain=5.0, raced=True))
    assert decide(at(200), "cpu").reason.startswith("5.00× as fast"), "far away a search tells no more"


@pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")
def test_what_is_expected_of_a_kernel_of_any_size_is_computed_once_also_if_it_is_not_sure(logs, planted):
    planted.knows, planted.at_least = lambda workload: True, 0.9
    plans_of([20, 21])
    asked = len(planted.asked)
    (plan,) = plans_of([22])
    assert plan.is_pytorch and "the same kernel at another size" in plan.decisions["fprop"].reason
    plans_of(range(23, 23 + MOST_SIZES))
    assert len(planted.asked) == asked
    assert not any(each.too_many_sizes for plan in plans_of([24]) for each in plan.decisions.values())


# -- sizes without end -------------------------------------------------------------------------------------------------


def plans_of(sizes, layout="nhwc"):
    return [plan_for(Problem.of(at(size, layout=layout)), torch.device("cpu")) for size in sizes]


@pytest.fixture
def one_size_each(monkeypatch):
    """No kernel takes any size."""
    monkeypatch.setattr("dwconv.dispatch.at_any_size.of_any_size", lambda *_: None)


def test_one_kernel_serves_all_sizes_near_its_own(logs, planted):
    planted.knows = lambda workload: True
    (alone,) = plans_of([25])
    assert not alone.decisions["fprop"].workload.any_size, "at one size, a kernel of its own is faster"
    (own,) = plans_of([20])
    asked = len(planted.asked)
    for plan in plans_of([9, 21, 33, 50]):
        for pass_, decision in plan.decisions.items():
            assert (decision.provider, decision.workload) == ("dwconv", own.decisions[pass_].workload)
            assert "as it was planted; the same kernel at another size" in decision.reason
    assert len(planted.asked) == asked, "deciding takes a look-up"
    (far,) = plans_of([200])
    assert far.decisions["fprop"].workload == at(200).with_any_size() and len(planted.asked) > asked
    (between,) = plans_of([90])
    assert between.decisions["fprop"].workload == at(200).with_any_size(), "the nearest serves"


def test_a_kernel_of_any_size_does_not_run_where_a_call_takes_longer_than_it_saves(logs, planted):
    planted.knows = lambda workload: True
    planted.pytorch_us = 30.0
    assert plans_of([60, 40])[1].decisions["fprop"].provider == "dwconv"
    with pytest.warns(DwconvWarning, match=r"saves 3\.\d µs and takes 10\.0 µs for the call"):
        assert plans_of([15])[0].decisions["fprop"].provider == "pytorch"


def test_a_kernel_that_is_broken_serves_no_other_size(logs, planted):
    planted.knows = lambda workload: True
    decision = plans_of([25, 20])[1].decisions["fprop"]
    process_kernels.state.broken[Candidate(decision.workload, decision.config)] = "it is wrong"
    with pytest.warns(DwconvWarning, match="the predicted kernel is out: it is wrong"):
        (other,) = plans_of([21])
    assert other.decisions["fprop"].reason == "the predicted kernel is out: it is wrong"


def test_a_layer_of_many_sizes_builds_one_kernel_for_each_pass(logs, planted, monkeypatch):
    planted.knows = lambda workload: True
    made, load = [], process_kernels.load

    def noted(*given):
        if threading.current_thread() is threading.main_thread():  # others finish what earlier tests began
            made.append(given)
        return load(*given)

    monkeypatch.setattr(process_kernels, "load", noted)
    w = torch.randn(8, 1, 3, 3, requires_grad=True)
    for height, width in ((9, 31), (20, 20), (20, 19), (33, 8)):
        x = torch.randn(2, 8, height, width).to(memory_format=torch.channels_last).requires_grad_()
        results = []
        for convolve in (dwconv.conv2d, lambda *given, **more: F.conv2d(*given, **more, groups=8)):
            y = convolve(x, w, padding=1)
            results.append([y.detach(), *torch.autograd.grad(y.sin().sum(), (x, w))])
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
        plan = plan_for(Problem.of(workload_of(shape=(2, 8, height, width))), torch.device("cpu"))
        assert {type(plan.kernels[pass_]) for pass_ in PASSES} == {Kernel}
    keys = [candidate.workload.key for candidate, *_ in made]
    assert len(keys) == 2 * len(PASSES), f"the first size has kernels of its own: {keys}"


@pytest.mark.parametrize("at_least", [6.0, 0.5], ids=["sure", "doubted"])
def test_after_a_few_sizes_nothing_more_is_predicted_and_that_is_said_once(logs, planted, one_size_each, at_least):
    planted.knows, planted.at_least = lambda workload: True, at_least
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        few = plans_of(range(10, 10 + MOST_SIZES))
        asked = len(planted.asked)
        more = plans_of(range(40, 80))
    assert all(plan.decisions["wgrad"].expected for plan in few)
    assert all(plan.is_pytorch and plan.decisions["wgrad"].expected is None for plan in more)
    assert len(planted.asked) == asked, "deciding takes longer than a step"
    assert few[0].decisions == plans_of([10])[0].decisions
    said = [str(each.message) for each in caught if each.category is DwconvWarning]
    (message,) = [each for each in said if "further sizes" in each]
    assert message == (
        "2×8×40×40 nhwc float32, kernel 3×3, padding 1 and further sizes of this layer run on PyTorch's own op: "
        f"{MOST_SIZES} other sizes of this layer were predicted, and a process predicts no more; pad to fewer "
        "sizes, or tune those that matter: python -m dwconv.tune --shape 2,8,40,40 --kernel 3 --layout nhwc "
        "--passes fprop,dgrad,wgrad; others are not named: dwconv.report(model) lists those of a model"
    )
    plan_for(Problem.of(at(80, stride=2)), torch.device("cpu"))
    assert not any("8×79×79" in each for each in said)


def decide_here(workload):
    """As a plan that is made now."""
    return decide_on(TARGET, workload, state=process_kernels.state)


def test_another_batch_of_a_size_and_other_layers_are_not_counted(logs, planted, one_size_each):
    planted.knows = lambda workload: True
    plans_of(range(10, 10 + MOST_SIZES))
    assert decide_here(at(10).with_batch(7)).provider == "dwconv"
    assert decide_here(at(40, stride=2)).provider == "dwconv"
    assert decide_here(at(40)).too_many_sizes
    write(logs, tuned(at(40)))
    assert decide_here(at(40)).record, "what was measured is not predicted"
    dwconv.reset()
    assert decide_here(at(41)).provider == "dwconv", "after a reset they count anew"


# -- on a GPU ----------------------------------------------------------------------------------------------------------

GPU = dataclasses.replace(parse_target("cuda:sm_90"), present=True, device="a-gpu")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layer_of_a_gpu_that_was_measured_at_one_size_gets_kernels_of_any_size(logs, layout):
    target, own, state, records = GPU, at(28, layout=layout), KernelState(), []
    for pass_ in PASSES:
        workload = own.for_pass(pass_)
        template, *_ = templates_for(workload, target)
        config = template.space(workload, target).default
        records.append(record_of(workload, config=config, device="a-gpu", median_us=50.0, baseline_us=200.0))
    write(logs, *records)
    state.meet(own)
    state.meet(other := at(24, layout=layout))
    decision = decide_on(target, other, state=state)
    assert decision.workload == other.with_any_size() and decision.reason.startswith("predicted from 2×8×28×28: 3.3×")
    assert "at least 2.1× in 95 of 100 cases" in decision.reason
    assert decide_on(target, own, state=state).record, "at its own size its own kernel runs"
    many = decide_on(target, other.with_batch(70_000), state=state)
    assert (many.provider, many.workload) == ("pytorch", None), "a grid has no room for so many images"
    state.any_size[own.layer, target.device].append(OfAnySize(candidate=decision.any_size, expected=decision.expected))
    assert decide_on(target, other, state=state).workload == other.with_any_size()
    many = decide_on(target, other.with_batch(70_000), state=state)
    assert (many.provider, many.workload) == ("pytorch", None) and "the predicted kernel is out" in many.reason
    far = decide_on(target, at(200, layout=layout), state=state)
    assert far.provider == "pytorch", "too far to tell anything"


def test_a_kernel_of_any_size_that_was_tuned_for_a_gpu_runs_at_every_size(logs):
    own = at(28).with_any_size()
    config = templates_for(own, GPU)[0].space(own, GPU).default
    write(logs, record_of(own, config=config, device="a-gpu", median_us=50.0, baseline_us=200.0))
    for size in (24, 200):
        decision = decide_on(GPU, at(size))
        assert decision.workload == own and "by a kernel of any size, measured at 2×8×28×28" in decision.reason
    assert decide_on(GPU, at(24).with_batch(70_000)).provider == "pytorch", "a grid has no room for so many images"
