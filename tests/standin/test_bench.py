"""``python -m bench cuda`` whole, where there is a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.gpu.cuda import STAGES
from bench.gpu.run import FILE
from tests.standin.conftest import OnStandIn


@pytest.mark.slow
def test_every_stage_shows_something(on_stand_in: OnStandIn, tmp_path: Path) -> None:
    done = on_stand_in(["-m", "tests.standin.small_bench", str(tmp_path / "out"), *STAGES])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.launches and not done.problems
    summary = done.stdout.partition("\nsummary, ")[2]
    for told in (
        "16 of 16 templates and types right", "2 of 2 workloads tuned", "2 of 2 tuned workloads raced; warm",
        " passes by dwconv, losses apart ",
    ):  # fmt: skip
        assert told in summary, done.stdout
    answers = json.loads((tmp_path / "out" / FILE).read_text())["answers"]
    assert {*STAGES, "limits"} <= set(answers)
    assert set(answers["limits"]["device"]) >= {"memory_gb_per_s", "launch_us", "clock_ghz", "cache_bytes"}
    (results,) = (tmp_path / "out").glob("cuda-*.json")
    assert all(row["dwconv_us"] > 0 for row in json.loads(results.read_text())["rows"])
