"""Faults that a few runs on usual data do not show: planted in kernels, they are found before these are confirmed.

A build worker's answer is checked before it is run.
"""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from dwconv import native, settings
from dwconv.errors import BuildError, CannotBeCaptured, DeviceLost
from dwconv.kernels.artifact import Argument, Extent
from dwconv.kernels.cache import build_cached, build_linked
from dwconv.kernels.cpu_build import build_cpu
from dwconv.kernels.kernel import Kernel
from dwconv.measure import timing_worker
from dwconv.measure.build_worker import misfit
from dwconv.measure.clock.timing import CpuClock, Taken
from dwconv.measure.requests import (
    CheckRequest,
    MeasureAnswer,
    MeasureSetup,
    PrepareRequest,
    TimeRequest,
    Tried,
    misfit_of_answer,
)
from dwconv.measure.timing_worker import Prepared, TimingHandler, _small, ready
from dwconv.problems.block import Block
from dwconv.problems.target import cpu_target, parse_target
from dwconv.records.record import AROUND, TRANSPOSED, AtSize, Measurement, Verdict
from dwconv.schedules.template import Candidate, templates_for
from tests import planted_records
from tests.measure.planted_kernels import TARGET, artifact, candidate, workload


def measurer_of_planted():
    threads = torch.get_num_threads()
    measurer = TimingHandler(MeasureSetup(target=TARGET, load="tests.measure.planted_kernels:load"))
    torch.set_num_threads(threads)  # it has set them for its process, which here is that of all tests
    return measurer


@pytest.fixture(scope="module")
def measurer():
    measurer = measurer_of_planted()
    measurer(PrepareRequest(workload=workload(), finalists=True))
    return measurer


@pytest.mark.parametrize(("pass_", "is_other"), [("dgrad", True), ("fprop", False), ("wgrad", False)])
def test_finalists_of_a_strided_dgrad_are_timed_beside_another_op_of_pytorch(pass_, is_other):
    of = workload(stride=(2, 2), layout="nhwc").for_pass(pass_)
    prepared = Prepared(of, target=TARGET, clock=CpuClock(), caches="warm")
    assert {*prepared.beside} - {*prepared.providers} == ({TRANSPOSED} if is_other else set())
    if is_other:
        prepared.beside[TRANSPOSED]()


@pytest.mark.parametrize("block", [None, "bn+relu6,bn+relu"])
def test_beside_other_work_a_race_settles_what_is_clear(block, monkeypatch):
    """Also a block, beside whose parts it counts."""
    target = cpu_target(threads=torch.get_num_threads())
    of = planted_records.workload_of(shape=(2, 8, 9, 7), block=block)
    (template,) = (each for each in templates_for(of, target) if each.layout == "nhwc")
    built = build_cached(Candidate(of, template.space(of, target).default), target)

    def rounds_in_turns(calls, **more):
        us = {name: 40.0 if name.startswith("dwconv") else 30.0 if name == AROUND else 90.0 for name in calls}
        slowed = [1, 7, 2, 1, 30, 1, 4, 1, 2, 9, 1, 3, 1, 1, 5, 2]
        busy = {
            name: Measurement(median_us=5 * each, spread_us=1.0, rounds=3, contention=0.6) for name, each in us.items()
        }
        turns = {name: tuple(each * factor for factor in slowed) for name, each in us.items()}
        return Taken(measurements=busy, rounds_us={}, turns_us=turns)

    monkeypatch.setattr(timing_worker, "rounds_in_turns", rounds_in_turns)
    answer = TimingHandler(MeasureSetup(target=target, compiles_calls=False))(
        TimeRequest(artifacts=(built,), stage="race")
    )
    (tried,) = answer.each
    (at_size,) = tried.times
    assert answer.is_clear and tried.verdict.right and at_size.measurement.median_us == pytest.approx(40)
    parts = {AROUND} if block else set()
    assert at_size.providers.keys() > parts
    for name, taken in at_size.providers.items():
        assert taken.median_us == pytest.approx(30 if name in parts else 90) and taken.contention == 0.6


def found(measurer, fault, of=None):
    """Where the fault is found, and how; None if it is confirmed."""
    built = artifact(candidate(fault, of=of))
    stages = {stage: TimeRequest(artifacts=(built,), stage=stage) for stage in ("trial", "final")}
    for stage, request in (
        ("trial", stages["trial"]),
        ("check", CheckRequest(finalist=built)),
        ("final", stages["final"]),
    ):
        measured = measurer(request)
        for verdict in (measured.verdict, *(tried.verdict for tried in measured.each)):
            if verdict is not None and not verdict.right:
                return stage, verdict.reason
    return None


