"""When work is too small for all threads: waking one may cost several microseconds. No TVM here."""

from __future__ import annotations

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config, Knob

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
