"""Dispatch of what was not measured here with the versions installed: what runs it, and why."""

from __future__ import annotations

import dataclasses

import pytest

import dwconv
from dwconv.dispatch.advantage import CALL_US
from dwconv.dispatch.decide import decide, decide_on
from dwconv.dispatch.kernel_state import KernelState
from dwconv.problems.target import cpu_target
from dwconv.records.record import Measurement, Status
from dwconv.schedules import template as template_module
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.untuned.gain import STALE_DISCOUNT
from tests.planted_gain import default_of, plant_gain
from tests.planted_records import plant, record_of, workload_of, write

WORKLOAD = workload_of()
BIASED = dataclasses.replace(WORKLOAD, bias=True)
TARGET = cpu_target()
COMMAND = "python -m dwconv.tune --shape 2,8,9,7 --kernel 3 --layout nhwc --passes fprop"


@pytest.fixture(autouse=True)
def nothing_is_expected(monkeypatch):
    """Unless a test plants it."""
    plant_gain(monkeypatch).knows = lambda workload: False


@pytest.fixture
def planted(logs, monkeypatch):
    return plant_gain(monkeypatch)


def tuned(workload=WORKLOAD, *, us=50.0, pytorch_us=1000.0, **facts):
    """A record of a real candidate with the versions installed."""
    record = record_of(workload, config=default_of(workload, TARGET), median_us=us, baseline_us=pytorch_us)
    return dataclasses.replace(record, **facts)


def stale(workload=WORKLOAD, **facts):
    """A record of ``tuned``, made with another PyTorch."""
    record = tuned(workload, **facts)
    return dataclasses.replace(record, versions={**record.versions, "torch": "2.1.0"})


# -- what is expected --------------------------------------------------------------------------------------------------


def test_what_is_sure_to_be_faster_runs_and_is_still_to_be_tuned(planted):
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.record, decision.command) == ("dwconv", None, COMMAND)
    assert decision.reason == (
        "predicted: 12.3× as fast as PyTorch's op, at least 6.1× in 95 of 100 cases (as it was planted)"
    )
    assert (decision.workload, decision.target) == (WORKLOAD, TARGET)
    assert decision.config == decision.expected.config == default_of(WORKLOAD, TARGET)


@pytest.mark.parametrize(
    ("gain", "at_least", "reason"),
    [
        (1.1, 0.8, "predicted 1.10×, but perhaps only 0.80×: PyTorch's op runs until it is measured"),
        (3.0, 1.0, "predicted 3.0×, but perhaps only 1.00×: PyTorch's op runs until it is measured"),
        (3.0, 0.0, "predicted 3.0×, but perhaps only 0.00×: PyTorch's op runs until it is measured"),
        (0.5, 0.2, "predicted 0.50×: PyTorch's op runs until it is measured"),
    ],
)
def test_what_may_be_slower_stays_with_pytorch(planted, gain, at_least, reason):
    planted.gain, planted.at_least = gain, at_least
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.config, decision.command) == ("pytorch", None, COMMAND)
    assert decision.reason == f"{reason} (as it was planted)"
    assert decision.expected.gain == gain


def test_the_call_counts_where_nothing_hides_it(planted):
    """At worst the kernel takes half of PyTorch's time: the call may take the other half, and no more."""
    planted.gain, planted.at_least = 4.0, 2.0
    for pytorch_us, provider in ((2.02 * CALL_US, "dwconv"), (1.98 * CALL_US, "pytorch")):
        planted.pytorch_us = pytorch_us
        assert decide(WORKLOAD, "cpu").provider == provider
    assert decide(WORKLOAD, "cpu").reason == (
        "predicted 4.0×, at least 2.0×, which saves 9.9 µs and takes 10.0 µs for the call: "
        "PyTorch's op runs until it is measured (as it was planted)"
    )


def test_the_sweep_for_a_bias_counts_too(planted):
    """At worst the kernel saves 60 µs of 120; the sweep takes as long as the kernel moves memory for."""
    planted.knows, planted.pytorch_us = lambda workload: not workload.bias, 120.0
    planted.gain, planted.at_least = 4.0, 2.0
    decision = decide(BIASED, "cpu")
    assert decision.provider == "pytorch"
    takes = "60.0 µs for the bias + 10.0 µs for the call"
    assert f"at least 2.0×, which saves 60.0 µs and takes {takes}: " in decision.reason
    planted.at_least = 3.0
    assert decide(BIASED, "cpu").provider == "dwconv", "it saves 80 µs and takes 50"


def test_what_is_expected_of_what_was_measured_only_while_the_machine_was_busy_says_both(planted, logs):
    busy = Measurement(median_us=50.0, spread_us=1.0, rounds=9, contention=0.667)
    write(logs, tuned(measurement=busy))
    assert decide(WORKLOAD, "cpu").provider == "dwconv", "what is sure enough runs"
    planted.at_least = 0.8
    reason = decide(WORKLOAD, "cpu").reason
    assert reason.startswith("measured only while the machine was busy; convert again, with the example, when it is ")
    assert "; predicted 12.3×, but perhaps only 0.80×: PyTorch's op runs until it is measured" in reason


