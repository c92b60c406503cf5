"""First use: a kernel that nothing on this machine vouches for is checked before it runs, once, and out of the way."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import threading

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import dwconv
from dwconv.call import process_kernels
from dwconv.call.call_plan import plan_for
from dwconv.dispatch.of_problem import decisions
from dwconv.errors import DwconvWarning
from dwconv.kernels import cache, load_cpu
from dwconv.kernels.kernel import Kernel
from dwconv.measure.requests import new_record, right_finalist
from dwconv.measure.verify import first_use as check
from dwconv.measure.verify.cases import case_of_few_channels
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import BLOCK_PASSES, PASSES
from dwconv.records.record import Status
from dwconv.schedules.template import Candidate
from tests.planted_gain import plant_gain
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked", "through_python")
WORKLOAD = workload_of(bias=True)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A cache of these tests' own: what they plant has the artifact of a kernel that is right."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cached(built, monkeypatch):
    """The cache, in which nothing is remembered of its kernels."""
    for path in built.rglob("*.checked"):
        path.unlink()
    monkeypatch.setenv("DWCONV_CACHE", str(built))
    return built


@pytest.fixture
def planted(cached, logs, monkeypatch):
    """Everything is predicted, with two threads."""
    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    yield plant_gain(monkeypatch)
    torch.set_num_threads(usual)


@pytest.fixture
def checks(monkeypatch):
    """The candidates that were checked, and on how many threads."""
    made = []

    def count(kernel, device, *, threads, **options):
        made.append((kernel.artifact.candidate.workload.pass_, sorted(threads)))
        return real(kernel, device, threads=threads, **options)

    real = check.fault_at_first_use
    monkeypatch.setattr(check, "fault_at_first_use", count)
    return made


def tensors(*, batch=2):
    x = torch.randn(batch, 8, 9, 7).to(memory_format=torch.channels_last).requires_grad_()
    return x, torch.randn(8, 1, 3, 3, requires_grad=True), torch.randn(8, requires_grad=True)


def step(convolve, x, w, bias, **more):
    y = convolve(x, w, bias, padding=1, **more)
    return [y.detach(), *torch.autograd.grad(y.sin().sum(), (x, w, bias))]


def train(*, batch=2):
    """A step, which must give what PyTorch's own gives."""
    given = tensors(batch=batch)
    torch.testing.assert_close(step(dwconv.conv2d, *given), step(F.conv2d, *given, groups=8), rtol=1e-4, atol=1e-4)


# -- what is found -----------------------------------------------------------------------------------------------------


def plant_fault(monkeypatch, pass_, harm):
    """The kernels of a pass run, and then ``harm`` their results: it gets (batch, threads, results by name as PyTorch
    shapes them in the kernel's layout, the same as they were before the run)."""

    def load_faulty(artifact):
        call, entry = real(artifact)
        if artifact.candidate.workload.pass_ != pass_:
            return call, entry

        def faulty(batch, *addresses):
            results = {}
            for argument, address in zip(artifact.arguments, addresses, strict=False):
                shape = argument.shape_at(batch)
                memory = (ctypes.c_float * math.prod(shape)).from_address(address)
                results[argument.name] = torch.frombuffer(memory, dtype=torch.float32).view(shape)
            before = {name: tensor.clone() for name, tensor in results.items()}
            call(batch, *addresses)
            harm(batch, torch.get_num_threads(), results, before)

        return faulty, 0

    real = load_cpu.load_cpu
    monkeypatch.setattr(load_cpu, "load_cpu", load_faulty)


