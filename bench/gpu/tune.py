"""Stage ``tune``: the layers of well-known networks. First a race of the few likely configurations of each untuned
workload, in a second or two; then, with the time that is left, a search for one workload after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.gpu.plan import GpuPlan
from bench.gpu.run import Ended, Run, of_all, say
from dwconv.errors import DwconvError, EnvironmentFailure, LogError, NoTemplate, WorkerCannotStart
from dwconv.measure.build_worker import BUILD_FOR_RACE
from dwconv.measure.runner import WorkerProcesses
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.schedules.template import Candidate
from dwconv.tuner.race import race
from dwconv.tuner.race_result import RaceResult
from dwconv.tuner.search.search_loop import SearchPlan, tune_workload
from dwconv.tuner.search.search_result import Budget, Stop, TuningResult

LEAST_S = 4.0
"""A search with less time finds too little."""
MOST_S = 60.0
BESIDE_S = 6.0
"""Expected overhead of a workload beside its search: preparing it, confirming the best."""


def tune_stage(run: Run) -> Ended:
    """The run fails if nothing could be tuned."""
    by_key = {workload.key: workload for workload in run.workloads}
    race_untuned(run.workloads, run, stage="tune", seconds=run.pace.left_s)
    tune_all([by_key[key] for key in run.state.left("tune", by_key)], run)
    known = Database.load([run.log.path])
    best = {key: record for key, each in by_key.items() if (record := known.best(each, run.target.device))}
    ratios = [record.speedup for record in best.values() if record.speedup]
    against = f", {min(ratios):.2f} to {max(ratios):.2f} times as fast as PyTorch" if ratios else ""
    left = of_all(len(best.keys() | run.state.of("tune").keys() & by_key.keys()), len(by_key))
    return Ended(line=f"{len(best)} of {len(by_key)} workloads tuned{against}{left}", failed=not best)


def tune_candidates(plan: GpuPlan) -> Iterator[Candidate]:
    """What is raced first, then what each search begins with."""
    yield from plan.raced(plan.workloads)
    for workload in plan.workloads:
        yield from plan.starts(workload)


def race_untuned(workloads: Iterable[Workload], run: Run, *, stage: str, seconds: float) -> RaceResult:
    """Time the likely configurations of each workload of which nothing is known, beside PyTorch's op, as
    ``dwconv.convert`` does; after ``seconds`` none begins. The result says what is left."""
    known = Database.load([run.log.path])
    workers_of_race = WorkerProcesses(run.target, jobs=run.jobs, build=BUILD_FOR_RACE)
    with run.prepared_first(workers_of_race) as workers:  # they start with the first comparison
        counts = dict.fromkeys(workloads, 1)
        raced = race(counts, run.target, log=run.log, seconds=seconds, known=known, workers=workers)
    say(stage, f"{raced}{f'; {raced.problem}' if raced.problem else ''}")
    return raced


def tune_all(workloads: Sequence[Workload], run: Run) -> None:
    """Tune as many as there is time for. Raises WorkerCannotStart, EnvironmentFailure and LogError: then nothing else
    could be tuned either."""
    with run.prepared_first(WorkerProcesses(run.target, jobs=run.jobs)) as workers:
        for position, workload in enumerate(workloads):
            seconds = min(MOST_S, max(LEAST_S, run.pace.left_s / (len(workloads) - position) - BESIDE_S))
            if run.pace.left_s < seconds + BESIDE_S:
                return
            answer = _tuned(workload, run, seconds=seconds, workers=workers)
            run.state.put("tune", workload.key, answer)
            say("tune", f"{workload.key}: {_in_words(answer)}")


def _tuned(workload: Workload, run: Run, *, seconds: float, workers: WorkerProcesses) -> dict[str, Any]:
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
