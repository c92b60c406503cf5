"""How much tasks side by side slow each other, by what they are bound by."""

from __future__ import annotations

import math

import pytest

from dwconv.concurrency import interference
from dwconv.concurrency.interference import COMPUTES, MOVES, kind_of_task, no_slowdowns, slowdowns
from dwconv.concurrency.task_graph import Task


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Copies get half of the bandwidth each. How often it was measured."""
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path))
    monkeypatch.setattr(interference, "_measured", None)
    monkeypatch.setattr(interference, "_contended_s", -math.inf)
    rates = {
        (COMPUTES,): [10.0], (MOVES,): [8.0],
        (COMPUTES, COMPUTES): [10.5, 10.0], (COMPUTES, MOVES): [10.0, 6.4], (MOVES, MOVES): [4.0, 4.0],
    }  # fmt: skip
    kinds = {interference._multiplying: COMPUTES, interference._copying: MOVES}
    calls = []

    def rated(works):
        calls.append(works)
        return rates[tuple(kinds[work] for work in works)]

    monkeypatch.setattr(interference, "_rates", rated)
    return calls


def test_each_pair_of_kinds_is_measured_once(measured, monkeypatch):
    monkeypatch.setattr(interference, "others", lambda before, after: 0.0)
    assert slowdowns() == [[1.0, 1.0], [1.25, 2.0]] == slowdowns()
    assert len(measured) == 5


def test_a_disturbed_measurement_counts_for_nothing_and_is_made_again_later(measured, monkeypatch):
    now_s, disturbed = [0.0], [0.3]
    monkeypatch.setattr(interference, "now_s", lambda: now_s[0])
    monkeypatch.setattr(interference, "others", lambda before, after: disturbed[0])
    assert slowdowns() == no_slowdowns() == slowdowns()
    assert len(measured) == 5
    now_s[0], disturbed[0] = 61.0, 0.0
    assert slowdowns() == [[1.0, 1.0], [1.25, 2.0]]


@pytest.mark.parametrize(
    "damage", ["", "[[1.0, 1.0]]", "[[0.5, 1.0], [1.0, 1.0]]", '{"a": 1}', "[[1.0, NaN], [1.0, 1.0]]"]
)
def test_it_is_measured_once_a_machine(measured, monkeypatch, damage, tmp_path):
    """A file that is not whole counts for nothing."""
    monkeypatch.setattr(interference, "others", lambda before, after: 0.0)
    found = slowdowns()
    monkeypatch.setattr(interference, "_measured", None)
    assert slowdowns() == found and len(measured) == 5
    (path,) = tmp_path.rglob("interference-*.json")
    path.write_text(damage, encoding="utf-8")
    monkeypatch.setattr(interference, "_measured", None)
    assert slowdowns() == found and len(measured) == 10


def test_rates_are_those_of_work_that_runs(monkeypatch):
    monkeypatch.setattr(interference, "_RUN_S", 0.001)
    monkeypatch.setattr(interference, "_ELEMENTS", 1000)
    found = interference._rates([interference._multiplying, interference._copying])
    assert len(found) == 2 and all(rate > 0 for rate in found)


@pytest.mark.parametrize(
    ("flops", "bytes_", "kind"), [(0.0, 1 << 40, MOVES), (0.0, 100, COMPUTES), (1e15, 1 << 30, COMPUTES)]
)
def test_what_is_large_and_computes_little_moves_memory(flops, bytes_, kind):
    task = Task(index=0, name="", kind="", signature="", needs=(), flops=flops, bytes=bytes_)
    assert kind_of_task(task) == kind
