"""One workload, everybody who can run it, in turns: with warm caches, with cold ones, and inside a CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from bench.providers import gpu_providers
from dwconv.build.cache import build_cached
from dwconv.build.kernel import Kernel
from dwconv.measure.cases import make_case
from dwconv.measure.timing import CudaClock, Effort, Lap, time_in_turns
from dwconv.measure.verify import verify
from dwconv.records.record import Measurement, TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.target import CudaTarget, Limits

Call = Callable[[], object]

_EFFORT = Effort(round_s=0.002, rounds=15, budget_s=0.6)
_COLD = Effort(round_s=0.0, rounds=15, budget_s=0.4)  # one call a round: the second would be warm
_CALLS_A_GRAPH = 20
_GRAPH_BELOW_US = 50.0


class ColdClock(CudaClock):
    """Sweeps the caches before each lap, outside of what is timed."""

    def __init__(self, sweep_bytes: int) -> None:
        self._sweep = torch.empty(sweep_bytes, dtype=torch.uint8, device="cuda")

    def lap(self, call: Call, *, times: int) -> Lap:
        self._sweep.zero_()
        return super().lap(call, times=times)


def race(
    record: TuningRecord, target: CudaTarget, *, limits: dict[str, float], compiled: bool, seconds: float
) -> dict[str, Any]:
    """Medians in µs of everybody; the ratio of the best other to dwconv; per cent of the measured limit."""
    started = time.monotonic()
    workload = record.workload
    case = make_case(workload, data="integers", device="cuda")
    kernel = Kernel.load(build_cached(Candidate(workload, record.config), target))
    verdict = verify(kernel, case)
    if not verdict.right:
        return {"error": f"wrong: {verdict.reason}"}
    calls: dict[str, Call] = {"dwconv": lambda: kernel(*case.inputs)}
    refused: dict[str, str] = {}
    for name, make in gpu_providers(case, compiled=compiled):
        if time.monotonic() - started > 0.6 * seconds and len(calls) > 2:
            refused[name] = "no time"
            continue
        try:
            call = make()
            call()
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001  a library refuses in its own words; the others still race
            refused[name] = (str(error) or type(error).__name__).partition("\n")[0][:200]
            continue
        calls[name] = call
    warm = time_in_turns(calls, clock=CudaClock(), effort=_EFFORT)
    cold = time_in_turns(calls, clock=ColdClock(4 * target.limits.cache_bytes), effort=_COLD)
    answer = _answer(record, warm, limits=limits, target=target)
    answer["cold_us"] = {name: taken.median_us for name, taken in cold.items()}
    answer["refused"] = refused
    if warm["dwconv"].median_us < _GRAPH_BELOW_US:
        answer["graph_us"] = _in_graphs(calls)
    return answer


def _answer(
    record: TuningRecord, warm: dict[str, Measurement], *, limits: dict[str, float], target: CudaTarget
) -> dict[str, Any]:
    others = {name: taken for name, taken in warm.items() if name != "dwconv"}
    best_other = min(others, key=lambda name: others[name].median_us, default="nobody")
    ours_us = warm["dwconv"].median_us
    measured = Limits(
        memory_gb_per_s=limits.get("memory_gb_per_s", target.limits.memory_gb_per_s),
        cache_gb_per_s=limits.get("cache_gb_per_s", target.limits.cache_gb_per_s),
        cache_bytes=target.limits.cache_bytes,
        peak_gflop_per_s=limits.get("peak_gflop_per_s", target.limits.peak_gflop_per_s),
    )
    limit_us = measured.limit_us(bytes_moved=record.workload.bytes, flops=record.workload.flops)
    return {
        "config": record.config.to_dict(),
        "dwconv_us": ours_us,
        "best_other": best_other,
        "ratio": others[best_other].median_us / ours_us if others else None,
        "percent_of_limit": 100 * limit_us / ours_us,
        "warm_us": {name: taken.median_us for name, taken in warm.items()},
        "spread_us": {name: taken.spread_us for name, taken in warm.items()},
    }


def _in_graphs(calls: dict[str, Call]) -> dict[str, float | str]:
    """µs a call when many are captured in one CUDA graph: the time without the launches from Python."""
    graphs: dict[str, Call] = {}
    failed: dict[str, float | str] = {}
    for name, call in calls.items():
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(_CALLS_A_GRAPH):
                    call()
            graphs[name] = graph.replay
        except RuntimeError as error:
            failed[name] = str(error).partition("\n")[0][:200]
    taken = time_in_turns(graphs, clock=CudaClock(), effort=_EFFORT) if graphs else {}
    return {**{name: measured.median_us / _CALLS_A_GRAPH for name, measured in taken.items()}, **failed}
