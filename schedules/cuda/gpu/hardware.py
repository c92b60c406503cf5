"""The hardware that NVIDIA GPUs since sm_80 have in common, how many blocks share an SM, and what no family offers.
``dwconv.problems.target`` has the differences between GPUs.

Source: CUDA C++ Programming Guide, 'Compute Capabilities' and 'Shared Memory'."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Limit

WARP = 32
"""Threads that issue together."""
MOST_THREADS_Z = 64
"""Threads that a block may have on z; x and y are bounded by all of them together."""
MOST_BLOCKS_Z = 65_535
"""Blocks that a grid may have on z, or on y; on x no number of images is too many."""

# -- memory --------------------------------------------------------------------------------------------------------

VECTOR_BYTES = 16
"""The widest load, store or asynchronous copy of a thread."""
LEAST_COPY_BYTES = 4
"""The least that cp.async copies."""
COPIES_VECTORS = "copies_vectors"
"""Attribute of a PrimFunc that copies to shared memory asynchronously and loads all of it in vectors: TVM would make it
an array of vectors, and then find no copy that it can make asynchronous."""
LINE_BYTES, SECTOR_BYTES = 128, 32
"""A line of a cache, and the parts of it that memory delivers."""

# -- shared memory -------------------------------------------------------------------------------------------------

BANKS, BANK_BYTES = 32, 4
SHARED_LANES = VECTOR_BYTES // BANK_BYTES
"""Words in the widest access of shared memory."""
STATIC_SHARED_BYTES = 48 * 1024
"""A kernel may have more shared memory only if it is dynamic."""
SYSTEM_SHARED_BYTES = 1024
"""The system's part of every block's shared memory."""
SHARED_BYTES_PER_UNIT = 128
"""Shared memory is handed out to blocks in such pieces."""

# -- registers -----------------------------------------------------------------------------------------------------

REGISTERS_PER_UNIT = 8
"""Registers of a thread are handed out in such pieces, to whole warps."""


# -- blocks on an SM -----------------------------------------------------------------------------------------------

COMPILED_SHARE = 0.7
"""Registers after compiling over those counted: ptxas uses one for several values that live one after the other. The
median of some 100 built candidates of the NCHW families."""


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """How many blocks share an SM, and what keeps it from holding more."""

    blocks_per_sm: int
    limiter: str
    """``registers``, ``shared_bytes``, ``threads`` or ``blocks``."""
    threads_per_sm: int


def occupancy(*, threads: int, registers: int, shared_bytes: int, target: CudaTarget) -> Occupancy:
    """Blocks of ``threads`` threads, with ``registers`` each and ``shared_bytes`` together, that an SM holds."""
    warps = -(-threads // target.warp)
    registers_per_warp = _round_up(max(registers, 1), REGISTERS_PER_UNIT) * target.warp
    shared = _round_up(shared_bytes + SYSTEM_SHARED_BYTES, SHARED_BYTES_PER_UNIT)
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


def blocks_at_a_time(cut: Any, registers: int, target: CudaTarget) -> int:
    """Blocks of a cut on an SM whose threads need so many registers; at least 1."""
    held = occupancy(threads=cut.threads, registers=registers, shared_bytes=cut.shared_bytes, target=target)
    return max(1, held.blocks_per_sm)


def registers_left(target: CudaTarget, *, threads: int, blocks: int) -> int:
    slots = target.issue_slots
    warps = -(-blocks * -(-threads // target.warp) // slots) * slots
    left = target.registers_per_sm // (target.warp * warps) // REGISTERS_PER_UNIT * REGISTERS_PER_UNIT
    return min(target.registers_per_thread, left)


def compiled_registers(needed: int, target: CudaTarget) -> int:
    return min(target.registers_per_thread, math.ceil(COMPILED_SHARE * needed))


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


# -- what no family offers: configurations that cannot be fast -----------------------------------------------------

LEAST_THREADS = 32
"""Threads of a block: a warp."""
MOST_PADDED = 1.3
"""Results computed over results wanted."""
MOST_IMAGES = 64
"""Shares of the images, in a weight gradient."""
MOST_WORKSPACE_BYTES = 64 << 20
"""Partial sums of a weight gradient."""

# -- straight code -------------------------------------------------------------------------------------------------
# Beyond a limit, compiling takes too long for a search, and the code leaves the instruction cache. Each family counts
# its code before anything is built. The seconds are NVRTC 13's for sm_90 at the limit, on one core of a Xeon with
# AVX-512: 0.2 to 0.65 ms an instruction, medians of up to 9 candidates.

TURNS_UNROLLED = 16
"""Turns in which threads move data together: more are a loop."""
BLOCK_TILE_CODE = 1500  # multiply-adds and weights: 3.2 s
GLOBAL_STRIP_CODE = 1700  # instructions: 0.7 s
RESIDENT_PLANES_CODE = 2400  # instructions: 1.3 s
STAGED_ROWS_CODE = 1500  # instructions in the loop over kernel rows: 0.8 s
TOEPLITZ_ROWS_CODE = 900  # products of matrices: 1.5 s
TOEPLITZ_GRADIENT_CODE = 900  # the same, and what adds up diagonals: 1.5 s
CHANNELS_LAST_CODE = 3600  # multiply-adds and loads: 1.0 s
WEIGHT_GRADIENT_CODE = 1600  # multiply-adds: 1.5 s
BACKWARD_PLANES_CODE = 2800  # instructions: about 1.2 s, with what comes before NVRTC
WEIGHT_GRADIENT_PLANES_CODE = 2600  # instructions: 2.7 s


def usual_limits(
    target: CudaTarget,
    *,
    threads: Callable[[Any], int],
    least_threads: int = LEAST_THREADS,
    computed: Callable[[Any], int],
    wanted: int,
    code: Callable[[Any], int],
    most_code: int,
    registers: Callable[[Any], int],
) -> list[Limit]:
    """Those of most families: of the threads of a block, of the outputs that it computes over those ``wanted``, and of
    the straight code and the registers of a thread."""

    def starved(cut: Any) -> bool:
        return registers(cut) > min(target.registers_per_thread, target.registers_per_sm // threads(cut))

    return [
        (f"more than {target.threads_per_block} threads", lambda cut: threads(cut) > target.threads_per_block),
        (f"fewer than {least_threads} threads", lambda cut: threads(cut) < least_threads),
        (f"more than {MOST_PADDED}× the outputs wanted", lambda cut: computed(cut) > MOST_PADDED * wanted),
        (f"more than {most_code} instructions unrolled", lambda cut: code(cut) > most_code),
        ("more registers than there are", starved),
    ]


def limit_of_shared(target: CudaTarget) -> Limit:
    most = target.shared_bytes_per_block
    return f"more than {most} bytes of shared memory", lambda cut: cut.shared_bytes > most


def grid_misfit(workload: Workload, gather: Gather) -> str | None:
    """Why a gather's kernel of any size, whose grid has planes and rows on its axes, cannot run so many; None if it
    can."""
    most = max(workload.batch * gather.depths.outputs, gather.rows.outputs)
    if workload.any_size and most > MOST_BLOCKS_Z:
        return f"a grid of blocks has at most {MOST_BLOCKS_Z} of {most} images, or rows"
    return None
