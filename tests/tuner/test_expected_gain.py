"""ExpectedGains: what there is to win says what comes first; and when a search ends, by ``--until``."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

from dwconv import export
from dwconv.problems.target import parse_target
from dwconv.problems.workload import PASSES
from dwconv.records.database import Database
from dwconv.records.record import Status
from dwconv.schedules import template as template_module
from dwconv.tuner import model_race
from dwconv.tuner.campaign import Campaign
from dwconv.tuner.expected_gain import MOST_STARTS, ExpectedGains, further_us, most_to_win_first
from dwconv.tuner.search.search_result import Stop
from dwconv.tuner.step_time import StepTime, Until, with_both_gradients
from dwconv.tuner.user_choices import UserChoices
from dwconv.untuned import gain, other_size
from tests import fake_tuning as fake
from tests.planted_gain import plant_gain
from tests.planted_records import workload_of
from tests.tune_command import SHAPE, plant, run
from tests.tuner.fake_search import AFRESH, tune

SMALL = dataclasses.replace(fake.WORKLOAD, channels=16, input_size=(14, 14))
LARGE = dataclasses.replace(fake.WORKLOAD, channels=96, input_size=(56, 56))


@pytest.fixture
def templates(monkeypatch):
    """A made-up template for each pass."""
    made = [fake.template(pass_=pass_) for pass_ in PASSES]
    monkeypatch.setattr(template_module, "all_templates", lambda: {each.name: each for each in made})


def first_of(counts, *records):
    return most_to_win_first(counts, fake.TARGET, Database.of(records))


def test_what_has_most_to_win_comes_first_and_the_passes_of_a_layer_together():
    assert first_of({SMALL: 1, LARGE: 1}) == [LARGE, SMALL]
    assert first_of({SMALL: 1000, LARGE: 1}) == [SMALL, LARGE]
    small, large = ([layer.for_pass(pass_) for pass_ in PASSES] for layer in (SMALL, LARGE))
    mixed = [small[0], large[0], small[1], large[1], small[2], large[2]]
    assert first_of(dict.fromkeys(mixed, 1)) == [*large, *small]
    kernel = {"kernel": (7, 7), "padding": ((3, 3), (3, 3))}
    layers = (dataclasses.replace(LARGE, channels=channels, **kernel) for channels in (96, 64))
    fprop, wgrad = (layer.for_pass(pass_) for layer, pass_ in zip(layers, ("fprop", "wgrad"), strict=True))
    assert first_of({fprop: 1, wgrad: 1}) == [wgrad, fprop], "PyTorch is slow at it"


def test_where_something_was_measured_little_is_left_to_win(templates):
    config = fake.space(LARGE, fake.TARGET).default
    measured = fake.record(LARGE, config, median_us=100.0)
    assert first_of({SMALL: 1, LARGE: 1}, dataclasses.replace(measured, device="elsewhere")) == [LARGE, SMALL]
    half = dataclasses.replace(LARGE, channels=48)
    assert first_of({half: 1, LARGE: 1}, measured) == [half, LARGE]
    old = dataclasses.replace(measured, versions={**measured.versions, "torch": "2.1.0"})
    assert first_of({half: 1, LARGE: 1}, old) == [LARGE, half], "with another PyTorch"


# -- what there is to win ----------------------------------------------------------------------------------------------

CONFIG = fake.space(LARGE, fake.TARGET).default


def stake_of(workload, *records):
    return ExpectedGains(fake.TARGET, Database.of(records)).of(workload)


def measured(workload, *, median_us, confirmed=False):
    """Beside PyTorch's op, which takes 200 µs."""
    return dataclasses.replace(fake.record(workload, CONFIG, median_us=median_us), confirmed=confirmed)


@pytest.mark.parametrize(
    ("median_us", "confirmed", "now_us", "win_us"),
    [
        (100.0, True, 100.0, 0.0),
        (100.0, False, 100.0, 5.0),
        (300.0, True, 200.0, 0.0),
        (300.0, False, 200.0, 10.0),
    ],
    ids=["confirmed", "measured", "PyTorch's confirmed", "PyTorch's measured"],
)
def test_little_is_left_of_what_was_measured_and_nothing_of_what_is_confirmed(
    templates, median_us, confirmed, now_us, win_us
):
    expected_gain = stake_of(LARGE, measured(LARGE, median_us=median_us, confirmed=confirmed))
    assert (expected_gain.basis, expected_gain.now_us, expected_gain.win_us) == (
        "measured",
        now_us,
        pytest.approx(win_us),
    )


