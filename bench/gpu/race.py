"""Stage ``race``: dwconv's best configuration of each workload against all other providers, with warm and with cold
caches, in a process that is replaced when the device no longer works for it. The limits of the device come first:
figures are compared with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import geometric_mean
from typing import Any

import torch

from bench.gpu.limits import MeasureLimits, as_limits, known_limits, limits_of
from bench.gpu.plan import GpuPlan
from bench.gpu.run import Ended, Run, has_failed
from bench.gpu.worker import GpuFailure, GpuWorker, Handler
from bench.race import OURS, Race, Raced, Racer
from dwconv.measure.clock.timing import Effort
from dwconv.measure.requests import MeasureSetup
from dwconv.problems.target import CpuTarget
from dwconv.records.database import Database
from dwconv.records.record import Measurement, TuningRecord
from dwconv.schedules.template import Candidate

EFFORT = Effort(round_s=0.002, rounds=15, budget_s=0.5)
_MAKING_SHARE = 0.6
"""Share of a race's seconds that making the calls may take; providers that are not ready by then do not race."""


class GpuRacer(Handler):
    """MeasureLimits or Race in; limits by name, or Raced out."""

    def __init__(self, setup: MeasureSetup) -> None:
        super().__init__(setup)
        self._racer = Racer(setup)

    def answer(self, request: Any) -> Any:
        if isinstance(request, Race):
            return self._racer(request)
        with torch.inference_mode():
            return limits_of(self.target, request)


FIRST_S = 6.0
"""Expected seconds of a race, until one has run."""
_MOST_S = 40.0
_COMPILED = 3
"""The first workloads, this many, also race against torch.compile."""
_COMPILING_S = 60.0
_START_S = 30.0
"""A race may take this much longer in a process that has just started."""


def race_stage(run: Run, *, sizes: MeasureLimits | None = None) -> Ended:
    """The run fails if nothing could be raced, though something is tuned."""
    threads = run.target.threads if isinstance(run.target, CpuTarget) else 1
    setup = MeasureSetup(target=run.target)
    with GpuWorker("bench.gpu.race:GpuRacer", setup, threads=threads) as racer:
        racer.start()
        known_limits(run, racer, sizes or MeasureLimits(), stage="race")
        return _race_all(run, racer)


def race_candidates(plan: GpuPlan) -> Iterator[Candidate]:
    """The best that is known of each workload."""
    return plan.best(plan.workloads)


def _race_all(run: Run, racer: GpuWorker) -> Ended:
    database = Database.load([run.log.path])
    records = {workload.key: database.best(workload, run.target.device) for workload in run.workloads}
    tuned = {key: record for key, record in records.items() if record is not None}
    if not tuned:
        return Ended(line=f"nothing is tuned of {len(records)} workloads; run the stage tune first", failed=True)
    compiled = set(list(records)[:_COMPILED])
    answers = run.answers(
        "race",
        tuned,
        lambda key: _raced(tuned[key], run, racer, compiled=key in compiled),
        in_words=in_words,
        left=_left(tuned, run),
    )
    return _ended(answers, count=len(tuned))


def _left(tuned: Mapping[str, TuningRecord], run: Run) -> list[str]:
    """What was not raced, then what was raced with another configuration than the best of today."""
    left, known = run.state.left("race", tuned), run.state.of("race")
    others = [key for key, record in tuned.items() if known.get(key, {}).get("config", {}) != record.config.to_dict()]
    return list(dict.fromkeys([*left, *others]))