@pytest.mark.parametrize(
    ("fault", "stage", "reason"),
    [
        ("wrong off a cache line", "trial", "value: 1 of 756 elements"),
        ("wrong from the 3rd call on", "trial", "value: 1 of 756 elements"),
        ("wrong at batch 3", "check", "value: 1 of 1134 elements"),
        ("wrong every 10th run", "trial or check", ""),
        ("wrong on one more thread", "check", "not deterministic: another run on the same inputs, threads="),
        ("writes after in a later run", "check", "guard band: it wrote outside y"),
        ("spreads NaN", "check", "value: "),
        ("loses small values", "check", "value: "),
        ("wrong for tensors with gaps", "check", "value: called with tensors with gaps"),
        ("wrong for users off a cache line", "check", "value: called with tensors that start off a cache line"),
        ("wrong for users at another batch", "check", "value: called with tensors"),
        ("wrong for users on one more thread", "check", "value: called with tensors in the other layout, threads=2"),
    ],
)
def test_a_fault_that_hides_is_found(measurer, fault, stage, reason):
    where, how = found(measurer, fault) or ("nowhere", "")
    assert where in stage.split(" or ") and how.startswith(reason), how
    assert torch.get_num_threads() == TARGET.threads


@pytest.mark.parametrize(
    ("fault", "batch", "threads", "words"),
    [
        ("wrong at batch 10", 9, 1, "(at batch size 10, integers data"),  # one image more than it is tuned for
        ("wrong at batch 2", 5, 1, "(at batch size 2, normal data)"),
        ("wrong on one thread", 2, 2, "threads=1)"),
    ],
)
def test_a_fault_off_what_is_usual_is_found(measurer, fault, batch, threads, words):
    torch.set_num_threads(threads)
    stage, reason = found(measurer, fault, workload(batch=batch))
    assert stage == "check" and words in reason
    assert torch.get_num_threads() == threads


def test_what_goes_wrong_while_it_is_timed_is_found_after_it(measurer):
    good, bad = (artifact(candidate(fault)) for fault in ("none", "wrong when timed for long"))
    first, second, third = measurer(TimeRequest(artifacts=(good, bad, good), stage="final")).each
    assert first.verdict.right and third.verdict.right and first.times and third.times
    assert not second.verdict.right and second.verdict.reason.endswith("(after it was timed)") and not second.times


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize(
    "changes",
    [{"layout": "nchw", "multiplier": 2, "stride": (2, 1), "bias": True}, {"layout": "nhwc", "channels": 1}],
)
def test_a_right_kernel_is_confirmed(pass_, changes):
    of = workload(**changes).for_pass(pass_)
    measurer = measurer_of_planted()
    measurer(PrepareRequest(workload=of, finalists=True))
    verdict = measurer(CheckRequest(finalist=artifact(candidate(of=of)))).verdict
    assert verdict.right and 0 < verdict.max_error <= verdict.allowed_error < 1e-3  # on data that rounds


def test_a_race_loads_what_is_not_lined_up_and_its_winner_once(monkeypatch):
    loaded = []
    measurer = measurer_of_planted()
    usual = measurer._load
    monkeypatch.setattr(measurer, "_load", lambda built: loaded.append(built.candidate) or usual(built))
    first, second = artifact(candidate()), artifact(candidate(order=1))
    measurer(CheckRequest(line_up=(first,)))
    timed = measurer(TimeRequest(artifacts=(first, second), stage="race"))
    assert [tried.verdict.right and len(tried.times) for tried in timed.each] == [1, 1]
    assert measurer(CheckRequest(finalist=first)).verdict.right
    assert loaded == [first.candidate, second.candidate]
    measurer(CheckRequest(line_up=(artifact(candidate(of=workload("dgrad"))),)))
    measurer(CheckRequest(finalist=first))
    assert loaded.count(first.candidate) == 2, "another workload took its place"


@pytest.mark.parametrize(("target", "expected"), [("cpu", ["compiled"]), ("cuda:sm_90", ["left out"])])
def test_the_short_way_of_calls_is_compiled_for_the_cpu_alone(target, expected, monkeypatch):
    asked = []
    monkeypatch.setattr(native, "native", lambda **options: asked.append("compiled"))
    monkeypatch.setattr(native, "leave_out", lambda reason: asked.append("left out"))
    monkeypatch.setattr("dwconv.measure.clock.device.leave_default_stream", lambda: None)
    TimingHandler(MeasureSetup(target=parse_target(target)))
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
    measurer = measurer_of_planted()
    measurer(PrepareRequest(workload=workload()))
    monkeypatch.setattr(measurer, "_target", parse_target("cuda:sm_90"))
    monkeypatch.setattr(measurer, "_load", load)
    with pytest.raises(raised, match="LLVM cannot load it"):
        measurer(CheckRequest(finalist=artifact(candidate())))
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


