"""Benchmarks tune for real, beside the other tests: how busy the machine is must not decide what they find. Workers
import what is planted by name, so its folder is on the path, behind the others: it is called bench, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dwconv.records import record
from dwconv.tuner.search import finalists, loop

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "measure")]


@pytest.fixture(autouse=True)
def _quick_calls(through_python: None) -> None:
    """How long a call takes is not what is tested."""


@pytest.fixture(autouse=True)
def _busy_counts_as_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_WAIT_S", 0.0)
    monkeypatch.setattr(finalists, "_WAIT_S", 0.0)
    monkeypatch.setattr(record, "CONTENDED", 1.0)
