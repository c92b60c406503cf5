"""``python -m bench cuda`` whole, where there is a GPU."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from bench.gpu import prepared as prepared_module
from bench.gpu.cuda import STAGES
from bench.gpu.run import FILE
from dwconv import settings
from tests import forked
from tests.standin.conftest import OnStandIn
from tests.standin.run import PATIENCE_S

ROOT = Path(__file__).parents[2]


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


def prepared(folder: Path, *stages: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernels of these stages, built where there is no GPU, with a cache of its own."""
    monkeypatch.setenv("DWCONV_CACHE", str(folder / "cache-here"))
    made = folder / "prepared"
    command = [sys.executable, "-m", "tests.standin.small_bench", str(made), "--prepare", *stages]
    done = forked.run(command, env={**os.environ, forked.BRIEF: "1"}, cwd=ROOT, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.setenv("DWCONV_CACHE", str(folder / "cache-there"))
    return made


def built_there() -> set[str]:
    """The names of kernels in the cache, and of what was compiled."""
    return {file.name for name in ("kernels", "cubins") for file in (settings.cache_folder() / name).glob("*")}


def test_what_was_built_elsewhere_is_not_built_again(
    on_stand_in: OnStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with another cache, and so in all of its processes."""
    made = prepared(tmp_path, "verify", "host", monkeypatch=monkeypatch)
    small = ["-m", "tests.standin.small_bench", str(tmp_path / "out"), "--prepared", str(made)]
    done = on_stand_in([*small, "verify", "host"])
    assert done.returncode == 0 and done.launches, done.stdout + done.stderr
    for stage in ("verify", "host"):
        (told,) = re.findall(rf"\[{stage}\] (\d+) kernels came from .*, (\d+) were compiled", done.stdout)
        assert int(told[0]) > 0 and told[1] == "0", done.stdout
    manifest = json.loads((made / prepared_module.FILE).read_text())
    names = {f"{name}.kernel" for part in manifest["parts"] for name in part["kernels"]}
    assert {name for name in built_there() if not name.endswith((".checked", ".expected"))} == names


@pytest.mark.slow
def test_every_stage_finds_what_was_built_for_it_elsewhere(
    on_stand_in: OnStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = [name for name in STAGES if name != "tune"]  # a search goes on where the one before it led
    made = prepared(tmp_path, "tune", *stages, monkeypatch=monkeypatch)
    small = ["-m", "tests.standin.small_bench", str(tmp_path / "out"), "--prepared", str(made)]
    done = on_stand_in([*small, "tune", *stages])
    assert done.returncode == 0, done.stdout + done.stderr
    for stage in stages:
        (told,) = re.findall(rf"\[{stage}\] (\d+) kernels came from .*, (\d+) were compiled", done.stdout)
        assert int(told[1]) <= (stage in ("race", "blocks", "train")), done.stdout
