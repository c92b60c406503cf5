"""Kernels that are predicted, or measured and not built yet, arrive while PyTorch's op runs. Calls wait for those that
were measured, some seconds in a process; no call waits for a prediction."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import dwconv
from dwconv import kernels, native, settings
from dwconv.call import arriving, background_builds, call_plan, spending
from dwconv.call.call_plan import plans
from dwconv.errors import WorkerCannotStart
from dwconv.kernels import cache
from dwconv.kernels.kernel import Kernel
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import PASSES
from dwconv.records.log import TuningLog
from dwconv.system import cpu_facts
from tests import forked
from tests.native_needed import compiled_way, needs_native
from tests.planted_gain import default_of, plant_gain
from tests.planted_records import plant, record_of, workload_of
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("threads_as_asked")
WORKLOAD = workload_of()
CPU = torch.device("cpu")


class PlantedMaker:
    """Stands in for the process: builds in the thread, once it ``may``."""

    def __init__(self, planted) -> None:
        self.may = threading.Event()
        self.planted = planted
        self.asked: list[str] = []
        """Passes that something was expected of."""
        self.made: list[str] = []
        self.fault = ""
        self.starts = True
        self.ended = 0

    def expect(self, workload, target):
        background_builds.imports.release()  # as long as the process takes
        try:
            assert self.may.wait(600)
        finally:
            background_builds.imports.acquire()
        self.asked.append(workload.pass_)
        if not self.starts:
            raise WorkerCannotStart("no more processes")
        return self.planted(workload, target, [])

    def make(self, candidate, target, *, threads, checks):
        self.made.append(candidate.workload.pass_)
        if not self.fault:
            cache.build_linked(candidate, target)
        return self.fault

    def cpu_s(self) -> float:
        return 0.0

    def end(self) -> None:
        self.ended += 1


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What these tests build: with what others do, some of it would be ready."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def builders(built, monkeypatch):
    """The threads that built something."""
    monkeypatch.setenv("DWCONV_CACHE", str(built))
    found: list[str] = []
    build = kernels.build

    def noted(candidate, target):
        found.append(threading.current_thread().name)
        return build(candidate, target)

    monkeypatch.setattr(cache, "build", noted)
    return found


@pytest.fixture
def maker(builders, logs, monkeypatch):
    """Everything is predicted, as users have it; threads end as soon as they have nothing to do."""
    made = PlantedMaker(plant_gain(monkeypatch))
    monkeypatch.delenv("DWCONV_UNTUNED")
    monkeypatch.setattr(background_builds, "make_maker", lambda: made)
    monkeypatch.setattr(background_builds, "_IDLE_S", 0)
    monkeypatch.setattr(cpu_facts, "cores", lambda: torch.get_num_threads() + 1)  # one is free
    monkeypatch.setattr(spending, "WAIT_S", 0.0)
    background_builds.forget()
    yield made
    made.may.set()
    assert eventually(lambda: background_builds._Threads.count == 0)


@pytest.fixture
def nothing_ready(built):
    for path in built.rglob("*.*"):
        path.unlink()


def tensors(*sizes, dtype=torch.float32):
    """x and the weight of a layer."""
    x = torch.randn(2, 8, *(sizes or (9, 7)), dtype=dtype)
    if x.dim() == 4:
        x = x.to(memory_format=torch.channels_last)
    return x.requires_grad_(), torch.nn.Parameter(torch.randn(8, 1, *[3] * (x.dim() - 2), dtype=dtype))


def step(convolve, x, w, **more):
    y = convolve(x, w, padding=1, **more)
    return [y.detach(), *torch.autograd.grad(y.sin().sum(), (x, w))]


def compiled(*arguments, **more):
    return torch.compile(dwconv.conv2d, backend="aot_eager", fullgraph=True)(*arguments, **more)


def watched(*arguments, **more):
    with FlopCounterMode(display=False):
        return dwconv.conv2d(*arguments, **more)


def running() -> set[str]:
    """The passes that have a kernel in a plan."""
    return {pass_ for plan in plans() for pass_, kernel in plan.kernels.items() if isinstance(kernel, Kernel)}


def may_spend(seconds: float, monkeypatch) -> None:
    """Calls may wait, and builds beside them take, so long."""
    monkeypatch.setattr(spending, "WAIT_S", seconds)
    monkeypatch.setattr(spending, "MOST_S", seconds)
    monkeypatch.setattr(spending, "SHARE", 0.0)


def arrive() -> None:
    assert eventually(lambda: not background_builds._tasks and background_builds._Threads.count == 0)


def test_a_size_that_comes_a_few_times_builds_nothing(maker, monkeypatch):
    compiled_way()
    monkeypatch.setattr(arriving, "ASKED_FROM", 6)
    maker.may.set()
    x, w = tensors()
    for _ in range(5):
        step(dwconv.conv2d, x, w)
        arrive()
    assert maker.asked == []
    (plan,) = plans()
    assert native.module is None or plan.tally.calls_in_cpp(id(w)) == 4, "those between take the short way"
    step(dwconv.conv2d, x, w)
    arrive()
    assert set(maker.asked) == set(PASSES)


@pytest.mark.parametrize(("convolve", "bias"), [(dwconv.conv2d, True), (watched, False), (compiled, True)])
def test_a_size_that_comes_again_runs_on_its_kernels_once_they_are_built(
    maker, builders, nothing_ready, said, convolve, bias
):
    x, w = tensors()
    more = {"bias": torch.randn(8, requires_grad=True)} if bias else {}
    theirs = step(F.conv2d, x, w, groups=8, **more)
    for _ in range(4):  # nothing can be built yet: no step waits
        torch.testing.assert_close(step(convolve, x, w, **more), theirs)
    assert (maker.made, builders, running()) == ([], [], set())
    maker.may.set()
    arrive()
    assert builders and set(builders) == {"dwconv-builds"}
    for _ in range(3):  # behind PyTorch's dispatcher dgrad needs a plan without the bias, which is met later
        torch.testing.assert_close(step(convolve, x, w, **more), theirs, rtol=1e-4, atol=1e-4)
        arrive()
    torch.testing.assert_close(step(convolve, x, w, **more), theirs, rtol=1e-4, atol=1e-4)
    assert running() == set(PASSES)
    assert set(builders) == {"dwconv-builds"}, "nothing was built in a step"
    assert said() == []


def test_layers_that_are_alike_are_no_size_that_comes_again(maker):
    maker.may.set()
    x, weights = tensors()[0], [tensors()[1] for _ in range(4)]
    for w in weights:
        dwconv.conv2d(x, w, padding=1)
    arrive()
    assert maker.asked == []
    dwconv.conv2d(x, weights[2], padding=1)
    arrive()
    assert set(maker.asked) == set(PASSES)


def test_a_weight_that_is_made_anew_in_each_call_keeps_nothing_from_being_built(maker, monkeypatch):
    monkeypatch.setattr(arriving, "_MOST_ALIKE", 3)
    x, w = tensors()
    maker.may.set()
    kept = [w * 1 for _ in range(5)]
    for each in kept:
        dwconv.conv2d(x, each, padding=1)
    arrive()
    assert set(maker.asked) == set(PASSES)


def test_calls_bypass_python_from_when_the_kernels_are_there(maker):
    needs_native()
    x, w = tensors()
    dwconv.conv2d(x, w, padding=(1, 1))
    step(dwconv.conv2d, x, w)
    (plan,) = plans()
    step(dwconv.conv2d, x, w)
    assert all(call.left is not None for call in plan.tally.taught), "C++ would stay with PyTorch's op"
    maker.may.set()
    arrive()
    step(dwconv.conv2d, x, w)
    assert [call.left for call in plan.tally.taught[-1:]] == [None] and not plan.is_open
    taken = plan.tally.calls_in_cpp(id(w))
    for _ in range(3):
        dwconv.conv2d(x, w, padding=(1, 1))
    assert plan.tally.calls_in_cpp(id(w)) == taken + 2, "another spelling is taught when it comes again"
    passes = [each.passes["fprop"] for each in plan.tally.counted()]
    assert sum(passes) == 7, "what PyTorch's op ran counts, too"


def test_what_is_not_expected_to_be_faster_stays_with_pytorch_and_is_named_then(maker, said):
    maker.planted.knows = lambda workload: workload.pass_ != "wgrad"
    x, w = tensors()
    step(dwconv.conv2d, x, w), step(dwconv.conv2d, x, w)
    assert said() == [], "it is not known yet"
    maker.may.set()
    arrive()
    step(dwconv.conv2d, x, w), step(dwconv.conv2d, x, w)
    (message,) = said()
    assert message.startswith("wgrad of 2×8×9×7 nhwc float32, kernel 3×3, padding 1 run on PyTorch's own op: untuned")
    assert running() == {"fprop", "dgrad"}


def test_a_kernel_that_cannot_be_built_leaves_its_pass_to_pytorch_and_is_named_once(
    maker, builders, nothing_ready, said
):
    maker.fault = "no such luck"
    maker.planted.knows = lambda workload: workload.pass_ == "fprop"
    maker.may.set()
    x, w = tensors()
    with torch.no_grad():
        theirs = F.conv2d(x, w, padding=1, groups=8)
        for _ in range(2):
            dwconv.conv2d(x, w, padding=1)
        arrive()
        for _ in range(3):
            assert torch.equal(dwconv.conv2d(x, w, padding=1), theirs)
    broken = f"{WORKLOAD.key} runs on PyTorch's own op: its predicted kernel could not be built: no such luck"
    (message,) = (each for each in said() if "cannot" in each or "could not" in each)
    assert message.startswith(broken)
    assert (maker.made, builders) == (["fprop"], []), "it is not tried again, least of all in a step"


def test_a_frozen_application_says_once_that_no_process_builds(maker, said, monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    maker.starts = False
    maker.may.set()
    for x, w in (tensors(), tensors(11, 7)):
        for _ in range(4):
            step(dwconv.conv2d, x, w)
            arrive()
    (line,) = said()
    assert "is a frozen application; name a Python interpreter with multiprocessing" in line and not running()


def test_a_builder_that_cannot_start_is_started_again_later(maker, said, monkeypatch):
    maker.starts = False
    maker.may.set()
    x, w = tensors()
    for _ in range(5):
        step(dwconv.conv2d, x, w)
        arrive()
    assert len(maker.asked) == 1, "not in every step"
    (plan,) = plans()
    plan.arriving._ask_from_s = 0.0
    plan.arriving._look_after(0)
    maker.starts = True
    step(dwconv.conv2d, x, w)
    arrive()
    step(dwconv.conv2d, x, w)
    assert running() == set(PASSES) and said() == []


def test_a_measured_kernel_is_built_in_the_background_and_is_there_at_once_when_it_is_ready(
    maker, builders, nothing_ready, logs, said
):
    if settings.program(settings.linker()) is None:
        pytest.skip("without a linker nothing is loaded in no time")
    plant(logs / "log.jsonl", [WORKLOAD])
    dwconv.reset()
    x, w = tensors()
    maker.may.set()
    step(dwconv.conv2d, x, w)
    assert running() == set()
    arrive()
    assert set(maker.made) == set(PASSES) and maker.asked == []
    step(dwconv.conv2d, x, w)
    assert running() == set(PASSES)
    dwconv.reset()
    del builders[:]
    step(dwconv.conv2d, x, w)
    assert running() == set(PASSES) and builders == [] and maker.made.count("fprop") == 1
    assert said() == []


def transposed(x, w, **more):
    return dwconv.conv_transpose2d(x, w, groups=8, **more)


@pytest.fixture
def one_by_one(maker, nothing_ready, logs, monkeypatch):
    """A kernel is built for each ``release``; gives the passes that were built."""
    plant(logs / "log.jsonl", [WORKLOAD])
    dwconv.reset()
    gate, built, make = threading.Semaphore(0), [], maker.make

    def make_next(candidate, target, **more):
        background_builds.imports.release()  # as long as the process takes
        try:
            assert gate.acquire(timeout=600)
        finally:
            background_builds.imports.acquire()
        fault = make(candidate, target, **more)
        built.append(candidate.workload.pass_)
        return fault

    monkeypatch.setattr(maker, "make", make_next)
    yield SimpleNamespace(gate=gate, built=built)
    gate.release(len(PASSES))


@pytest.mark.parametrize("convolve", [dwconv.conv2d, watched, compiled, transposed])
def test_a_kernel_runs_while_others_are_on_their_way(one_by_one, said, convolve):
    x, w = tensors()
    plain = F.conv_transpose2d if convolve is transposed else F.conv2d
    theirs = step(plain, x, w, groups=8)
    step(convolve, x, w)
    assert running() == set()
    for count in range(1, len(PASSES) + 1):
        one_by_one.gate.release()
        assert eventually(_has_news)
        for _ in range(3):
            torch.testing.assert_close(step(convolve, x, w), theirs, rtol=1e-4, atol=1e-4)
        assert running() == set(one_by_one.built) and len(one_by_one.built) == count
        assert any(plan.is_open for plan in plans()) == (count < len(PASSES))
    arrive()
    assert said() == []


def _has_news() -> bool:
    """Whether a kernel has come since the last call."""
    return any(plan.arriving.made or plan.arriving._news for plan in plans())


def test_cpp_runs_the_kernels_that_are_there(one_by_one):
    needs_native()
    x, w = tensors()
    for _ in range(2):
        step(dwconv.conv2d, x, w)
        one_by_one.gate.release()
        assert eventually(_has_news)
    for _ in range(2):
        step(dwconv.conv2d, x, w)
    (plan,) = plans()
    assert plan.is_open and type(plan.tally.taught[-1]).__name__ == "TunedCall"
    taken = plan.tally.calls_in_cpp(id(w))
    for _ in range(5):
        step(dwconv.conv2d, x, w)
    assert plan.tally.calls_in_cpp(id(w)) == taken + 5, "as many go past Python as before"
    one_by_one.gate.release()
    arrive()
    for _ in range(2):
        step(dwconv.conv2d, x, w)
    assert not plan.is_open and plan.tally.taught[-1].left is None and running() == set(PASSES)


def test_the_first_call_waits_for_kernels_that_were_measured(maker, builders, nothing_ready, logs, monkeypatch, said):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    dwconv.reset()
    may_spend(600.0, monkeypatch)
    background_builds.forget()
    x, w = tensors()
    theirs = step(F.conv2d, x, w, groups=8)
    torch.testing.assert_close(step(dwconv.conv2d, x, w), theirs, rtol=1e-4, atol=1e-4)
    assert running() == set(PASSES) and maker.asked == []
    assert set(builders) == {"dwconv-builds"}, "a process does it"
    (plan,) = plans()
    assert plan.tally.ops.total() + sum(each.passes.total() for each in plan.tally.counted()) == 3
    assert said() == []


@pytest.mark.parametrize("left_s", [0.0, 500.0])
def test_no_call_waits_longer_than_a_process_may(maker, nothing_ready, logs, monkeypatch, left_s):
    """The process takes longer than any call may wait. Waits of calls take made-up time."""
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    dwconv.reset()
    may_spend(left_s, monkeypatch)
    waited = []
    spent = spending.Spending(spending.saved_s, now=lambda: sum(waited))
    monkeypatch.setattr(spending, "of_process", spent)
    background_builds.forget()
    monkeypatch.setattr(maker, "make", lambda *_, **__: maker.may.wait(600) and "")
    monkeypatch.setattr(threading.Condition, "wait_for", _Noted(threading.Condition.wait_for, waited))
    x, w = tensors()
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(dwconv.conv2d(x, w, padding=1), F.conv2d(x, w, padding=1, groups=8))
    assert sum(waited) <= left_s and len(waited) == (left_s > 0)


class _Noted:
    """A method that notes its time limits, and in the main thread waits no longer than a moment."""

    def __init__(self, method, limits) -> None:
        self._method, self._limits = method, limits

    def __get__(self, event, kind):
        def wait(*given):
            if threading.current_thread() is threading.main_thread() and len(given) == 2:
                self._limits.append(given[1])
                given = given[0], 0.01
            return self._method(event, *given)

        return wait


def test_kernels_that_save_less_than_their_builds_take_come_once_they_are_called_often(maker, monkeypatch):
    maker.may.set()
    saves_s = 1e-6 * maker.planted.pytorch_us * (1 - 1 / maker.planted.gain)
    monkeypatch.setattr(background_builds, "BUILD_S", dict.fromkeys(background_builds.BUILD_S, 7.5 * saves_s))
    monkeypatch.setattr(arriving, "HORIZON", 4)
    x, w = tensors()
    for call in range(1, 12):
        step(dwconv.conv2d, x, w)
        arrive()
        assert bool(maker.made) == (call >= 8), f"after {call} calls"
    assert running() == set(PASSES)
    assert len(maker.asked) == 2 * len(PASSES), "predictions are kept, and are not asked for in every call"


def test_kernels_that_save_most_are_built_first(maker, nothing_ready, monkeypatch):
    """While one thread is busy, the others line up."""
    began, may = threading.Event(), threading.Event()

    def busy(_):
        began.set()
        assert may.wait(600)

    background_builds.predict(busy, device=CPU, saves_us=1e9)
    assert began.wait(600)
    order = []
    for number, saves_us in enumerate((3.0, 70.0, 20.0, 70.0)):
        background_builds.predict(lambda _, number=number: order.append(number), device=CPU, saves_us=saves_us)
    may.set()
    arrive()
    assert order == [1, 3, 2, 0]


def test_a_kernel_that_two_plans_need_is_built_once(maker, nothing_ready, logs):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    dwconv.reset()
    began, may, ended = threading.Event(), threading.Event(), []
    background_builds.predict(lambda _: began.set() or may.wait(600), device=CPU, saves_us=1e9)
    assert began.wait(600)
    made, target = call_plan.decisions_for(call_plan.Problem.of(WORKLOAD), CPU)
    for _ in range(2):
        wanted = arriving.kernels_of(call_plan.Problem.of(WORKLOAD), made, device=CPU, target=target)
        background_builds.build(wanted, ended.append)
    may.set()
    arrive()
    assert sorted(maker.made) == sorted(PASSES) and ended == ["", ""]


def test_raced_kernels_are_ready_when_convert_returns(maker, nothing_ready, logs, monkeypatch):
    """As the pool of processes would make them."""
    made = []

    class Pool:
        def __init__(self, *given, size, **options):
            assert size >= 1

        def map(self, bodies, *, timeout_s):
            for position, body in enumerate(bodies):
                made.append(body.candidate.workload.pass_)
                yield position, cache.build_linked(body.candidate, body.target)

        def kill(self):
            made.append("end")

    from dwconv.measure.processes import pool

    monkeypatch.setattr(pool, "Pool", Pool)
    plant(logs / "log.jsonl", [WORKLOAD], passes=["fprop", "dgrad"])
    plant(logs / "log.jsonl", [WORKLOAD], passes=["wgrad"], baseline_us=1)
    dwconv.reset()
    workloads = [WORKLOAD.for_pass(pass_) for pass_ in PASSES]
    for setting in ("wait", "predict"):
        monkeypatch.setenv("DWCONV_UNTUNED", setting)
        background_builds.build_fastest(workloads, cpu_target(), threads=torch.get_num_threads())
        assert made == ([] if setting == "wait" else ["fprop", "dgrad", "end"])
    step(dwconv.conv2d, *tensors())
    assert running() == {"fprop", "dgrad"} and maker.asked == []
    background_builds.build_fastest(workloads, cpu_target(), threads=torch.get_num_threads())
    assert made.count("end") == 1, "all are ready"


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_what_is_known_of_a_models_layers_is_built_before_its_first_call(maker, nothing_ready, logs, layout):
    workload = workload_of(shape=(2, 8, 9, 7), bias=True, layout=layout)
    plant(logs / "log.jsonl", [workload], baseline_us=1e6)
    plant(logs / "log.jsonl", [workload_of(shape=(2, 16, 9, 7), bias=True, layout=layout)], baseline_us=1e6)
    dwconv.reset()
    x, _ = tensors()
    x = x.detach() if layout == "nhwc" else x.detach().contiguous()
    layer = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
    dwconv.convert(torch.nn.Sequential(layer, torch.nn.Conv2d(8, 4, 1)))
    assert eventually(lambda: len(maker.made) == len(PASSES))
    arrive()
    layer(x).sum().backward()
    assert sorted(maker.made) == sorted(PASSES) and running() >= {"fprop", "wgrad"} and maker.asked == []


def test_ready_waits_for_all_kernels_of_a_model(maker, monkeypatch):
    """Also for those that would not pay within some thousand calls; they change nothing in the model."""
    monkeypatch.setattr(background_builds, "BUILD_S", dict.fromkeys(background_builds.BUILD_S, 1e9))
    maker.may.set()
    model = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1, groups=8))
    x = tensors()[0].detach()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    dwconv.convert(model)
    model(x).sum().backward()
    assert dwconv.summary(model).building and running() == set()
    grads = [parameter.grad for parameter in model.parameters()]
    assert dwconv.ready(model, x) is model
    assert running() >= {"fprop", "wgrad"} and not any(plan.is_open for plan in plans())
    assert (dwconv.summary(model).ready, dwconv.summary(model).building) == (3, 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert [parameter.grad for parameter in model.parameters()] == grads
    with pytest.raises(dwconv.DwconvError, match="timeout_s=-1 is not a time"):
        dwconv.ready(model, x, timeout_s=-1)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("is_ready", [False, True])
def test_kernels_that_are_known_run_without_a_pass_that_no_call_needs(
    maker, nothing_ready, logs, said, layout, is_ready
):
    """As the first layer of a model no gradient of its input. One that needs it has it predicted."""
    workload = workload_of(shape=(2, 8, 9, 7), layout=layout)
    plant(logs / "log.jsonl", [workload], passes=["fprop", "wgrad"], baseline_us=1e6, template_layout=layout)
    maker.may.set()
    x, w = tensors()
    x = x.detach() if layout == "nhwc" else x.detach().contiguous()
    for _ in range(1 + is_ready):
        dwconv.reset()
        for _ in range(4):
            dwconv.conv2d(x, w, padding=1).sum().backward()
            arrive()
    assert (maker.asked, running()) == ([], {"fprop", "wgrad"})
    assert not any(plan.is_open for plan in plans()) and said() == []
    other = x.clone().requires_grad_()
    with FlopCounterMode(display=False):
        for _ in range(4):
            dwconv.conv2d(other, w, padding=1).sum().backward()
            arrive()
    assert set(maker.asked) == {"dgrad"} and "dgrad" in running()


def test_explain_says_whether_a_kernel_is_there(maker, nothing_ready, logs):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    dwconv.reset()
    x, w = tensors()
    made = dwconv.explain(x, w, padding=1)
    assert {each.state for each in made.passes} == {"building"} and "building: PyTorch's op runs" in str(made)
    maker.may.set()
    step(dwconv.conv2d, x, w)
    arrive()
    made = dwconv.explain(x, w, padding=1)
    assert {each.state for each in made.passes} == {"ready"} and "building" not in str(made)


def test_forgetting_leaves_what_is_on_its_way(maker):
    x, w = tensors()
    step(dwconv.conv2d, x, w), step(dwconv.conv2d, x, w)
    dwconv.reset()
    maker.may.set()
    arrive()
    step(dwconv.conv2d, x, w)
    assert all(plan.is_open for plan in plans())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_forked_meanwhile_goes_on_with_pytorchs_op(maker):
    x, w = tensors()
    step(dwconv.conv2d, x, w), step(dwconv.conv2d, x, w)
    child = os.fork()
    if child == 0:
        has_none = background_builds._Threads.count == 0
        torch.set_num_threads(1)
        with torch.no_grad():
            right = torch.allclose(dwconv.conv2d(x, w, padding=1), F.conv2d(x, w, padding=1, groups=8), atol=1e-5)
        os._exit(0 if right and has_none and not background_builds.imports.abandoned else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    maker.may.set()
    arrive()
    step(dwconv.conv2d, x, w)
    assert running() == set(PASSES), "the parent's thread went on"


PROGRAM = """
import sys, time, torch, dwconv
from dwconv.call import arriving, call_plan
from dwconv.measure.processes import started_process