def test_a_race_and_the_nearest_batch_count_and_what_other_work_disturbed_does_not(templates):
    raced = dataclasses.replace(measured(LARGE, median_us=100.0, confirmed=True), raced=True)
    assert stake_of(LARGE, raced).win_us == pytest.approx(5)
    records = [measured(LARGE.with_batch(batch), median_us=10.0 * batch**2) for batch in (1, 4, 64)]
    assert stake_of(LARGE, *records).now_us == pytest.approx(2 * 160)
    record = measured(LARGE, median_us=100.0)
    lost = dataclasses.replace(record.measurement, contention=0.9)
    assert stake_of(LARGE, dataclasses.replace(record, measurement=lost)).basis == "assumed"


def test_a_kernel_without_the_bias_leaves_its_sweep_to_win(templates):
    biased = dataclasses.replace(LARGE, bias=True)
    expected_gain = stake_of(biased, measured(LARGE, median_us=50.0, confirmed=True))
    assert expected_gain.now_us == pytest.approx(100) and expected_gain.win_us == pytest.approx(50)
    assert stake_of(biased, measured(LARGE, median_us=50.0), measured(biased, median_us=60.0)).now_us == 60


def test_nothing_is_expected_where_no_template_fits_or_nothing_worked(templates, monkeypatch):
    configs = list(fake.space(LARGE, fake.TARGET))[:MOST_STARTS]
    failures = [fake.record(LARGE, config, median_us=None, status=Status.WRONG) for config in configs]
    assert stake_of(LARGE, *failures[1:]).win_us > 0
    assert stake_of(LARGE, *failures).win_us == 0
    monkeypatch.setattr(template_module, "all_templates", dict)
    assert stake_of(LARGE).win_us == 0


def test_a_predicted_kernel_leaves_little_where_it_runs_and_its_gain_where_it_does_not(templates, monkeypatch):
    planted = plant_gain(monkeypatch)
    planted.config = CONFIG
    runs = stake_of(LARGE)
    assert (runs.basis, runs.now_us, runs.win_us) == ("predicted", 1000 / 12.3, pytest.approx(0.08 * 1000 / 12.3))
    planted.at_least = 0.9
    waits = stake_of(LARGE)
    assert (waits.now_us, waits.win_us) == pytest.approx((1000, 1000 - 1000 / 12.3))
    planted.at_least = 6.1
    monkeypatch.setenv("DWCONV_UNTUNED", "pytorch")
    assert stake_of(LARGE) == waits
    planted.gain = planted.at_least = 0.5
    assert stake_of(LARGE).win_us == 0


def test_what_other_versions_measured_is_a_prediction(templates):
    record = measured(LARGE.with_batch(4), median_us=100.0, confirmed=True)
    old = dataclasses.replace(record, versions={**record.versions, "torch": "2.1.0"})
    expected_gain = stake_of(LARGE, old)
    assert (expected_gain.basis, expected_gain.now_us) == (
        "predicted",
        pytest.approx(400),
    ) and expected_gain.win_us == pytest.approx(200)


def test_a_layer_measured_at_other_sizes_is_expected_to_do_as_at_the_nearest(templates, monkeypatch):
    monkeypatch.delenv("DWCONV_UNTUNED", raising=False)
    known = [measured(dataclasses.replace(LARGE, input_size=(size, size)), median_us=size) for size in (7, 28, 40)]

    def expected_from(record, workload, target, portfolio):
        if record.workload.input_size == (40, 40):  # the nearest, but it predicts nothing
            return None
        us = record.measurement.median_us
        return gain.Expected(config=record.config, us=us, gain=2.0, at_least=1.5, reason="another size")

    monkeypatch.setattr(other_size, "expected_from", expected_from)
    expected_gain = stake_of(LARGE, *known)
    assert (expected_gain.basis, expected_gain.now_us, expected_gain.win_us) == (
        "predicted",
        28,
        pytest.approx(0.08 * 28),
    )
    assert stake_of(dataclasses.replace(LARGE, channels=97), *known).now_us != 28, "another layer"


