"""Benchmarks tune for real, beside the other tests: they need not wait until the machine is quiet."""

from __future__ import annotations

import pytest

from dwconv.tuner import loop


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_TRIAL_WAIT_S", 0.0)
    monkeypatch.setattr(loop, "_FINAL_WAIT_S", 0.0)
