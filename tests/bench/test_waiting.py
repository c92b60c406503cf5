"""``bench waiting``: what a block costs besides what is measured of it, from steps and from what dispatch compares."""

from __future__ import annotations

import dataclasses
import json

import pytest

from bench import waiting
from bench.__main__ import main
from bench.blocks import Case
from dwconv.dispatch.advantage import CALL_US
from dwconv.measure.clock.timing import Lap
from dwconv.problems.target import Limits
from tests.bench.still_clock import StillClock
from tests.planted_records import plant

LIMITS = Limits(memory_gb_per_s=20, cache_gb_per_s=50, cache_bytes=1 << 20, peak_gflop_per_s=100)
AS_ONE_US, ONE_BY_ONE_US = 300.0, 500.0
AROUND_US = 10.0
"""So little that the block would run one by one if waiting counted."""
PLANTED_US = 50.0
"""What every planted kernel takes."""


class TwoSteps(StillClock):
    """The first step that is timed takes 300 µs, any other 500."""

    first = None

    def lap(self, call, *, times):
        call()
        self.first = self.first or call
        return Lap(seconds=times * (AS_ONE_US if call is self.first else ONE_BY_ONE_US) / 1e6)


@pytest.fixture
def waited(tmp_path, monkeypatch):
    """The result of a run on planted records."""

    def run(*options, baseline_us=1e6):
        log = tmp_path / "log.jsonl"
        for trains in (True, False):
            case = Case(batch=waiting.BATCH, dtype="float32", trains=trains)
            passes = [each.pass_ for each in case.passes(waiting.SMALLEST)]
            block = case.workload(waiting.SMALLEST)
            plant(log, [block], passes=passes, around_us=AROUND_US, baseline_us=baseline_us)
        plant(log, [block.convolution("fprop")], baseline_us=1e6)
        monkeypatch.setattr(waiting, "with_limits", lambda target: dataclasses.replace(target, limits=LIMITS))
        monkeypatch.setattr(waiting, "CpuClock", TwoSteps)
        monkeypatch.setenv("DWCONV_TUNING_LOGS", "")
        code = main(["waiting", "--turns", "4", "--log", str(log), "--out", str(tmp_path), *options])
        paths = list(tmp_path.glob("waiting-*.json"))
        return code, json.loads(paths[0].read_text())["rows"] if paths else None

    return run


@pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")
def test_what_a_step_takes_more_than_was_measured_is_waiting(waited, capsys):
    code, (training, evaluation) = waited()
    assert code == 0 and training["step_us"] == {"as one": AS_ONE_US, "converted": ONE_BY_ONE_US}
    for row, passes, convolutions in ((training, 2, 3), (evaluation, 1, 1)):
        assert row["kernels_us"] == passes * PLANTED_US
        assert row["functions_us"] == passes * AROUND_US + convolutions * (PLANTED_US + CALL_US)
        more_us = AS_ONE_US - row["kernels_us"] - (ONE_BY_ONE_US - row["functions_us"])
        assert row["waiting_us"] == pytest.approx(more_us) and row["waiting_quartiles_us"] == pytest.approx(
            [more_us] * 2
        )
    assert training["trains"] and not evaluation["trains"]
    assert "training: 300 µs as one, of which kernels take 100; 500 one by one" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")
def test_a_block_that_does_not_run_as_one_is_no_measurement(waited, capsys):
    code, rows = waited(baseline_us=1.0)
    assert code == 2 and rows is None
    assert capsys.readouterr().err.startswith("error: the smallest block did not run as one")
