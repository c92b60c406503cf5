"""A computed cost, as lines for people and as plain data for programs."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwconv.tuner.gpu_cost.cost_model import Cost, KernelCost


def cost_data(cost: Cost) -> dict[str, Any]:
    """Times in microseconds, traffic in bytes, instructions in lane-instructions an output; null for infinity."""
    return {
        "microseconds": _finite(cost.microseconds),
        "limit_us": cost.limit_us,
        "limiter": cost.limiter,
        "instructions_per_output": cost.instructions_per_output,
        "budget_per_output": cost.budget_per_output,
        "share_of_budget": cost.share_of_budget,
        "kernels": [_kernel_data(kernel) for kernel in cost.kernels],
    }


def cost_lines(cost: Cost) -> list[str]:
    """The computed cost in all; then the needs of each kernel, and how long it keeps each resource busy."""
    lines = [
        f"computed {_us(cost.microseconds)} µs; memory and arithmetic allow {_us(cost.limit_us)} µs; "
        f"{cost.limiter} sets the time",
        f"instructions an output: {cost.instructions_per_output:.1f} of {cost.budget_per_output:.1f} that the memory "
        f"leaves time for ({cost.share_of_budget:.0%}): {_classes(cost.issued_per_output)}",
    ]
    for kernel in cost.kernels:
        lines += _kernel_lines(kernel)
    return lines


def resource_words(resources: dict[str, int]) -> str:
    """``56 registers, 25600 bytes shared, no spills``."""
    spilt, stack = resources.get("spill_bytes", 0), resources.get("stack_bytes", 0)
    words = [f"{resources.get('registers', 0)} registers", f"{resources.get('shared_bytes', 0)} bytes shared"]
    words.append(f"{spilt} bytes spilt" if spilt else "no spills")
    return ", ".join(words + [f"{stack} bytes stack"] * (stack > 0))


def _kernel_lines(kernel: KernelCost) -> list[str]:
    held = kernel.occupancy
    busy = "  ".join(f"{name} {_us(time)}" for name, time in kernel.busy_us.items())
    lines = [
        f"{kernel.kernel}: {_us(kernel.microseconds)} µs, {kernel.limiter} sets the time",
        f"  {kernel.blocks} blocks of {kernel.threads} threads, {resource_words(kernel.resources)}",
        f"  {held.blocks_per_sm} blocks on an SM, {held.limiter} keeps out more: {held.threads_per_sm} threads; "
        f"{kernel.waves:.1f} waves; {kernel.bytes_in_flight_per_sm / 1e3:.0f} KB of loads in flight an SM"
        + (", the next ones while it computes" if kernel.work.loads_ahead else ""),
        f"  busy µs: {busy}",
        f"  DRAM {kernel.dram_bytes / 1e6:.1f} MB, second-level cache {kernel.cache_bytes / 1e6:.1f} MB; "
        f"bank conflicts {kernel.conflicts:.2f}×, sectors {kernel.sectors_over_ideal:.2f}×",
    ]
    if kernel.local_bytes:
        lines.append(
            f"  {kernel.local_bytes / 1e6:.1f} MB of spilt registers and arrays to and from the first-level cache: "
            "a choice without is preferred to it"
        )
    return [*lines, f"  counted from the text alone: {kernel.note}"] if kernel.note else lines


def _kernel_data(kernel: KernelCost) -> dict[str, Any]:
    fields = dataclasses.asdict(kernel)
    del fields["work"]  # said in the words of a pass, below
    busy = {name: _finite(time) for name, time in kernel.busy_us.items()}
    return {
        **fields,
        "microseconds": _finite(kernel.microseconds),
        "waves": _finite(kernel.waves),
        "busy_us": busy,
    }


def _classes(issued: dict[str, float]) -> str:
    return ", ".join(f"{kind} {count:.1f}" for kind, count in issued.items() if count >= 0.05)


def _us(time: float) -> str:
    return f"{time:.1f}"


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
