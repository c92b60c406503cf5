"""Stage ``tune``: the layers of well-known networks. First the few configurations of each workload that are likely to
be good, in a second or two; then, with the time that is left, a search for one workload after the other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from bench.gpu.run import Ended, Run, of_all, say
from dwconv.dispatch.advantage import beats_pytorch
from dwconv.errors import DwconvError, EnvironmentFailure, LogError, NoTemplate, WorkerCannotStart
from dwconv.measure.building import BUILD_CACHED
from dwconv.measure.comparisons import Comparisons
from dwconv.measure.runner import Workers
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.tuner.search.loop import SearchPlan, tune_workload
from dwconv.tuner.search.search_result import Budget, Stop, TuningResult, ctrl_c_waits
from dwconv.untuned.starts import starts

COMPARED_S = 3.0
"""With less time than this no comparison begins."""
MOST_STARTS = 5
"""Configurations of a workload that are compared."""
LEAST_S = 4.0
"""A search with less time finds too little."""
MOST_S = 60.0
BESIDE_S = 6.0
"""Expected overhead of a workload beside its search: preparing it, confirming the best."""


def tune_stage(run: Run) -> Ended:
    """The run fails if nothing could be tuned."""
    by_key = {workload.key: workload for workload in run.workloads}
    compare_starts([by_key[key] for key in run.state.left("starts", by_key)], run)
    tune_all([by_key[key] for key in run.state.left("tune", by_key)], run)
    known = {**run.state.of("starts"), **run.state.of("tune")}
    answers = [known[key] for key in by_key if key in known]
    tuned = [answer for answer in answers if answer.get("config")]
    ratios = [answer["speedup"] for answer in tuned if answer["speedup"]]
    against = f", {min(ratios):.2f} to {max(ratios):.2f} times as fast as PyTorch" if ratios else ""
    left = of_all(len(answers), len(by_key))
    return Ended(line=f"{len(tuned)} of {len(by_key)} workloads tuned{against}{left}", failed=not tuned)


def compare_starts(workloads: Sequence[Workload], run: Run, *, stage: str = "tune", only_unknown: bool = False) -> None:
    """Time the configurations that a search would start from, those that this device has not timed yet, side by side
    with the best that is known, and with PyTorch's op. ``only_unknown``: workloads of which nothing is known.

    Raises WorkerCannotStart, EnvironmentFailure and LogError: then nothing else could be tuned either."""
    log = run.log
    known = Database.load([log.path])
    waiting, running = deque(workloads), deque[Workload]()

    def next_comparison() -> list[Candidate] | None:
        while waiting and run.pace.left_s > COMPARED_S:
            workload = waiting.popleft()
            timed = {record.config for record in known.records(workload, run.target.device)}
            if not (timed and only_unknown):
                untimed = [config for config in _starts(workload, run, known) if config not in timed]
                if untimed:
                    running.append(workload)
                    best = known.best(workload, run.target.device)
                    again = [best.config] if best and best.config in timed else []
                    return [Candidate(workload, config) for config in (*untimed, *again)]
            run.state.put("starts", workload.key, _compared([], known.best(workload, run.target.device)))
        return None

    with Workers(run.target, jobs=run.jobs, build=BUILD_CACHED) as workers:  # they start with the first comparison
        comparisons = Comparisons(workers, is_worth=lambda record: beats_pytorch(record, run.target))
        for records in comparisons.run(next_comparison):
            workload = running.popleft()
            with log.locked(), ctrl_c_waits():
                for record in records:
                    log.append(record)
                    known.add(record)
            answer = _compared(records, known.best(workload, run.target.device))
            run.state.put("starts", workload.key, answer)
            say(stage, f"{workload.key}: {_in_words(answer)}")


def _starts(workload: Workload, run: Run, known: Database) -> list[Config]:
    try:
        found = starts(workload, run.target, known.bests_of_kind(workload))
    except NoTemplate:
        return []
    return [start.config for start in found[:MOST_STARTS]]


def _compared(records: Sequence[TuningRecord], best: TuningRecord | None) -> dict[str, Any]:
    failures = Counter(str(record.status) for record in records if record.status is not Status.OK)
    seen: dict[str, Any] = {"trials": len(records), "failures": dict(failures)}
    if best is None or best.measurement is None:
        return {**seen, "failed": next((record.detail for record in records if record.detail), "no candidate worked")}
    median_us = best.measurement.median_us
    return {
        **seen,
        "config": best.config.to_dict(),
        "median_us": median_us,
        "speedup": best.speedup,
        "confirmed": best.confirmed,
    }


def tune_all(workloads: Sequence[Workload], run: Run) -> None:
    """Tune as many as there is time for. Raises WorkerCannotStart, EnvironmentFailure and LogError: then nothing else
    could be tuned either."""
    with Workers(run.target, jobs=run.jobs) as workers:
        for position, workload in enumerate(workloads):
            seconds = min(MOST_S, max(LEAST_S, run.pace.left_s / (len(workloads) - position) - BESIDE_S))
            if run.pace.left_s < seconds + BESIDE_S:
                return
            answer = _tuned(workload, run, seconds=seconds, workers=workers)
            run.state.put("tune", workload.key, answer)
            say("tune", f"{workload.key}: {_in_words(answer)}")


def _tuned(workload: Workload, run: Run, *, seconds: float, workers: Workers) -> dict[str, Any]:
    budget, plan = Budget(trials=None, seconds=seconds), SearchPlan(workers=workers)
    try:
        result = tune_workload(workload, run.target, log=run.log, budget=budget, plan=plan)
    except NoTemplate as error:
        return {"none": str(error)}
    except (WorkerCannotStart, EnvironmentFailure, LogError):
        raise
    except DwconvError as error:
        return {"failed": str(error)}
    if result.stopped is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return _answer(result)


def _answer(result: TuningResult) -> dict[str, Any]:
    seen: dict[str, Any] = {"trials": result.trials, "failures": result.failures}
    if result.best is None:
        return {**seen, "failed": f"no candidate worked: {result.failure_detail}"}
    return {
        **seen,
        "config": result.best.config.to_dict(),
        "median_us": result.median_us,
        "speedup": result.best.speedup,
        "percent_of_limit": result.percent_of_limit,
        "confirmed": result.best.confirmed,
    }


def _in_words(answer: dict[str, Any]) -> str:
    if "config" not in answer:
        return str(answer.get("failed") or answer.get("none"))
    speedup = "" if answer["speedup"] is None else f", {answer['speedup']:.2f}× PyTorch"
    return f"{answer['median_us']:.1f} µs{speedup}, {answer['trials']} trials, failures {answer['failures'] or 'none'}"