# -- of a step ---------------------------------------------------------------------------------------------------------


def test_what_a_step_may_gain_goes_down_as_layers_are_confirmed(templates):
    counts = {LARGE: 3, SMALL: 1}
    known = Database.of([])
    step = StepTime(counts, fake.TARGET, known)
    before = step.to_gain
    assert before.gain_us == pytest.approx(3 * stake_of(LARGE).win_us + stake_of(SMALL).win_us)
    found = measured(LARGE, median_us=100.0, confirmed=True)
    known.add(found)
    step.update(LARGE)
    after = step.to_gain
    assert after.gain_us == pytest.approx(stake_of(SMALL).win_us)
    assert after.depthwise_us == pytest.approx(300 + stake_of(SMALL).now_us)
    assert StepTime(counts, fake.TARGET, Database.of([found])).to_gain == after, (
        "as when the campaign goes on from its log"
    )
    known.add(measured(SMALL, median_us=10.0))
    step.update(SMALL)
    assert str(step.to_gain) == "0.00 ms a step (0%)" and step.to_gain.gain_us == pytest.approx(0.5)


def test_a_kernel_without_the_bias_counts_for_the_layer_with_it(templates):
    biased = dataclasses.replace(LARGE, bias=True)
    known = Database.of([])
    step = StepTime({biased: 1}, fake.TARGET, known)
    known.add(measured(LARGE, median_us=50.0, confirmed=True))
    step.update(LARGE)
    assert step.to_gain.depthwise_us == pytest.approx(100)


def test_on_a_gpu_the_kernel_of_both_gradients_comes_after_the_two():
    gpu, cpu = parse_target("cuda:sm_90"), parse_target("cpu")
    layer, step = workload_of(shape=(8, 32, 14, 14)), {}
    for place, pass_ in enumerate(("dgrad", "wgrad", "fprop")):
        step[layer.for_pass(pass_)] = place + 1
    found = with_both_gradients(step, gpu)
    assert [(each.pass_, count) for each, count in found.items()] == [
        ("dgrad", 1), ("wgrad", 2), ("backward", 1), ("fprop", 3)
    ]  # fmt: skip
    assert most_to_win_first(found, gpu, Database.of([]))[2].pass_ == "backward", "the passes of a layer stay together"
    apart, both = (StepTime(counts, gpu, Database.of([])).to_gain for counts in (step, found))
    assert apart == both, "a step does not run all three"
    assert with_both_gradients(found, gpu) == found and with_both_gradients(step, cpu) == step
    asked = {layer.for_pass("backward"): 7, **step}
    assert with_both_gradients(asked, gpu) == asked


@pytest.mark.parametrize(
    ("fields", "passes"),
    [
        pytest.param({}, ["wgrad"], id="one gradient"),
        pytest.param({"bias": True}, ["dgrad", "wgrad"], id="a bias"),
        pytest.param({"multiplier": 2}, ["dgrad", "wgrad"], id="no template"),
        pytest.param({"kernel": (7, 7), "padding": 3}, ["dgrad", "wgrad"], id="a large kernel"),
        pytest.param({"block": "bn+relu6,bn+relu6"}, ["forward", "backward"], id="a block"),
    ],
)
def test_a_layer_without_such_a_kernel_stays_as_it_is(fields, passes):
    step = {workload_of(shape=(8, 32, 14, 14), **fields).for_pass(pass_): 1 for pass_ in passes}
    assert with_both_gradients(step, parse_target("cuda:sm_90")) == step


LAYER = workload_of(shape=(8, 32, 14, 14))
PASSES_OF_LAYER = {LAYER.for_pass(pass_): 1 for pass_ in PASSES}
GPU = parse_target("cuda:sm_90")


@pytest.mark.parametrize("asked", [True, False])
def test_a_campaign_on_a_gpu_tunes_it_where_both_gradients_are_requested(tmp_path, asked):
    choices = UserChoices(search="analytic", both_gradients=asked, log=tmp_path / "log.jsonl")
    campaign = Campaign(PASSES_OF_LAYER, GPU, choices, network=False)
    assert (LAYER.for_pass("backward") in campaign.agenda.workloads) == asked


