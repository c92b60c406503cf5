"""Dispatch: what runs a workload, and why."""

from __future__ import annotations

import dataclasses
import shlex

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dwconv
from dwconv.commands.command_line import ArgumentParser
from dwconv.commands.workload_arguments import add_workload_arguments, workload_from
from dwconv.dispatch.advantage import CALL_US, are_faster_together
from dwconv.dispatch.decide import decide, decide_on
from dwconv.dispatch.kernel_state import KernelState
from dwconv.dispatch.of_problem import decisions
from dwconv.problems.as_written import tune_command
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import PASSES, Workload
from dwconv.records.log import TuningLog
from dwconv.records.record import Measurement, Status
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from tests.planted_records import plant, record_of, workload_of, write

WORKLOAD = workload_of()
BIASED = dataclasses.replace(WORKLOAD, bias=True)
DEVICE = cpu_target().device


@pytest.fixture
def known(logs):
    """Plant a real candidate of WORKLOAD, and return its record."""

    def write(**facts):
        plant(logs / "log.jsonl", [WORKLOAD], passes=["fprop"])
        record = dataclasses.replace(TuningLog(logs / "log.jsonl").load().records[0], **facts)
        (logs / "log.jsonl").unlink()
        TuningLog(logs / "log.jsonl").append(record)
        return record

    return write


def us(median_us):
    return Measurement(median_us=median_us, spread_us=0, rounds=5)


CALL = "dwconv 50.0 µs + 10.0 µs for the call"
SWEEP = "dwconv 50.0 µs + 50.0 µs for the bias + 10.0 µs for the call"


@pytest.mark.parametrize(
    ("providers", "asked", "provider", "reason", "advised"),
    [
        ({"onednn-nhwc": 125, "onednn-nchw": 60}, WORKLOAD, "dwconv", "2.50× as fast as onednn-nhwc", False),
        ({"onednn-nhwc": 125}, WORKLOAD.with_batch(31), "dwconv", "2.50× as fast as onednn-nhwc at batch 2", False),
        ({"onednn-nhwc": 60}, WORKLOAD, "pytorch", f"onednn-nhwc is faster: 60.0 µs, {CALL}", False),
        ({"onednn-nchw": 20}, WORKLOAD, "pytorch", f"onednn-nchw is faster: 20.0 µs, {CALL}", False),
        ({}, WORKLOAD, "pytorch", "no PyTorch op was measured beside it", False),
        ({"onednn-nhwc": 105}, BIASED, "pytorch", f"onednn-nhwc is faster: 105 µs, {SWEEP}", True),
        ({"onednn-nhwc": 40}, BIASED, "pytorch", f"onednn-nhwc is faster: 40.0 µs, {SWEEP}", False),
        ({"onednn-nhwc": 150}, BIASED, "dwconv", "1.50× as fast as onednn-nhwc, with a sweep for the bias", False),
    ],
)
def test_one_record_decides(known, providers, asked, provider, reason, advised):
    """PyTorch's op counts in the layout of the call, if it was measured; tuning is advised if it saves the sweep."""
    record = known(providers={name: us(taken) for name, taken in providers.items()})
    decision = decide(asked, "cpu")
    assert (decision.provider, decision.record, decision.reason) == (provider, record, reason)
    assert decision.command.endswith("--bias --passes fprop") == bool(decision.command) == advised


def test_a_clear_winner_of_a_busy_machine_runs_and_says_so(known):
    busy = dataclasses.replace(us(50), contention=0.667)
    known(measurement=busy, providers={"onednn-nhwc": us(300)}, confirmed=True, raced=True)
    decision = decide(WORKLOAD, "cpu")
    assert decision.reason == "at least 6.00× as fast as onednn-nhwc, measured while the machine was busy"


def test_what_was_only_computed_does_not_run(logs):
    TuningLog(logs / "log.jsonl").append(record_of(WORKLOAD, computed=True))
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.reason) == ("pytorch", f"only computed on {DEVICE}") and decision.command


