"""bench cliffs: every pair differs in one thing, and their shares of the limit are compared."""

from __future__ import annotations

import dataclasses
import json

import pytest

from bench import cliffs
from bench.__main__ import main
from dwconv.problems.target import cpu_target
from tests.fake_tuning import TARGET
from tests.planted_records import plant

TINY = cliffs.CliffShape(channels=20, size=7)


@pytest.mark.parametrize("pair", cliffs.PAIRS, ids=lambda pair: str(pair[0]))
def test_a_pair_differs_in_one_thing(pair):
    odd, even = map(dataclasses.asdict, pair)
    assert len([name for name in odd if odd[name] != even[name]]) == 1
    assert even["channels"] % 16 == 0 and even["size"] % 7 == 0


@pytest.mark.slow
def test_shares_of_the_limit_are_compared(tmp_path, capsys, monkeypatch, logs):
    monkeypatch.setattr(cliffs, "PAIRS", ((TINY, dataclasses.replace(TINY, channels=32)),))
    monkeypatch.setattr(cliffs, "with_limits", lambda target: dataclasses.replace(target, limits=TARGET.limits))
    log = tmp_path / "log.jsonl"
    for shape in cliffs.PAIRS[0]:
        plant(log, shape.workloads(layout="nhwc"), passes=["fprop"])
    assert main(["cliffs", "--seconds", "0", "--log", str(log), "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("untuned") == 2
    (row, *untuned) = json.loads((tmp_path / f"cliffs-nhwc-{cpu_target().device}.json").read_text())["rows"]
    share, even_share = row["percent_of_limit"]
    assert row["ratio"] == pytest.approx(share / even_share) and min(row["us"]) > 0
    assert [each["ratio"] for each in untuned] == [None, None]
