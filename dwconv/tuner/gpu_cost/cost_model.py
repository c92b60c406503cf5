"""The computed cost of a CUDA candidate: how long each resource of the GPU would be busy, without running anything.

What the kernels do is the template's estimate; registers, shared memory and spills come from the compiler. The slowest
resource sets the time of a kernel, the others hide behind it but for a small share; kernels run one after the other. It
ranks candidates; it is not a measurement. To walk the machine code, with its addresses and trip counts, ranked no
better: of 453 candidates of 30 workloads that an H200 measured, the one of least cost takes 1.07 times as long as the
fastest of its workload, and took 1.15 times as long.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from dwconv.kernels.artifact import Artifact, Launch
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.cost import LAUNCH_US, RESOURCES, BlockWork, price
from dwconv.schedules.cuda.gpu.hardware import LINE_BYTES, WARP, Occupancy
from dwconv.schedules.template import template


@dataclass(frozen=True, kw_only=True)
class KernelCost:
    """One kernel: what the compiler gave it, what its blocks do, and how long that keeps each resource busy."""

    kernel: str
    work: BlockWork
    microseconds: float
    limiter: str
    """The resource that sets the time."""
    busy_us: dict[str, float]
    """One for each of RESOURCES, and ``launch``."""
    resources: dict[str, int]
    """``registers``, ``shared_bytes`` (static and dynamic), ``spill_bytes``, ``stack_bytes``."""
    threads: int
    blocks: int
    occupancy: Occupancy
    waves: float
    """Blocks over blocks that run at a time."""
    instructions_per_output: float
    """Lane-instructions over outputs of the whole pass; so is the next one."""
    fma_per_output: float
    bytes_in_flight_per_sm: int
    """Loads that an SM's threads may have on their way at a time."""
    dram_bytes: float
    cache_bytes: float
    local_bytes: float
    """Bytes that spilt registers move between the SMs and their first-level cache."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Microseconds in all, and microseconds that each resource would be busy."""

    microseconds: float
    limiter: str
    """The resource that sets the time of the slowest kernel."""
    kernels: tuple[KernelCost, ...]
    budget_per_output: float
    """Lane-instructions an output that the GPU can issue while its memory moves the data."""
    limit_us: float
    """The least time that bandwidth and peak allow, where data come from DRAM."""

    @property
    def busy_us(self) -> dict[str, float]:
        """One for each of RESOURCES, and ``launch``; kernels add up."""
        return {name: sum(kernel.busy_us[name] for kernel in self.kernels) for name in (*RESOURCES, "launch")}

    @property
    def slowest(self) -> KernelCost:
        return max(self.kernels, key=lambda kernel: kernel.microseconds)

    @property
    def occupancy(self) -> Occupancy:
        """The occupancy of the slowest kernel."""
        return self.slowest.occupancy

    @property
    def dram_bytes(self) -> float:
        return sum(kernel.dram_bytes for kernel in self.kernels)

    @property
    def cache_bytes(self) -> float:
        return sum(kernel.cache_bytes for kernel in self.kernels)

    @property
    def instructions_per_output(self) -> float:
        """Lane-instructions an output; kernels add up, here and in the next one."""
        return sum(kernel.instructions_per_output for kernel in self.kernels)

    @property
    def fma_per_output(self) -> float:
        return sum(kernel.fma_per_output for kernel in self.kernels)

    @property
    def share_of_budget(self) -> float:
        """Above 1 the issue slots, not the memory, set the time."""
        return self.instructions_per_output / self.budget_per_output


def computed_cost(artifact: Artifact, workload: Workload, target: CudaTarget) -> Cost:
    """The cost of running ``artifact`` at the workload's batch size. A candidate whose block does not fit on an SM
    costs infinity."""
    works = template(artifact.candidate.config.template).works
    assert works is not None, "a template of CUDA says what its kernels do"
    found = zip(artifact.launches, works(workload, artifact.candidate.config, target), strict=True)
    kernels = [_kernel_cost(artifact, launch, work, workload=workload, target=target) for launch, work in found]
    on_tensor_cores = any(kernel.work.tensor_products for kernel in kernels)
    limits = target.limits
    peak_gflop_per_s = limits.tensor_gflop_per_s if on_tensor_cores else limits.peak_gflop_per_s
    return Cost(
        microseconds=sum(kernel.microseconds for kernel in kernels),
        limiter=max(kernels, key=lambda kernel: kernel.microseconds).limiter,
        kernels=tuple(kernels),
        budget_per_output=issue_budget(workload, target),
        limit_us=max(workload.bytes / limits.memory_gb_per_s, workload.flops / peak_gflop_per_s) / 1e3,
    )


def outputs_of(workload: Workload) -> int:
    """Outputs, per which instructions are counted: elements of y, of dx, and in wgrad of dy."""
    return math.prod(workload.input_shape if workload.pass_ == "dgrad" else workload.output_shape)


def issue_budget(workload: Workload, target: CudaTarget) -> float:
    """Lane-instructions an output that all issue slots have while the memory moves what the pass must move."""
    lanes_per_s = target.sms * target.issue_slots * target.warp * target.clock_ghz * 1e9
    return lanes_per_s / (target.limits.memory_gb_per_s * 1e9) * workload.bytes / outputs_of(workload)


def _kernel_cost(
    artifact: Artifact, launch: Launch, estimated: BlockWork, *, workload: Workload, target: CudaTarget
) -> KernelCost:
    resources = artifact.kernel_resources.get(launch.kernel) or artifact.resources
    warps = -(-estimated.threads // WARP)
    local_lines = warps * resources.get("spill_bytes", 0) / 4  # the words of 32 threads are neighbours
    work = dataclasses.replace(
        estimated,
        registers=resources.get("registers", 0),
        shared_bytes=resources.get("shared_bytes", 0),
        lines=estimated.lines + local_lines,
    )
    priced, lanes = price(work, target), target.warp * work.blocks / outputs_of(workload)
    return KernelCost(
        kernel=launch.kernel,
        work=work,
        microseconds=priced.microseconds,
        limiter=priced.limiter,
        busy_us={**priced.busy_us, "launch": LAUNCH_US},
        resources=resources,
        threads=work.threads,
        blocks=work.blocks,
        occupancy=priced.occupancy,
        waves=priced.waves,
        instructions_per_output=work.instructions * lanes,
        fma_per_output=work.fma * lanes,
        bytes_in_flight_per_sm=int(priced.bytes_in_flight_per_sm),
        dram_bytes=priced.dram_bytes,
        cache_bytes=work.cache_bytes,
        local_bytes=local_lines * LINE_BYTES * work.blocks,
    )


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
        f"leaves time for ({cost.share_of_budget:.0%}), {cost.fma_per_output:.1f} of them multiply and add",
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
        f"  DRAM {kernel.dram_bytes / 1e6:.1f} MB, second-level cache {kernel.cache_bytes / 1e6:.1f} MB",
    ]
    if kernel.local_bytes:
        lines.append(
            f"  {kernel.local_bytes / 1e6:.1f} MB of spilt registers to and from the first-level cache: "
            "a choice without is preferred to it"
        )
    return lines


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


def _us(time: float) -> str:
    return f"{time:.1f}"


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
