"""What a portfolio learns from records: the gain and its errors; its file."""

from __future__ import annotations

import dataclasses
import math
import random

import msgspec
import numpy as np
import pytest

from dwconv import portfolio
from dwconv.errors import BrokenInstallation
from dwconv.problems.target import cpu_of_device
from dwconv.problems.workload import Workload
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.template import templates_for
from dwconv.untuned import portfolio_file
from dwconv.untuned.evidence import evidence
from dwconv.untuned.gain import expected
from dwconv.untuned.make_portfolio import learn
from dwconv.untuned.portfolio_file import Portfolio
from dwconv.untuned.starts import starts
from dwconv.untuned.trees import Split, Trees, grow
from tests.planted_records import record_of, workload_of

DEVICE, OTHER = "one-avx512-2t", "other-avx512-2t"
TARGET = cpu_of_device(DEVICE)
WORKLOADS = [workload_of(shape=(4, 16 * (1 + n // 2), 14 + 2 * n, 14 + 2 * n)) for n in range(24)]


def configs_of(workload: Workload):
    (template,) = (found for found in templates_for(workload, TARGET) if found.layout == "nhwc")
    space = template.space(workload, TARGET)
    return space, space.default, next(near for near in space.neighbours(space.default) if near != space.default)


def records_of(*, device: str = DEVICE, gain: float = 4.0) -> list[TuningRecord]:
    """Two configurations of each workload: the default takes 1000 / gain µs, its neighbour twice as long."""
    return [
        record_of(workload, config=config, device=device, median_us=taken / gain, baseline_us=1000.0)
        for workload in WORKLOADS
        for config, taken in zip(configs_of(workload)[1:], (1000, 2000), strict=True)
    ]


def network_of(workload: Workload) -> str:
    return str(workload.channels % 5)


def test_evidence_leaves_out_what_says_nothing():
    workload = WORKLOADS[0]
    _, config, _ = configs_of(workload)
    good = record_of(workload, config=config, device=DEVICE)
    contended = dataclasses.replace(good.measurement, contention=0.5)
    nothing = [
        record_of(workload, config=config, device=DEVICE, status=Status.CRASHED),
        record_of(workload, config=config, device=DEVICE, computed=True),
        record_of(workload, config=config, device=DEVICE, baseline_us=None),
        dataclasses.replace(good, measurement=contended),
        dataclasses.replace(good, versions={"math": "fast"}),
        record_of(workload, config=config, device="nvidia-h200"),
    ]
    assert evidence(nothing) == []
    (measured,) = evidence([*nothing, good])
    assert measured.costs == {config: 0.5}
    assert measured.gain(config) == 2.0


def test_the_gain_is_over_the_same_layout():
    workload = workload_of(layout="nchw")
    config = configs_of(workload_of())[1]
    record = record_of(workload, config=config, device=DEVICE, median_us=50.0, baseline_us=100.0)
    nchw = dataclasses.replace(record.providers["onednn-nhwc"], median_us=300.0)
    record = dataclasses.replace(record, providers={**record.providers, "onednn-nchw": nchw})
    (measured,) = evidence([record])
    assert measured.gain(config) == pytest.approx(6.0)
    trials = [
        record_of(workload, config=near, device=DEVICE, median_us=50.0, baseline_us=100.0)
        for near in list(configs_of(workload_of())[0])[:3]
    ]
    (measured,) = evidence([record, *trials])
    assert measured.gain(config) == pytest.approx(6.0), "trials tell nothing of the layout that they were not timed in"


def test_the_gain_and_its_errors_are_learnt():
    model = learn(evidence(records_of(gain=4.0)), network=network_of)
    errors = model.known_device["fprop nhwc"]
    assert errors.workloads == len(WORKLOADS)
    assert -0.3 < errors.middle <= 0.1  # what the first start loses was not measured: it is assumed
    assert errors.least <= errors.middle
    assert learn(evidence(records_of()[:8]), network=network_of).trees == {}


def test_on_another_device_errors_are_larger():
    """Assumed with one device; measured with two that differ."""
    alone = learn(evidence(records_of(gain=4.0)), network=network_of)
    assert alone.other_device["fprop nhwc"].least == 2 * alone.known_device["fprop nhwc"].least
    two = [*records_of(gain=4.0), *records_of(device=OTHER, gain=16.0)]
    model = learn(evidence(two), network=network_of)
    assert model.other_device["fprop nhwc"].least == pytest.approx(-2.0, abs=0.2)


def known(gain: float = 4.0) -> Portfolio:
    return learn(evidence(records_of(gain=gain)), network=network_of)


def test_expectations_have_a_lower_bound_that_knows_the_device():
    learnt, workload = known(), workload_of(shape=(4, 96, 30, 30))
    here = expected(workload, TARGET, records_of(), portfolio=learnt)
    assert here.gain == pytest.approx(4.0, rel=0.2)
    assert here.at_least <= here.gain
    there = expected(workload, cpu_of_device(OTHER), records_of(), portfolio=learnt)
    assert there.at_least < here.at_least
    assert "networks" in here.reason
    assert "devices" in there.reason
    assert math.isfinite(here.us)
    assert here.us > 0


def test_each_type_has_expectations_of_its_own():
    narrow = [
        dataclasses.replace(each, workload=dataclasses.replace(each.workload, dtype="float16"))
        for each in records_of(gain=30.0)
    ]
    model = learn(evidence([*records_of(gain=2.0), *narrow]), network=network_of)
    wide = workload_of(shape=(4, 96, 30, 30))
    half, other = (dataclasses.replace(wide, dtype=dtype) for dtype in ("float16", "bfloat16"))
    assert expected(wide, TARGET, records_of(), portfolio=model).gain == pytest.approx(2.0, rel=0.3)
    assert expected(half, TARGET, records_of(), portfolio=model).gain == pytest.approx(30.0, rel=0.3)
    assert expected(other, TARGET, records_of(), portfolio=model) is None, "none was measured"
    assert expected(wide, TARGET, records_of(), portfolio=Portfolio()) is None


def test_with_what_ships_a_large_weight_gradient_is_sure_to_be_faster_on_a_cpu_never_seen():
    """PyTorch's own takes tens of times as long, whatever the CPU."""
    large = workload_of(shape=(8, 384, 14, 14), kernel=(7, 7), padding=3, pass_="wgrad")
    found = expected(large, cpu_of_device("never-seen-avx2-2t"), [])
    assert 2 < found.at_least < found.gain < 1000
    assert found.config.template == "cpu.wgrad_nhwc"


def test_starts_are_legal_and_different_and_begin_with_a_similar_workload():
    workload = workload_of(shape=(3, 40, 17, 19))
    space, default, _ = configs_of(workload)
    similar = record_of(WORKLOADS[0], config=configs_of(WORKLOADS[0])[2], device=OTHER)
    found = starts(workload, TARGET, [similar])
    configs = [start.config for start in found]
    assert len(set(configs)) == len(configs) and default in configs
    assert found[0].reason == "the best of a similar workload"
    assert starts(workload, TARGET, [similar], most=2) == found[:2]
    assert all(space.why_illegal(config) is None for config in configs if config.template == "cpu.fprop_nhwc")


def test_what_is_far_comes_after_what_is_estimated_to_be_fast():
    _, _, near = configs_of(WORKLOADS[0])
    far = record_of(workload_of(shape=(1, 512, 4, 4)), config=near, device=OTHER)
    workload = workload_of(shape=(16, 16, 60, 60))
    assert starts(workload, TARGET, [far])[0].reason == "of least estimated cost"


def test_a_device_name_gives_its_vectors_and_threads():
    wide, narrow = cpu_of_device("some-cpu-avx512-8t"), cpu_of_device("some-cpu-neon-4t")
    assert (wide.vector_bytes, wide.threads) == (64, 8)
    assert (narrow.vector_bytes, narrow.threads) == (16, 4)
    assert cpu_of_device("nvidia-h200") is None


# -- trees as plain data predict what xgboost predicts -----------------------------------------------------------------


def made_up(count: int) -> tuple[list[list[float]], list[float]]:
    rng = random.Random(3)
    rows = [[rng.uniform(-4, 4), rng.choice([0.0, 1.0]), rng.choice([-1.0, 1.0, math.nan])] for _ in range(count)]
    return rows, [3 * row[1] + math.sin(row[0]) + (row[2] != -1.0) for row in rows]


def test_they_predict_what_xgboost_predicts():
    import xgboost

    rows, labels = made_up(120)
    ours, base = grow(rows, labels), float(np.mean(labels))
    parameters = {
        "base_score": 0.0, "tree_method": "exact", "max_depth": 4, "eta": 0.1, "min_child_weight": 3, "seed": 0,
    }  # fmt: skip
    data = xgboost.DMatrix(np.array(rows, dtype=np.float32), label=np.array(labels) - base)
    theirs = xgboost.train(parameters, data, num_boost_round=100).predict(data) + base
    assert [ours.predict(row) for row in rows] == pytest.approx(theirs.tolist(), abs=0.01)


def test_what_is_missing_goes_its_own_way():
    trees = Trees(base=1.0, trees=(Split(feature=0, below=1.0, first=10.0, second=20.0, missing=1),))
    assert [trees.predict([value]) for value in (0.5, 1.0, math.nan)] == [11.0, 21.0, 21.0]


# -- its file ----------------------------------------------------------------------------------------------------------


def test_the_file_holds_all_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(portfolio_file, "PATH", tmp_path / "portfolio.json")
    learnt = known()
    portfolio_file.PATH.write_text(portfolio_file.encode(learnt))
    assert portfolio_file.shipped.__wrapped__() == learnt
    assert msgspec.structs.asdict(learnt).keys() == msgspec.json.decode(portfolio_file.PATH.read_bytes()).keys()


@pytest.mark.parametrize("text", ["", '{"format": 99}', '{"trees": {"": [1]}}'])
def test_a_damaged_file_is_a_broken_installation(text, tmp_path, monkeypatch):
    monkeypatch.setattr(portfolio_file, "PATH", tmp_path / "portfolio.json")
    portfolio_file.PATH.write_text(text)
    with pytest.raises(BrokenInstallation, match=r"portfolio\.json cannot be read.*install dwconv again"):
        portfolio_file.shipped.__wrapped__()


def test_what_cannot_be_written_is_refused_before_it_is_made(capsys):
    with pytest.raises(SystemExit, match="2"):
        portfolio.main(["no such log", "--out", "."])
    assert "error: argument --out: . cannot be written: Is a directory; name another file" in capsys.readouterr().err