FAULTS = {
    "last channel": ("fprop", "value: ", lambda batch, threads, got, was: got["y"][..., -1].add_(1)),
    "at batch 1": ("fprop", "at batch size 1", lambda batch, threads, got, was: got["y"][0, 0, 0, 0].add_(batch == 1)),
    "above batch 1": ("dgrad", "value: ", lambda batch, threads, got, was: got["dx"][1:].copy_(got["dx"][0])),
    "a weight": ("wgrad", "elements of dw", lambda batch, threads, got, was: got["dw"].view(-1)[5].mul_(1.001)),
    "a bias": ("wgrad", "1 of 8 elements of dbias", lambda batch, threads, got, was: got["dbias"][3].add_(1)),
    "on two threads": ("wgrad", "threads=2", lambda batch, threads, got, was: got["dw"].mul_(1 + (threads == 2))),
    "on one thread": ("wgrad", "threads=1", lambda batch, threads, got, was: got["dw"].mul_(1 + (threads == 1))),
    "not written": (
        "dgrad", "not written: 56 of ", lambda batch, threads, got, was: got["dx"][-1, -1].copy_(was["dx"][-1, -1])
    ),
    "writes an input": ("fprop", "input changed: w", lambda batch, threads, got, was: got["w"].view(-1)[-1].add_(1)),
    "writes an input in the last run": (
        "fprop", "input changed: w", lambda batch, threads, got, was: got["w"].view(-1)[-1].add_(threads == 1)
    ),
    "writes outside in the last run": (
        "fprop", "guard band: it wrote outside y",
        lambda batch, threads, got, was: ctypes.memset(got["y"].data_ptr() + got["y"].nbytes, 0, 4 * (threads == 1)),
    ),
    "loses nan": ("fprop", "extreme data", lambda batch, threads, got, was: got["y"].nan_to_num_(nan=0.0)),
}  # fmt: skip


@pytest.mark.parametrize(("pass_", "seen", "harm"), FAULTS.values(), ids=FAULTS)
def test_a_wrong_kernel_never_runs_and_is_named_once(planted, said, checks, monkeypatch, pass_, seen, harm):
    plant_fault(monkeypatch, pass_, harm)
    for batch in (2, 1, 2, 3):
        train(batch=batch)
    (message,) = said()
    workload = WORKLOAD.for_pass(pass_)
    start = (
        f"{workload.key} runs on PyTorch's own op: its predicted kernel gave wrong results when it was checked here: "
    )
    assert message.startswith(start) and seen in message and "\n" not in message
    plan = plan_for(Problem.of(WORKLOAD), CPU)
    assert {name: type(plan.kernels[name]) for name in PASSES} == {
        name: type(None) if name == pass_ else Kernel for name in PASSES
    }
    explained = dwconv.explain(*tensors(), padding=1)
    assert [each.provider for each in explained.passes] == ["pytorch" if name == pass_ else "dwconv" for name in PASSES]
    assert explained[pass_].reason.startswith("the predicted kernel is out: it gave wrong results when it was ch")
    assert checks.count((pass_, [1, 2])) == 1


def test_what_a_record_names_is_no_exception(planted, logs, said, monkeypatch):
    """It may have been measured on another machine of the same device, as the records that are shipped were."""
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    dwconv.reset()
    plant_fault(monkeypatch, "fprop", FAULTS["last channel"][-1])
    train()
    (message,) = said()
    assert "its tuned kernel gave wrong results when it was checked here: value: " in message
    assert "it gave wrong results" in dwconv.explain(*tensors(), padding=1)["fprop"].reason


def test_a_kernel_that_fails_when_it_is_checked_does_not_run(planted, said, monkeypatch):
    def fail(batch, threads, results, before):
        raise MemoryError("it needs 9.0 GiB for its tensors, 1.0 GiB are free")

    plant_fault(monkeypatch, "fprop", fail)
    train()
    (message,) = said()
    told = "its predicted kernel could not be checked: it needs 9.0 GiB for its tensors, 1.0 GiB are free; others are"
    assert told in message
    assert not [each for each in process_kernels._seen.values() if each.fault], "it may be right, where there is memory"


# -- what is remembered ------------------------------------------------------------------------------------------------


