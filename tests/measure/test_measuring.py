"""Faults that a few runs on usual data do not show: planted in kernels, they are found before these are confirmed.

A build worker's answer is checked before it is run.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dwconv import native
from dwconv.errors import BuildError, CannotBeCaptured, DeviceLost
from dwconv.kernels.artifact import Argument, Extent
from dwconv.measure.building import misfit
from dwconv.measure.clock.timing import CpuClock
from dwconv.measure.measuring import Measurer, ready
from dwconv.measure.requests import Check, Final, MeasureSetup, Prepare, Trial
from dwconv.problems.target import parse_target
from tests.measure.planted_kernels import TARGET, artifact, candidate, workload


@pytest.fixture(scope="module")
def measurer():
    threads = torch.get_num_threads()
    measurer = Measurer(MeasureSetup(target=TARGET, load="tests.measure.planted_kernels:load"))
    torch.set_num_threads(threads)  # it has set them for its process, which here is that of all tests
    measurer(Prepare(workload=workload(), finalists=True))
    return measurer


def found(measurer, fault, of=None):
    """Where the fault is found, and how; None if it is confirmed."""
    built = artifact(candidate(fault, of=of))
    for stage in (Trial(artifact=built), Check(finalist=built), Final(artifacts=(built,))):
        measured = measurer(stage)
        for verdict in (measured.verdict, *measured.verdicts_after):
            if verdict is not None and not verdict.right:
                return type(stage).__name__, verdict.reason
    return None


@pytest.mark.parametrize(
    ("fault", "stage", "reason"),
    [
        ("wrong off a cache line", "Trial", "value: 1 of 756 elements"),
        ("wrong from the 3rd call on", "Trial", "value: 1 of 756 elements"),
        ("wrong at batch 3", "Check", "value: 1 of 1134 elements"),
        ("wrong every 10th run", "Trial or Check", ""),
        ("wrong on one more thread", "Check", "not deterministic: another run on the same inputs, threads="),
        ("writes after in a later run", "Check", "guard band: it wrote outside y"),
        ("spreads NaN", "Check", "value: "),
        ("loses small values", "Check", "value: "),
        ("wrong for tensors with gaps", "Check", "value: called with tensors with gaps"),
        ("wrong for users off a cache line", "Check", "value: called with tensors that start off a cache line"),
        ("wrong for users at another batch", "Check", "value: called with tensors"),
        ("wrong for users on one more thread", "Check", "value: called with tensors in the other layout, threads=2"),
    ],
)
def test_a_fault_that_hides_is_found(measurer, fault, stage, reason):
    where, how = found(measurer, fault) or ("nowhere", "")
    assert where in stage.split(" or ") and how.startswith(reason), how
    assert torch.get_num_threads() == TARGET.threads


def test_a_fault_at_one_image_more_is_found(measurer):
    stage, reason = found(measurer, "wrong at batch 10", workload(batch=9))
    assert stage == "Check" and "(at batch size 10, integers data" in reason


def test_a_fault_at_batch_2_is_found_where_another_batch_is_tuned(measurer):
    stage, reason = found(measurer, "wrong at batch 2", workload(batch=5))
    assert stage == "Check" and reason.endswith("(at batch size 2, normal data)")


def test_a_fault_on_one_thread_is_found_where_more_are_usual(measurer):
    torch.set_num_threads(2)
    stage, reason = found(measurer, "wrong on one thread")
    assert stage == "Check" and "threads=1)" in reason
    assert torch.get_num_threads() == 2


def test_what_goes_wrong_while_it_is_timed_is_found_after_it(measurer):
    good, bad = (artifact(candidate(fault)) for fault in ("none", "wrong when timed for long"))
    first, second, third = measurer(Final(artifacts=(good, bad, good))).verdicts_after
    assert first.right and third.right
    assert not second.right and second.reason.endswith("(after it was timed)")


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("changes", [{}, {"multiplier": 2, "stride": (2, 1), "bias": True}, {"channels": 1}])
def test_a_right_kernel_is_confirmed(pass_, layout, changes):
    of = workload(layout=layout, **changes).for_pass(pass_)
    measurer = Measurer(MeasureSetup(target=TARGET, load="tests.measure.planted_kernels:load"))
    measurer(Prepare(workload=of, finalists=True))
    verdict = measurer(Check(finalist=artifact(candidate(of=of)))).verdict
    assert verdict.right and 0 < verdict.max_error <= verdict.allowed_error < 1e-3  # on data that rounds


@pytest.mark.parametrize(("target", "expected"), [("cpu", ["compiled"]), ("cuda:sm_90", ["left out"])])
def test_the_short_way_of_calls_is_compiled_for_the_cpu_alone(target, expected, monkeypatch):
    asked = []
    monkeypatch.setattr(native, "native", lambda **options: asked.append("compiled"))
    monkeypatch.setattr(native, "leave_out", lambda reason: asked.append("left out"))
    monkeypatch.setattr("dwconv.measure.clock.device.leave_default_stream", lambda: None)
    threads = torch.get_num_threads()
    try:
        Measurer(MeasureSetup(target=parse_target(target)))
    finally:
        torch.set_num_threads(threads)
    assert asked == expected


@pytest.mark.parametrize(("lost", "raised"), [(False, BuildError), (True, DeviceLost)])
def test_an_error_that_broke_the_context_is_distinguished_from_others(monkeypatch, lost, raised):
    synchronized = []

    def synchronize():
        synchronized.append(1)
        if lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def load(artifact):
        raise BuildError("LLVM cannot load it")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    measurer = Measurer(MeasureSetup(target=TARGET, load="tests.measure.planted_kernels:load"))
    monkeypatch.setattr(measurer, "_target", parse_target("cuda:sm_90"))
    monkeypatch.setattr(measurer, "_load", load)
    with pytest.raises(raised, match="LLVM cannot load it"):
        measurer(Check(finalist=artifact(candidate())))
    assert synchronized


def test_calls_that_cannot_be_captured_do_not_take_part():
    class Clock(CpuClock):
        def ready(self, call):
            if call is not fine:
                raise CannotBeCaptured("it waits")
            return call

    def fine():
        return None

    assert list(ready({"a": fine, "b": lambda: None}, Clock())) == ["a"]
    with pytest.raises(CannotBeCaptured):
        ready({"b": lambda: None}, Clock())


GOOD = artifact(candidate())
X, W, Y, WORKSPACE = GOOD.arguments


def with_arguments(*arguments):
    return dataclasses.replace(GOOD, arguments=arguments)


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_artifact_of_the_candidate_fits(pass_, layout):
    wanted = candidate(of=workload(pass_, layout=layout, bias=pass_ != "dgrad", multiplier=2, stride=(2, 1)))
    assert misfit(wanted, artifact(wanted), target=TARGET) == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "NoneType is not an artifact"),
        (candidate(), "Candidate is not an artifact"),
        (artifact(candidate(order=1)), "the artifact of another candidate, fault=none order=1"),
        (artifact(candidate(of=workload(channels=7))), "the artifact of another candidate"),
        (dataclasses.replace(GOOD, kind="cuda"), "an artifact for cuda, not for cpu"),
        (with_arguments(), "a kernel without x"),
        (with_arguments(X, W), "a kernel without y"),
        (with_arguments(W, X, Y), "a kernel without x"),
        (with_arguments(X, W, dataclasses.replace(Y, dtype="float16")), "a kernel of Argument"),
        (with_arguments(X, W, dataclasses.replace(Y, shape=(Extent(), 9, 7, 7))), "a kernel of Argument"),
        (with_arguments(X, W, dataclasses.replace(Y, shape=(2, 9, 7, 6))), "a kernel of Argument"),
        (with_arguments(X, W, Y, WORKSPACE, Argument("bias", "float32", (6,))), "a kernel of bias"),
    ],
)
def test_others_do_not(answer, words):
    assert misfit(candidate(), answer, target=TARGET).startswith(words)
