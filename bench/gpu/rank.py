"""Stage ``rank``: does the computed cost order candidates as the device does? Spearman's ρ for each workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from bench.gpu.run import Ended, Run, has_failed, of_all, say
from dwconv.errors import BrokenInstallation, BuildError, DwconvError
from dwconv.kernels.cache import build_cached
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.cuda.gpu.cost import total_us
from dwconv.schedules.template import Candidate
from dwconv.tuner.gpu_cost.cost_model import Cost, computed_cost
from dwconv.tuner.search import analytic


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
    return {"candidates": len(measured), "spearman": round(analytic.rank_correlation(computed, measured), 3)}


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


FIRST_S = 10.0
"""Expected seconds of a workload, until one has run."""
LEAST = 8
"""Candidates of a workload; with fewer, chance decides."""
MOST = 16


def rank_stage(run: Run) -> Ended:
    """Raises BrokenInstallation where machine code cannot be read."""
    assert isinstance(run.target, CudaTarget)
    measured = measured_candidates(run)
    for key in run.state.left("rank", measured):
        if not run.pace.fits:
            break
        answer: dict[str, Any]
        with run.pace.item():
            try:
                found = rank_correlation(measured[key][:MOST], run.target, enough=lambda: run.pace.left_s <= 0)
            except BrokenInstallation:  # the same number for every workload
                raise
            except DwconvError as error:
                answer = {"failed": str(error)}
            else:
                answer = dict(found)
        if run.pace.left_s <= 0 and answer.get("candidates", 0) < LEAST:  # chance would decide
            break
        run.state.put("rank", key, answer)
        say("rank", f"{key}: {answer}")
    answers = [run.state.of("rank")[key] for key in measured if key in run.state.of("rank")]
    orders = [answer["spearman"] for answer in answers if not has_failed(answer)]
    told = f"Spearman's ρ {median(orders):.2f}, least {min(orders):.2f}, " if orders else ""
    return Ended(line=f"{told}{len(orders)} of {len(measured)} workloads ranked{of_all(len(answers), len(measured))}")


def measured_candidates(run: Run) -> dict[str, list[TuningRecord]]:
    """Measured candidates of each workload that has enough, by its key."""
    records = run.log.load().records
    of_each = {workload.key: _of(workload, records) for workload in run.workloads}
    return {key: found for key, found in of_each.items() if len(found) >= LEAST}


def _of(workload: Workload, records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """The last measurement of each configuration."""
    latest = {record.config: record for record in records if record.workload == workload and record.measured}
    return list(latest.values())
