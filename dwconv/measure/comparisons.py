"""Comparisons: the few known candidates of workload after workload, timed side by side with PyTorch's op in one go.

    build workers       build B, C       │          │ build D, E …                 │          │ build F …
    measuring worker    load, verify A   │ time A   │ verify the winner of A more, │ time B   │ …
                                         │          │ load, verify B               │          │

On a CPU nothing is built while something is timed. On a GPU, whose clock builds do not disturb, build workers always
go on. If a request fails, several kernels are wrong, or one wrote where it must not, each candidate is tried alone, so
that a bad one costs itself only. The measuring worker is replaced after any that was wrong.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dwconv import settings
from dwconv.errors import RequestFailed, WorkerError
from dwconv.kernels.artifact import Artifact
from dwconv.measure.requests import (
    CheckRequest,
    MeasureAnswer,
    TimeRequest,
    Tried,
    failed_to_build,
    is_vandalism,
    measured_record,
    right_finalist,
)
from dwconv.measure.runner import LocalRunner, WorkerProcesses
from dwconv.measure.verify.cases import CASES_OF_A_FINALIST
from dwconv.problems.target import Target
from dwconv.records.record import TuningRecord, Verdict
from dwconv.schedules.template import Candidate

Worth = Callable[[TuningRecord], bool]
NextComparison = Callable[[], Sequence[Candidate] | None]
"""The candidates of one workload; None if there are none now. There may be when what runs has ended."""

_AHEAD = 4
_AHEAD_OF_GPU = 8
"""Comparisons that may wait, built; more where the next ones take several times as long to build as to time."""


@dataclass(kw_only=True)
class _Built:
    """The candidates of a comparison, and what came of building them."""

    candidates: Sequence[Candidate]
    outcomes: dict[int, Artifact | WorkerError] = field(default_factory=dict)
    """By position."""

    @property
    def is_complete(self) -> bool:
        return len(self.outcomes) == len(self.candidates)

    @property
    def artifacts(self) -> list[Artifact]:
        return [each for _, each in sorted(self.outcomes.items()) if isinstance(each, Artifact)]

    def records(self, target: Target) -> list[TuningRecord]:
        """Of those that could not be built."""
        failed = {at: each for at, each in self.outcomes.items() if isinstance(each, WorkerError)}
        return [failed_to_build(self.candidates[at], failed[at], target=target) for at in sorted(failed)]


@dataclass(frozen=True, kw_only=True)
class _TimedComparison:
    """A comparison whose candidates were timed."""

    records: list[TuningRecord]
    """Of all candidates but the winner."""
    winner: tuple[Artifact, TuningRecord] | None
    """The fastest, if it is worth verifying further."""


class Comparisons:
    """Runs comparisons on the processes ``workers``, which start with the first one. ``is_worth``: whether the
    fastest of a comparison, by its record, is worth verifying as a finalist, to be confirmed."""

    def __init__(self, workers: WorkerProcesses, *, is_worth: Worth) -> None:
        self._workers = workers
        self._target = workers.target
        self._is_worth = is_worth
        self._line = _ComparisonQueue(workers, lambda: None)

    def run(self, next_comparison: NextComparison) -> Iterator[list[TuningRecord]]:
        """The records of each comparison, a record per candidate, in the order of the comparisons: as soon as its
        winner is verified. ``next_comparison`` gives the next ones while one runs.

        Raises WorkerCannotStart if no worker can start, EnvironmentFailure if the machine stays short of something."""
        self._line = _ComparisonQueue(self._workers, next_comparison)
        ran: _TimedComparison | None = None
        try:
            while (waiting := self._line.take(waits=ran is None)) or ran:
                verdict = self._line_up(waiting, ran)
                if ran is not None:
                    yield [*ran.records, *self._judged(ran, verdict)]
                ran = self._timed(waiting) if waiting else None
        finally:
            self._line.close()

    def _line_up(self, waiting: _Built | None, ran: _TimedComparison | None) -> Verdict | None:
        """Line up what waits to be timed, and verify the winner of the comparison that ran, while the next
        comparisons are built. The winner's verdict, None if there is none."""
        artifacts = tuple(waiting.artifacts) if waiting else ()
        winner = ran.winner[0] if ran and ran.winner else None
        if not artifacts and winner is None:
            return None
        share = len(artifacts) + (CASES_OF_A_FINALIST if winner else 0)
        answer = self._answer(CheckRequest(finalist=winner, line_up=artifacts), share=share, builds=True)
        if self._target.kind == "cpu":
            self._line.finish()
        return answer.verdict if answer else None

    # -- alone: the comparison ----------------------------------------------------------------------------------------

    def _timed(self, built: _Built) -> _TimedComparison:
        artifacts, unbuilt = tuple(built.artifacts), built.records(self._target)
        if not artifacts:
            return _TimedComparison(records=unbuilt, winner=None)
        builds = self._target.kind != "cpu"
        answer = self._answer(TimeRequest(artifacts=artifacts, stage="race"), share=len(artifacts), builds=builds)
        if answer is not None and answer.found_wrong:
            self._workers.measurer.kill()
            wrong = [tried.verdict for tried in answer.each if not tried.verdict.right]
            if len(wrong) > 1 or is_vandalism(wrong[0]):  # perhaps one made the others wrong
                answer = None
        if answer is None:
            return _TimedComparison(records=[*unbuilt, *self._one_by_one(artifacts)], winner=None)
        records = [
            (artifact, measured_record(artifact, tried, target=self._target))
            for artifact, tried in zip(artifacts, answer.each, strict=True)
        ]
        artifact, best = min(records, key=lambda each: each[1].slowness)
        counts = answer.is_clear or not best.inconclusive
        if best.measurement is None or not counts or not self._is_worth(best):
            ended = [
                dataclasses.replace(record, raced=answer.is_clear, settled=answer.is_clear and record.contended)
                for _, record in records
            ]
            return _TimedComparison(records=[*unbuilt, *ended], winner=None)
        others = [record for _, record in records if record is not best]
        return _TimedComparison(records=[*unbuilt, *others], winner=(artifact, best))

    def _answer(self, request: CheckRequest | TimeRequest, *, share: int, builds: bool) -> MeasureAnswer | None:
        """What the measuring worker answers, None if it does not; with ``builds`` the next comparisons are built
        meanwhile."""
        measurer = self._workers.measurer
        measurer.submit(request, timeout_s=settings.RUN_TIMEOUT_S * share)
        try:
            if builds:
                self._line.build_beside()
        except BaseException:  # ctrl-C, or no worker can start: the answer is not needed
            measurer.kill()
            raise
        try:
            answer: MeasureAnswer = measurer.collect()
        except WorkerError as error:
            if str(error).startswith("DeviceLost"):
                measurer.kill()
            return None
        return answer

    # -- what comes of it ------------------------------------------------------------------------------------------

    def _judged(self, ran: _TimedComparison, verdict: Verdict | None) -> list[TuningRecord]:
        """The record of the winner, with the verdict on it as a finalist; if there is none, it is tried again."""
        if ran.winner is None:
            return []
        artifact, record = ran.winner
        if verdict is None:
            return self._confirmed_alone(artifact)
        if verdict.right:
            judged = dataclasses.replace(record, verdict=verdict, raced=True)
            return [right_finalist(artifact, judged, target=self._target, sure=True)]
        self._workers.measurer.kill()
        return [measured_record(artifact, Tried(verdict=verdict), target=self._target)]

    def _one_by_one(self, artifacts: Sequence[Artifact]) -> list[TuningRecord]:
        """The records of candidates that are tried alone; the best is confirmed. Where PyTorch's op cannot be timed
        there is nothing to compare with: the workload has no record, and the next one is compared."""
        candidates = [artifact.candidate for artifact in artifacts]
        self._line.finish()
        with LocalRunner(candidates[0].workload, self._target, workers=self._workers) as runner:
            try:
                records = list(runner.measure(candidates))
            except RequestFailed:
                return []
            best = min(records, key=lambda record: record.slowness)
            if best.measurement is not None and self._is_worth(best):
                records += _raced(runner.confirm([Candidate(best.workload, best.config)]))
        return records

    def _confirmed_alone(self, artifact: Artifact) -> list[TuningRecord]:
        self._line.finish()
        with LocalRunner(artifact.candidate.workload, self._target, workers=self._workers) as runner:
            return _raced(runner.confirm([artifact.candidate]))