def test_what_was_measured_is_not_predicted(planted, logs):
    for record in (tuned(), tuned(pytorch_us=1), tuned(workload=WORKLOAD.with_batch(64))):
        write(logs, record)
        assert decide(WORKLOAD, "cpu").record == record
        assert decide(WORKLOAD, "cpu").expected is None
    write(logs, tuned(device=cpu_target(threads=TARGET.threads + 3).device))
    assert decide(WORKLOAD, "cpu").expected is None
    write(logs, tuned(workload=BIASED, status=Status.COMPILE_ERROR, measurement=None, verdict=None))
    assert decide(BIASED, "cpu").reason.startswith("predicted: "), "without the bias, which was not tried"
    write(logs, tuned(status=Status.COMPILE_ERROR, measurement=None, verdict=None))
    assert decide(WORKLOAD, "cpu").reason.startswith("none of 1 candidates worked")
    assert planted.asked == [dataclasses.replace(WORKLOAD, bias=False)]


def test_all_devices_say_what_to_expect(planted, logs):
    elsewhere = tuned(workload=workload_of(shape=(1, 32, 5, 5)), device="elsewhere")
    write(logs, elsewhere, stale(workload=WORKLOAD.for_pass("wgrad")))
    assert decide(WORKLOAD, "cpu").provider == "dwconv"
    assert planted.records == [elsewhere]


def test_a_bias_is_a_sweep_only_where_nothing_is_expected_with_it(planted):
    decision = decide(BIASED, "cpu")
    assert (decision.workload, "sweep" in decision.reason) == (BIASED, False)
    planted.knows = lambda workload: not workload.bias
    decision = decide(BIASED, "cpu")
    assert (decision.provider, decision.workload) == ("dwconv", WORKLOAD)
    assert "in 95 of 100 cases, with a sweep for the bias (" in decision.reason
    assert decision.command == COMMAND.replace("nhwc", "nhwc --bias")


def test_what_no_template_runs_is_not_predicted(planted, monkeypatch):
    monkeypatch.setattr("dwconv.schedules.template.all_templates", dict)
    decision = decide(WORKLOAD, "cpu")
    assert decision.reason.startswith("no template runs") and planted.asked == []


@pytest.mark.parametrize("config", [Config.of("cpu.fprop_nhwc", block_h=99), Config.of("cpu.dgrad_nhwc"), None])
def test_what_cannot_be_built_does_not_run(planted, config):
    planted.config = config
    state = KernelState(broken={Candidate(WORKLOAD, default_of(WORKLOAD, TARGET)): "no such luck"})
    decision = decide_on(TARGET, WORKLOAD, state=state)
    assert (decision.provider, decision.config, decision.command) == ("pytorch", None, COMMAND)
    assert decision.reason.startswith("the predicted kernel is out: ")
    assert config or decision.reason.endswith("no such luck")


@pytest.mark.parametrize("mode", ["pytorch", "error"])
def test_nothing_is_predicted_where_the_user_says_so(planted, logs, monkeypatch, mode):
    monkeypatch.setenv("DWCONV_UNTUNED", mode)
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.reason) == ("pytorch", f"untuned on {TARGET.device}")
    write(logs, stale())
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.reason) == ("pytorch", f"measured with PyTorch 2.1.0 only on {TARGET.device}")
    assert decision.command == COMMAND
    assert planted.asked == []
    write(logs, tuned())
    assert decide(WORKLOAD, "cpu").provider == "dwconv"


def test_an_empty_setting_is_none(planted, monkeypatch):
    monkeypatch.setenv("DWCONV_UNTUNED", "")
    assert decide(WORKLOAD, "cpu").provider == "dwconv"


# -- what was measured with other versions -----------------------------------------------------------------------------


def test_what_another_pytorch_was_raced_with_is_a_prediction(planted, logs):
    record = stale(us=50, pytorch_us=1000)
    write(logs, record)
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.record, decision.config) == ("dwconv", record, record.config)
    assert decision.reason == (
        "predicted: 20.0× as fast as PyTorch's op, at least 16.0× in 95 of 100 cases "
        "(measured with PyTorch 2.1.0: predicted until it is raced again)"
    )
    assert (decision.expected.us, decision.expected.gain, decision.expected.at_least) == (50, 20, 20 / STALE_DISCOUNT)
    assert decision.command == COMMAND
    assert planted.asked == [], "it is of this workload, on this device"


