"""The link between the ranks that run: its bandwidth and latency, as a plan takes them.

    rank 0 ─► rank 1 ─► … ─► rank 0      all send to the next and receive from the one before, at once, as in a sum of
                                         gradients; the slowest rank counts

Many small messages give the latency. The bandwidth is that of a message so large that it takes some time.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist
from torch import Tensor

from dwconv.errors import InvalidChoice
from dwconv.parallel.joining import check_joined
from dwconv.parallel.planning.plan import Link

_SMALL, _AT_ONCE, _TIMES = 1, 20, 5
"""Numbers in a small message, as many in a row as count as one measurement, and measurements."""
_LEAST_BYTES, _MOST_BYTES = 2**18, 2**26
_LONG_S = 0.03
"""Of a large message: some hundred times the latency of a network, and what a queue or a bucket of tokens hides."""


def measured_link(*, device: torch.device | str = "cpu") -> Link:
    """The same on every rank; each has to call it, and nothing else may use the link meanwhile. Takes some tenths of a
    second, or several messages of 256 KiB where these take longer. ``device``: of the messages. Raises InvalidChoice
    where there is one rank."""
    check_joined()
    if dist.get_world_size() < 2:
        raise InvalidChoice("there is one rank, so there is no link; start more ranks, or state the link")
    small = torch.zeros(_SMALL, device=device)
    _exchange_s(small, count=_AT_ONCE)  # connects
    latency_s = statistics.median(_exchange_s(small, count=_AT_ONCE) for _ in range(_TIMES))
    size_bytes = _LEAST_BYTES
    large = torch.zeros(size_bytes // 4, device=device)
    while (taken_s := _exchange_s(large)) < _LONG_S and size_bytes < _MOST_BYTES:
        size_bytes *= 2 if taken_s > _LONG_S / 4 else 4
        size_bytes = min(size_bytes, _MOST_BYTES)
        large = torch.zeros(size_bytes // 4, device=device)
    large_s = statistics.median(_exchange_s(large) for _ in range(_TIMES))
    return Link(gb_s=size_bytes / 1e9 / max(large_s - latency_s, 1e-9), latency_us=1e6 * latency_s)


def _exchange_s(message: Tensor, *, count: int = 1) -> float:
    """Of one message around the ring, on the slowest rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    received = torch.empty_like(message)
    dist.barrier()
    started_s = time.perf_counter()
    for _ in range(count):
        sent = dist.isend(message, (rank + 1) % world)
        dist.recv(received, (rank - 1) % world)
        assert sent is not None
        sent.wait()
    if message.is_cuda:
        torch.cuda.synchronize(message.device)
    taken_s = torch.tensor([(time.perf_counter() - started_s) / count], dtype=torch.float64, device=message.device)
    dist.all_reduce(taken_s, op=dist.ReduceOp.MAX)
    return float(taken_s)
