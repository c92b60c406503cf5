"""Starts ``dwconv.parallel train`` on several ranks without torchrun, so that each can be looked at, and be lost."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_LIMIT_S = 120.0
_CODE = """
import sys
from datetime import timedelta
import torch
import torch.distributed as dist
from dwconv.parallel import agreement, train

torch.set_num_threads(1)
agreement._TO_PRINT_S = 0.0
store, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group(
    "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=60)
)
code = train.main(sys.argv[4:])
dist.destroy_process_group()
sys.exit(code)
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A rank after its end."""

    exit_code: int
    out: str
    err: str


def train_on(world: int, *options: object, folder: Path) -> list[Ended]:
    """The ranks, each after its end. None outlives this."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for rank in range(world):
            command = [sys.executable, "-c", _CODE, str(folder / "store"), str(rank), str(world), *map(str, options)]
            environment = {**os.environ, "RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
            processes.append(
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        ended = []
        for process in processes:
            out, err = process.communicate(timeout=_LIMIT_S)
            ended.append(Ended(exit_code=process.returncode, out=out, err=err))
        return ended
    finally:
        for process in processes:
            process.kill()
            process.wait()
