"""Runner: from candidates to tuning records. LocalRunner measures on this machine, in worker processes.

    candidates ──► build workers (many, in parallel) ──► measuring worker (one, alone) ──► records
                   on a CPU never while something        verify, then time
                   is timed

Failures become records like measurements do: they are facts about the candidate. A shortage of the machine is not: the
candidate is tried again, and if the shortage stays, measuring ends.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from dwconv import settings
from dwconv.errors import DeviceLost, Shortage, WorkerError
from dwconv.kernels.artifact import Artifact
from dwconv.measure.build_worker import BUILD, BuildSetup
from dwconv.measure.build_worker import misfit as misfit_of_artifact
from dwconv.measure.clock.timing import Caches
from dwconv.measure.processes.pool import Pool
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.processes.shortages import Patience
from dwconv.measure.requests import (
    LOAD,
    CheckRequest,
    MeasureAnswer,
    MeasureSetup,
    PrepareRequest,
    TimeRequest,
    Tried,
    failed_to_build,
    failed_to_run,
    measured_record,
    misfit_of_answer,
    right_finalist,
)
from dwconv.measure.verify.cases import CASES_OF_A_FINALIST
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.record import Measurement, TuningRecord, Verdict
from dwconv.schedules.template import Candidate

# Candidates that are built before the first of them is measured, for each build worker.
_BUILT_AHEAD = 4
# Artifacts of good candidates to keep, so that finalists need not be built again.
_KEPT = 16


class Runner(AbstractContextManager["Runner"]):
    """Finds out how fast candidates are, and whether they are right."""

    @abstractmethod
    def measure(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """One record per candidate, as soon as it is known; a failed one has a status and a one-line detail."""

    @abstractmethod
    def confirm(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """Records of finalists: verified again on other data and batch sizes, timed longer and side by side, and
        verified once more. Those that are right are confirmed, unless other work disturbed the timing."""

    @abstractmethod
    def close(self) -> None:
        """End the worker processes."""

    def __exit__(self, *error: object) -> None:
        self.close()


class ArtifactPool(Protocol):
    """Makes artifacts of candidates, as ``Pool`` does."""

    def start(self) -> None: ...

    def map(self, bodies: Sequence[Candidate], *, timeout_s: float) -> Iterator[tuple[int, Artifact | WorkerError]]: ...

    def stream(
        self,
        next_body: Callable[[], Candidate | None],
        *,
        timeout_s: float,
        beside: IsolatedProcess | None = None,
    ) -> Iterator[tuple[int, Artifact | WorkerError] | None]: ...

    def kill(self) -> None: ...


class WorkerProcesses(AbstractContextManager["WorkerProcesses"]):
    """The processes that build and measure for one target. Workloads tuned one after the other can share them, since
    each start takes seconds. ``build`` and ``load`` name the functions, ``module:name``, that build and load
    kernels. ``compiles_calls``: have what lets calls bypass Python compiled, if it is not yet. ``gpu``: the number of
    the GPU to measure on. ``builders`` build instead of processes that do it on this machine. ``kept`` gives kernels
    that need no build."""

    def __init__(
        self,
        target: Target,
        *,
        jobs: int,
        build: str = BUILD,
        load: str = LOAD,
        caches: Caches = "warm",
        compiles_calls: bool = True,
        gpu: int = 0,
        builders: ArtifactPool | None = None,
        kept: Callable[[Candidate], Artifact | None] = lambda candidate: None,
    ) -> None:
        threads, vector_set = (target.threads, target.vector_set) if isinstance(target, CpuTarget) else (1, None)
        self.target = target
        self.jobs = jobs
        self.kept = kept
        self.builders: ArtifactPool = builders or Pool(
            "dwconv.measure.build_worker:BuildHandler",
            BuildSetup(target=target, build=build),
            size=jobs,
            misfit=partial(misfit_of_artifact, target=target),
        )
        self.measurer = IsolatedProcess(
            "dwconv.measure.timing_worker:TimingHandler",
            MeasureSetup(target=target, load=load, caches=caches, compiles_calls=compiles_calls),
            threads=threads,
            vector_set=vector_set,
            gpu=gpu,
            misfit=misfit_of_answer,
        )

    def start(self) -> None:
        """Start all processes, without waiting."""
        self.builders.start()
        self.measurer.start()

    def close(self) -> None:
        """End all processes."""
        self.builders.kill()
        self.measurer.kill()

    def __exit__(self, *error: object) -> None:
        self.close()


class LocalRunner(Runner):
    """Measures candidates of one workload on this machine. ``close`` ends its workers, unless they were lent to it as
    ``workers``. Raises WorkerCannotStart if no worker can start, since then no candidate could ever run, and
    EnvironmentFailure if the machine stays short of memory, disk space or the like."""

    def __init__(
        self,
        workload: Workload,
        target: Target,
        *,
        jobs: int = 1,
        build_timeout_s: float = settings.BUILD_TIMEOUT_S,
        run_timeout_s: float = settings.RUN_TIMEOUT_S,
        workers: WorkerProcesses | None = None,
    ) -> None:
        self._workload = workload
        self._target = target
        self._build_timeout_s = build_timeout_s
        self._run_timeout_s = run_timeout_s
        self._workers = workers or WorkerProcesses(target, jobs=jobs)
        self._lent = workers is not None
        self._prepared: set[tuple[int, bool]] = set()
        """Starts of the measuring worker, and whether the cases of finalists were made too."""
        self._best_us: float | None = None
        self._kept: dict[Candidate, tuple[float, Artifact]] = {}
        self._workers.start()

    def close(self) -> None:
        """End the worker processes, if they are this runner's own."""
        if not self._lent:
            self._workers.close()

    # -- trials ------------------------------------------------------------------------------------------------

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """Build, verify and time: one record per candidate, failed builds first; on a GPU, whose clock builds do not
        disturb, each as soon as it is built."""
        if self._target.kind != "cpu":
            yield from self._measure_while_building(candidates)
            return
        at_once = _BUILT_AHEAD * self._workers.jobs
        for start in range(0, len(candidates), at_once):
            artifacts = yield from self._build(candidates[start : start + at_once])
            for artifact in artifacts:
                yield self._try(artifact)

    def _measure_while_building(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        building = self._workers.builders.map(candidates, timeout_s=self._build_timeout_s)
        try:
            for position, outcome in building:
                if isinstance(outcome, WorkerError):
                    yield failed_to_build(candidates[position], outcome, target=self._target)
                else:
                    yield self._try(outcome)
        except GeneratorExit:
            for _ in building:  # a process that is ended in the middle takes seconds to start again
                pass
            raise

    def _try(self, artifact: Artifact) -> TuningRecord:
        outcome = self._request(TimeRequest(artifacts=(artifact,), stage="trial", best_us=self._best_us))
        if not isinstance(outcome, MeasureAnswer):
            return failed_to_run(artifact, outcome, target=self._target)
        record = measured_record(artifact, outcome.each[0], target=self._target)
        if record.measurement is not None:
            self._best_us = min(record.measurement.median_us, self._best_us or record.measurement.median_us)
            self._keep(artifact, record.measurement)
        return record

    # -- finalists ---------------------------------------------------------------------------------------------

    def confirm(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        """Verify on other data and batch sizes, time all that are right together, and verify them once more."""
        kept = [self._kept[candidate][1] for candidate in candidates if candidate in self._kept]
        built = yield from self._build([candidate for candidate in candidates if candidate not in self._kept])
        right: list[tuple[Artifact, Verdict]] = []
        for artifact in (*kept, *built):
            outcome = self._request(CheckRequest(finalist=artifact), share=CASES_OF_A_FINALIST)
            if not isinstance(outcome, MeasureAnswer):
                yield failed_to_run(artifact, outcome, target=self._target)
            elif outcome.verdict is not None and outcome.verdict.right:
                right.append((artifact, outcome.verdict))
            elif outcome.verdict is not None:
                yield measured_record(artifact, Tried(verdict=outcome.verdict), target=self._target)
        if right:
            yield from self._time_together(right)

    def _time_together(self, finalists: list[tuple[Artifact, Verdict]]) -> Iterator[TuningRecord]:
        request = TimeRequest(artifacts=tuple(artifact for artifact, _ in finalists), stage="final")
        outcome = self._request(request, share=len(finalists))
        if not isinstance(outcome, MeasureAnswer) and len(finalists) == 1:
            yield failed_to_run(finalists[0][0], outcome, target=self._target)
        elif not isinstance(outcome, MeasureAnswer):  # one of them is to blame: time them one by one
            for finalist in finalists:
                yield from self._time_together([finalist])
        else:
            for (artifact, verdict), tried in zip(finalists, outcome.each, strict=True):
                if tried.verdict.right:
                    record = measured_record(artifact, dataclasses.replace(tried, verdict=verdict), target=self._target)
                    yield right_finalist(artifact, record, target=self._target, sure=not record.contended)
                elif len(finalists) > 1:  # perhaps only for what another one did to their process
                    yield from self._time_together([(artifact, verdict)])
                else:
                    yield measured_record(artifact, tried, target=self._target)

    # -- workers -----------------------------------------------------------------------------------------------

    def _build(self, candidates: Sequence[Candidate]) -> Generator[TuningRecord, None, list[Artifact]]:
        """Yield a record for each candidate that cannot be built; return the artifacts of the rest, in order."""
        artifacts: dict[int, Artifact] = {}
        for position, outcome in self._workers.builders.map(candidates, timeout_s=self._build_timeout_s):
            if isinstance(outcome, WorkerError):
                yield failed_to_build(candidates[position], outcome, target=self._target)
            else:
                artifacts[position] = outcome
        return [artifacts[position] for position in sorted(artifacts)]

    def _request(self, body: CheckRequest | TimeRequest, *, share: int = 1) -> MeasureAnswer | WorkerError:
        """The measuring worker's answer, or the error that the request is to blame for. The time limit grows with
        ``share`` and with the sizes that the workload is measured at."""
        measurer = self._workers.measurer
        patience = Patience(needs_bytes=_tensor_bytes(body))
        share *= len(self._workload.at_each_size)
        while True:
            self._prepare(finalists=isinstance(body, CheckRequest) or body.stage == "final")
            try:
                answer: MeasureAnswer = measurer.call(body, timeout_s=self._run_timeout_s * share)
            except WorkerError as error:
                # A process keeps memory of the GPU that it once had: another one begins with all that there is.
                if str(error).startswith(DeviceLost.__name__) or error.shortage is Shortage.GPU_MEMORY:
                    measurer.kill()
                if patience.again(error):
                    continue
                return error
            if answer.found_wrong:
                measurer.kill()
            return answer

    def _prepare(self, *, finalists: bool) -> None:
        """Have the measuring worker make the inputs and answers that all candidates share, and the cases of
        ``finalists``. Raises WorkerError if it cannot."""
        measurer = self._workers.measurer
        patience = Patience()
        while not (measurer.running and (measurer.starts, finalists) in self._prepared):
            try:
                measurer.call(
                    PrepareRequest(workload=self._workload, finalists=finalists),
                    timeout_s=settings.WORKER_START_TIMEOUT_S,
                )
            except WorkerError as error:
                if error.shortage is Shortage.GPU_MEMORY:
                    measurer.kill()
                if not patience.again(error):
                    raise
            else:
                self._prepared = {(measurer.starts, False), (measurer.starts, finalists)}

    def _keep(self, artifact: Artifact, measurement: Measurement) -> None:
        self._kept[artifact.candidate] = (measurement.median_us, artifact)
        if len(self._kept) > _KEPT:
            del self._kept[max(self._kept, key=lambda candidate: self._kept[candidate][0])]


def _tensor_bytes(request: CheckRequest | TimeRequest) -> int:
    """Memory for the tensors of a candidate; of several candidates, the most that one needs."""
    candidates = [(artifact, artifact.candidate.workload) for artifact in request.artifacts]
    return max(
        sum((artifact.at(each) if each.any_size else artifact).bytes_at(each.batch) for each in workload.at_each_size)
        for artifact, workload in candidates
    )
