"""The computed cost of a CUDA candidate: how long each resource of the GPU would be busy, without running anything.

Registers, shared memory and code size come from the compiler, addresses and instruction counts from the source. The
slowest resource sets the time. It ranks candidates; it is not a measurement, and is not calibrated on a GPU.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import reduce

from dwconv.build.artifact import Argument, Artifact, Extent, Launch
from dwconv.target import CudaTarget
from dwconv.tuner.block_trace import LINE_BYTES, BlockTrace, trace_block
from dwconv.workload import ITEMSIZE, Workload

RESOURCES = ("dram", "cache", "load_store", "fma", "issue", "latency")
"""Memory; second-level cache; load/store units, shared memory's and global memory's turns; multiply-adds; issue slots;
and the time that blocks take one after the other, however idle the SM."""
LAUNCH_US = 2.0
"""From one kernel to the next on a stream."""
DRAM_LATENCY_CYCLES = 800
BYTES_IN_FLIGHT_PER_SM = 50_000
"""What an SM must have asked for at any time to draw its share of the bandwidth."""
LOADS_IN_FLIGHT = 12
"""Loads of one thread that the compiler moves ahead of their uses."""
INSTRUCTION_BYTES = 16
BOOKKEEPING = 1.15
"""Instructions executed over those that the source shows: addresses, moves, branches."""

# How an SM hands out its resources, since sm_80.
_REGISTERS_PER_UNIT = 256  # to a warp
_SHARED_BYTES_PER_UNIT = 128
_SHARED_BYTES_OF_SYSTEM = 1024  # in every block
_ISSUE_SLOTS = 4


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """How many blocks share an SM, and what keeps it from holding more."""

    blocks_per_sm: int
    limiter: str
    """``registers``, ``shared_bytes``, ``threads`` or ``blocks``."""
    threads_per_sm: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Microseconds in all, and microseconds that each resource would be busy."""

    microseconds: float
    limiter: str
    """The resource that sets the time."""
    busy_us: dict[str, float]
    """One for each of RESOURCES, and ``launch``."""
    occupancy: Occupancy
    waves: float
    """Blocks over blocks that run at a time."""
    dram_bytes: float
    cache_bytes: float


def computed_cost(artifact: Artifact, workload: Workload, target: CudaTarget) -> Cost:
    """The cost of running ``artifact`` at the workload's batch size; kernels add up. A candidate whose block does not
    fit on an SM costs infinity. Raises BuildError if the source is not of the form that TVM
    prints."""
    costs = [_launch_cost(artifact, launch, workload, target) for launch in artifact.launches]
    return reduce(_one_after_the_other, costs)


