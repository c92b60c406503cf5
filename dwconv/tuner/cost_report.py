"""The computed cost of a CUDA candidate, as people read it and as plain data."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dwconv.tuner.gpu_cost import Cost, KernelCost


def cost_data(cost: Cost) -> dict[str, Any]:
    """Times in microseconds, traffic in bytes, instructions of one thread each an output; null for infinity."""
    return {
        "microseconds": _finite(cost.microseconds),
        "limit_us": cost.limit_us,
        "limiter": cost.limiter,
        "instructions_per_output": cost.instructions_per_output,
        "budget_per_output": cost.instructions_per_output / cost.share_of_budget if cost.share_of_budget else None,
        "share_of_budget": cost.share_of_budget,
        "kernels": [_kernel_data(kernel) for kernel in cost.kernels],
    }


def cost_lines(cost: Cost) -> list[str]:
    """The computed cost in all; then the needs of each kernel, and how long it keeps each resource busy."""
    lines = [
        f"computed {cost.microseconds:.1f} µs; memory and arithmetic allow {cost.limit_us:.1f} µs; "
        f"{cost.limiter} sets the time",
        f"instructions: {cost.share_of_budget:.0%} of those that the memory leaves time for",
    ]
    for kernel in cost.kernels:
        work, price, held = kernel.work, kernel.price, kernel.price.occupancy
        lines += [
            f"{kernel.kernel}: {price.microseconds:.1f} µs, {price.limiter} sets the time",
            f"  {work.blocks} blocks of {work.threads} threads, {resource_words(kernel.resources)}",
            f"  {held.blocks_per_sm} blocks on an SM, {held.limiter} keeps out more: {held.threads_per_sm} threads; "
            f"{price.waves:.1f} waves; {int(price.bytes_in_flight_per_sm) / 1e3:.0f} KB of loads in flight an SM"
            + (", the next ones while it computes" if work.loads_ahead else ""),
            f"  busy µs: {'  '.join(f'{name} {time:.1f}' for name, time in kernel.busy_us.items())}",
            f"  DRAM {price.dram_bytes / 1e6:.1f} MB, second-level cache {work.cache_bytes / 1e6:.1f} MB",
            f"  shared memory: {shared_words(kernel)}",
        ]
    return lines


def resource_words(resources: dict[str, int]) -> str:
    """``56 registers, 25600 bytes shared, no spills``."""
    spilt, stack = resources.get("spill_bytes", 0), resources.get("stack_bytes", 0)
    words = [f"{resources.get('registers', 0)} registers", f"{resources.get('shared_bytes', 0)} bytes shared"]
    words.append(f"{spilt} bytes spilt" if spilt else "no spills")
    return ", ".join(words + [f"{stack} bytes stack"] * (stack > 0))


def shared_words(kernel: KernelCost) -> str:
    """``1.4 transactions a request; bank conflicts take 3.1 µs``."""
    degree = kernel.work.transactions_a_request
    if degree is None:
        return "unused"
    conflicts = (
        f"bank conflicts take {kernel.conflicts_us:.1f} µs" if kernel.work.conflict_turns else "no bank conflict"
    )
    return f"{degree:.1f} transactions a request; {conflicts}"


def _kernel_data(kernel: KernelCost) -> dict[str, Any]:
    price = kernel.price
    return {
        "kernel": kernel.kernel,
        "microseconds": _finite(price.microseconds),
        "limiter": price.limiter,
        "busy_us": {name: _finite(time) for name, time in kernel.busy_us.items()},
        "resources": kernel.resources,
        "threads": kernel.work.threads,
        "blocks": kernel.work.blocks,
        "occupancy": dataclasses.asdict(price.occupancy),
        "waves": _finite(price.waves),
        "bytes_in_flight_per_sm": int(price.bytes_in_flight_per_sm),
        "dram_bytes": price.dram_bytes,
        "cache_bytes": kernel.work.cache_bytes,
        "transactions_a_request": kernel.work.transactions_a_request,
        "conflicts_us": kernel.conflicts_us,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
