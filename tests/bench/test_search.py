"""bench search: two searches of a workload, and their winners side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import search
from bench.__main__ import main
from bench.cases import CPU_LAYERS, square
from bench.search import computed_table

TINY = (square("Tiny", batch=1, channels=16, size=8, kernel=3),)


@pytest.fixture
def tiny(monkeypatch, logs):
    monkeypatch.setattr(search, "CPU_LAYERS", TINY)
    monkeypatch.setattr(search, "with_limits", lambda target: target)


@pytest.mark.usefixtures("tiny")
def test_when_the_minutes_are_over_what_is_left_is_said(tmp_path, capsys):
    assert main(["search", "--minutes", "0", "--logs", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert "time is up, 3 passes are left" in capsys.readouterr().out
    (written,) = tmp_path.glob("search-nhwc-*.json")
    assert json.loads(written.read_text())["rows"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_two_searches_are_compared(tmp_path):
    options = ["--trials", "2", "--random", "3", "--only", "wgrad", "--logs", str(tmp_path), "--out", str(tmp_path)]
    assert main(["search", *options]) == 0
    assert sorted("random" in path.name for path in tmp_path.glob("*.jsonl")) == [False, True]
    (written,) = tmp_path.glob("search-nhwc-*.json")
    (row,) = json.loads(written.read_text())["rows"]
    assert row["pass"] == "wgrad" and row["ratio"] == row["us"][0] / row["us"][1]
    assert row["trials"] == [2, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("tiny", "short_ranking")
def test_searches_by_computed_cost_say_what_they_take_and_find(tmp_path, capsys):
    options = ["--target", "cuda:sm_90", "--layout", "nchw", "--only", "fprop", "--trials", "2", "--out", str(tmp_path)]
    assert main(["search", *options]) == 0
    (row,) = json.loads((tmp_path / "search-nchw-sm_90.json").read_text())["rows"]
    assert (row["layer"], row["pass"], row["batch"]) == ("Tiny 16×8² k3", "fprop", 8)
    assert row["trials"] == 2 and row["cpu_s"] > 0
    assert row["config"]["template"].startswith("cuda.fprop_nchw") and row["us"] > 1
    assert f"2 candidates; {row['us']:.1f} µs by {row['config']['template']}" in capsys.readouterr().err


def test_only_a_gpu_has_computed_costs(capsys):
    assert main(["search", "--target", "cpu:avx2"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "target=cpu:avx2 is no GPU" in err


def test_the_page_has_what_searches_by_computed_cost_take():
    root = Path(__file__).parents[2]
    rows = json.loads((root / "bench" / "results" / "search-nchw-sm_90.json").read_text())["rows"]
    page = (root / "docs" / "cuda.md").read_text(encoding="utf-8")
    assert "\n".join(computed_table(rows)) in page
    assert [row["layer"] for row in rows] == [str(layer) for layer in CPU_LAYERS[: len(rows)]] and len(rows) > 8
    most = max(row["cpu_s"] for row in rows)
    assert f"of {len(rows)} layers took at most {most:.0f} CPU seconds" in page