@pytest.mark.parametrize(
    ("pytorch_us", "provider"),
    [(STALE_DISCOUNT * 500 + CALL_US + 1, "dwconv"), (STALE_DISCOUNT * 500 + CALL_US - 1, "pytorch"), (400, "pytorch")],
)
def test_it_has_to_be_faster_by_more_than_versions_differ(logs, pytorch_us, provider):
    write(logs, stale(us=500, pytorch_us=pytorch_us))
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.command) == (provider, COMMAND)
    assert decision.record is not None


def test_what_was_not_compared_with_pytorch_is_no_prediction(logs):
    write(logs, stale(us=50, providers={}))
    assert decide(WORKLOAD, "cpu").reason == f"measured with PyTorch 2.1.0 only on {TARGET.device}"


def test_a_current_record_decides_however_much_better_another_was(logs):
    slow = tuned(us=900)
    for workload in (WORKLOAD, WORKLOAD.with_batch(64)):
        current = dataclasses.replace(slow, workload=workload)
        write(logs, current, stale(us=1, confirmed=True))
        decision = decide(WORKLOAD, "cpu")
        assert (decision.provider, decision.record, decision.command) == ("dwconv", current, "")
    write(logs, dataclasses.replace(slow, device=cpu_target(threads=TARGET.threads + 1).device), stale(us=1))
    assert decide(WORKLOAD, "cpu").reason.startswith("1.11× as fast")


def test_a_current_record_without_the_bias_decides_before_others_with_it(logs):
    current = tuned()
    write(logs, current, stale(workload=BIASED))
    assert decide(BIASED, "cpu").record == current
    write(logs, stale(us=400))
    decision = decide(BIASED, "cpu")
    assert (decision.provider, decision.expected.gain) == ("pytorch", 2.5), "twice 500 µs, with the sweep, is no gain"


def test_a_template_that_was_changed_makes_its_records_predictions(logs, monkeypatch):
    record = tuned()
    write(logs, record)
    assert decide(WORKLOAD, "cpu").expected is None
    known = template_module.all_templates()
    name = record.config.template
    changed = {**known, name: dataclasses.replace(known[name], version=3)}
    monkeypatch.setattr(template_module, "all_templates", lambda: changed)
    assert f"(measured with version 1 of {name}: predicted" in decide(WORKLOAD, "cpu").reason


def test_where_it_was_measured_is_said_and_the_nearest_counts(logs):
    threads = cpu_target(threads=TARGET.threads + 1)
    write(logs, stale(workload=WORKLOAD.with_batch(512)), stale(workload=WORKLOAD.with_batch(4)))
    assert "(measured with PyTorch 2.1.0 at batch 4: predicted until" in decide(WORKLOAD, "cpu").reason
    write(logs, stale(device=threads.device))
    decision = decide(WORKLOAD, "cpu")
    assert f"(measured with PyTorch 2.1.0 on {threads.threads} threads: predicted until" in decision.reason
    assert decision.target == threads


def test_an_illegal_record_makes_way_or_is_adopted(planted, logs):
    legal = stale(us=70)
    streamed = Config.of(legal.config.template, **{**dict(legal.config.values), "store": "streamed"})
    illegal = dataclasses.replace(legal, config=streamed, confirmed=True)
    write(logs, illegal, legal)
    assert decide(WORKLOAD, "cpu").record == legal
    write(logs, illegal)
    decision = decide(WORKLOAD, "cpu")
    assert (decision.provider, decision.config) == ("dwconv", legal.config)
    assert "raced again; here with store=cached instead of streamed, which is not valid" in decision.reason
    write(logs, dataclasses.replace(legal, config=Config.of("cpu.no_such")))
    assert decide(WORKLOAD, "cpu").reason.endswith("(as it was planted)"), "what is expected is left"
    planted.knows = lambda workload: False
    assert decide(WORKLOAD, "cpu").reason.startswith("no tuned configuration is valid any more; the fastest is out: ")


def test_a_failure_with_other_versions_is_no_failure_here(logs):
    write(logs, stale(status=Status.COMPILE_ERROR, measurement=None, verdict=None, providers={}, detail="old"))
    assert decide(WORKLOAD, "cpu").reason.startswith("none of 1 candidates"), "PyTorch's version makes no kernel fail"
    record = tuned(status=Status.COMPILE_ERROR, measurement=None, verdict=None, providers={})
    write(logs, dataclasses.replace(record, versions={**record.versions, "tvm": "0.1"}))
    decision = decide(WORKLOAD, "cpu")
    assert (decision.reason, decision.command) == (f"untuned on {TARGET.device}", COMMAND)


def test_what_was_measured_with_relaxed_arithmetic_or_contended_says_nothing(planted, logs):
    record = stale()
    busy = dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, contention=0.9))
    write(logs, busy, dataclasses.replace(record, versions={**record.versions, "math": "fast"}))
    assert decide(WORKLOAD, "cpu").record is None
    plant(logs / "log.jsonl", [WORKLOAD], passes=["fprop"])
    dwconv.reset()
    assert decide(WORKLOAD, "cpu").record is not None
