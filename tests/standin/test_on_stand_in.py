"""The tests for a GPU, on what stands in for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standin.conftest import OnStandIn
from tests.turns import slow

FILES = sorted(path.name for path in Path(__file__).with_name("on_gpu").glob("test_*.py"))
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider")


@pytest.mark.parametrize(
    ("file", "marked"), [*((file, "not slow") for file in FILES), slow("test_templates.py", "slow")]
)
def test_what_a_gpu_must_do(on_stand_in: OnStandIn, file: str, marked: str) -> None:
    done = on_stand_in([*PYTEST, "-m", marked, f"tests/standin/on_gpu/{file}"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.launches
    assert not done.problems


@pytest.mark.slow
@pytest.mark.usefixtures("objects")
def test_the_kernels_themselves_are_run_in_the_simulator(on_stand_in: OnStandIn) -> None:
    file = "tests/standin/on_gpu/test_templates.py"
    done = on_stand_in([*PYTEST, "-k", "several_kernels", file], computing="simulator")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.problems
