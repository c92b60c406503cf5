"""The link between the ranks that run: its bandwidth and latency, and what sums cost, as a plan takes them.

    rank 0 ─► rank 1     rank 2 ─► rank 3      neighbours send to each other in turns, then both at once, all pairs
    rank 0 ◄─ rank 1     rank 2 ◄─ rank 3      together; the slowest counts

Many small messages give the latency. The bandwidth is that of messages so large that each takes some time: the fastest,
since other work on the machine only makes them slower. Both ways at once each may get less of it, such as where both
share a medium, or a core of the CPU that copies them.

A sum over all ranks copies and adds besides. It is timed alone, and beside computing that takes longer: what the
computing then takes longer is lost to the sum, where its threads share the cores that compute. That is no less than its
CPU time where all cores compute: other work on the machine may hide it.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dwconv.errors import InvalidChoice
from dwconv.parallel.joining import check_joined
from dwconv.parallel.planning.pipeline_plan import Link, sum_us

_SMALL, _LARGE = 10, 2
"""Messages each way in a row, which make one measurement: ranks do not begin at the same moment."""
_TIMES = 5
_LEAST_BYTES, _MOST_BYTES = 2**18, 2**26
_LONG_S, _VERY_LONG_S = 0.06, 0.2
"""Of a large message: some hundred times the latency of a network, and what a queue or a bucket of tokens hides; and of
one that is measured alone."""
_SUMS = 3
_BESIDE = 2.0
"""Times a sum, that the computing beside it takes."""
_ROWS = 512
"""Of the matrices that are multiplied for that."""


def measured_link(*, device: torch.device | str = "cpu") -> Link:
    """The link between the ranks, measured. Each rank has to call it, and gets the same link; nothing else may use the
    link meanwhile. Takes some five seconds, or several messages and sums of 256 KiB where these take longer.
    ``device``: of the messages, and where ranks compute. Raises InvalidChoice where there is one rank."""
    check_joined()
    if dist.get_world_size() < 2:
        raise InvalidChoice("there is one rank, so there is no link; start more ranks, or state the link")
    small = torch.zeros(1, device=device)
    _message_s(small, count=_SMALL)  # connects
    latency_s = statistics.median(_message_s(small, count=_SMALL) for _ in range(_TIMES))
    size_bytes = _LEAST_BYTES
    large = torch.zeros(size_bytes // 4, device=device)
    while (taken_s := _message_s(large)) < _LONG_S and size_bytes < _MOST_BYTES:
        size_bytes *= 2 if taken_s > _LONG_S / 4 else 4
        size_bytes = min(size_bytes, _MOST_BYTES)
        large = torch.zeros(size_bytes // 4, device=device)
    count = _LARGE if taken_s < _VERY_LONG_S else 1
    large_s = min(_message_s(large, count=count) for _ in range(_TIMES))
    _both_ways_s(small, count=1)  # connects, where both ways have connections of their own
    both_s = min(_both_ways_s(large, count=count) for _ in range(_TIMES))
    gb_s, both_ways_gb_s = (size_bytes / 1e9 / max(each - latency_s, 1e-9) for each in (large_s, both_s))
    link = Link(gb_s=gb_s, latency_us=1e6 * latency_s, both_ways_gb_s=min(gb_s, both_ways_gb_s))
    return _with_sums(link, *_sum_s(large), size_bytes=size_bytes)


def _with_sums(link: Link, alone_s: float, lost_s: float, *, size_bytes: int) -> Link:
    """``alone_s``: of a sum. ``lost_s``: of the computing beside it."""
    world = dist.get_world_size()
    sent_mb = 2 * (world - 1) / world * size_bytes / 1e6
    longer_us = 1e6 * alone_s - sum_us(link, size_bytes, ranks=world)
    return replace(
        link, summing_us_a_mb=max(0.0, longer_us) / sent_mb, crowding_us_a_mb=max(0.0, 1e6 * lost_s) / sent_mb
    )


def _message_s(message: Tensor, *, count: int = 1) -> float:
    """Of a message to a neighbour, in the slowest pair. ``count``: to it, and back, in a row."""
    rank, neighbour = dist.get_rank(), _neighbour()

    def both() -> None:
        for turn in range(2 if neighbour is not None else 0):
            (dist.send if turn == rank % 2 else dist.recv)(message, neighbour)

    return _slowest_s(both, message.device, count=count) / 2


def _both_ways_s(message: Tensor, *, count: int) -> float:
    """Of a message to a neighbour while another comes from it, likewise."""
    received, neighbour = torch.empty_like(message), _neighbour()

    def both() -> None:
        if neighbour is None:
            return
        # gloo sends once the receiver has said that it has memory; what it says waits behind what it sends.
        coming = dist.P2POp(dist.irecv, received, neighbour), dist.P2POp(dist.isend, message, neighbour)
        for work in dist.batch_isend_irecv([*coming]):
            work.wait()

    return _slowest_s(both, message.device, count=count)


def _neighbour() -> int | None:
    """Of this rank; None for the last one of an odd number."""
    rank = dist.get_rank()
    neighbour = rank + 1 if rank % 2 == 0 else rank - 1
    return neighbour if neighbour < dist.get_world_size() else None


def _sum_s(gradients: Tensor) -> tuple[float, float]:
    """Of a sum over all ranks, as data parallelism has it; and how much longer computing takes beside it. Each is the
    least of some, all in turns."""
    bucket, device = torch.empty_like(gradients), gradients.device
    matrix = torch.ones(_ROWS, _ROWS, device=device)
    product = torch.empty_like(matrix)

    def compute(count: int) -> None:
        for _ in range(count):
            torch.mm(matrix, matrix, out=product)

    def summed(count: int) -> None:
        """Beside so many products."""
        torch.div(gradients, dist.get_world_size(), out=bucket)
        work = dist.all_reduce(bucket, async_op=True)
        compute(count)
        work.wait()
        gradients.copy_(bucket)

    def seconds(run: Callable[[int], None], count: int) -> float:
        return _slowest_s(lambda: run(count), device, count=1)

    alone_s = min(seconds(summed, 0) for _ in range(2))  # the first one connects
    product_s = min(seconds(compute, _SMALL) for _ in range(_TIMES)) / _SMALL
    count = math.ceil(_BESIDE * alone_s / max(product_s, 1e-9))
    turns, cpu_s = [], []
    for _ in range(_SUMS):
        before_s = time.process_time()
        alone_s = seconds(summed, 0)
        cpu_s.append(time.process_time() - before_s)
        turns.append((alone_s, seconds(compute, count), seconds(summed, count)))
    alone_s, computing_s, beside_s = map(min, zip(*turns, strict=True))
    without_core = _without_core() if device.type == "cpu" else 0.0
    lost_s = torch.tensor([beside_s - computing_s, without_core * min(cpu_s)], dtype=torch.float64, device=device)
    dist.all_reduce(lost_s, op=dist.ReduceOp.MAX)
    return alone_s, float(lost_s.max())


def _without_core() -> float:
    """The share of the ranks on this machine that have no core beside those that they compute on."""
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {*range(os.cpu_count() or 1)}
    everyones: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyones, (platform.node(), mine, torch.get_num_threads()))
    here = [(cores, threads) for machine, cores, threads in everyones if machine == platform.node()]
    spare = len(set[int]().union(*(cores for cores, _ in here))) - sum(threads for _, threads in here)
    return min(1.0, max(0.0, 1 - spare / len(here)))


def _slowest_s(exchange: Callable[[], None], device: torch.device, *, count: int) -> float:
    """Of one of ``count`` exchanges in a row, on the slowest rank."""
    dist.barrier()
    started_s = time.perf_counter()
    for _ in range(count):
        exchange()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    taken_s = torch.tensor([(time.perf_counter() - started_s) / count], dtype=torch.float64, device=device)
    dist.all_reduce(taken_s, op=dist.ReduceOp.MAX)
    return float(taken_s)