def test_with_other_threads_the_nearest_record_counts_and_says_so(logs):
    """Kernels run on as many threads as PyTorch uses: those tuned for others are better than none."""
    threads = {count: cpu_target(threads=count).device for count in (1, 7, 9, 64)}
    others = [threads[1], threads[64], "another-cpu-avx2-8t"]
    for at, device in enumerate(others):
        TuningLog(logs / "log.jsonl").append(record_of(WORKLOAD, device=device, median_us=50 + at))
    nearest = real_record(logs, threads=9)
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    try:
        decision = decide(WORKLOAD, "cpu")
        assert (decision.provider, decision.record) == ("dwconv", nearest)
        assert decision.reason == "20.00× as fast as onednn-nhwc on 9 threads"
        assert decision.target is not None and decision.target.device == threads[9]
        exact = real_record(logs, threads=8)
        dwconv.reset()
        decision = decide(WORKLOAD, "cpu")
        assert (decision.record, decision.reason) == (exact, "20.00× as fast as onednn-nhwc")
    finally:
        torch.set_num_threads(before)


def real_record(logs, *, threads):
    """Plant a real candidate of WORKLOAD's fprop for a number of threads, and return its record."""
    plant(logs / "planted.jsonl", [WORKLOAD], passes=["fprop"], threads=threads)
    (record,) = TuningLog(logs / "planted.jsonl").load().records
    (logs / "planted.jsonl").unlink()
    TuningLog(logs / "log.jsonl").append(record)
    return record


@pytest.mark.parametrize("pass_", ["fprop", "wgrad"])
def test_a_kernel_that_was_measured_with_the_bias_is_not_charged_for_it(logs, pass_):
    plant(logs / "log.jsonl", [WORKLOAD], passes=[pass_], baseline_us=105)
    plant(logs / "log.jsonl", [BIASED], passes=[pass_], baseline_us=75)
    decision = decide(BIASED.for_pass(pass_), "cpu")
    assert (decision.provider, decision.reason) == ("dwconv", "1.50× as fast as onednn-nhwc")
    assert decision.record.workload.bias
    assert not decide(WORKLOAD.for_pass(pass_), "cpu").record.workload.bias


def test_untuned_names_the_command(logs):
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.record) == ("pytorch", None)
    assert decision.reason == f"untuned on {DEVICE}"
    command = "python -m dwconv.tune --shape 2,8,9,7 --kernel 3 --layout nhwc --passes fprop"
    assert decision.command == command
    assert str(decision) == f"pytorch: untuned on {DEVICE}; tune it: {command}"


BUSY = "measured only while the machine was busy; convert again, with the example, when it is quiet"


@pytest.mark.parametrize("asked", [WORKLOAD, BIASED, WORKLOAD.for_pass("wgrad"), WORKLOAD.with_batch(7)])
@pytest.mark.parametrize(("median_us", "baseline_us"), [(50, 100), (100, 50), (50, None)])
def test_what_was_measured_only_while_the_machine_was_busy_is_called_so(logs, asked, median_us, baseline_us):
    measured = asked.with_batch(2) if asked.pass_ == "wgrad" else WORKLOAD
    record = record_of(measured, median_us=median_us, baseline_us=baseline_us)
    busy = dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, contention=0.667))
    TuningLog(logs / "log.jsonl").append(record_of(measured, computed=True))
    TuningLog(logs / "log.jsonl").append(busy)
    decision = decide(asked, "cpu")
    assert (decision.provider, decision.reason) == ("pytorch", BUSY) and decision.command


def test_what_another_version_measured_while_the_machine_was_busy_is_of_that_version(logs):
    record = record_of(WORKLOAD)
    busy = dataclasses.replace(record.measurement, contention=0.5)
    versions = {**record.versions, "torch": "2.1.0"}
    TuningLog(logs / "log.jsonl").append(dataclasses.replace(record, measurement=busy, versions=versions))
    assert decide(WORKLOAD, "cpu").reason == f"measured with PyTorch 2.1.0 only on {DEVICE}"


