"""What a GPU can do, measured: the denominators that nominal figures flatter."""

from __future__ import annotations

import torch

from dwconv.measure.timing import FINAL, CudaClock, time_in_turns


def copy_gb_per_s(size_bytes: int) -> float:
    """Bytes read plus bytes written in a copy of ``size_bytes``, per nanosecond."""
    source = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    taken = time_in_turns({"copy": lambda: target.copy_(source)}, clock=CudaClock(), effort=FINAL)
    return 2 * size_bytes / taken["copy"].median_us / 1e3


def fma_gflop_per_s(size: int = 8192) -> float:
    """Float32 multiply-adds of a large matrix product without tensor cores, two operations each: within some per cent
    of what the device can issue."""
    a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        taken = time_in_turns({"product": lambda: a @ b}, clock=CudaClock(), effort=FINAL)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return 2 * size**3 / taken["product"].median_us / 1e3
