"""The ranks of a distributed job choose alike: two real processes, and a race whose outcome is planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="PyTorch was built without gloo")
def test_one_rank_races_for_both_and_both_know_the_same(tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DWCONV_NATIVE": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.tuner.two_ranks", str(rank), str(tmp_path / "store")],
            env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        ended = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], ended
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in ended)
    assert len(first["raced"]) == 18, "3 passes of 3 layers, at 2 batch sizes"
    assert second["raced"] == []
    assert first["won"] == second["won"] == 18
    assert sorted(first["lines"]) == sorted(second["lines"]) and len(first["lines"]) == 18
    assert first["providers"] == second["providers"] == ["dwconv"] * 3
