"""The tests for a GPU, on what stands in for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standin.conftest import OnStandIn
from tests.turns import slow

FILES = sorted(path.name for path in Path(__file__).with_name("on_gpu").glob("test_*.py"))


@pytest.mark.parametrize(("file", "marked"), [(file, "not slow") for file in FILES] + [slow("test_templates.py", "slow")])
def test_what_a_gpu_must_do(on_stand_in: OnStandIn, file: str, marked: str) -> None:
    done = on_stand_in(["-m", "pytest", "-p", "no:cacheprovider", "-m", marked, f"tests/standin/on_gpu/{file}"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.launches
    assert not done.problems
