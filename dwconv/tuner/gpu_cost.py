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

from dwconv.kernels.artifact import Artifact, Launch
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.cost import LAUNCH_US, RESOURCES, BlockWork, Price, conflicts_us, price
from dwconv.schedules.cuda.gpu.hardware import WARP
from dwconv.schedules.template import template


@dataclass(frozen=True, kw_only=True)
class KernelCost:
    """One kernel: what the compiler gave it, what its blocks do, and how long that keeps each resource busy."""

    kernel: str
    work: BlockWork
    target: CudaTarget
    price: Price
    resources: dict[str, int]
    """``registers``, ``shared_bytes`` (static and dynamic), ``spill_bytes``, ``stack_bytes``."""

    @property
    def busy_us(self) -> dict[str, float]:
        """One for each of RESOURCES, and ``launch``."""
        return {**self.price.busy_us, "launch": LAUNCH_US}

    @property
    def conflicts_us(self) -> float:
        """Microseconds that bank conflicts of shared memory take."""
        return conflicts_us([self.work], self.target)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Microseconds in all, and microseconds that each resource would be busy."""

    microseconds: float
    kernels: tuple[KernelCost, ...]
    limit_us: float
    """The least time that bandwidth and peak allow, where data come from DRAM."""
    instructions_per_output: float
    """Instructions of one thread each, over the elements of y; in dgrad of dx."""
    share_of_budget: float
    """Of the instructions that the GPU can issue while its memory moves the data: above 1 the issue slots, not the
    memory, set the time."""

    @property
    def limiter(self) -> str:
        """The resource that sets the time of the slowest kernel."""
        return self.slowest.price.limiter

    @property
    def busy_us(self) -> dict[str, float]:
        """One for each of RESOURCES, and ``launch``; kernels add up."""
        return {name: sum(kernel.busy_us[name] for kernel in self.kernels) for name in (*RESOURCES, "launch")}

    @property
    def slowest(self) -> KernelCost:
        return max(self.kernels, key=lambda kernel: kernel.price.microseconds)

    @property
    def dram_bytes(self) -> float:
        return sum(kernel.price.dram_bytes for kernel in self.kernels)


def computed_cost(artifact: Artifact, workload: Workload, target: CudaTarget) -> Cost:
    """The cost of running ``artifact`` at the workload's batch size. A candidate whose block does not fit on an SM
    costs infinity."""
    works = template(artifact.candidate.config.template).works
    assert works is not None, "a template of CUDA says what its kernels do"
    found = zip(artifact.launches, works(workload, artifact.candidate.config, target), strict=True)
    kernels = tuple(_kernel_cost(artifact, launch, work, target=target) for launch, work in found)
    on_tensor_cores = any(kernel.work.tensor_products for kernel in kernels)
    limits = target.limits
    peak_gflop_per_s = limits.tensor_gflop_per_s if on_tensor_cores else limits.peak_gflop_per_s
    moved_us = workload.bytes / limits.memory_gb_per_s / 1e3
    issued = sum(kernel.work.instructions * kernel.work.blocks for kernel in kernels)
    outputs = workload.input_shape if workload.pass_ == "dgrad" else workload.shape_of("y")
    return Cost(
        microseconds=sum(kernel.price.microseconds for kernel in kernels),
        kernels=kernels,
        limit_us=max(moved_us, workload.flops / peak_gflop_per_s / 1e3),
        instructions_per_output=issued * WARP / math.prod(outputs),
        share_of_budget=issued / (target.sms * target.issue_slots * target.clock_ghz * 1e3 * moved_us),
    )


def _kernel_cost(artifact: Artifact, launch: Launch, estimated: BlockWork, *, target: CudaTarget) -> KernelCost:
    resources = artifact.kernel_resources.get(launch.kernel) or artifact.resources
    warps = -(-estimated.threads // WARP)
    work = dataclasses.replace(
        estimated,
        registers=resources.get("registers", 0),
        shared_bytes=resources.get("shared_bytes", 0),
        # What is spilt goes to and from the first-level cache: the words of 32 threads are neighbours.
        lines=estimated.lines + warps * resources.get("spill_bytes", 0) / 4,
    )
    return KernelCost(kernel=launch.kernel, work=work, target=target, price=price(work, target), resources=resources)
