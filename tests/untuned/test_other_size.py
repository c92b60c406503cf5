"""What is expected of a layer at a size that was not measured, from a size that was."""

from __future__ import annotations

import dataclasses

import pytest
from planted_records import record_of, workload_of

from dwconv.errors import InvalidConfig
from dwconv.schedules.template import templates_for
from dwconv.target import cpu_of_device
from dwconv.untuned.evidence import evidence
from dwconv.untuned.learn import learn
from dwconv.untuned.other_size import expected_from, octaves_between
from dwconv.untuned.portfolio import NOTHING, Errors, GainModel, shipped
from dwconv.untuned.trees import Trees

DEVICE, OTHER = "one-avx512-2t", "other-avx512-2t"
TARGET = cpu_of_device(DEVICE)
HERE = {"1 octave": Errors(middle=-0.1, least=-0.5, workloads=22)}
PORTFOLIO = dataclasses.replace(
    NOTHING,
    devices=(DEVICE,),
    gain=GainModel(
        trees=Trees(base=1.0, trees=()),
        known_device={},
        other_device={},
        other_size={**HERE, "3 octaves": Errors(middle=-0.2, least=-0.9, workloads=46)},
        other_size_other_device={"3 octaves": Errors(middle=-0.2, least=-1.4, workloads=30)},
    ),
)


def at(size, *, batch=4, channels=64, **more):
    return workload_of(shape=(batch, channels, size, size), **more)


def config_of(workload):
    (template,) = (found for found in templates_for(workload, TARGET) if found.layout == "nhwc")
    return template.space(workload, TARGET).default


def measured(workload, *, gain=8.0, device=DEVICE):
    return record_of(workload, config=config_of(workload), device=device, median_us=100.0, baseline_us=100.0 * gain)


def test_half_of_what_the_layer_has_more_elsewhere_is_expected_here():
    """The trees say 2×, the layer had 8× at the other size: 4×, less the errors that were measured."""
    found = expected_from(measured(at(28)), at(32), TARGET, portfolio=PORTFOLIO)
    assert found.gain == pytest.approx(2**1.9) and found.at_least == pytest.approx(2**1.5)
    assert found.source == "4×64×28×28"
    assert found.reason == "the best of the same layer at another size; judged on 22 pairs of sizes"
    assert 100 < found.us < 200, "a little more to do than what took 100 µs"


def test_the_discount_grows_with_the_distance():
    record = measured(at(28))
    gains = [expected_from(record, at(size), TARGET, portfolio=PORTFOLIO).at_least for size in (39, 40, 79)]
    assert gains == pytest.approx([2**1.5, 2**1.1, 2**1.1])
    assert expected_from(record, at(80), TARGET, portfolio=PORTFOLIO) is None, "three octaves away"
    assert octaves_between(at(28), at(56)) == 2 and octaves_between(at(28), at(28, batch=16)) == 2


def test_on_a_device_that_the_trees_do_not_know_the_discount_is_larger():
    there = cpu_of_device(OTHER)
    found = expected_from(measured(at(28), device=OTHER), at(32), there, portfolio=PORTFOLIO)
    assert found.at_least == pytest.approx(2**0.6) and "on other devices" in found.reason


def test_the_configuration_is_legal_at_the_new_size():
    known, new = at(56), at(20)
    (template,) = (found for found in templates_for(new, TARGET) if found.layout == "nhwc")
    with pytest.raises(InvalidConfig, match="needs a value for knob threads"):
        template.space(new, TARGET).check(config_of(known).to_dict())
    found = expected_from(measured(known), new, TARGET, portfolio=PORTFOLIO)
    assert template.space(new, TARGET).check(found.config.to_dict()) == found.config


def test_nothing_is_expected_where_errors_are_not_known():
    half = dataclasses.replace(at(32), dtype="float16")
    assert expected_from(measured(at(28)), half, TARGET, portfolio=PORTFOLIO) is None
    assert expected_from(measured(at(28)), at(32), TARGET, portfolio=NOTHING) is None
    unmeasured = record_of(at(28), config=config_of(at(28)), device=DEVICE, baseline_us=None)
    assert expected_from(unmeasured, at(32), TARGET, portfolio=PORTFOLIO) is None


# -- how far off -------------------------------------------------------------------------------------------------------


def learnt(*, gains, devices=(DEVICE,), step=1.3):
    """Twelve layers, each at two sizes; ``gains(layer, device)`` are what each gains at the smaller and the larger."""
    records = [
        measured(at(size, channels=16 * (1 + layer)), gain=gain, device=device)
        for device in devices
        for layer in range(12)
        for size, gain in zip((20, round(20 * step)), gains(layer, device), strict=True)
    ]
    return learn(evidence(records), network=lambda workload: str(workload.channels % 5))


def test_errors_are_those_of_each_size_from_the_other():
    model = learnt(gains=lambda layer, device: (4.0, 4.0))
    errors = model.other_size["1 octave"]
    assert errors.workloads == 24 and list(model.other_size) == ["1 octave"]
    assert errors.middle == pytest.approx(-0.2, abs=0.05), "what adopting may lose is assumed"
    assert errors.least == pytest.approx(-0.2, abs=0.25)
    changing = learnt(gains=lambda layer, device: (4.0, 1.0) if layer % 2 else (1.0, 4.0))
    assert changing.other_size["1 octave"].least < errors.least - 0.7, "what changes with the size is an error"


def test_sizes_far_apart_are_judged_apart_and_too_far_not_at_all():
    assert list(learnt(gains=lambda layer, device: (4.0, 4.0), step=2.0).other_size) == ["3 octaves"]
    assert learnt(gains=lambda layer, device: (4.0, 4.0), step=4.0).other_size == {}


def test_a_device_that_the_trees_do_not_know_is_judged_without_it():
    model = learnt(
        gains=lambda layer, device: (4.0, 4.0) if device == DEVICE else (16.0, 16.0), devices=(DEVICE, OTHER)
    )
    errors = model.other_size_other_device["1 octave"]
    assert errors.least == pytest.approx(-1.0, abs=0.25), "half of the two octaves between the devices"
    alone = learnt(gains=lambda layer, device: (4.0, 1.0) if layer % 2 else (1.0, 4.0))
    assert alone.other_size_other_device["1 octave"].least == 2 * alone.other_size["1 octave"].least


def test_what_ships_knows_the_errors_of_both():
    gain = shipped().gain
    for errors in (gain.other_size, gain.other_size_other_device):
        near, far = errors["1 octave"], errors["3 octaves"]
        assert far.least <= near.least < near.middle
