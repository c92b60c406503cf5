"""What limits a configuration on a CPU: vector registers, straight code, threads, scratch memory. No TVM here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config, Knob, Rule
from dwconv.schedules.taps import WIDTH, Axis, column_runs

CACHE_LINE_BYTES = 64


# -- vector registers ------------------------------------------------------------------------------------------------


def channel_lanes(channels: int, target: CpuTarget) -> int:
    """Channels in a vector: as many as a register holds, or the power of two below the number of channels."""
    return min(target.lanes(), 1 << (channels.bit_length() - 1))


def column_lanes(columns: int, target: CpuTarget) -> int:
    """Columns in a vector: as many as a register holds, or the power of two that holds them all, at least four."""
    return min(target.lanes(), max(4, 1 << (columns - 1).bit_length()))


def vector_count(elements: int, lanes: int) -> int:
    """Vectors that hold ``elements``; the last may overlap the one before."""
    return (elements + lanes - 1) // lanes


def vector_registers(target: CpuTarget) -> int:
    """Vector registers: AVX has 16, AVX-512 and Arm 32."""
    return 16 if target.vector_bytes == 32 else 32


def sum_registers(target: CpuTarget) -> int:
    """Vector registers that sums may take; the others hold what is multiplied."""
    return 3 * vector_registers(target) // 4


def sums_in_flight(target: CpuTarget) -> int:
    """Sums that multiply-adds in flight need, with some to spare: half of the registers."""
    return vector_registers(target) // 2


def sums_beside(weights: int, target: CpuTarget) -> int:
    """Sums that leave room for so many vectors of weights, and one of what they multiply, if there is room for the sums
    in flight."""
    left = vector_registers(target) - 1 - weights
    return min(sum_registers(target), max(sums_in_flight(target), left))


def fills_cache_lines(target: CpuTarget) -> bool:
    """Whether a vector is a whole cache line. Where it is less, a loop over pixels inside one over channels loads every
    line several times, unless a tile takes neighbouring vectors together."""
    return target.vector_bytes >= CACHE_LINE_BYTES


# -- straight code ---------------------------------------------------------------------------------------------------

MOST_CODE = 3000
"""Vector instructions in the straight code of a kernel. TVM and LLVM need 0.3 to 1 ms for each."""

WIDE_KERNEL = 16
"""From this width on a space also has loops over all taps: a kernel row, unrolled, may be too much code."""


def load_cost(multiplier: int) -> int:
    """Instructions that load a vector of the source: with a multiplier its channels are not neighbours."""
    return 1 if multiplier == 1 else 32


@dataclass(frozen=True, kw_only=True)
class RowCode:
    """The code for a row of tiles, with one kernel row and one vector of channels."""

    tiles: int
    reads: int
    """Columns of the source that are read."""
    products: int

    @classmethod
    def of(cls, columns: Axis, tile_w: int) -> RowCode:
        return _row_code(columns, tile_w)


@cache
def _row_code(columns: Axis, tile_w: int) -> RowCode:
    tile_reads = [columns.reads_of(run) for run in column_runs(columns, tile_w)]
    return RowCode(
        tiles=len(tile_reads),
        reads=sum(map(len, tile_reads)),
        products=sum(len(pairs) for reads in tile_reads for _, pairs in reads),
    )


TILE_WITHIN_BLOCK = Rule("a tile is higher than its block", lambda config: config.tile_h > config.block_h)


def sums_in_registers(sums: Callable[[Config], int], *, registers: int, smallest_tile: int) -> Rule:
    """``sums``: vectors that a tile sums at the same time. The smallest tile is legal whatever it holds."""
    most = max(registers, smallest_tile)
    return Rule(f"more sums in a tile than {registers} registers", lambda config: sums(config) > most)


def code_within_limit(code_size: Callable[[Config], int]) -> Rule:
    """``code_size``: vector instructions in the code of all tiles, about."""
    return Rule("too much code: it takes long to compile", lambda config: code_size(config) > MOST_CODE)


# -- threads: waking one may cost several microseconds ---------------------------------------------------------------

SMALL_FLOPS = 4_000_000
SMALL_BYTES = 1 << 20
"""Up to here a workload takes one thread some tens of microseconds."""

PARALLEL_WEIGHTS = 8192
"""From this number on, weights are packed by all threads; one thread packs fewer faster than it wakes the others."""

PARALLEL_SUMS = 16384
"""Beyond this number, partial sums are added up by all threads; one thread adds fewer faster than it wakes them."""


def thread_knobs(workload: Workload, target: CpuTarget) -> list[Knob]:
    """How many threads run a small workload, at most: 1, 2, 4, …, all. A larger workload takes all there are, and has
    no such knob. The loader passes the number to the kernel (build/openmp.ll)."""
    if target.threads == 1 or workload.flops > SMALL_FLOPS or workload.bytes > SMALL_BYTES:
        return []
    fewer = [1 << power for power in range((target.threads - 1).bit_length())]
    return [Knob("threads", [*fewer, target.threads])]


def threads_of(config: Config, target: CpuTarget) -> int:
    """Threads that run a configuration."""
    asked = config.to_dict().get("threads", target.threads)
    assert isinstance(asked, int)
    return min(asked, target.threads)


# -- workloads and tiles that the NCHW kernels can take --------------------------------------------------------------

WIDEST_KERNEL = 128
"""Kernel columns are unrolled; beyond this width that is too much code."""

WIDEST_ROW = 256
"""Those of a kernel of one row, without a stride, may be a loop."""

LARGEST_STRIDE = 16
"""Columns are interleaved from so many phases at most."""

MOST_AT_ONCE = 4
"""Phases up to which one shuffle takes a vector from all of them; the lanes of more go through stages."""

MOST_SCRATCH = 1 << 18
"""Floats of scratch memory of a task: half of what the second-level cache of most machines holds."""

SMALL_KERNEL = 81
"""Up to this number of taps a search starts from rows read in place; larger kernels read each row so often that it is
copied first."""

MASKED_BYTES = 32
"""From these vectors on, AVX2, loads of float32 have masks; from twice as long ones, AVX-512, those of 16 bits."""


def plane_misfit(workload: Workload, target: CpuTarget) -> str | None:
    """Why the NCHW templates of the CPU cannot run a workload; None if they can."""
    if workload.layout != "nchw":
        return f"it is for nchw, the workload is {workload.layout}"
    widest = WIDEST_ROW if workload.is_row and workload.stride[WIDTH] == 1 else WIDEST_KERNEL
    if workload.kernel[WIDTH] > widest:
        return f"kernel_w={workload.kernel[WIDTH]} is beyond {widest}"
    if workload.stride[WIDTH] > LARGEST_STRIDE:
        return f"stride_w={workload.stride[WIDTH]} is beyond {LARGEST_STRIDE}"
    if workload.any_size and target.vector_bytes < (MASKED_BYTES if workload.dtype == "float32" else 2 * MASKED_BYTES):
        return f"at edges of any size it masks loads of {workload.dtype}, for which the processor has no instruction"
    return None


def shuffle_stages(phases: int) -> list[int]:
    """How vectors are interleaved from so many phases, or split into them: in stages, each of so many at once."""
    if phases <= MOST_AT_ONCE:
        return [phases]
    stages = []
    for prime in range(2, phases + 1):
        while phases % prime == 0:
            stages.append(prime)
            phases //= prime
    return stages


def shuffles_each(phases: int) -> int:
    """Shuffles of two vectors that each vector takes there."""
    return sum(stage - 1 for stage in shuffle_stages(phases))


def loads_per_read(columns: Axis, *, stage: str) -> int:
    """Instructions that load a vector of columns: with a stride, read in place, it is shuffled out of several."""
    if stage != "none" or columns.up == 1:
        return 1
    return 2 * columns.up if columns.up <= MOST_AT_ONCE else 2 + shuffles_each(columns.up)


def scratch_within_cache(scratch_elements: Callable[[Config], int]) -> Rule:
    """``scratch_elements``: floats that a task holds in scratch memory, about."""
    return Rule("too much scratch memory for a cache", lambda config: scratch_elements(config) > MOST_SCRATCH)
