"""The tests for a GPU, on the stand-in."""

from __future__ import annotations

import pytest

from tests.standin.conftest import OnStandIn
from tests.turns import slow

PYTEST = ("-m", "pytest", "-p", "no:cacheprovider")


@pytest.mark.slow
@pytest.mark.parametrize("marked", ["not slow", slow("slow")])
def test_what_a_gpu_must_do(on_stand_in: OnStandIn, marked: str) -> None:
    done = on_stand_in([*PYTEST, "-m", marked, "tests/standin/on_gpu"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.launches
    assert not done.problems
