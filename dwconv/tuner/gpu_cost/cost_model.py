"""The computed cost of a CUDA candidate: how long each resource of the GPU would be busy, without running anything.

Registers and shared memory come from the compiler; instructions, addresses and trip counts from the machine code,
walked block by block. The slowest resource sets the time of a kernel, the others hide behind it but for a small share;
kernels run one after the other. It ranks candidates; it is not a measurement.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from dwconv.errors import BuildError
from dwconv.kernels.artifact import Argument, Artifact, Extent, Launch
from dwconv.kernels.sass import CLASSES, Code, bytes_in_flight, disassemble, products_of
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu.cost import RESOURCES, BlockWork, price
from dwconv.schedules.cuda.gpu.hardware import LINE_BYTES, Occupancy
from dwconv.tuner.gpu_cost.block_trace import BlockTrace, Untraceable, local_lines, trace_block


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
    issued_per_output: dict[str, float]
    """Lane-instructions over outputs of the whole pass, by class."""
    bytes_in_flight_per_sm: int
    """Loads that an SM's threads may have on their way at a time."""
    conflicts: float
    """Turns of shared memory over turns without a bank conflict."""
    sectors_over_ideal: float
    """Sectors of memory that warps access over those that their words fill."""
    dram_bytes: float
    cache_bytes: float
    local_bytes: float
    """Bytes that spilt registers and arrays on the stack move between the SMs and their first-level cache."""
    note: str = ""
    """Why the machine code could not be walked; then each instruction counts once, and each tensor moves once."""


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
    def issued_per_output(self) -> dict[str, float]:
        """Lane-instructions an output, by class; kernels add up."""
        return {kind: sum(kernel.issued_per_output[kind] for kernel in self.kernels) for kind in CLASSES}

    @property
    def instructions_per_output(self) -> float:
        return sum(self.issued_per_output.values())

    @property
    def share_of_budget(self) -> float:
        """Above 1 the issue slots, not the memory, set the time."""
        return self.instructions_per_output / self.budget_per_output


def computed_cost(artifact: Artifact, workload: Workload, target: CudaTarget) -> Cost:
    """The cost of running ``artifact`` at the workload's batch size. A candidate whose block does not fit on an SM
    costs infinity. Raises BuildError for a cubin that cannot be disassembled, BrokenInstallation without nvdisasm."""
    codes = disassemble(artifact.cubin)
    kernels: list[KernelCost] = []
    written: set[str] = set()
    for launch in artifact.launches:
        if launch.kernel not in codes:
            raise BuildError(f"no kernel {launch.kernel} in the cubin")
        cost, results = _kernel_cost(artifact, launch, codes[launch.kernel], workload, target, written=written)
        written |= results
        kernels.append(cost)
    return Cost(
        microseconds=sum(kernel.microseconds for kernel in kernels),
        limiter=max(kernels, key=lambda kernel: kernel.microseconds).limiter,
        kernels=tuple(kernels),
        budget_per_output=issue_budget(workload, target),
        limit_us=max(workload.bytes / target.limits.memory_gb_per_s, workload.flops / _peak(kernels, target)) / 1e3,
    )


def _peak(kernels: list[KernelCost], target: CudaTarget) -> float:
    """Of the units that multiply, in Gflop/s."""
    on_tensor_cores = any(kernel.issued_per_output["tensor"] for kernel in kernels)
    return target.limits.tensor_gflop_per_s if on_tensor_cores else target.limits.peak_gflop_per_s


def outputs_of(workload: Workload) -> int:
    """Outputs, per which instructions are counted: elements of y, of dx, and in wgrad of dy."""
    return math.prod(workload.input_shape if workload.pass_ == "dgrad" else workload.output_shape)


def issue_budget(workload: Workload, target: CudaTarget) -> float:
    """Lane-instructions an output that all issue slots have while the memory moves what the pass must move."""
    lanes_per_s = target.sms * target.issue_slots * target.warp * target.clock_ghz * 1e9
    return lanes_per_s / (target.limits.memory_gb_per_s * 1e9) * workload.bytes / outputs_of(workload)


