"""What tests of parallel training share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dwconv.parallel import Rank, ranks
from tests.parallel.ranks import Ranks


@pytest.fixture
def one_rank() -> Iterator[Rank]:
    """This process as the only rank. With one thread: threads of OpenMP that wait for each other take long on a busy
    machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with ranks(timeout_s=30, device="cpu") as rank:
        yield rank
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[Ranks]:
    """Two processes for all tests."""
    both = Ranks(2)
    yield both
    both.end()


@pytest.fixture(scope="session")
def three_ranks() -> Iterator[Ranks]:
    """Three, for stages with different numbers of replicas."""
    three = Ranks(3)
    yield three
    three.end()


@pytest.fixture(scope="session")
def four_ranks() -> Iterator[Ranks]:
    """Four, for slow tests."""
    four = Ranks(4)
    yield four
    four.end()
