"""What the tests of measuring share."""

import pytest
import torch

from dwconv.measure.processes.process import IsolatedProcess


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors only: more threads would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def faulty():
    """A process that does what it is asked to, faults too."""
    process = IsolatedProcess("tests.measure.planted_handlers:Faulty", "fine", threads=2)
    yield process
    process.kill()
