"""The cost of a kernel on a GPU: how long each of its resources is busy, and so how long the kernel takes.

    work of a block          resources of the GPU                     microseconds
    instructions ─────────►  issue slots ────┐
    of them FMAs ─────────►  FMA units ──────┤
    products of matrices ─►  tensor cores ───┤
    lines, bank turns ────►  load/store ─────┼─►  the slowest, and a share of the others, the larger the fewer blocks
    bytes ────────────────►  cache, DRAM ────┤    an SM has; a launch
    instructions of a warp ► latency ────────┘

An estimate of a configuration fills ``BlockWork`` from plain integers; the computed cost of a built candidate takes
registers, shared memory and spills from the compiler. Both are priced here, so that candidates of all families stand in
one list. The model ranks; it is not a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.gpu.hardware import BANK_BYTES, WARP, Occupancy, occupancy
from dwconv.schedules.space import Config

RESOURCES = ("dram", "cache", "load_store", "fma", "tensor", "issue", "latency")
"""Memory; second-level cache; load/store units, shared memory's and global memory's turns; multiply-adds; tensor cores;
issue slots; and the time that blocks take one after the other, however idle the SM."""
LAUNCH_US = 1.2
"""From one kernel to the next in a graph. Source: measured on an H200."""
NOT_HIDDEN = 0.09
"""Share of a resource's time that adds to the slowest one's, however many blocks share an SM. Source: with ``ALONE``
fitted to 453 candidates of 30 workloads in 16 bits, measured on an H200; they were 33 % off before, on average, and are
25 % off."""
ALONE = 0.25
"""Share of a resource's time that adds to the slowest one's in a block that is alone on an SM: it stages, and then it
computes. Two blocks hide half of that; so, as is assumed, does one that loads ahead."""
DRAM_LATENCY_CYCLES = 800
"""From a load to its data. Source: published microbenchmarks of sm_80 and sm_90."""
CYCLES_OF_AN_INSTRUCTION = 2
"""From an instruction of a warp to its next one, which may wait for it. Source: 453 candidates measured on an H200. In
the median those with at most 4 warps on an SM were computed to take 0.61 of their time with 1, 0.88 with 2, 1.15 with
3, those with 5 to 8 warps 0.91, 0.97 and 1.12; others hardly depend on it."""
BYTES_IN_FLIGHT_PER_SM = 50_000
"""Loads that an SM must have on their way at any time to draw its share of the bandwidth: bandwidth × latency ÷ SMs."""
LONG_CODE = 60_000
"""Straight-line instructions that take twice as long to issue: they come from memory, too. A guess."""


@dataclass(frozen=True, kw_only=True)
class BlockWork:
    """A grid of ``blocks`` equal blocks, and what each of them does."""

    blocks: int
    threads: int
    registers: int
    """Registers of a thread."""
    shared_bytes: int = 0
    instructions: float
    """Issued by all warps of a block; so are the next two."""
    fma: float = 0.0
    lines: float
    """Lines of global memory that warps access, one a cycle."""
    bank_turns: float = 0.0
    """Turns of shared memory, one a cycle."""
    conflict_turns: float = 0.0
    """Of ``bank_turns``, those that there would not be if no access had two words in one bank."""
    dram_bytes: float
    """Between memory and the second-level cache, by all blocks together, each byte once."""
    cache_bytes: float
    """Between the second-level cache and the SMs, by all blocks together."""
    bytes_in_flight: float
    """Loads that the threads of a block have on their way at a time."""
    again_bytes: float = 0.0
    """Read again by other blocks: from memory as far as the cache does not hold all that the running blocks touch."""
    tensor_products: float = 0.0
    """Multiply-adds of tensor cores by all warps of a block, those with zeros included."""
    waits: float = 1
    """Times that a block waits for memory with nothing else to do."""
    loads_ahead: bool = False
    """Whether what it needs next is on its way while it computes."""

    @property
    def transactions_a_request(self) -> float | None:
        """Turns of shared memory over those that its words need: 1.0 without bank conflicts; None where no words go
        through it."""
        return self.bank_turns / (self.bank_turns - self.conflict_turns) if self.bank_turns else None

    @property
    def without_conflicts(self) -> BlockWork:
        """This work, if no access had two words in one bank."""
        return replace(self, bank_turns=self.bank_turns - self.conflict_turns, conflict_turns=0.0)


@dataclass(frozen=True, kw_only=True)
class Price:
    """How long each resource is busy, and how long that takes in all; both infinite where no block fits on an SM."""

    busy_us: dict[str, float]
    """One for each of RESOURCES."""
    occupancy: Occupancy
    waves: float
    """Blocks over blocks that run at a time."""
    dram_bytes: float
    bytes_in_flight_per_sm: float
    loads_ahead: bool

    @property
    def limiter(self) -> str:
        return max(self.busy_us, key=lambda name: self.busy_us[name])

    @property
    def microseconds(self) -> float:
        slowest = max(self.busy_us.values())
        shown = NOT_HIDDEN + ALONE / max(1, self.occupancy.blocks_per_sm) / (1 + self.loads_ahead)
        if slowest == math.inf:
            return math.inf
        return slowest + shown * (sum(self.busy_us.values()) - slowest) + LAUNCH_US


def total_us(works: Iterable[BlockWork], target: CudaTarget) -> float:
    return sum(price(work, target).microseconds for work in works)


FEW_REGISTERS = (16, 32, 48, 64)


def least_us(works: Iterable[BlockWork], target: CudaTarget) -> float:
    """Microseconds below which no kernels that do these works come, however few registers the compiler gives them."""
    return sum(
        min(price(replace(work, registers=count), target).microseconds for count in (*FEW_REGISTERS, work.registers))
        for work in works
    )


def conflicts_us(works: Iterable[BlockWork], target: CudaTarget) -> float:
    """Microseconds of ``total_us`` that bank conflicts take; 0 where a block does not fit on an SM."""
    both = [(price(work, target).microseconds, price(work.without_conflicts, target).microseconds) for work in works]
    return sum(taken - least for taken, least in both if taken < math.inf)


Works = Callable[[Workload, Config, CudaTarget], Sequence[BlockWork]]


def one_kernel(work: Callable[[Workload, Config, CudaTarget], BlockWork]) -> Works:
    """The works of a template whose configurations are one kernel each."""
    return lambda workload, config, target: [work(workload, config, target)]


def estimated(works: Works) -> dict[str, Any]:
    """The fields of a template that say what its kernels do, and how long that takes."""
    return {
        "works": works,
        "estimate_us": lambda workload, config, target: total_us(works(workload, config, target), target),
    }


def price(work: BlockWork, target: CudaTarget) -> Price:
    """How long ``target`` takes for that grid, with cold caches: in a training step other layers ran before."""
    held = occupancy(threads=work.threads, registers=work.registers, shared_bytes=work.shared_bytes, target=target)
    at_a_time = min(work.blocks, held.blocks_per_sm * target.sms)
    in_flight = held.blocks_per_sm * work.bytes_in_flight
    busy, dram_bytes = dict.fromkeys(RESOURCES, math.inf), work.dram_bytes
    if at_a_time:
        touched_bytes = work.cache_bytes * at_a_time / work.blocks
        missed = max(0.0, 1 - target.limits.cache_bytes / touched_bytes) if touched_bytes else 0.0
        dram_bytes += work.again_bytes * missed
        drawn = min(1.0, max(1.0, in_flight) / BYTES_IN_FLIGHT_PER_SM) * min(1.0, work.blocks / target.sms)
        in_turn = math.ceil(work.blocks / target.sms)  # the SM with the most blocks is the last to finish
        sm_cycles_per_ns = target.sms * target.clock_ghz
        flops_per_cycle = target.limits.peak_gflop_per_s / sm_cycles_per_ns
        tensor_flops_per_cycle = target.limits.tensor_gflop_per_s / sm_cycles_per_ns
        of_a_warp = work.instructions / -(-work.threads // WARP)
        cycles = {
            "load_store": in_turn * (work.lines + work.bank_turns),
            "fma": in_turn * work.fma * WARP * 2 / flops_per_cycle,
            "tensor": in_turn * work.tensor_products * 2 / tensor_flops_per_cycle,
            "issue": in_turn * work.instructions / target.issue_slots,
            "latency": math.ceil(work.blocks / at_a_time)
            * (work.waits * DRAM_LATENCY_CYCLES + CYCLES_OF_AN_INSTRUCTION * of_a_warp),
        }
        busy = {
            "dram": dram_bytes / (target.limits.memory_gb_per_s * drawn) / 1e3,
            "cache": work.cache_bytes / (target.limits.cache_gb_per_s * drawn) / 1e3,
            **{name: count / (target.clock_ghz * 1e3) for name, count in cycles.items()},
        }
    return Price(
        busy_us=busy,
        occupancy=held,
        waves=work.blocks / at_a_time if at_a_time else math.inf,
        dram_bytes=dram_bytes,
        bytes_in_flight_per_sm=in_flight,
        loads_ahead=work.loads_ahead,
    )


# -- sums of several threads, and of several blocks, become one ----------------------------------------------------

SHARED_WORDS = 4096
"""Shared memory for sums on their way from thread to thread. More sums than fit go in turns."""


def first_half(mates: int) -> int:
    return -(-mates // 2)


def halvings(mates: int) -> int:
    return (mates - 1).bit_length()


ADDING_LANES, ADDING_THREADS = 32, 256
"""A block of the second kernel has so many neighbouring results, and at most so many threads."""

ADDED_AT_A_TIME = 4
"""Parts that a thread of the second kernel has on their way."""
ADDING_INSTRUCTIONS, ADDING_REGISTERS = 8, 32
"""Instructions of a thread of the second kernel for each part, and its registers."""


def adding_shares(parts: int) -> int:
    return max(1, min(ADDING_THREADS // ADDING_LANES, parts // 4))


def adding_work(*, parts: int, results: int, target: CudaTarget) -> BlockWork:
    """The second kernel: ``results`` sums of ``parts`` each, which the blocks of the first one wrote."""
    shares = adding_shares(parts)
    blocks, threads = -(-results // ADDING_LANES), shares * ADDING_LANES
    warps, each = -(-threads // WARP), parts / shares
    size = float(BANK_BYTES * parts * results)
    return BlockWork(
        blocks=blocks,
        threads=threads,
        registers=ADDING_REGISTERS,
        instructions=warps * ADDING_INSTRUCTIONS * each,
        lines=warps * each,
        dram_bytes=size if size > target.limits.cache_bytes / 2 else 0.0,  # else it is still in the cache
        cache_bytes=size,
        bytes_in_flight=float(BANK_BYTES * min(each, ADDED_AT_A_TIME) * threads),
    )
