"""Runs a function on several ranks of gloo, in processes of their own that end in bounded time."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TIMEOUT_S = 120.0
"""Of a whole run; and how long a rank waits for another."""


def on_ranks(world: int, function: Callable[..., Any], *args: Any, folder: Path) -> list[Any]:
    """What ``function(*args)`` returns on each of ``world`` ranks. An error of one is raised; none outlives this."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(world)]
    processes = [
        context.Process(target=_rank, args=(rank, world, folder / "store", sender, function, args), daemon=True)
        for rank, (_, sender) in enumerate(pipes)
    ]
    until_s = time.monotonic() + TIMEOUT_S
    try:
        for process, (_, sender) in zip(processes, pipes, strict=True):
            process.start()
            sender.close()  # so that the end of the process is the end of the pipe
        return [_answer(receiver, rank, until_s) for rank, (receiver, _) in enumerate(pipes)]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _answer(receiver: Connection, rank: int, until_s: float) -> Any:
    if not receiver.poll(max(0.0, until_s - time.monotonic())):
        raise TimeoutError(f"rank {rank} gave no answer in {TIMEOUT_S:.0f} s")
    answer, error = pickle.loads(receiver.recv_bytes())
    if error:
        raise RuntimeError(f"rank {rank}: {error}")
    return answer


def _rank(
    rank: int, world: int, store: Path, sender: Connection, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=TIMEOUT_S)
        )
        _send(sender, function(*args), None)
    except Exception:  # noqa: BLE001  told to the test
        _send(sender, None, traceback.format_exc())


def _send(sender: Connection, answer: Any, error: str | None) -> None:
    sender.send_bytes(pickle.dumps((answer, error)))  # tensors by value: ``send`` would share memory that ends with us
