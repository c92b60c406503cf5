"""``python -m dwconv.tune`` with the real templates: tuned on this CPU, predicted for a GPU."""

import json
import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from dwconv import tune
from dwconv.measure import limits
from dwconv.problems import target
from dwconv.records.log import TuningLog
from dwconv.tuner.search import search_loop
from tests import fake_tuning as fake
from tests import forked

_PATIENCE_S = 1200.0
"""For what takes seconds on a quiet machine."""


@pytest.fixture
def known_limits(monkeypatch, tmp_path):
    """The limits of this CPU need not be measured."""
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DWCONV_NATIVE", "0")  # or each test would compile it, into its own cache folder
    path = limits.limits_path(target.cpu_target())
    path.parent.mkdir(parents=True)
    kept = limits.KeptLimits(limits=fake.TARGET.limits, readings=limits.ENOUGH_READINGS)
    path.write_bytes(msgspec.json.encode(kept))


@pytest.mark.slow
@pytest.mark.usefixtures("known_limits", "brief_timing")
def test_tunes_on_this_cpu_and_survives_ctrl_c(capsys, tmp_path, monkeypatch):
    """Interrupted as soon as the first records are there; resumed; and then there is nothing left to measure."""
    log = tmp_path / "log.jsonl"
    options = ["--shape", "2,16,8,8", "--kernel", "3", "--layout", "nhwc", "--target", "cpu", "--passes", "fprop",
               "--jobs", "1", "--search", "random", "--log", str(log), "--json"]  # fmt: skip
    process = forked.popen(
        [sys.executable, "-m", "dwconv.tune", *options, "--trials", "500", "--patience", "500"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + _PATIENCE_S
    while not (log.exists() and log.read_bytes().count(b"\n") >= 2) and time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 130, err
    (result,) = json.loads(out)["results"]
    known = len({record.config for record in TuningLog(log).load().records})
    assert result["stopped"] == "interrupted" and result["trials"] == known >= 2

    monkeypatch.setattr(
        search_loop, "_QUIET_WAIT_S", 0.5
    )  # on a busy machine nothing is confirmed, however long it waits

    def again() -> dict:
        assert tune.main([*options, "--trials", str(known + 2)]) == 0
        return json.loads(capsys.readouterr().out)["results"][0]

    result = again()
    assert result["measured"] == 2 and result["speedup"] > 0
    assert result["failures"].keys() <= {"timeout"}  # which a busy machine may cause
    assert result["confirmed"] != result["too_busy"]
    lines = log.read_bytes()
    repeated = again()
    assert repeated["measured"] == 0
    new = log.read_bytes()[len(lines) :]
    assert log.read_bytes()[: len(lines)] == lines
    assert (new == b"") == result["confirmed"], "only what a busy machine kept from being confirmed is timed again"


@pytest.mark.slow
@pytest.mark.usefixtures("short_ranking")
def test_predicts_for_a_gpu_that_is_not_here(capsys, tmp_path):
    command = ["--shape", "8,32,28,28", "--kernel", "3", "--target", "cuda:sm_90", "--passes", "fprop",
               "--trials", "2", "--jobs", "1", "--log", str(tmp_path / "log.jsonl"), "--json"]  # fmt: skip
    assert tune.main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    (fprop,) = answer["results"]
    assert answer["target"] == "cuda:sm_90"
    assert fprop["predicted"] and fprop["median_us"] > 0 and fprop["resources"]["registers"] > 0
    assert fprop["baseline"] is None and fprop["speedup"] is None
    assert fprop["trials"] == 2


@pytest.mark.slow
@pytest.mark.usefixtures("short_ranking")
def test_fast_math_is_recorded_and_searched_afresh(capsys, tmp_path):
    log = tmp_path / "log.jsonl"
    command = ["--shape", "2,8,9,9", "--kernel", "3", "--target", "cuda:sm_90", "--passes", "fprop", "--trials", "1",
               "--jobs", "1", "--log", str(log), "--json"]  # fmt: skip
    for options in ([], ["--fast-math"]):
        assert tune.main([*command, *options]) == 0
        assert json.loads(capsys.readouterr().out)["results"][0]["measured"] == 1
    assert [record.fast_math for record in TuningLog(log).load().records] == [False, True]
