"""What is compiled for the simulator is kept for the whole test run: many tests share a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from dwconv.measure.simulator.compile import available


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not available():
        pytest.skip("the simulator needs g++ 12 or newer")
    return tmp_path_factory.mktemp("simulator")
