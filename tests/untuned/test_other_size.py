"""What is expected of a layer at a size that was not measured, from a size that was."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dwconv.errors import InvalidConfig
from dwconv.problems.target import cpu_of_device
from dwconv.schedules.template import templates_for
from dwconv.untuned import make_portfolio as learning
from dwconv.untuned.evidence import evidence
from dwconv.untuned.make_portfolio import errors_by_octaves, learn
from dwconv.untuned.other_size import expected_from, octaves_between
from dwconv.untuned.portfolio_file import Errors, Portfolio, shipped
from dwconv.untuned.trees import Trees
from tests.planted_records import record_of, workload_of

ROOT = Path(__file__).resolve().parents[2]
DEVICE, OTHER = "one-avx512-2t", "other-avx512-2t"
TARGET = cpu_of_device(DEVICE)
HERE = {"1 octave": Errors(middle=-0.1, least=-0.5, workloads=22)}
PORTFOLIO = Portfolio(
    devices=(DEVICE,),
    trees={"": Trees(base=1.0, trees=())},
    other_size={**HERE, "3 octaves": Errors(middle=-0.2, least=-0.9, workloads=46)},
    other_size_other_device={"3 octaves": Errors(middle=-0.2, least=-1.4, workloads=30)},
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
    assert expected_from(measured(at(28)), at(32), TARGET, portfolio=Portfolio()) is None
    unmeasured = record_of(at(28), config=config_of(at(28)), device=DEVICE, baseline_us=None)
    assert expected_from(unmeasured, at(32), TARGET, portfolio=PORTFOLIO) is None


# -- how far off -------------------------------------------------------------------------------------------------------


def evidence_of(*, gains, devices=(DEVICE,), steps=(1.3,)):
    """Nine layers for each of ``steps``, the ratio of the two sizes that each layer has; ``gains(layer, device)`` are
    what it gains at the smaller and the larger."""
    layers = [(layer, step) for layer, step in enumerate(step for step in steps for _ in range(9))]
    return evidence(
        measured(at(size, channels=16 * (1 + layer)), gain=gain, device=device)
        for device in devices
        for layer, step in layers
        for size, gain in zip((20, round(20 * step)), gains(layer, device), strict=True)
    )


def learnt(**facts):
    return learn(evidence_of(**facts), network=lambda workload: str(workload.channels % 5))


def test_errors_are_those_of_each_size_from_the_other():
    model = learnt(gains=lambda layer, device: (4.0, 4.0))
    errors = model.other_size["1 octave"]
    assert errors.workloads == 18 and list(model.other_size) == ["1 octave"]
    assert errors.middle == pytest.approx(-0.2, abs=0.05), "what adopting may lose is assumed"
    assert errors.least == pytest.approx(-0.2, abs=0.25)
    changing = learnt(gains=lambda layer, device: (4.0, 1.0) if layer % 2 else (1.0, 4.0))
    assert changing.other_size["1 octave"].least < errors.least - 0.7, "what changes with the size is an error"


def test_sizes_far_apart_are_judged_apart_and_too_far_not_at_all():
    assert list(learnt(gains=lambda layer, device: (4.0, 4.0), steps=(2.0,)).other_size) == ["3 octaves"]
    assert learnt(gains=lambda layer, device: (4.0, 4.0), steps=(4.0,)).other_size == {}


def test_errors_are_no_smaller_farther_away(monkeypatch):
    planted = {"1 octave": [-2.0, -1.0, *[0.0] * 20], "3 octaves": [-0.5] * 22}
    monkeypatch.setattr(learning, "errors_by_octaves", lambda measured, **facts: planted)
    near, far = learnt(gains=lambda layer, device: (4.0, 4.0)).other_size.values()
    assert (near.least, near.middle, far.least, far.middle) == (-1.0, 0.0, -1.0, -0.5)
    planted["1 octave"] = planted["1 octave"][:11]
    assert list(learnt(gains=lambda layer, device: (4.0, 4.0)).other_size) == ["3 octaves"], "of 11, nothing is known"


def test_a_layer_is_judged_by_trees_that_do_not_know_it(monkeypatch):
    known: list[set[str]] = []
    every = evidence_of(gains=lambda layer, device: (4.0, 4.0), devices=(DEVICE, OTHER))
    layers = {one.workload.layer for one in every}

    def grown(rest):
        known.append({one.workload.layer for one in rest})
        return Trees(base=2.0, trees=())

    monkeypatch.setattr(learning, "gain_trees", grown)
    assert errors_by_octaves(every, leaves_out_device=False)["1 octave"]
    assert sorted(map(sorted, (layers - each for each in known))) == sorted([layer] for layer in [*layers, *layers])


def test_a_device_that_the_trees_do_not_know_is_judged_without_it():
    """What a layer gains on one device is two octaves off on the other, and half of that is made up for."""
    every = evidence_of(
        gains=lambda layer, device: (4.0, 4.0) if device == DEVICE else (16.0, 16.0), devices=(DEVICE, OTHER)
    )
    for leaves_out_device, off in ((True, 1.0), (False, 0.5)):
        errors = errors_by_octaves(every, leaves_out_device=leaves_out_device)
        assert [abs(error) for error in errors["1 octave"]] == pytest.approx([off] * 36, abs=0.25)
    alone = learnt(gains=lambda layer, device: (4.0, 1.0) if layer % 2 else (1.0, 4.0))
    assert alone.other_size_other_device["1 octave"].least == 2 * alone.other_size["1 octave"].least


def test_what_ships_knows_the_errors_of_both_and_the_docs_show_them():
    gain, page = shipped(), (ROOT / "docs" / "predictions.md").read_text()
    for errors in (gain.other_size, gain.other_size_other_device):
        near, far = errors["1 octave"], errors["3 octaves"]
        assert far.least <= near.least < near.middle
    rows = {
        f"within {octaves} ({near.workloads} pairs)": (near, gain.other_size_other_device[octaves])
        for octaves, near in gain.other_size.items()
    }
    rows[f"other layers alone ({gain.known_device[''].workloads} passes)"] = (
        gain.known_device[""],
        gain.other_device[""],
    )
    for name, (known, other) in rows.items():
        said = f"{2**known.least:.2f}" + " of the predicted gain" * (name.startswith("within 1 "))
        assert f"| {name} | {said} | {2**other.least:.2f} |" in page