# -- answers ---------------------------------------------------------------------------------------------------------

GOOD = artifact(candidate())
X, W, Y, WORKSPACE = GOOD.arguments


def with_arguments(*arguments):
    return dataclasses.replace(GOOD, arguments=arguments)


def shaped(argument, *shape):
    return dataclasses.replace(argument, shape=shape)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (GOOD, ""),
        (with_arguments(X, W, Y), ""),
        (None, "NoneType is not an artifact"),
        (candidate(), "Candidate is not an artifact"),
        (artifact(candidate(order=1)), "the artifact of another candidate, fault=none order=1"),
        (artifact(candidate(of=workload(channels=7))), "the artifact of another candidate"),
        (dataclasses.replace(GOOD, kind="cuda"), "an artifact for cuda, not for cpu"),
        (with_arguments(), "a kernel of "),
        (with_arguments(X, W), "a kernel of x, w"),
        (with_arguments(W, X, Y), "a kernel of w, x, y"),
        (with_arguments(X, W, Y, WORKSPACE, Argument("bias", "float32", (6,))), "a kernel of x, w, y, workspace, bias"),
        (with_arguments(X, W, dataclasses.replace(Y, dtype="float16")), "a kernel of Argument(name='y'"),
        (with_arguments(shaped(X, Extent(), 9, 7, 7), W, Y), "a kernel of Argument(name='x'"),
        (with_arguments(X, W, shaped(Y, 2, 9, 7, 6)), "a kernel of Argument(name='y'"),
        (with_arguments(X, W, shaped(Y, Extent(of="h"), 9, 7, 6)), "a kernel of Argument(name='y'"),
        (with_arguments(X, W, Y, shaped(WORKSPACE, Extent(over=0), 64)), "a kernel of Argument(name='workspace'"),
        (with_arguments(X, W, Y, shaped(WORKSPACE, -1, 64)), "a kernel of Argument(name='workspace'"),
        (with_arguments(X, W, Y, shaped(WORKSPACE, Extent(of="zz"), 64)), "a kernel of Argument(name='workspace'"),
    ],
)
def test_a_builder_answers_with_the_artifact_of_the_candidate(answer, words):
    found = misfit(candidate(), answer, target=TARGET)
    assert found.startswith(words) and bool(found) == bool(words)


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("changes", [{"layout": "nchw", "multiplier": 2, "stride": (2, 1)}, {"layout": "nhwc"}])
def test_the_artifact_of_any_pass_fits(pass_, changes):
    wanted = candidate(of=workload(bias=True, **changes).for_pass(pass_))
    assert misfit(wanted, artifact(wanted), target=TARGET) == ""


@pytest.mark.parametrize(
    "of",
    [
        workload(channels=8).with_any_size(),
        workload(channels=8, any_size=True, any_channels=True),
        workload(channels=8, x_pitch=24),
        workload("forward", channels=8, block=Block.parse("bn+relu6,bn+relu")),
        workload("backward", channels=8, block=Block.parse("bn+relu6,bn+relu")),
        workload("inference", channels=8, block=Block.parse("bn+relu6,bn+relu")),
    ],
    ids=["any size", "any channels", "a slice", "forward", "backward", "inference"],
)
def test_what_templates_build_fits(of):
    target = parse_target("cpu:avx2")
    template = templates_for(of, target)[0]
    wanted = Candidate(of, template.space(of, target).default)
    assert misfit(wanted, build_cpu(wanted, target), target=target) == ""


@pytest.mark.skipif(settings.program(settings.linker()) is None, reason="nothing links a library")
@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_finalist_of_any_size_that_is_lined_up_is_verified_on_small_images(monkeypatch, is_wrong):
    """At batch 3, which no case has that it was verified on before it was timed."""
    target = cpu_target(threads=torch.get_num_threads())
    of = planted_records.workload_of(shape=(2, 16, 60, 40)).with_any_size()
    (template,) = (each for each in templates_for(of, target) if each.layout == "nhwc")
    built = build_linked(Candidate(of, template.space(of, target).default), target, links=True)
    handler = TimingHandler(MeasureSetup(target=target, compiles_calls=False))
    handler(CheckRequest(line_up=(built,)))
    sizes, run_into = set(), Kernel.run_into

    def run(kernel, inputs, results, workspaces):
        run_into(kernel, inputs, results, workspaces)
        sizes.add(kernel.workload.input_size)
        results[0].view(-1)[5] += is_wrong and len(inputs[0]) == 3

    monkeypatch.setattr(Kernel, "run_into", run)
    verdict = handler(CheckRequest(finalist=built)).verdict
    assert sizes == {(30, 20)} and verdict.right != is_wrong
    assert ("at batch size 3" in verdict.reason) == is_wrong


