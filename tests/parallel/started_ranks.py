"""Starts the ranks of a job as processes of their own, and ends them whatever happens.

The store where they meet is in the process of the test, at a port that is free.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[2]
ENDS_WITHIN_S = 1200
"""On a busy machine, too: only what hangs takes longer."""
needs_gloo = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="PyTorch was built without gloo"
)


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    """One thread a rank, and nothing leaves this machine."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DWCONV_NATIVE": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


@contextmanager
def started(job: str, *, world: int, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of ``python -m tests.parallel.jobs JOB FOLDER``, one a rank."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    shared = environment() | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is there already
        "WORLD_SIZE": str(world),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.parallel.jobs", job, str(folder)],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def ended(process: subprocess.Popen[str]) -> Ended:
    """Waits for the end of a rank."""
    out, err = process.communicate(timeout=ENDS_WITHIN_S)
    return Ended(code=process.returncode, out=out, err=err)


def ran(job: str, *, world: int, folder: Path) -> list[Ended]:
    """All ranks of a job that ends by itself."""
    with started(job, world=world, folder=folder) as processes:
        return [ended(process) for process in processes]
