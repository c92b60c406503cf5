"""Benchmarks tune for real, beside the other tests: how busy the machine is must not decide what they find."""

from __future__ import annotations

import pytest

from bench import evidence
from dwconv.measure.clock import contention
from dwconv.records import record
from dwconv.tuner.search import search_loop


@pytest.fixture(autouse=True)
def _quick_calls(through_python: None) -> None:
    """How long a call takes is not what is tested."""


@pytest.fixture(autouse=True)
def _busy_counts_as_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_loop, "_WAIT_S", 0.0)
    monkeypatch.setattr(search_loop, "_QUIET_WAIT_S", 0.0)
    monkeypatch.setattr(record, "CONTENDED", 1.0)
    monkeypatch.setattr(evidence, "_WAIT_S", 0.0)
    monkeypatch.setattr(contention, "_LOOK_S", 0.001)
