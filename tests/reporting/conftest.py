"""Reports on an example profile a few steps of it, which takes longer than most tests of them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_step_is_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dwconv.reporting.share_on_pytorch", lambda model, example_inputs: None)
