"""``python -m bench cuda`` whole, where there is a GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.gpu import cuda, smoke, verify
from bench.gpu import prepared as prepared_module
from bench.gpu.cuda import STAGES
from bench.gpu.run import FILE
from dwconv import settings
from tests.standin import compiled, small_bench
from tests.standin.conftest import OnStandIn


@pytest.mark.slow
def test_every_stage_shows_something(on_stand_in: OnStandIn, tmp_path: Path) -> None:
    done = on_stand_in(["-m", "tests.standin.small_bench", str(tmp_path / "out"), *STAGES])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.launches and not done.problems
    summary = done.stdout.partition("\nsummary, ")[2]
    for told in (
        "16 of 16 templates and types right", "2 of 2 workloads tuned", "2 of 2 tuned workloads raced; warm",
        " passes by dwconv, losses apart ", " passes raced, a second: plain ", "GiB at most: plain ",
        "kernels of any size reach ", "steps at 2 sizes ",
        "the first call of a size ", "without a pack: a step then ", "% of copy bandwidth",
        "wgrad: two levels ", "Tiny by the best strategy ", "the batches are the same", " and 2 streams, ",
    ):  # fmt: skip
        assert told in summary, done.stdout
    answers = json.loads((tmp_path / "out" / FILE).read_text())["answers"]
    assert {*STAGES, "limits"} <= set(answers)
    assert set(answers["limits"]["device"]) >= {"memory_gb_per_s", "launch_us", "clock_ghz", "cache_bytes"}
    (results,) = (tmp_path / "out").glob("cuda-*.json")
    written = json.loads(results.read_text())
    assert all(row["dwconv_us"] > 0 for row in written["rows"])
    graphs = {"plain + graphs", "converted + graphs"}
    assert {name: row["batch"] for name, row in written["steps"].items()} == {
        "tests.models:OneLayer float16 batch 2": 2, "tests.models:OneBlock bfloat16 batch 2": 2,
    }  # fmt: skip
    for row in written["steps"].values():
        assert row["passes"]["of"] >= 3 and row["passes"]["left"] == [], "a row counts if every pass was raced"
        ways = {"plain", "plain again", "converted", *graphs} | {*row.get("blocks", {})}
        assert ways <= row["samples_per_s"].keys() == row["peak_bytes"].keys()
        assert min(row["samples_per_s"].values()) > 0 and min(row["peak_bytes"].values()) > 0
    blocks = written["steps"]["tests.models:OneBlock bfloat16 batch 2"]
    assert {"blocks", "blocks + graphs"} <= blocks["peak_bytes"].keys()


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Builds the kernels of stages of the small bench. From then on there is another cache, with the stand-in alone."""

    def prepare_stages(*stages: str) -> Path:
        libraries = compiled.usual_folder()
        monkeypatch.setattr(cuda, "STAGES", small_bench.stages())
        monkeypatch.setattr(smoke, "_TYPES", ("float32",))
        monkeypatch.setattr(verify, "DRAWN", 0)
        monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache-here"))
        small_bench.prepare_for_a_gpu(stages, tmp_path / "prepared")
        monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache-there"))
        for folder in (libraries, compiled.usual_folder().parent):
            folder.mkdir(0o700, parents=True, exist_ok=True)
        compiled.usual_folder().symlink_to(libraries)
        return tmp_path / "prepared"

    return prepare_stages


def in_the_cache(kind: str) -> set[str]:
    return {file.stem for file in settings.cache_folder().rglob(f"*.{kind}")}


def test_what_was_built_elsewhere_is_not_built_again(
    on_stand_in: OnStandIn, tmp_path: Path, prepared: Callable[..., Path]
) -> None:
    made = prepared("verify")
    small = ["-m", "tests.standin.small_bench", str(tmp_path / "out"), "--prepared", str(made)]
    done = on_stand_in([*small, "verify"])
    assert done.returncode == 0 and done.launches, done.stdout + done.stderr
    manifest = json.loads((made / prepared_module.FILE).read_text())
    names = {name for part in manifest["parts"] for name in part["kernels"]}
    of_statistics = len(in_the_cache("cubin"))  # the kernel of no template
    assert f"[verify] {len(names)} kernels came from {made}, {of_statistics} were compiled" in done.stdout
    assert in_the_cache("kernel") == names and names and of_statistics <= 1


@pytest.mark.slow
def test_every_stage_finds_what_was_built_for_it_elsewhere(
    on_stand_in: OnStandIn, tmp_path: Path, prepared: Callable[..., Path]
) -> None:
    stages = ("smoke", "verify", "host", "race", "partition", "sequences", "blocks", "train", "depthwise")
    made = prepared("tune", *stages)  # a search goes on where the one before it led
    small = ["-m", "tests.standin.small_bench", str(tmp_path / "out"), "--prepared", str(made)]
    done = on_stand_in([*small, "tune", *stages])
    assert done.returncode == 0, done.stdout + done.stderr
    for stage in stages:
        (told,) = re.findall(rf"\[{stage}\] (\d+) kernels came from .*, (\d+) were compiled", done.stdout)
        if stage in ("smoke", "verify"):  # what is measured changes what the stages after them race
            assert int(told[0]) > 0 and int(told[1]) <= 1, "the kernel of running statistics is of no template"