def occupancy(*, threads: int, registers: int, shared_bytes: int, target: CudaTarget) -> Occupancy:
    """Blocks of ``threads`` threads, with ``registers`` each and ``shared_bytes`` together, that an SM holds."""
    warps = -(-threads // target.warp)
    registers_per_warp = _round_up(max(registers, 1) * target.warp, _REGISTERS_PER_UNIT)
    shared = _round_up(shared_bytes + _SHARED_BYTES_OF_SYSTEM, _SHARED_BYTES_PER_UNIT)
    warps_by_registers = target.registers_per_sm // registers_per_warp // _ISSUE_SLOTS * _ISSUE_SLOTS
    room = {
        "registers": warps_by_registers // warps,
        "shared_bytes": target.shared_bytes_per_sm // shared,
        "threads": target.threads_per_sm // (warps * target.warp),
        "blocks": target.blocks_per_sm,
    }
    limiter = min(room, key=lambda name: room[name])
    return Occupancy(blocks_per_sm=room[limiter], limiter=limiter, threads_per_sm=room[limiter] * threads)


def _launch_cost(artifact: Artifact, launch: Launch, workload: Workload, target: CudaTarget) -> Cost:
    x, y, z = (size.at(workload.batch) if isinstance(size, Extent) else size for size in launch.grid)
    blocks, threads = x * y * z, math.prod(launch.block)
    held = occupancy(
        threads=threads,
        registers=artifact.resources.get("registers", 0),
        shared_bytes=artifact.resources.get("shared_bytes", 0),
        target=target,
    )
    trace = trace_block(artifact.source, launch.kernel, grid=(x, y, z), block=launch.block)
    at_a_time = min(blocks, held.blocks_per_sm * target.sms)
    dram_bytes, cache_bytes = _traffic(
        trace, launch, blocks=blocks, at_a_time=at_a_time, batch=workload.batch, cache=target.limits.cache_bytes
    )
    busy = dict.fromkeys(RESOURCES, math.inf)
    if at_a_time:
        cycles = _cycles_of_a_block(trace, artifact, launch, target)
        # What an SM has asked for at a time is its share of the bandwidth; blocks may be too few for all SMs.
        asked = held.threads_per_sm * min(trace.loads_per_thread, LOADS_IN_FLIGHT) * ITEMSIZE[workload.dtype]
        drawn = min(1.0, asked / BYTES_IN_FLIGHT_PER_SM) * min(1.0, blocks / target.sms)
        busy["dram"] = dram_bytes / (target.limits.memory_gb_per_s * drawn) / 1e3
        busy["cache"] = cache_bytes / (target.limits.cache_gb_per_s * drawn) / 1e3
        # The SM with the most blocks is the last to finish.
        for name in ("load_store", "fma", "issue"):
            busy[name] = _microseconds(math.ceil(blocks / target.sms) * cycles[name], target)
        alone = DRAM_LATENCY_CYCLES + cycles["issue"] * _ISSUE_SLOTS / -(-threads // target.warp)
        busy["latency"] = _microseconds(math.ceil(blocks / at_a_time) * alone, target)
    limiter = max(busy, key=lambda name: busy[name])
    return Cost(
        microseconds=busy[limiter] + LAUNCH_US,
        limiter=limiter,
        busy_us={**busy, "launch": LAUNCH_US},
        occupancy=held,
        waves=blocks / at_a_time if at_a_time else math.inf,
        dram_bytes=dram_bytes,
        cache_bytes=cache_bytes,
    )


def _cycles_of_a_block(trace: BlockTrace, artifact: Artifact, launch: Launch, target: CudaTarget) -> dict[str, float]:
    """Cycles for which one block keeps the units of an SM busy."""
    threads = math.prod(launch.block)
    warps = -(-threads // target.warp)
    # Spilt registers go out to the first-level cache and come back.
    spilt_lines = 2 * artifact.resources.get("spill_bytes", 0) * threads / LINE_BYTES
    # Loops run more instructions than the code has; what the source does not show, only the code has.
    code = _code_bytes(artifact.cubin, launch.kernel) / INSTRUCTION_BYTES * warps
    return {
        "load_store": trace.shared_wavefronts + trace.global_lines + spilt_lines,
        "fma": trace.fmas * 2 / _flops_per_cycle(target),
        "issue": (max(code, trace.instructions * BOOKKEEPING) + spilt_lines) / _ISSUE_SLOTS,
    }


def _traffic(
    trace: BlockTrace, launch: Launch, *, blocks: int, at_a_time: int, batch: int, cache: int
) -> tuple[float, float]:
    """Bytes between DRAM and the second-level cache, and between that and the SMs.

    Data that several blocks read, the halo and the weights, come from the cache if it holds what the blocks that run
    at a time touch, else partly from DRAM again.
    """
    sizes = {
        argument.name: math.prod(argument.shape_at(batch)) * ITEMSIZE[argument.dtype]
        for argument in launch.arguments
        if isinstance(argument, Argument)
    }
    touched = at_a_time * (sum(trace.read_bytes.values()) + trace.written_bytes)
    missed = max(0.0, 1 - cache / touched) if touched else 0.0
    results = sum(size for name, size in sizes.items() if name not in trace.read_bytes)
    from_dram = from_cache = max(blocks * trace.written_bytes, results)
    for name, read_by_block in trace.read_bytes.items():
        read = max(read_by_block * blocks, sizes[name])
        from_dram += sizes[name] + (read - sizes[name]) * missed
        from_cache += read
    return from_dram, from_cache


def _one_after_the_other(first: Cost, second: Cost) -> Cost:
    busy = {name: first.busy_us[name] + second.busy_us[name] for name in first.busy_us}
    slower = max(first, second, key=lambda cost: cost.microseconds)
    return Cost(
        microseconds=first.microseconds + second.microseconds,
        limiter=slower.limiter,
        busy_us=busy,
        occupancy=slower.occupancy,
        waves=slower.waves,
        dram_bytes=first.dram_bytes + second.dram_bytes,
        cache_bytes=first.cache_bytes + second.cache_bytes,
    )


def _code_bytes(cubin: bytes, kernel: str) -> int:
    """Size of a kernel's machine code: of the section ``.text.<kernel>`` of an ELF file."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_bytes, entries, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * entry_bytes) for i in range(entries)]
    names = sections[names_at][4]
    wanted = f".text.{kernel}\0".encode()
    return next((size for name, _, _, _, _, size in sections if cubin.startswith(wanted, names + name)), 0)


def _flops_per_cycle(target: CudaTarget) -> float:
    """Of one SM."""
    return target.limits.peak_gflop_per_s / (target.sms * target.clock_ghz)


def _microseconds(cycles: float, target: CudaTarget) -> float:
    return cycles / (target.clock_ghz * 1e3)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