class _ComparisonQueue:
    """The next comparisons, in their order, from when their first candidate is built until they are taken."""

    def __init__(self, workers: WorkerProcesses, next_comparison: NextComparison) -> None:
        self._workers = workers
        self._next_comparison = next_comparison
        self._most = _AHEAD if workers.target.kind == "cpu" else _AHEAD_OF_GPU
        self._comparisons = deque[_Built]()
        self._unbuilt = deque[tuple[_Built, int]]()
        """Candidates that no build worker has begun, by their positions."""
        self._begun: list[tuple[_Built, int]] = []
        self._builds: Iterator[tuple[int, Artifact | WorkerError] | None] | None = None
        self._finishes = False

    def take(self, *, waits: bool) -> _Built | None:
        """The first comparison, built; None if there is none, or it is not built and this does not wait."""
        while not (is_built := bool(self._comparisons) and self._comparisons[0].is_complete) and waits:
            if not self._go_on() and not (self._comparisons and self._comparisons[0].is_complete):
                return None
        return self._comparisons.popleft() if is_built else None

    def build_beside(self) -> None:
        """Build until the request to the measuring worker has ended, or there is nothing to build now."""
        while not self._workers.measurer.settled and self._go_on():
            pass

    def finish(self) -> None:
        """Wait for what is being built, and begin no other: then build workers have nothing to do."""
        self._finishes = True
        while self._builds and self._go_on():
            pass
        self._finishes = False

    def close(self) -> None:
        """End what is being built."""
        if isinstance(self._builds, Generator):
            self._builds.close()

    def _go_on(self) -> bool:
        """Wait until a build has ended, or the request to the measuring worker; False if nothing can be built now."""
        if self._builds is None:
            self._begun = []
            self._builds = self._workers.builders.stream(
                self._next, timeout_s=settings.BUILD_TIMEOUT_S, beside=self._workers.measurer
            )
        try:
            ended = next(self._builds)
        except StopIteration:
            self._builds = None
            return False
        if ended is not None:
            position, outcome = ended
            built, at = self._begun[position]
            built.outcomes[at] = outcome
        return True

    def _next(self) -> Candidate | None:
        """The next candidate to build; None if there is none now."""
        if self._finishes:
            return None
        while not self._unbuilt:  # kernels that are there need no build
            if sum(built.is_complete for built in self._comparisons) >= self._most:
                return None
            if (coming := self._next_comparison()) is None:
                return None
            self._workers.measurer.start()  # takes as long as the first builds
            built = _Built(candidates=coming)
            self._comparisons.append(built)
            for at, candidate in enumerate(coming):
                if artifact := self._workers.kept(candidate):
                    built.outcomes[at] = artifact
                else:
                    self._unbuilt.append((built, at))
        self._begun.append(self._unbuilt.popleft())
        built, at = self._begun[-1]
        return built.candidates[at]


def _raced(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    return [dataclasses.replace(record, raced=True) for record in records]