def test_what_was_tuned_without_success_is_not_advised_again(logs):
    for block_h in (1, 2):
        config = Config.of("cpu.made_up", block_h=block_h)
        TuningLog(logs / "log.jsonl").append(record_of(WORKLOAD, config=config, status=Status.COMPILE_ERROR))
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.reason) == ("pytorch", "none of 2 candidates worked: it did not work")
    assert decision.command == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"block_h": 10_000}, "block_h=10000 is not one of"),
        ({"new_knob": 1}, "has no knob new_knob"),
        ({"template": "cpu.no_such"}, "template=cpu.no_such is unknown"),
    ],
)
def test_a_configuration_that_is_no_longer_legal_makes_way_for_the_next_best(known, logs, change, reason):
    legal = known(measurement=us(70))
    knobs = {**legal.config.to_dict(), **change}
    config = Config(knobs.pop("template"), tuple(knobs.items()))
    TuningLog(logs / "log.jsonl").append(dataclasses.replace(legal, config=config, measurement=us(5)))
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.record) == ("dwconv", legal)
    assert "; the fastest is out: " in decision.reason
    assert reason in decision.reason


@pytest.mark.parametrize(
    ("change", "is_too_large"),
    [
        ({"input_size": (2**10, 2**10), "stride": (2, 2)}, True),  # the input alone
        ({"input_size": (2**9, 2**9), "multiplier": 4}, True),  # the output alone
        ({"channels": 1, "input_size": (1, 2**31 - 1)}, False),  # as many as there may be
    ],
)
def test_tensors_beyond_indices_of_32_bits_stay_with_pytorch(logs, change, is_too_large):
    fields = {"pass_": "fprop", "batch": 1, "channels": 2**11, "kernel": (1, 1), "layout": "nhwc", **change}
    decision = decide(Workload(**fields), "cpu")
    assert decision.provider == "pytorch"
    assert decision.reason.startswith("tensors of more than 2147483647 elements") == is_too_large


# -- where the nearest record is not legal ---------------------------------------------------------------------------


def illegal(record, **facts):
    """As another machine's cache made it legal: no result of WORKLOAD is larger than a cache."""
    streamed = Config.of(record.config.template, **dict(record.config.values), store="streamed")
    return dataclasses.replace(record, config=streamed, **facts)


def damaged(record, **facts):
    return dataclasses.replace(record, config=Config.of("cpu.no_such", block_h=1), **facts)


def test_the_nearest_legal_configuration_runs_and_says_so(known, logs):
    legal = known()
    write(logs, illegal(legal))
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.record, decision.config) == ("dwconv", illegal(legal), legal.config)
    assert decision.reason == (
        "20.00× as fast as onednn-nhwc, as it was measured; here with store=cached instead of streamed, "
        f"which is not valid here: store='streamed' is not one of ['cached'] in {legal.config.template}"
    )


def test_a_missing_knob_is_adopted_as_the_default_has_it(known, logs):
    legal = known()
    values = dict(legal.config.values)
    left_out = Config.of(legal.config.template, **{name: values[name] for name in values if name != "tile_w"})
    write(logs, dataclasses.replace(legal, config=left_out))
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.config) == ("dwconv", legal.config)
    assert f"here with tile_w={values['tile_w']}, which is not valid" in decision.reason


def test_what_is_legal_as_it_stands_comes_before_what_is_adopted(known, logs):
    legal = known(measurement=us(70))
    write(logs, illegal(legal, measurement=us(5), confirmed=True), legal)
    decision = decide(WORKLOAD, "cpu")
    assert (decision.record, decision.config) == (legal, legal.config)
    assert decision.reason.startswith("14.29× as fast as onednn-nhwc; the fastest is out: store='streamed'")


@pytest.mark.parametrize("out", [illegal, damaged])
def test_an_illegal_record_hides_no_legal_one_at_another_batch(known, logs, out):
    legal = known()
    others = [dataclasses.replace(legal, workload=WORKLOAD.with_batch(batch)) for batch in (1, 32, 9)]
    write(logs, out(legal, measurement=us(5)), out(others[0]), *others[1:])
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.record) == ("dwconv", others[2])
    assert decision.reason.startswith("20.00× as fast as onednn-nhwc at batch 9; the fastest is out: ")


