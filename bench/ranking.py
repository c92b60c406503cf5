"""Does the computed cost order candidates as the device does?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dwconv.errors import BuildError
from dwconv.kernels.cache import build_cached
from dwconv.problems.target import CudaTarget
from dwconv.records.record import TuningRecord
from dwconv.schedules.cuda.gpu.cost import total_us
from dwconv.schedules.template import Candidate
from dwconv.tuner.gpu_cost.cost_model import Cost, computed_cost
from dwconv.tuner.search import ranking


def rank_correlation(
    records: Sequence[TuningRecord], target: CudaTarget, *, enough: Callable[[], bool] = lambda: False
) -> dict[str, float | int]:
    """Spearman's ρ of computed cost, with warm caches, and measured median: 1 is the same order, 0 no relation. Only
    candidates whose cost was computed before ``enough`` count."""
    computed, measured = [], []
    for cost, median_us in costs_of(records, target, enough=enough):
        computed.append(total_us([kernel.work for kernel in cost.kernels], target, warm=True))
        measured.append(median_us)
    if len(measured) < 2:
        return {"candidates": len(measured), "spearman": 0.0}
    return {"candidates": len(measured), "spearman": round(ranking.rank_correlation(computed, measured), 3)}


def costs_of(
    records: Sequence[TuningRecord], target: CudaTarget, *, enough: Callable[[], bool] = lambda: False
) -> Iterator[tuple[Cost, float]]:
    """The computed cost of each candidate that can be built, and its measured median in µs, until ``enough``."""
    for record in records:
        if enough():
            return
        assert record.measurement is not None
        try:
            artifact = build_cached(Candidate(record.workload, record.config), target)
            yield computed_cost(artifact, record.workload, target), record.measurement.median_us
        except BuildError:
            continue
