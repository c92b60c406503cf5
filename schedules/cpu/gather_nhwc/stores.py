"""Whether the result is stored into the caches or past them: the knob ``store``. No TVM here."""

from __future__ import annotations

import math

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, Knob


def store_knob(work: Gather, workload: Workload, target: CpuTarget) -> Knob:
    """There is a choice only where the result is too large to be found in the caches, if its pixels are whole vectors,
    and on x86."""
    is_x86 = target.vector_bytes >= 32
    is_large = workload.batch > largest_cached_batch(workload, target)
    streams = is_x86 and is_large and work.channels % target.lanes() == 0
    return Knob("store", ["cached", "streamed"] if streams else [], absent="cached")


def streamed_above(workload: Workload, config: Config, target: CpuTarget) -> int | None:
    """The batch beyond which the kernel streams its result; of any size how many elements; None: it never does."""
    is_streamed = config.to_dict().get("store") == "streamed"
    if is_streamed and workload.any_size:
        return 3 * target.cache_bytes // 4 // ITEMSIZE[workload.dtype]
    return largest_cached_batch(workload, target) if is_streamed else None


def largest_cached_batch(workload: Workload, target: CpuTarget) -> int:
    """The largest batch whose result is left to the caches: it takes up to three quarters of the last one.

    Measured with 32 MiB of cache, time with streamed over time with cached stores. Results of 26 to 43 MB: the pass
    alone 0.6 to 0.9; with a sum of the result behind 0.9 to 1.2; with a product of it and another tensor 0.94 to 1.02.
    Results of 10 to 20 MB: 0.6 to 1.1, 0.9 to 2.6, 1.0 to 1.2: they had better be found in the cache."""
    result_bytes = ITEMSIZE[workload.dtype] * math.prod(workload.shape_of(workload.results[0]))
    return 3 * target.cache_bytes // 4 // (result_bytes // workload.batch)
