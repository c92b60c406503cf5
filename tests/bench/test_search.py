"""bench search: two searches of a workload, and their winners side by side."""

from __future__ import annotations

import json

import pytest

from bench import search
from bench.__main__ import main
from bench.cases import square

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