def test_a_kernel_is_checked_once_and_again_only_for_more_threads(planted, checks):
    for _ in range(2):
        train()
        dwconv.reset()  # as a new process: what is on disk stays
    assert sorted(checks) == [(pass_, [1, 2]) for pass_ in sorted(PASSES)]
    torch.set_num_threads(3)
    for _ in range(2):
        train(batch=3)
        dwconv.reset()
    assert sorted(checks[3:]) == [(pass_, [1, 3]) for pass_ in sorted(PASSES)]
    torch.set_num_threads(2)
    train()
    kernel = plan_for(Problem.of(WORKLOAD), CPU).kernels["fprop"]
    torch.set_num_threads(1)
    assert process_kernels.fault_of(kernel, cpu_target(), CPU) == ""
    assert len(checks) == 6


def test_where_nothing_can_be_kept_a_process_checks_once(planted, checks, monkeypatch):
    monkeypatch.setattr(cache, "write_entry", lambda path, value: None)
    train(batch=2)
    train(batch=3)
    assert len(checks) == 3
    dwconv.reset()
    train()
    assert len(checks) == 6


def test_what_a_search_confirmed_here_is_not_checked(planted, checks):
    made, target = decisions(Problem.of(WORKLOAD), CPU)
    for decision in made.values():
        artifact = cache.build_cached(Candidate(decision.workload, decision.config), target)
        record = new_record(artifact.candidate, target, status=Status.OK)
        right_finalist(artifact, record, target=target, sure=True)
    train()
    assert checks == []


@pytest.mark.parametrize("damage", [b"", b"garbage" * 20, None])
def test_a_damaged_memory_is_no_memory(planted, checks, cached, damage):
    train()
    for path in cached.rglob("*.checked"):
        path.write_bytes(damage if damage is not None else path.read_bytes()[:-1] + b"x")
    dwconv.reset()
    train()
    assert len(checks) == 6


def test_another_artifact_or_version_is_checked_anew(planted, checks, monkeypatch):
    train()
    dwconv.reset()
    monkeypatch.setattr(cache, "installed", lambda: {"tvm": "99"})
    train()
    assert len(checks) == 6
    target = cpu_target()
    artifact = first_use_artifact()
    assert cache.checked(artifact, target) is not None
    assert cache.checked(dataclasses.replace(artifact, source=artifact.source + "\n"), target) is None
    assert cache.checked(dataclasses.replace(artifact, build_s=9.9), target) is not None


def first_use_artifact():
    return plan_for(Problem.of(WORKLOAD), CPU).kernels["fprop"].artifact


# -- where the first call happens --------------------------------------------------------------------------------------


class Watching(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_nothing_of_it(planted, checks):
    seen = []
    for _ in range(2):
        with Watching() as mode:
            train()
        seen.append(mode.seen)
    assert seen[0] == seen[1] and len(checks) == 3


def test_the_first_call_in_inference_mode_leaves_training_right(planted, checks, said):
    x, w, bias = (tensor.detach() for tensor in tensors())
    with torch.inference_mode():
        assert dwconv.conv2d(x, w, bias, padding=1).is_inference()
    assert [pass_ for pass_, _ in checks] == ["fprop"]
    train()
    assert len(checks) == 3 and said() == []


def test_the_state_of_the_process_stays_and_changes_no_verdict(planted, checks, said):
    given = tensors()
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    torch.set_flush_denormal(True)
    try:
        before = _state()
        dwconv.conv2d(*given, padding=1)
        after = _state()
        tiny = torch.tensor([1e-39], dtype=torch.float32)
        flushes = (tiny * 0.5).item() == 0.0
    finally:
        torch.set_flush_denormal(False)
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
    assert before[0].equal(after[0]) and before[1:] == after[1:] and flushes
    train()
    assert len(checks) == 3 and said() == []


def _state():
    return (
        torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
        torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), _threads_of_a_new_thread(),
    )  # fmt: skip


