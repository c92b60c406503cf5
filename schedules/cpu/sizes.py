"""What the configuration spaces of the CPU templates share: vectors, registers, sizes of tiles and of code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from dwconv.schedules.space import Config, Knob
from dwconv.schedules.taps import Axis, column_runs
from dwconv.target import CpuTarget, Target
from dwconv.workload import Workload

MOST_CODE = 3000
"""Vector instructions in the straight code of a kernel. TVM and LLVM need 0.3 to 1 ms for each."""

WIDE_KERNEL = 16
"""From this width on a space also has loops over all taps: a kernel row, unrolled, may be too much code."""


SMALL_FLOPS = 4_000_000
SMALL_BYTES = 1 << 20
"""Up to here a workload takes one thread some tens of microseconds, of which waking another may cost several."""


def thread_knob(workload: Workload, target: CpuTarget) -> list[Knob]:
    """How many threads run a small workload, at most: 1, 2, 4, …, all. Larger workloads take all there are, and have
    no such knob; the loader tells the kernel (build/openmp.ll)."""
    if target.threads == 1 or workload.flops > SMALL_FLOPS or workload.bytes > SMALL_BYTES:
        return []
    fewer = [1 << power for power in range((target.threads - 1).bit_length())]
    return [Knob("threads", [*fewer, target.threads])]


LARGE_BYTES = 4 << 20
"""More than the second-level caches of a few cores hold: tiles wait for the last one, or for memory."""


def prefetch_knob(workload: Workload) -> Knob:
    """How many rows ahead lines are asked for: the rows of a strip follow each other a pitch apart, which CPUs do not
    foresee. Measured in turns, wgrad of 144×56² k3, tiles of 7 × 2: from memory 608 µs, 3 ahead 540; 32×112²: 568 and
    507; 192×28²: 168 and 153; 96×112² stride 2: 953 and 1075."""
    waits = workload.bytes > LARGE_BYTES and workload.output_size[0] >= 8
    return Knob("prefetch", [0, 3, 6] if waits else [], absent=0)


def rows_ahead(config: Config) -> int:
    ahead = config.to_dict().get("prefetch", 0)
    assert isinstance(ahead, int)
    return ahead


def streamed_above(workload: Workload, target: CpuTarget) -> int:
    """The largest batch of which the result is left to the caches: it takes up to three quarters of the last one.

    Measured with 32 MiB of cache, time with streamed over time with cached stores. Results of 26 to 43 MB: the pass
    alone 0.6 to 0.9; with a sum of the result behind 0.9 to 1.2; with a product of it and another tensor 0.94 to 1.02.
    Results of 10 to 20 MB: 0.6 to 1.1, 0.9 to 2.6, 1.0 to 1.2: they had better be found in the cache."""
    result_bytes = 4 * math.prod(workload.shape_of(workload.results[0]))
    return 3 * target.cache_bytes // 4 // (result_bytes // workload.batch)


def misfit(workload: Workload, target: Target) -> str | None:
    """Why the NHWC templates of the CPU cannot run a workload; None if they can."""
    return None if workload.dtype == "float32" else f"it computes float32, not {workload.dtype}"


def vector_lanes(channels: int, target: CpuTarget) -> int:
    """Channels in a vector: as many as a register holds, or the power of two below the number of channels."""
    return min(target.lanes(), 1 << (channels.bit_length() - 1))


def vector_count(channels: int, target: CpuTarget) -> int:
    """Vectors that hold ``channels``; the last may overlap the one before."""
    return -(-channels // vector_lanes(channels, target))


def sum_registers(target: CpuTarget) -> int:
    """Vector registers that sums may take; the others hold what is multiplied. AVX has 16, AVX-512 and Arm 32."""
    return 12 if target.vector_bytes == 32 else 24


def row_blocks(rows: int, *, multiple: int = 1) -> list[int]:
    """Rows of a task: all of them, a half, a quarter, an eighth, and a few small numbers."""
    sizes = {rows, -(-rows // 2), -(-rows // 4), -(-rows // 8), 4, 8, 14, 28}
    return sorted({-(-size // multiple) * multiple for size in sizes if size <= rows})


def preferred_rows(rows: int, *, batch: int, threads: int) -> int:
    """Rows of a task that leave every thread two tasks or more, but no more than stay in its cache."""
    tasks_an_image = -(-2 * threads // batch)
    return max(1, min(14, rows // tasks_an_image))


def tiles(sizes: Sequence[int], axis: Axis) -> list[int]:
    """Those of ``sizes`` that are multiples of ``axis.down`` and not beyond the axis; at least one."""
    most = -(-axis.outputs // axis.down) * axis.down
    return [size for size in sizes if size % axis.down == 0 and size <= most] or [axis.down]


def load_cost(multiplier: int) -> int:
    """Instructions that load a vector of the source: with a multiplier its channels are not neighbours."""
    return 1 if multiplier == 1 else 32


@cache
def row_code(columns: Axis, tile_w: int) -> tuple[int, int, int]:
    """(tiles, columns read, multiply-adds) in the code for a row of tiles, one kernel row and one vector."""
    runs = [(run, columns.reads_of(run)) for run in column_runs(columns, tile_w)]
    return len(runs), sum(len(reads) for _, reads in runs), sum(len(pairs) for _, reads in runs for _, pairs in reads)
