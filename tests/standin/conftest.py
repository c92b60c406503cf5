"""Fixtures that run commands on the stand-in."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from tests.standin import compiled
from tests.standin.run import Done, run_on_stand_in


class OnStandIn(Protocol):
    """Calls ``run_on_stand_in`` with a folder of the test's own."""

    def __call__(self, command: list[str], **options: object) -> Done: ...


@pytest.fixture
def on_stand_in(tmp_path: Path) -> OnStandIn:
    if reason := compiled.why_not():
        pytest.skip(reason)
    return partial(run_on_stand_in, folder=tmp_path)