def _threads_of_a_new_thread():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return seen[0]


def test_while_a_graph_is_captured_pytorchs_op_runs_and_the_next_call_checks(planted, monkeypatch):
    real = process_kernels.fault_of
    monkeypatch.setattr(process_kernels, "fault_of", lambda *arguments: None)
    plan = plan_for(Problem.of(WORKLOAD), CPU)
    with pytest.warns(DwconvWarning, match="warm up first") as caught:
        train()
    assert len(caught) == 1
    assert plan.kernels["fprop"] is None and "fprop" not in plan.kernels
    monkeypatch.setattr(process_kernels, "fault_of", real)
    train()
    assert isinstance(plan.kernels["fprop"], Kernel)


def test_nothing_is_checked_while_a_stream_is_captured(planted, cached, checks, monkeypatch):
    kernel = plan_for(Problem.of(WORKLOAD), CPU).kernels["fprop"]
    for path in cached.rglob("*.checked"):
        path.unlink()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert process_kernels.fault_of(kernel, cpu_target(), torch.device("cuda")) is None
    assert len(checks) == 1


def test_without_a_thread_the_next_call_checks(planted, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    plan = plan_for(Problem.of(WORKLOAD), CPU)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        train()
    assert "fprop" not in plan.kernels and not process_kernels.state.broken
    train()
    assert isinstance(plan.kernels["fprop"], Kernel)


# -- what a case covers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("pass_", PASSES)
def test_the_answers_of_repeated_channels_are_those_of_all(pass_, layout, multiplier, monkeypatch):
    workload = dataclasses.replace(
        workload_of(shape=(2, 11, 9, 7), layout=layout, bias=True, multiplier=multiplier).for_pass(pass_)
    )
    monkeypatch.setattr(check, "_PRODUCTS", 1)
    from dwconv.problems.right_answers import right_answers

    for data in ("integers", "extreme"):
        count = check._different_channels(workload)
        case = case_of_few_channels(workload, data=data, seed=2, device="cpu", count=count)
        for answer, whole in zip(case.answers, right_answers(workload, *case.inputs), strict=True):
            assert torch.equal(answer.expected.nan_to_num(), whole.expected.nan_to_num())
            assert (answer.allowed is None) == (whole.allowed is None)
        first, other = case.inputs[0][:, 0], case.inputs[0][:, 1]
        assert not torch.equal(first, other), "neighbours differ"


@pytest.mark.parametrize("channels", [8, 12, 15, 30])
@pytest.mark.parametrize("pass_", BLOCK_PASSES)
def test_the_answers_of_repeated_channels_are_those_of_all_beside_a_layer_norm(pass_, channels, monkeypatch):
    """Its statistics are of all channels: those of a few that repeat, if they repeat as a whole."""
    workload = workload_of(shape=(2, channels, 6, 5), bias=True, block="none,ln").for_pass(pass_)
    monkeypatch.setattr(check, "_PRODUCTS", 5 * workload.flops // 2 // channels)
    from dwconv.problems.right_answers import right_answers

    count = check._different_channels(workload)
    case = case_of_few_channels(workload, data="integers", seed=2, device="cpu", count=count)
    for answer, whole in zip(case.answers, right_answers(workload, *case.inputs), strict=True):
        assert ((answer.expected - whole.expected).abs() <= whole.allowed).all()
        assert (answer.allowed <= 4 * whole.allowed).all()


def test_large_layers_are_checked_on_fewer_images():
    def cases(side):
        return check._cases(workload_of(shape=(32, 64, side, side)), fast_math=False)

    assert cases(14) == [(1, "integers"), (3, "integers"), (2, "extreme")]
    assert cases(112) == [(1, "integers"), (2, "integers")]
    assert cases(512) == [(1, "integers")]
    assert (2, "normal") in check._cases(workload_of(), fast_math=True)


# -- a template that is wrong ------------------------------------------------------------------------------------------