def _raced(record: TuningRecord, run: Run, racer: GpuWorker, *, compiled: bool) -> dict[str, Any] | None:
    """None if the time was up before there was an answer."""
    compiled = compiled and run.pace.left_s > 2 * _COMPILING_S
    most_s = _MOST_S + _COMPILING_S * compiled
    left_s = run.pace.left_s
    race = Race(
        candidate=Candidate(record.workload, record.config),
        caches=("warm", "cold"),
        compiled=compiled,
        effort=EFFORT,
        making_s=_MAKING_SHARE * max(1.0, min(most_s, left_s)),
    )
    try:
        raced: Raced = racer.ask(race, timeout_s=most_s + _START_S, within_s=left_s)
    except GpuFailure as failure:
        return None if run.pace.left_s <= 0 else {"failed": str(failure)}
    limits = as_limits(run.state.of("limits").get("device", {}), run.target)
    limit_us = limits.limit_us(bytes_moved=record.workload.bytes, flops=record.workload.flops)
    return answer_of(record, raced, limit_us=limit_us)


def answer_of(record: TuningRecord, raced: Raced, *, limit_us: float) -> dict[str, Any]:
    """Medians of all providers in µs; how many times as fast dwconv is as the best of the others, and as the best in
    its own layout; per cent of the limit."""
    warm, cold = (raced.times[caches].measurements for caches in ("warm", "cold"))
    ours, layout = warm[OURS], record.workload.layout
    return {
        "config": record.config.to_dict(),
        "dwconv_us": ours.median_us,
        "warm": _against(warm, layout=layout),
        "cold": _against(cold, layout=layout),
        "percent_of_limit": 100 * limit_us / max(ours.median_us, 1e-6),
        "spread_us": {name: taken.spread_us for name, taken in warm.items()},
        "kernels": {name: list(launched) for name, launched in raced.kernels.items()},
        "refused": raced.refused,
    }


def _against(taken: dict[str, Measurement], *, layout: str) -> dict[str, Any]:
    us = {name: measured.median_us for name, measured in taken.items()}
    others = {name: median_us for name, median_us in us.items() if name != OURS}
    if OURS not in us or not others:
        return {"us": us, "best_other": None, "ratio": None, "ratio_own_layout": None}
    best = min(others, key=lambda name: others[name])
    own = [median_us for name, median_us in others.items() if name.endswith(layout)]
    ours_us = max(us[OURS], 1e-6)
    return {
        "us": us,
        "best_other": best,
        "ratio": others[best] / ours_us,
        "ratio_own_layout": min(own) / ours_us if own else None,
    }


def in_words(answer: dict[str, Any]) -> str:
    """An answer as one line."""
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    warm, cold = answer["warm"], answer["cold"]
    parts = [f"{answer['dwconv_us']:.1f} µs"]
    if warm["ratio"] is not None:
        parts.append(f"{warm['ratio']:.2f}× {warm['best_other']}")
    if cold["ratio"] is not None:
        parts.append(f"cold {cold['us'][OURS]:.1f} µs, {cold['ratio']:.2f}× {cold['best_other']}")
    return ", ".join([*parts, f"{answer['percent_of_limit']:.0f} % of limit"])


def worst_first(answers: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """What failed, then losses, the worst first, then the rest by how little it won."""

    def order(answer: dict[str, Any]) -> float:
        ratios = [] if has_failed(answer) else [answer[caches]["ratio"] for caches in ("warm", "cold")]
        return -1.0 if has_failed(answer) else min((ratio for ratio in ratios if ratio is not None), default=math.inf)

    return sorted(answers.items(), key=lambda item: order(item[1]))


def _ended(answers: dict[str, dict[str, Any]], *, count: int) -> Ended:
    raced = {key: answer for key, answer in answers.items() if not has_failed(answer)}
    failed = len(answers) - len(raced)
    parts = [f"{len(raced)} of {count} tuned workloads raced"]
    for caches in ("warm", "cold"):
        ratios = [answer[caches]["ratio"] for answer in raced.values() if answer[caches]["ratio"]]
        if ratios:
            parts.append(
                f"{caches} {geometric_mean(ratios):.2f}× the best other, least {min(ratios):.2f}, "
                f"{sum(ratio < 1 for ratio in ratios)} slower"
            )
    if failed:
        parts.append(f"{failed} failed")
    return Ended.of(answers, "; ".join(parts), count=count)
