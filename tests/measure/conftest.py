"""What the tests of measuring share."""

import pytest
import torch

from dwconv import settings
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.runner import WorkerProcesses
from tests.measure.planted_kernels import TARGET


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors only: more threads would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def faulty():
    """A process that does what a request says, faults too."""
    process = IsolatedProcess("tests.measure.planted_handlers:Faulty", "fine", threads=2)
    yield process
    process.kill()


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(settings, "RETRY_PAUSES_S", (0.0, 0.0))


@pytest.fixture(scope="module")
def workers():
    """They build and load planted kernels."""
    planted = {name: f"tests.measure.planted_kernels:{name}" for name in ("build", "load")}
    with WorkerProcesses(TARGET, jobs=2, **planted) as workers:
        yield workers