@pytest.mark.parametrize(
    ("size", "changes", "small"),
    [
        ((28, 28), {}, (28, 28)),
        ((112, 112), {}, (28, 28)),
        ((9, 4000), {}, (9, 63)),
        ((1, 4000), {"kernel": (1, 3), "padding": ((0, 0), (1, 1))}, (1, 1000)),
        ((64, 64), {"kernel": (25, 25), "dilation": (2, 2), "padding": ((24, 24), (24, 24))}, (49, 49)),
        ((40, 64), {"kernel": (33, 33), "padding": ((16, 16), (16, 16))}, (33, 33)),
    ],
)
def test_a_finalist_of_any_size_is_verified_on_small_images(size, changes, small):
    """But on none that the kernel does not fit into."""
    assert _small(workload(input_size=size, **changes)).input_size == small


RIGHT, WRONG = (Verdict(right=right, max_error=0.0, allowed_error=0.0) for right in (True, False))
TIME = Measurement(median_us=1.0, spread_us=0.0, rounds=3)
TIMED = AtSize(input_size=(9, 7), measurement=TIME, providers={"onednn-nhwc": TIME})
TRIED, REFUSED = Tried(verdict=RIGHT, times=(TIMED,)), Tried(verdict=WRONG)
TRIAL, FINAL = TimeRequest(artifacts=(GOOD,), stage="trial"), TimeRequest(artifacts=(GOOD, GOOD), stage="final")


@pytest.mark.parametrize(
    ("request_", "answer", "fits"),
    [
        (PrepareRequest(workload=workload()), MeasureAnswer(), True),
        (TRIAL, MeasureAnswer(each=(TRIED,)), True),
        (TRIAL, MeasureAnswer(each=(REFUSED,)), True),
        (FINAL, MeasureAnswer(each=(TRIED, REFUSED)), True),
        (CheckRequest(finalist=GOOD), MeasureAnswer(verdict=RIGHT), True),
        (CheckRequest(line_up=(GOOD,)), MeasureAnswer(), True),
        (TRIAL, RIGHT, False),
        (TRIAL, MeasureAnswer(verdict=RIGHT), False),
        (TRIAL, MeasureAnswer(each=(Tried(verdict=RIGHT),)), False),
        (FINAL, MeasureAnswer(each=(TRIED,)), False),
        (TRIAL, None, False),
        (TRIAL, MeasureAnswer(each=(dataclasses.replace(REFUSED, times=(TIMED,)),)), False),
        (TRIAL, MeasureAnswer(each=(dataclasses.replace(TRIED, times=(TIMED, TIMED)),)), False),
        (
            TRIAL,
            MeasureAnswer(each=(dataclasses.replace(TRIED, times=(dataclasses.replace(TIMED, input_size=(9, 8)),)),)),
            False,
        ),
        (CheckRequest(finalist=GOOD, line_up=(GOOD,)), MeasureAnswer(), False),
        (CheckRequest(finalist=GOOD), MeasureAnswer(verdict=RIGHT, each=(TRIED,)), False),
    ],
)
def test_the_measuring_worker_answers_what_was_requested(request_, answer, fits):
    assert bool(misfit_of_answer(request_, answer)) != fits


@pytest.mark.parametrize(
    "wrong",
    [
        {"median_us": 0.0},
        {"median_us": -1.0},
        {"median_us": math.nan},
        {"median_us": math.inf},
        {"spread_us": math.nan},
        {"spread_us": -1.0},
        {"contention": 1.5},
        {"rounds": -1},
        {"computed": True},
    ],
)
@pytest.mark.parametrize("of", ["the kernel", "a provider"])
def test_a_time_that_is_none_is_no_answer(wrong, of):
    taken = dataclasses.replace(TIME, **wrong)
    changed = {"measurement": taken} if of == "the kernel" else {"providers": {"onednn-nhwc": taken}}
    timed = dataclasses.replace(TIMED, **changed)
    assert misfit_of_answer(TRIAL, MeasureAnswer(each=(Tried(verdict=RIGHT, times=(timed,)),))) == "times that are none"