def test_a_race_on_a_gpu_has_it_and_what_a_pack_lacks_of_it_is_not_left(monkeypatch):
    raced = []
    monkeypatch.setattr(model_race, "target_of", lambda device: GPU)
    monkeypatch.setattr(model_race, "_race_one", lambda target, counts, **_: raced.append(counts))
    model_race.race_for({torch.device("cuda"): PASSES_OF_LAYER}, seconds=1.0)
    assert [*raced[0]] == [*PASSES_OF_LAYER, LAYER.for_pass("backward")]
    assert set(model_race._without_race(GPU, raced[0], problem="no TVM").left) == set(PASSES_OF_LAYER)


@pytest.mark.parametrize(("passes", "has_it"), [([], True), (["--passes", "fprop,wgrad"], False)])
def test_so_has_an_export_of_both_gradients(passes, has_it):
    parser = export.parser_of_export()
    options = ["--shape", "8,32,14,14", "--kernel", "3", "--layout", "nhwc", "--out", "pack", *passes]
    workloads = export._workloads(parser, parser.parse_args(options), GPU, Database.of([]))
    assert (LAYER.for_pass("backward") in workloads) == has_it


# -- when a search may end ---------------------------------------------------------------------------------------------

LIMIT_US = fake.TARGET.limits.limit_us(bytes_moved=fake.WORKLOAD.bytes, flops=fake.WORKLOAD.flops)


def test_a_search_ends_at_the_share_of_the_limit_or_where_it_may_gain_little_of_a_step(log):
    near, little = fake.FakeRunner(), fake.FakeRunner()
    result = tune(log, near, plan=AFRESH, trials=64, until=Until(share=0.1, calls=10**6, step_us=1.0))
    *before, last = map(fake.time_us, near.measured)
    assert result.stopped is Stop.LIMIT and last <= LIMIT_US / 0.1 < min(before) and near.confirmed
    result = tune(log, little, plan=AFRESH, trials=64, until=Until(share=0.5, calls=2, step_us=1e6))
    assert result.stopped is Stop.GAIN and 8 <= len(little.measured) < 16
    for until in (Until(share=0.5, calls=2, step_us=1.0), Until(share=0.999, calls=2, step_us=1e6)):
        assert tune(log, fake.FakeRunner(), plan=AFRESH, trials=32, until=until).stopped is Stop.TRIALS


def test_what_is_left_falls_with_the_trials_and_is_bound_by_the_limit():
    assert further_us([100.0] * 10, None) == further_us([100.0] * 10, 120.0) == 6.0, "such a limit is wrong"
    assert further_us([200.0] * 10 + [100.0] * 10, None) == 50.0, "as many trials again may gain as much"
    assert further_us([200.0] * 10 + [100.0] * 10, 99.0) == 1.0
    assert further_us([math.inf] * 9 + [100.0], None) == 100.0
    until = Until(share=0.9, calls=1, step_us=100.0)
    assert until.is_near(100.0, 96.0) and not until.is_near(100.0, 120.0) and not until.is_near(math.inf, 96.0)
    assert until.is_little_left([0.1] * 8, None) and not until.is_little_left([0.1] * 7, None)
    assert not until.is_little_left([math.inf] * 9, None)


def test_the_command_says_what_is_left(capsys, monkeypatch, tmp_path):
    plant(monkeypatch, tmp_path)
    options = (*SHAPE, "--passes", "fprop", "--trials", "64", "--until", "10%")
    assert run(*options) == 0
    out, err = capsys.readouterr()
    assert "near the limit" in err
    assert run(*options, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    left_us, step_us = answer["step"]["tuning_left_us"], answer["step"]["depthwise_us"]
    assert answer["results"][0]["trials"] < 64 and 0 < left_us <= step_us - LIMIT_US
    assert f"tuning left: ≤ {math.ceil(100 * left_us / step_us)} % of a step" in out
    assert run(*SHAPE, "--passes", "fprop", "--trials", "8") == 0
    assert "tuning left" not in capsys.readouterr().out
