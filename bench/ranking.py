"""Does the computed cost order candidates as the device does?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dwconv.errors import BuildError
from dwconv.kernels.cache import build_cached
from dwconv.problems.target import CudaTarget
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.tuner.gpu_cost.cost_model import computed_cost
from dwconv.tuner.search import ranking


def rank_correlation(
    records: Sequence[TuningRecord], target: CudaTarget, *, enough: Callable[[], bool] = lambda: False
) -> dict[str, float | int]:
    """Spearman's ρ of computed cost and measured median: 1 is the same order, 0 no relation. Only candidates whose cost
    was computed before ``enough`` count."""
    computed, measured = [], []
    for record in records:
        if enough():
            break
        assert record.measurement is not None
        try:
            artifact = build_cached(Candidate(record.workload, record.config), target)
            cost = computed_cost(artifact, record.workload, target)
        except BuildError:
            continue
        computed.append(float(cost.microseconds))
        measured.append(record.measurement.median_us)
    if len(measured) < 2:
        return {"candidates": len(measured), "spearman": 0.0}
    return {"candidates": len(measured), "spearman": round(ranking.rank_correlation(computed, measured), 3)}
