"""bench search on a tiny layer, and replayed on a table of times: what it finds depends on table and seed alone."""

from __future__ import annotations

import json
import lzma
import math
import random

import pytest

from bench import replay, search
from bench.__main__ import main
from bench.cases import Layer
from bench.replay import MeasuredPass, MeasuredUnion, read_spaces
from dwconv.tuner import until
from tests.bench import made_up_spaces
from tests.bench.made_up_spaces import write_spaces

TINY = (Layer(network="Tiny", batch=1, channels=16, size=8, kernel=3),)


def test_when_the_minutes_are_over_what_is_left_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(search, "CPU_LAYERS", TINY)
    monkeypatch.setattr(search, "with_limits", lambda target: target)
    assert main(["search", "--minutes", "0", "--logs", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert "time is up, 3 passes are left" in capsys.readouterr().out
    (written,) = tmp_path.glob("search-nhwc-*.json")
    assert json.loads(written.read_text())["rows"] == []


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


@pytest.fixture(scope="module")
def measured() -> MeasuredPass:
    (one,) = made_up_spaces.spaces().passes
    return one


@pytest.fixture
def union(measured) -> MeasuredUnion:
    return MeasuredUnion(measured, made_up_spaces.TARGET)


def test_a_table_is_read_as_it_was_written(tmp_path, measured):
    path = tmp_path / "made-up-nhwc.json.xz"
    write_spaces(made_up_spaces.spaces(), path)
    read = read_spaces(path)
    (one,) = read.passes
    assert (read.target, read.versions) == (made_up_spaces.TARGET, {"dwconv": "0"})
    assert (one.workload, one.drawn, one.starts, one.untuned_starts) == (
        measured.workload, measured.drawn, measured.starts, measured.untuned_starts
    )  # fmt: skip
    assert set(one.us) == set(measured.us)
    assert all(us == (None if measured.us[config] is None else float(f"{measured.us[config]:.4g}"))
               for config, us in one.us.items())  # fmt: skip
    assert path.stat().st_size < 15 * len(one.us)


@pytest.mark.parametrize(
    "content, named",
    [
        (None, "No such file"),
        (b"junk", "Input format not supported"),
        (lzma.compress(b'{"format": 99}'), "format 99 is not 1"),
        (lzma.compress(b'{"format": 1, "target": {}, "passes": []}'), "it has no passes"),
    ],
)
def test_what_is_no_table_is_named_in_one_line(tmp_path, capsys, content, named):
    path = tmp_path / "table.json.xz"
    if content is not None:
        path.write_bytes(content)
    assert main(["search", "--replay", str(path)]) == 2
    said = capsys.readouterr().err
    assert str(path) in said and named in said and "bench/spaces" in said and said.count("\n") == 1


def test_a_folder_without_a_table_of_the_layout_is_named(tmp_path, capsys):
    write_spaces(made_up_spaces.spaces(), tmp_path / "made-up-nhwc.json.xz")
    assert main(["search", "--replay", str(tmp_path), "--layout", "nchw"]) == 2
    assert f"{tmp_path} has no table of layout nchw" in capsys.readouterr().err


def test_a_search_can_step_only_to_what_was_measured(measured, union):
    rng = random.Random(0)
    (default,) = union.defaults
    assert set(union) == set(measured.us) and union.size == len(measured.us)
    assert {union.sample(rng) for _ in range(400)} <= set(measured.drawn)
    stepped = [near for start in (default, *measured.starts) for near in union.neighbours(start)]
    bred = [union.mutate(default, rng) for _ in range(50)]
    crossed = [union.cross(*rng.sample(list(measured.us), 2), rng) for _ in range(500)]
    assert stepped and any(bred) and any(crossed)
    assert {*stepped, *bred, *crossed} - {None} <= set(measured.us)
    assert default not in bred
    elsewhere = next(config for config in super(MeasuredUnion, union).neighbours(default) if config not in measured.us)
    assert union.adopt(elsewhere) is None and union.nearest(elsewhere) is None
    assert union.nearest(default) == default


def test_the_ratio_is_that_of_the_best_so_far_to_the_best_that_was_drawn(measured):
    of_drawn = min(us for config in measured.drawn if (us := measured.us[config]) is not None)
    slowest = sorted(measured.us, key=lambda config: measured.us[config] or math.inf, reverse=True)
    order = slowest[:8] + slowest[-56:]

    class Listed:
        """Asks for the slowest first, those that failed before them."""

        def __init__(self) -> None:
            self.told = []

        def ask(self, count):
            return order[len(self.told) : len(self.told) + count]

        def tell(self, record):
            self.told.append(record)

    strategy = Listed()
    found = replay.ratios(measured, replay.bests_us(measured, strategy, device="made-up"))
    us = [measured.us[config] or math.inf for config in order]
    assert found == {trials: min(us[:trials]) / of_drawn for trials in (8, 16, 32, 64)}
    assert math.isinf(found[8]) and not math.isinf(found[64])
    assert [record.time_us for record in strategy.told] == us


def test_a_replay_says_how_near_searches_come_to_the_best_that_was_drawn(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(until, "WORTH", 0.05)  # one pass is all of the step
    table = tmp_path / "made-up-nhwc.json.xz"
    write_spaces(made_up_spaces.spaces(), table)
    assert main(["search", "--replay", str(tmp_path), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "1 passes, 5 seeds" in printed and "10% at 8 (worst)" in printed
    result = json.loads((tmp_path / "replay-nhwc-made-up-2t.json").read_text())
    rows = {row["strategy"]: row for row in result["rows"]}
    assert list(rows) == list(replay.STRATEGIES)
    assert rows["evolve"]["near_8"] == {"within": 0.1, "median": 1, "worst": 1}
    assert rows["evolve"]["ratio_8"] < rows["random"]["ratio_8"]
    assert rows["random"]["ratio_64"] <= rows["random"]["ratio_8"]
    (one,) = result["passes"]
    assert one["ratios"]["evolve"]["8"] == pytest.approx(rows["evolve"]["ratio_8"], abs=1e-3)
    assert one["failures"] > 0
    ends = {(row["strategy"], row["until"]): row for row in result["until"]}
    assert "tune --until" in printed and len(ends) == 2 * len(replay.SHARES)
    assert all(8 <= row["trials"] <= row["whole_trials"] <= 64 and row["step_slower"] >= 1 for row in ends.values())
    assert ends["evolve", 0.95]["trials"] < ends["evolve", 0.98]["trials"] < ends["evolve", 0.98]["whole_trials"]


def test_the_same_seed_replays_the_same_search(measured):
    first, again, other = (
        replay.bests_us(measured, replay.drawn(measured, made_up_spaces.TARGET, seed=seed), device="made-up")
        for seed in (3, 3, 4)
    )
    assert first == again != other