arriving.HORIZON = 10**9  # whatever a kernel saves
if "again" in sys.argv:
    started_process.subprocess = None  # nothing is left to be predicted or built

layer = torch.nn.Conv2d(64, 64, 5, padding=2, groups=64)
model = torch.nn.Sequential(layer)
x = torch.randn(4, 64, 20, 20).to(memory_format=torch.channels_last)
right = model(x).detach()
dwconv.convert(model, x, seconds=0)
assert "torch._dynamo" not in sys.modules, "PyTorch's compiler takes seconds to import"
ends = time.monotonic() + 600
while True:
    y = model(x)
    y.sum().backward()
    torch.testing.assert_close(y.detach(), right, rtol=1e-4, atol=1e-4)
    (plan,) = call_plan.plans()
    if not plan.is_open:
        break
    assert time.monotonic() < ends
    time.sleep(0.02)
assert "tvm" not in sys.modules or "linked" not in sys.argv, "TVM was imported beside the training"
print(plan.decisions["fprop"].reason, file=sys.stderr)
print(*sorted(each.provider for each in plan.decisions.values()))
"""


def test_a_process_predicts_builds_and_checks_and_the_next_one_need_not(tmp_path):
    """fprop was measured with another PyTorch: whatever is expected of the others, it is worth a kernel."""
    workload = workload_of(shape=(4, 64, 20, 20), kernel=(5, 5), padding=2, bias=True)
    config = default_of(workload, cpu_target())
    record = record_of(workload, config=config, median_us=50.0, baseline_us=1000.0)
    log = TuningLog(tmp_path / "logs" / "log.jsonl")
    log.append(dataclasses.replace(record, versions={**record.versions, "torch": "2.1.0"}))
    linked = ["linked"] if settings.program(settings.linker()) else []
    environment = {**os.environ, "DWCONV_CACHE": str(tmp_path), "DWCONV_UNTUNED": "", "DWCONV_NATIVE": "0"}
    environment["DWCONV_TUNING_LOGS"] = str(tmp_path / "logs")
    for again in [], ["again"]:
        if again and not linked:  # every process has its kernels checked, and makes machine code of them, once more
            continue
        command = [sys.executable, "-c", PROGRAM, *linked, *again]
        done = forked.run(command, env=environment, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
        assert "measured with PyTorch 2.1.0" in done.stderr
        kept = len([*tmp_path.rglob("*.library" if linked else "*.kernel")])
        assert done.stdout.split().count("dwconv") == kept > 0
        assert len([*tmp_path.rglob("*.checked")]) >= kept
        assert len([*tmp_path.rglob("*.expected")]) >= 1


@pytest.fixture
def all_cores(maker, monkeypatch):
    """Training uses each of them."""
    monkeypatch.setattr(cpu_facts, "cores", torch.get_num_threads)
    may_spend(0.0, monkeypatch)
    background_builds.begin()


@pytest.mark.usefixtures("all_cores")
def test_beside_training_on_all_cores_builds_take_what_kernels_have_saved(monkeypatch):
    """None while nothing is saved; then as many as that is enough for."""
    ran, saved = [], [0.0]
    monkeypatch.setattr(spending, "saved_s", lambda: saved[0] / spending.SURE)
    monkeypatch.setattr(background_builds, "_LOOK_S", 0.01)
    monkeypatch.setattr(background_builds, "_IDLE_S", 0.5)

    def work(number):
        spending.of_process.spend(1.0)  # a second of training
        ran.append(number)

    for number in range(3):
        background_builds.predict(lambda _, number=number: work(number), device=CPU, saves_us=-number)
    time.sleep(0.1)
    assert ran == []
    for count in (1, 2, 3):
        saved[0] += 1.0
        assert eventually(lambda count=count: len(ran) == count)
        time.sleep(0.05)
        assert len(ran) == count
    assert ran == [0, 1, 2]
    assert spending.of_process.left_s <= 0.0


@pytest.mark.usefixtures("all_cores")
def test_a_call_does_not_wait_for_a_build_that_takes_longer_than_it_may(monkeypatch):
    may_spend(1000.0, monkeypatch)
    monkeypatch.setattr(background_builds, "PREDICTION_S", 10_000.0)
    background_builds.predict(lambda _: None, device=CPU, saves_us=1.0)
    began = time.monotonic()
    background_builds.wait(threading.Event())
    assert time.monotonic() - began < 600 and len(background_builds._tasks) == 1
    background_builds.forget()


def test_kernels_arrive_at_transposed_calls(maker):
    x, w = torch.randn(2, 8, 5, 4).to(memory_format=torch.channels_last), torch.nn.Parameter(torch.randn(8, 1, 3, 3))
    options = {"stride": 2, "padding": 1, "output_padding": 1}

    def call():
        return dwconv.conv_transpose2d(x, w, **options)

    def node():
        made = call().grad_fn  # PyTorch 2.11 refuses name() of what Python makes
        return type(made).__name__ if isinstance(made, torch.autograd.function.BackwardCFunction) else made.name()

    for _ in range(3):
        assert "ConvolutionBackward" in node()
    maker.may.set()
    assert eventually(lambda: "DwconvTransposed" in node())
    arrive()
    torch.testing.assert_close(call(), F.conv_transpose2d(x, w, groups=8, **options))
    (plan,) = plans()
    assert not plan.is_open and {*maker.made} == {*PASSES}
    (counted,) = plan.tally.counted()
    assert counted.weight is w and counted.passes["dgrad"] >= 5
