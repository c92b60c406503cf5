"""``python -m bench cuda`` whole, where there is a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.gpu.state import FILE
from tests.standin.conftest import OnStandIn

COMMAND = ("-m", "tests.standin.small_bench")


@pytest.mark.slow
def test_every_stage_shows_something_and_the_second_run_has_nothing_to_do(
    on_stand_in: OnStandIn, tmp_path: Path
) -> None:
    done = on_stand_in([*COMMAND, str(tmp_path / "out"), "smoke", "verify", "tune", "race", "rank"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.problems
    summary = done.stdout.partition("\nsummary, ")[2]
    for told in ("15 of 15 templates and types right", "1 of 1 workloads tuned", "1 of 1 tuned workloads raced; warm"):
        assert told in summary, done.stdout
    answers = json.loads((tmp_path / "out" / FILE).read_text())["answers"]
    assert set(answers) == {"smoke", "verify", "tune", "limits", "race"}
    again = on_stand_in([*COMMAND, str(tmp_path / "out"), "verify", "race"])
    assert again.returncode == 0, again.stdout + again.stderr
    assert "0 to verify" in again.stdout and "[race] fprop" not in again.stdout