def test_an_illegal_record_with_the_bias_hides_no_legal_one_without(known, logs):
    legal = known()
    write(logs, damaged(legal, workload=BIASED), legal)
    decision = decide(BIASED, "cpu")
    assert (decision.provider, decision.record) == ("dwconv", legal)


def test_what_could_not_be_built_is_out_adopted_too(known, logs):
    legal = known()
    write(logs, illegal(legal))
    state = KernelState(broken={Candidate(WORKLOAD, legal.config): "no such luck"})
    decision = decide_on(cpu_target(), WORKLOAD, state=state)
    assert (decision.provider, decision.config) == ("pytorch", None)
    assert decision.reason.startswith("no tuned configuration is valid any more")


@pytest.mark.parametrize(
    ("dtype", "device", "shape", "reason"),
    [
        (torch.float64, "cpu", (2, 8, 9, 7), "dwconv has no kernels for float64"),
        (torch.float32, "meta", (2, 8, 9, 7), "dwconv has no kernels for meta"),
        (torch.float32, "cpu", (0, 8, 9, 7), "there is nothing to compute"),
    ],
)
def test_what_can_have_no_kernel_stays_with_pytorch(logs, dtype, device, shape, reason):
    problem = Problem(
        input_shape=shape, weight_shape=(8, 1, 3, 3), stride=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1),
        dtype=dtype, layout="nhwc",
    )  # fmt: skip
    made, target = decisions(problem, torch.device(device))
    assert target is None
    assert {(decision.provider, decision.reason) for decision in made.values()} == {("pytorch", reason)}
    assert list(made) == list(PASSES)


def test_what_no_template_runs_is_not_advised(logs, monkeypatch):
    monkeypatch.setattr("dwconv.schedules.template.all_templates", dict)
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.command) == ("pytorch", "")
    assert decision.reason.startswith("no template runs fprop-")


problems = st.builds(
    Problem,
    input_shape=st.tuples(st.integers(1, 9), st.just(4), st.integers(20, 40), st.integers(20, 40)),
    weight_shape=st.tuples(st.sampled_from([4, 8]), st.just(1), st.integers(1, 7), st.integers(1, 7)),
    stride=st.tuples(*[st.integers(1, 3)] * 2),
    padding=st.tuples(*[st.integers(0, 3)] * 4),
    dilation=st.tuples(*[st.integers(1, 3)] * 2),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    layout=st.sampled_from(["nchw", "nhwc"]),
    bias=st.booleans(),
)


@settings(deadline=None, max_examples=100)
@given(problems, st.sampled_from(PASSES))
def test_the_advised_command_tunes_exactly_the_workload(problem, pass_):
    program, *words = shlex.split(tune_command(problem.workload("fprop"), ["fprop", pass_]))
    assert (program, words[:2]) == ("python", ["-m", "dwconv.tune"])
    parser = ArgumentParser(prog="tune", description="")
    add_workload_arguments(parser)
    parser.add_argument("--passes")
    args = parser.parse_args(words[2:])
    assert args.passes == f"fprop,{pass_}"
    assert workload_from(args, pass_) == problem.workload(pass_)


@pytest.mark.parametrize(
    ("ours", "theirs", "faster"),
    [
        ((60.0, 30.0), (40.0, 200.0), True),  # the gradient makes up for the forward pass
        ((60.0, 30.0), (40.0, 50.0 + 2 * CALL_US), False),  # as long, with what a call takes
        ((60.0, 30.0), (40.0, 51.0 + 2 * CALL_US), True),
        ((60.0, 30.0), (200.0, None), False),  # nothing to compare the gradient with
    ],
)
def test_an_activation_and_its_gradient_are_judged_together(ours, theirs, faster):
    forward = workload_of().with_epilogue("silu")
    records = [
        record_of(workload, median_us=us, baseline_us=baseline_us)
        for workload, us, baseline_us in zip(
            (forward, forward.with_epilogue("silu_gradient")), ours, theirs, strict=True
        )
    ]
    assert are_faster_together(*records) is faster
