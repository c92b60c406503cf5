"""bench search, bench compile and bench threads, on a tiny layer."""

from __future__ import annotations

import json

import pytest

from bench import compile, search, threads
from bench.__main__ import main
from bench.cases import Layer
from dwconv.measure.clock.timing import GLANCE

TINY = (Layer(network="Tiny", batch=1, channels=16, size=8, kernel=3),)


@pytest.mark.slow
def test_builds_are_timed_pass_by_pass(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(compile, "CPU_LAYERS", TINY)
    assert main(["compile", "--samples", "2", "--out", str(tmp_path)]) == 0
    (written,) = tmp_path.glob("compile-nhwc-*.json")
    rows = json.loads(written.read_text())["rows"]
    assert [(row["pass"], len(row["seconds"])) for row in rows] == [("fprop", 2), ("dgrad", 2), ("wgrad", 2)]
    assert all(seconds > 0 for row in rows for seconds in row["seconds"])
    assert "6 candidates: median" in capsys.readouterr().out


def test_when_the_minutes_are_over_what_is_left_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(search, "CPU_LAYERS", TINY)
    monkeypatch.setattr(search, "with_limits", lambda target: target)
    assert main(["search", "--minutes", "0", "--logs", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert "time is up, 3 passes are left" in capsys.readouterr().out
    (written,) = tmp_path.glob("search-nhwc-*.json")
    assert json.loads(written.read_text())["rows"] == []


def test_loops_are_held_against_the_sum_of_their_parts(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(threads, "CPU_LAYERS", TINY)
    monkeypatch.setattr(threads, "EFFORT", GLANCE)
    assert main(["threads", "--only", "dgrad", "--out", str(tmp_path)]) == 0
    (written,) = tmp_path.glob("threads-*.json")
    (row,) = json.loads(written.read_text())["rows"]
    us = row["us"]
    assert row["pass"] == "dgrad" and row["ratio"] == us["dwconv_loop"] / (us["dwconv"] + us["pointwise"])
    assert row["pytorch_ratio"] == us["pytorch_loop"] / (us["pytorch"] + us["pointwise"])
    assert "PyTorch's own loops" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("short_ranking", "brief_timing")
def test_two_searches_are_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(search, "CPU_LAYERS", TINY)
    monkeypatch.setattr(search, "with_limits", lambda target: target)
    options = ["--trials", "2", "--random", "3", "--only", "wgrad", "--logs", str(tmp_path), "--out", str(tmp_path)]
    assert main(["search", *options]) == 0
    assert sorted("random" in path.name for path in tmp_path.glob("*.jsonl")) == [False, True]
    (written,) = tmp_path.glob("search-nhwc-*.json")
    (row,) = json.loads(written.read_text())["rows"]
    assert row["pass"] == "wgrad" and row["ratio"] == row["us"][0] / row["us"][1]
    assert row["trials"] == [2, 3]
