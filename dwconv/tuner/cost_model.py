"""The computed cost of a CUDA candidate: how long each resource of the GPU would be busy, without running anything.

Registers and shared memory come from the compiler; instructions, addresses and trip counts from the machine code,
walked block by block. The slowest resource sets the time of a kernel, the others hide behind it but for a small share;
kernels run one after the other. It ranks candidates; it is not a measurement, and is not calibrated on a GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwconv.build.artifact import Argument, Artifact, Extent, Launch
from dwconv.build.sass import CLASSES, Code, bytes_in_flight, disassemble
from dwconv.errors import BuildError
from dwconv.target import CudaTarget
from dwconv.tuner.block_trace import BlockTrace, Untraceable, local_lines, trace_block
from dwconv.tuner.transactions import LINE_BYTES
from dwconv.workload import ITEMSIZE, Workload

RESOURCES = ("dram", "cache", "load_store", "fma", "issue", "latency")
"""Memory; second-level cache; load/store units, shared memory's and global memory's turns; multiply-adds; issue slots;
and the time that blocks take one after the other, however idle the SM."""
LAUNCH_US = 2.0
"""From one kernel to the next on a stream."""
NOT_HIDDEN = 0.05
"""Share of a resource's time that adds to the slowest one's: of candidates that the memory holds up alike, the lean one
costs less."""
DRAM_LATENCY_CYCLES = 800
BYTES_IN_FLIGHT_PER_SM = 50_000
"""What an SM must have asked for at any time to draw its share of the bandwidth."""

# How an SM hands out its resources, since sm_80.
_REGISTERS_PER_UNIT = 256  # to a warp
_SHARED_BYTES_PER_UNIT = 128
_SHARED_BYTES_OF_SYSTEM = 1024  # in every block


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """How many blocks share an SM, and what keeps it from holding more."""

    blocks_per_sm: int
    limiter: str
    """``registers``, ``shared_bytes``, ``threads`` or ``blocks``."""
    threads_per_sm: int


@dataclass(frozen=True, kw_only=True)
class KernelCost:
    """One kernel: what the compiler gave it, what its blocks do, and how long that keeps each resource busy."""

    kernel: str
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
    """Sectors of memory that warps ask for over those that their words fill."""
    dram_bytes: float
    cache_bytes: float
    local_bytes: float
    """What spilt registers and arrays on the stack move between the SMs and their first-level cache."""
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
        """Of the slowest kernel."""
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
        limit_us=max(
            workload.bytes / target.limits.memory_gb_per_s / 1e3, workload.flops / target.limits.peak_gflop_per_s / 1e3
        ),
    )


def outputs_of(workload: Workload) -> int:
    """What instructions are counted per: elements of y, of dx, and in wgrad of dy."""
    return math.prod(workload.input_shape if workload.pass_ == "dgrad" else workload.output_shape)


def issue_budget(workload: Workload, target: CudaTarget) -> float:
    """Lane-instructions an output that all issue slots have while the memory moves what the pass must move."""
    lanes_per_s = target.sms * target.issue_slots * target.warp * target.clock_ghz * 1e9
    return lanes_per_s / (target.limits.memory_gb_per_s * 1e9) * workload.bytes / outputs_of(workload)


def occupancy(*, threads: int, registers: int, shared_bytes: int, target: CudaTarget) -> Occupancy:
    """Blocks of ``threads`` threads, with ``registers`` each and ``shared_bytes`` together, that an SM holds."""
    warps = -(-threads // target.warp)
    registers_per_warp = _round_up(max(registers, 1) * target.warp, _REGISTERS_PER_UNIT)
    shared = _round_up(shared_bytes + _SHARED_BYTES_OF_SYSTEM, _SHARED_BYTES_PER_UNIT)
    slots = target.issue_slots
    warps_by_registers = target.registers_per_sm // registers_per_warp // slots * slots
    room = {
        "registers": warps_by_registers // warps,
        "shared_bytes": target.shared_bytes_per_sm // shared,
        "threads": target.threads_per_sm // (warps * target.warp),
        "blocks": target.blocks_per_sm,
    }
    limiter = min(room, key=lambda name: room[name])
    return Occupancy(blocks_per_sm=room[limiter], limiter=limiter, threads_per_sm=room[limiter] * threads)


def _kernel_cost(
    artifact: Artifact, launch: Launch, code: Code, workload: Workload, target: CudaTarget, *, written: set[str]
) -> tuple[KernelCost, set[str]]:
    """The cost of one launch, and the tensors it writes; ``written`` are those of the launches before it."""
    blocks = math.prod(size.at(workload.batch) if isinstance(size, Extent) else size for size in launch.grid)
    threads = math.prod(launch.block)
    resources = artifact.kernel_resources.get(launch.kernel) or artifact.resources
    held = occupancy(
        threads=threads,
        registers=resources.get("registers", 0),
        shared_bytes=resources.get("shared_bytes", 0),
        target=target,
    )
    trace, note = _traced(code, launch, workload=workload, target=target, blocks=blocks)
    at_a_time = min(blocks, held.blocks_per_sm * target.sms)
    traffic = _Traffic(launch, trace, blocks=blocks, at_a_time=at_a_time, batch=workload.batch, target=target)
    dram_bytes, cache_bytes = traffic.dram_bytes(written), traffic.cache_bytes
    in_flight = held.threads_per_sm * bytes_in_flight(code)
    busy = dict.fromkeys(RESOURCES, math.inf)
    if at_a_time:
        cycles = _cycles_of_a_block(trace, target=target)
        # What an SM has asked for at a time is its share of the bandwidth; blocks may be too few for all SMs.
        drawn = min(1.0, max(1, in_flight) / BYTES_IN_FLIGHT_PER_SM) * min(1.0, blocks / target.sms)
        busy["dram"] = dram_bytes / (target.limits.memory_gb_per_s * drawn) / 1e3
        busy["cache"] = cache_bytes / (target.limits.cache_gb_per_s * drawn) / 1e3
        # The SM with the most blocks is the last to finish.
        for name in ("load_store", "fma", "issue"):
            busy[name] = _microseconds(math.ceil(blocks / target.sms) * cycles[name], target)
        alone = DRAM_LATENCY_CYCLES + cycles["issue"] * target.issue_slots / -(-threads // target.warp)
        busy["latency"] = _microseconds(math.ceil(blocks / at_a_time) * alone, target)
    limiter = max(busy, key=lambda name: busy[name])
    lanes = target.warp * blocks / outputs_of(workload)
    cost = KernelCost(
        kernel=launch.kernel,
        microseconds=(1 - NOT_HIDDEN) * busy[limiter] + NOT_HIDDEN * sum(busy.values()) + LAUNCH_US,
        limiter=limiter,
        busy_us={**busy, "launch": LAUNCH_US},
        resources=resources,
        threads=threads,
        blocks=blocks,
        occupancy=held,
        waves=blocks / at_a_time if at_a_time else math.inf,
        issued_per_output={kind: count * lanes for kind, count in trace.issued.items()},
        bytes_in_flight_per_sm=in_flight,
        conflicts=trace.conflicts,
        sectors_over_ideal=trace.sectors_over_ideal,
        dram_bytes=dram_bytes,
        cache_bytes=cache_bytes,
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
        local_lines=warps * sum(map(local_lines, code.instructions)),
        read_bytes={name: size for name, size in sizes.items() if name not in written},
        written_bytes={name: sizes[name] for name in written},
    )


def _cycles_of_a_block(trace: BlockTrace, *, target: CudaTarget) -> dict[str, float]:
    """Cycles for which one block keeps the units of an SM busy."""
    flops_per_cycle = target.limits.peak_gflop_per_s / (target.sms * target.clock_ghz)  # of one SM
    return {
        "load_store": trace.wavefronts + trace.global_lines + trace.local_lines,
        "fma": trace.issued["fma"] * target.warp * 2 / flops_per_cycle,
        "issue": trace.instructions / target.issue_slots,
    }


class _Traffic:
    """Bytes of one launch between DRAM and the second-level cache, and between that and the SMs.

    Data that several blocks read, the halo and the weights, come from the cache if it holds what the blocks that run
    at a time touch, else partly from DRAM again.
    """

    def __init__(
        self, launch: Launch, trace: BlockTrace, *, blocks: int, at_a_time: int, batch: int, target: CudaTarget
    ) -> None:
        self._sizes = _sizes(launch, batch=batch)
        self._cache = target.limits.cache_bytes
        self._read = {name: size * blocks for name, size in trace.read_bytes.items()}
        self._written = {name: size * blocks for name, size in trace.written_bytes.items()}
        touched = at_a_time * (sum(trace.read_bytes.values()) + sum(trace.written_bytes.values()))
        self._missed = max(0.0, 1 - self._cache / touched) if touched else 0.0

    @property
    def cache_bytes(self) -> float:
        return sum(self._read.values()) + sum(self._written.values())

    def dram_bytes(self, warm: set[str]) -> float:
        """``warm``: tensors that a kernel before wrote; small ones are still in the cache."""
        total = 0.0
        for name, read in self._read.items():
            size = self._sizes[name]
            if name in warm and size <= self._cache / 2:
                continue
            # A few blocks stand for all: what is nearly all of a tensor is all of it.
            once = size if read > 0.8 * size else read
            total += once + max(0.0, read - size) * self._missed
        return total + sum(self._sizes[name] if size > 0.8 * self._sizes[name] else size
                           for name, size in self._written.items())  # fmt: skip


def _sizes(launch: Launch, *, batch: int) -> dict[str, int]:
    """Bytes of each tensor."""
    return {
        argument.name: math.prod(argument.shape_at(batch)) * ITEMSIZE[argument.dtype]
        for argument in launch.arguments
        if isinstance(argument, Argument)
    }


def _microseconds(cycles: float, target: CudaTarget) -> float:
    return cycles / (target.clock_ghz * 1e3)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
