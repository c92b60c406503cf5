"""Tests for a GPU, or for the stand-in: without either there is nothing to collect."""

from __future__ import annotations

import os

import pytest
import torch

collect_ignore_glob = [] if torch.cuda.is_available() else ["test_*.py"]
IS_STAND_IN = "STAND_IN_FOLDER" in os.environ


@pytest.fixture(autouse=True)
def float32_of_24_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's convolutions round float32 to 10 bits on a GPU unless they are not allowed to."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