def _kernel_cost(
    artifact: Artifact, launch: Launch, code: Code, workload: Workload, target: CudaTarget, *, written: set[str]
) -> tuple[KernelCost, set[str]]:
    """The cost of one launch, and the tensors it writes; ``written`` are those of the launches before it."""
    blocks = math.prod(size.at(workload.batch) if isinstance(size, Extent) else size for size in launch.grid)
    threads = math.prod(launch.block)
    resources = artifact.kernel_resources.get(launch.kernel) or artifact.resources
    trace, note = _traced(code, launch, workload=workload, target=target, blocks=blocks)
    traffic = _traffic(launch, trace, blocks=blocks, batch=workload.batch, target=target, written=written)
    work = BlockWork(
        blocks=blocks,
        threads=threads,
        registers=resources.get("registers", 0),
        shared_bytes=resources.get("shared_bytes", 0),
        instructions=trace.instructions,
        fma=trace.issued["fma"],
        tensor_products=trace.tensor_products,
        lines=trace.global_lines + trace.local_lines,
        bank_turns=trace.wavefronts,
        dram_bytes=traffic.once_bytes,
        again_bytes=traffic.again_bytes,
        cache_bytes=traffic.cache_bytes,
        bytes_in_flight=threads * bytes_in_flight(code),
        loads_ahead=trace.loads_ahead,
    )
    priced, lanes = price(work, target), target.warp * blocks / outputs_of(workload)
    cost = KernelCost(
        kernel=launch.kernel,
        work=work,
        microseconds=priced.microseconds,
        limiter=priced.limiter,
        busy_us={**priced.busy_us, "launch": priced.constants.launch_us},
        resources=resources,
        threads=threads,
        blocks=blocks,
        occupancy=priced.occupancy,
        waves=priced.waves,
        issued_per_output={kind: count * lanes for kind, count in trace.issued.items()},
        bytes_in_flight_per_sm=int(priced.bytes_in_flight_per_sm),
        conflicts=trace.conflicts,
        sectors_over_ideal=trace.sectors_over_ideal,
        dram_bytes=priced.dram_bytes,
        cache_bytes=work.cache_bytes,
        local_bytes=trace.local_lines * LINE_BYTES * blocks,
        note=note,
    )
    return cost, set(trace.written_bytes)


def _traced(
    code: Code, launch: Launch, *, workload: Workload, target: CudaTarget, blocks: int
) -> tuple[BlockTrace, str]:
    try:
        return trace_block(code, launch, batch=workload.batch, arch=target.arch), ""
    except Untraceable as error:
        return _guessed(code, launch, workload=workload, blocks=blocks, warp=target.warp), str(error)


def _guessed(code: Code, launch: Launch, *, workload: Workload, blocks: int, warp: int) -> BlockTrace:
    """Every instruction once, every tensor moved once."""
    warps = -(-math.prod(launch.block) // warp)
    issued = dict.fromkeys(CLASSES, 0.0)
    for instruction in code.instructions:
        issued[instruction.kind] += warps
    sizes = {name: size / blocks for name, size in _sizes(launch, batch=workload.batch).items()}
    written = [name for name in sizes if name not in workload.inputs]  # results, or workspaces that become one
    if set(written) & set(workload.results):
        written = [name for name in written if name in workload.results]
    return BlockTrace(
        issued=issued,
        global_lines=workload.bytes / LINE_BYTES / blocks,
        sectors=0.0,
        ideal_sectors=0.0,
        wavefronts=issued["shared"],
        ideal_wavefronts=issued["shared"],
        tensor_products=warps * sum(map(products_of, code.instructions)),
        local_lines=warps * sum(map(local_lines, code.instructions)),
        read_bytes={name: size for name, size in sizes.items() if name not in written},
        written_bytes={name: sizes[name] for name in written},
    )


@dataclass(frozen=True, kw_only=True)
class _Traffic:
    """Bytes of all blocks of one launch."""

    once_bytes: float
    """Between DRAM and the second-level cache, each byte once."""
    again_bytes: float
    """Read again by other blocks: the halo, the weights."""
    cache_bytes: float
    """Between the second-level cache and the SMs."""


def _traffic(
    launch: Launch, trace: BlockTrace, *, blocks: int, batch: int, target: CudaTarget, written: set[str]
) -> _Traffic:
    """``written``: tensors that a kernel before wrote; small ones are still in the cache."""
    sizes = _sizes(launch, batch=batch)
    once = again = cache = 0.0
    for name, size_of_block in trace.read_bytes.items():
        size, read = sizes[name], size_of_block * blocks
        cache += read
        if name not in written or size > target.limits.cache_bytes / 2:
            once += _nearly_all(read, size)
            again += max(0.0, read - size)
    for name, size_of_block in trace.written_bytes.items():
        cache += size_of_block * blocks
        once += _nearly_all(size_of_block * blocks, sizes[name])
    return _Traffic(once_bytes=once, again_bytes=again, cache_bytes=cache)


def _nearly_all(moved_bytes: float, size: int) -> float:
    """A few blocks stand for all: what is nearly all of a tensor is all of it."""
    return size if moved_bytes > 0.8 * size else moved_bytes


def _sizes(launch: Launch, *, batch: int) -> dict[str, int]:
    """Bytes of each tensor."""
    return {
        argument.name: math.prod(argument.shape_at(batch)) * ITEMSIZE[argument.dtype]
        for argument in launch.arguments
        if isinstance(argument, Argument)
    }


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
