"""Tests for a GPU, or for the stand-in: without either there is nothing to collect."""

from __future__ import annotations

import os

import torch

collect_ignore_glob = [] if torch.cuda.is_available() else ["test_*.py"]
IS_STAND_IN = "STAND_IN_FOLDER" in os.environ
