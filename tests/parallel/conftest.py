"""What tests of parallel training share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dwconv.parallel import Rank, ranks


@pytest.fixture
def one_rank() -> Iterator[Rank]:
    """This process as the only rank. With one thread: threads of OpenMP that wait for each other take long on a busy
    machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with ranks(timeout_s=30, device="cpu") as rank:
        yield rank
    torch.set_num_threads(before)
