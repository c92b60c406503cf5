"""``python -m bench cuda`` whole, where there is a GPU."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from bench.gpu.cuda import STAGES
from bench.gpu.run import FILE
from dwconv.problems.target import parse_target
from dwconv.records.log import TuningLog
from dwconv.schedules.template import templates_for
from tests.planted_records import record_of
from tests.standin.conftest import OnStandIn
from tests.standin.small_bench import WORKLOADS

COMMAND = ("-m", "tests.standin.small_bench")


def test_what_is_tuned_is_raced(on_stand_in: OnStandIn, tmp_path: Path) -> None:
    """The quick part of the rehearsal: without a search, and without training."""
    gpu = dataclasses.replace(parse_target("cuda:sm_90"), device="stand-in-h200")
    template, *_ = (each for each in templates_for(WORKLOADS[0], gpu) if each.layout == WORKLOADS[0].layout)
    space = template.space(WORKLOADS[0], gpu)
    (tmp_path / "out").mkdir()
    log = TuningLog(tmp_path / "out" / f"{gpu.device}.jsonl")
    log.append(record_of(WORKLOADS[0], config=space.default, device=gpu.device, median_us=10.0))
    done = on_stand_in([*COMMAND, str(tmp_path / "out"), "race"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.launches and not done.problems
    summary = done.stdout.partition("\nsummary, ")[2]
    assert "1 of 1 tuned workloads raced; warm" in summary, done.stdout
    assert re.search(r"\[race\] first kernel after \d+\.\d s", done.stdout)
    (row,) = json.loads((tmp_path / "out" / f"cuda-{gpu.device}.json").read_text())["rows"]
    assert row["workload"] == WORKLOADS[0].key and row["dwconv_us"] > 0


@pytest.mark.slow
def test_every_other_stage_shows_something(on_stand_in: OnStandIn, tmp_path: Path) -> None:
    stages = [stage for stage in STAGES if stage != "race"]
    done = on_stand_in([*COMMAND, str(tmp_path / "out"), *stages])
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.problems
    summary = done.stdout.partition("\nsummary, ")[2]
    for told in ("16 of 16 templates and types right", "2 of 2 workloads tuned", " passes by dwconv, losses apart "):
        assert told in summary, done.stdout
    for stage in ("smoke", "verify", "tune"):
        assert re.search(rf"\[{stage}\] first kernel after \d+\.\d s", done.stdout)
    answers = json.loads((tmp_path / "out" / FILE).read_text())["answers"]
    assert {"smoke", "verify", "tune", "limits", "host", "blocks", "train"} <= set(answers)
    assert set(answers["limits"]["device"]) >= {"memory_gb_per_s", "launch_us", "clock_ghz", "cache_bytes"}
