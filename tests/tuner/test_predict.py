"""PredictRunner: records of candidates for a GPU that is not here."""

from __future__ import annotations

import dataclasses
import random

import pytest

from dwconv.records.record import Status
from dwconv.schedules.cuda import fprop_nchw
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.target import CudaTarget, parse_target
from dwconv.tuner.predict import PredictRunner
from dwconv.workload import Workload

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
LAYER = Workload(pass_="fprop", batch=8, channels=32, input_size=(28, 28), kernel=(3, 3), padding=((1, 1), (1, 1)))


@pytest.fixture(scope="module")
def candidates() -> list[Candidate]:
    space = fprop_nchw.space(LAYER, SM_90)
    rng = random.Random(0)
    good = [config for config in (space.default, space.sample(rng), space.sample(rng)) if config]
    wild = Config.of(fprop_nchw.NAME, **{**dict(space.default.values), "planes": 3})
    return [Candidate(LAYER, config) for config in (*good, wild)]


def test_one_record_a_candidate_computed_and_marked(candidates: list[Candidate]) -> None:
    with PredictRunner(LAYER, SM_90, jobs=2) as runner:
        records = {record.config: record for record in runner.measure(candidates)}
        assert not list(runner.confirm(candidates[:1]))
    assert set(records) == {candidate.config for candidate in candidates}
    *good, wild = (records[candidate.config] for candidate in candidates)
    for record in good:
        assert record.status is Status.OK and record.device == "sm_90"
        assert record.measurement is not None and record.measurement.predicted and not record.measured
        assert record.measurement.median_us > 2
        assert record.resources["registers"] > 0
        assert record.verdict is None and record.providers == {} and record.versions
    assert wild.status is Status.COMPILE_ERROR and wild.measurement is None
    assert "planes=3" in wild.detail


def test_a_candidate_that_takes_too_long_is_ended(candidates: list[Candidate]) -> None:
    with PredictRunner(LAYER, SM_90, build_timeout_s=0.001) as runner:
        (record,) = runner.measure(candidates[:1])
    assert record.status is Status.TIMEOUT


def test_a_candidate_limited_by_memory_is_predicted_too() -> None:
    """Its traffic is counted with NumPy, whose numbers cannot pass between processes."""
    layer = dataclasses.replace(LAYER, batch=64, channels=144, input_size=(56, 56))
    space = fprop_nchw.space(layer, SM_90)
    direct = space.check({**space.default.to_dict(), "stage": "registers", "block_h": 56, "tile_h": 14, "tile_w": 2,
                          "threads_w": 28, "vthread_w": 1, "planes": 1})  # fmt: skip
    with PredictRunner(layer, SM_90) as runner:
        (record,) = runner.measure([Candidate(layer, direct)])
    assert record.status is Status.OK, record.detail
    assert record.measurement is not None and type(record.measurement.median_us) is float
