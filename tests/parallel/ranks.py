"""Ranks of tests: processes that are started as ``torchrun`` does, one by one, or kept for many functions.

Each meets the others at a store in the process of the test, at a port that is free, and ends in bounded time.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from tests import forked

ROOT = Path(__file__).resolve().parents[2]
ENDS_WITHIN_S = 1200
"""On a busy machine, too: only what hangs takes longer."""
ANSWERS_WITHIN_S = 1200.0
needs_gloo = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="PyTorch was built without gloo"
)


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    out: str
    err: str


def environment(store: dist.TCPStore | None = None, *, rank: int = 0, world: int = 1) -> dict[str, str]:
    """One thread a rank, and nothing leaves this machine. ``store``: where it meets the others."""
    alone = {
        **os.environ, "PYTHONPATH": str(ROOT), "DWCONV_NATIVE": "0", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    if store is None:
        return alone
    return alone | {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
    }  # fmt: skip


def new_store() -> dist.TCPStore:
    """It is there already when the ranks come."""
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=600))


@contextmanager
def started(*command: object, world: int, folder: Path, anew: bool = False) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of ``python COMMAND``, one a rank; none outlives this. ``anew``: they are not forked, and shut
    Python down at their end."""
    store, start = new_store(), subprocess.Popen if anew else forked.popen
    processes = [
        start(
            [sys.executable, *map(str, command)], env=environment(store, rank=rank, world=world), cwd=folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
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


def ran(*command: object, world: int, folder: Path, anew: bool = False) -> list[Ended]:
    """All ranks, each after its end."""
    with started(*command, world=world, folder=folder, anew=anew) as processes:
        return [ended(process) for process in processes]


# -- ranks that stay -------------------------------------------------------------------------------------------------


class Ranks:
    """Some ranks of gloo, on which one function after the other runs: they take seconds to start."""

    def __init__(self, world: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "torch._dynamo", "dwconv.parallel"])
        self._store = new_store()
        pipes = [context.Pipe() for _ in range(world)]
        self._processes = [
            context.Process(target=_serve, args=(rank, world, self._store.port, theirs, {**os.environ}), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        self._pipes = [ours for ours, _ in pipes]
        for process, (_, theirs) in zip(self._processes, pipes, strict=True):
            process.start()
            theirs.close()  # so that the end of the process is the end of the pipe

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """What ``function(*args)`` returns on each rank. An error of one is raised."""
        for pipe in self._pipes:
            pipe.send((function, args))
        until_s = time.monotonic() + ANSWERS_WITHIN_S
        return [self._answer(rank, until_s) for rank in range(len(self._pipes))]

    def _answer(self, rank: int, until_s: float) -> Any:
        if not self._pipes[rank].poll(max(0.0, until_s - time.monotonic())):
            raise TimeoutError(f"rank {rank} gave no answer in {ANSWERS_WITHIN_S:.0f} s")
        answer, error = pickle.loads(self._pipes[rank].recv_bytes())
        if error:
            raise RuntimeError(f"rank {rank}: {error}")
        return answer

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _serve(rank: int, world: int, port: int, pipe: Connection, environment: dict[str, str]) -> None:
    os.environ.clear()  # that of the process that forks may be older
    os.environ |= environment | {"GLOO_SOCKET_IFNAME": "lo", "DWCONV_NATIVE": "0"}
    torch.set_num_threads(1)
    limit = timedelta(seconds=ANSWERS_WITHIN_S)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=limit)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
    while True:
        function, args = pipe.recv()
        torch.manual_seed(0)  # whatever ran before
        try:
            answer = function(*args), None
        except Exception:  # noqa: BLE001  raised in the test
            answer = None, traceback.format_exc()
        for group in list(distributed_c10d._world.pg_map):  # each has threads that take a core's time without work
            if group is not dist.group.WORLD:
                dist.destroy_process_group(group)
        pipe.send_bytes(pickle.dumps(answer))  # tensors by value: ``send`` would share memory that ends with us
