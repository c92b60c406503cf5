"""Workers import the planted faults by name, so their folder must be on the path, which they take over."""

import sys
from pathlib import Path

import pytest
import torch

from dwconv.measure.processes.process import IsolatedProcess

sys.path.insert(0, str(Path(__file__).parent))


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
    process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=2)
    yield process
    process.kill()
