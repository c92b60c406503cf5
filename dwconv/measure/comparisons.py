"""Comparisons: the few known candidates of workload after workload, timed side by side with PyTorch's op in one go.

    build workers       build B, C       │          │ build D, E …                 │          │ build F …
    measuring worker    load, verify A   │ time A   │ verify the winner of A more, │ time B   │ …
                                         │          │ load, verify B               │          │

Nothing is built while something is timed; what is built waits for its turn. Where a request fails, or a kernel wrote
where it must not, the comparison is taken apart: each of its candidates is tried alone, as in a search, so that a
bad one costs itself only. The measuring worker is replaced after any that was wrong.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dwconv import settings
from dwconv.errors import RequestFailed, WorkerError
from dwconv.kernels.artifact import Artifact
from dwconv.measure.measuring import Comparison, LineUp, Measured, is_late
from dwconv.measure.outcomes import failed_to_build, measured_record, right_finalist
from dwconv.measure.runner import LocalRunner, Workers, found_wrong, is_vandalism
from dwconv.measure.verify.cases import CASES_OF_A_FINALIST
from dwconv.records.record import TuningRecord, Verdict
from dwconv.schedules.template import Candidate

Worth = Callable[[TuningRecord], bool]
NextComparison = Callable[[], Sequence[Candidate] | None]
"""The candidates of one workload; None if there are none now. There may be when what runs has ended."""

_AHEAD = 4
"""Comparisons that may wait, built."""


@dataclass(kw_only=True)
class _Built:
    """The candidates of a comparison, built."""

    artifacts: list[Artifact] = field(default_factory=list)
    records: list[TuningRecord] = field(default_factory=list)
    """Of those that could not be built."""


@dataclass(frozen=True, kw_only=True)
class _Ran:
    """A comparison whose candidates were timed."""

    records: list[TuningRecord]
    """Of all candidates but the winner."""
    winner: tuple[Artifact, TuningRecord] | None
    """The fastest, if it is worth verifying further."""


class Comparisons:
    """Runs comparisons on the processes ``workers``, which start with the first one. ``is_worth``: whether the
    fastest of a comparison, by its record, is worth verifying as a finalist, to be confirmed."""

    def __init__(self, workers: Workers, *, is_worth: Worth) -> None:
        self._workers = workers
        self._target = workers.target
        self._is_worth = is_worth

    def run(self, next_comparison: NextComparison) -> Iterator[list[TuningRecord]]:
        """The records of each comparison, a record per candidate, in the order of the comparisons: as soon as its
        winner is verified. ``next_comparison`` gives the next ones while one runs.

        Raises WorkerCannotStart if no worker can start, EnvironmentFailure if the machine stays short of something."""
        ready = deque(self._built(next_comparison))
        ran: _Ran | None = None
        while ready or ran is not None:
            waiting = ready.popleft() if ready else None
            verdict = self._line_up(waiting, ran, ready, next_comparison)
            if ran is not None:
                yield [*ran.records, *self._judged(ran, verdict)]
            ran = None if waiting is None else self._timed(waiting)
            if not ready:
                ready.extend(self._built(next_comparison))

    # -- beside each other: nothing is timed -----------------------------------------------------------------------

    def _built(self, next_comparison: NextComparison) -> list[_Built]:
        """The next comparison, built; or several small ones, so that all build workers have something to do."""
        candidates: list[Candidate] = []
        comparisons: list[_Built] = []
        owners: list[_Built] = []
        while len(candidates) < self._workers.jobs and (coming := next_comparison()) is not None:
            comparisons.append(_Built())
            candidates += coming
            owners += [comparisons[-1]] * len(coming)
        if comparisons:
            self._workers.measurer.start()  # takes as long as the first builds
        artifacts: dict[int, Artifact] = {}
        for position, outcome in self._workers.builders.map(candidates, timeout_s=settings.BUILD_TIMEOUT_S):
            if isinstance(outcome, WorkerError):
                record = failed_to_build(candidates[position], outcome, target=self._target)
                owners[position].records.append(record)
            else:
                artifacts[position] = outcome
        for position in sorted(artifacts):
            owners[position].artifacts.append(artifacts[position])
        return comparisons

    def _line_up(
        self, waiting: _Built | None, ran: _Ran | None, ready: deque[_Built], next_comparison: NextComparison
    ) -> Verdict | None:
        """Line up what waits to be timed, and verify the winner of the comparison that ran, while the next
        comparisons are built and made ``ready``. The winner's verdict, None if there is none."""
        artifacts = tuple(waiting.artifacts) if waiting else ()
        winner = ran.winner[0] if ran and ran.winner else None
        if not artifacts and winner is None:
            return None
        measurer = self._workers.measurer
        share = len(artifacts) + (CASES_OF_A_FINALIST if winner else 0)
        measurer.submit(LineUp(artifacts=artifacts, winner=winner), timeout_s=settings.RUN_TIMEOUT_S * share)
        try:
            while not ready or (len(ready) < _AHEAD and not measurer.has_settled()):
                built = self._built(next_comparison)
                if not built:
                    break
                ready.extend(built)
        except BaseException:  # ctrl-C, or no worker can start: the answer is not needed
            measurer.kill()
            raise
        answer = self._answer()
        return answer.verdict if answer else None

    # -- alone: the comparison ----------------------------------------------------------------------------------------

    def _timed(self, built: _Built) -> _Ran:
        if not built.artifacts:
            return _Ran(records=built.records, winner=None)
        artifacts = tuple(built.artifacts)
        measurer = self._workers.measurer
        measurer.submit(Comparison(artifacts=artifacts), timeout_s=settings.RUN_TIMEOUT_S * len(artifacts))
        answer = self._answer()
        if answer is not None and found_wrong(answer):
            measurer.kill()
            if any(is_vandalism(verdict) for verdict in answer.verdicts_after):
                answer = None
            elif sum(not verdict.right for verdict in answer.verdicts_after) > 1:  # perhaps one made the others wrong
                return self._without_the_first_wrong(built, answer)
        if answer is None:
            return _Ran(records=[*built.records, *self._one_by_one(artifacts)], winner=None)
        taken = iter(answer.kernels)
        records = []
        for artifact, verdict in zip(artifacts, answer.verdicts_after, strict=True):
            kernels = (next(taken),) if verdict.right else ()
            providers = answer.providers if verdict.right else {}
            alone = Measured(verdict=verdict, kernels=kernels, providers=providers)
            records.append((artifact, measured_record(artifact, alone, target=self._target)))
        artifact, best = min(records, key=lambda each: each[1].slowness)
        counts = answer.is_clear or not best.contended
        if best.measurement is None or not counts or not self._is_worth(best):
            return _Ran(records=[*built.records, *(record for _, record in records)], winner=None)
        others = [record for _, record in records if record is not best]
        return _Ran(records=[*built.records, *others], winner=(artifact, best))

    def _without_the_first_wrong(self, built: _Built, answer: Measured) -> _Ran:
        """The verdict on that one stays, the others are tried alone."""
        verdicts = list(enumerate(answer.verdicts_after))
        first, verdict = min((each for each in verdicts if not each[1].right), key=lambda each: is_late(each[1]))
        wrong = measured_record(built.artifacts[first], Measured(verdict=verdict), target=self._target)
        others = [artifact for number, artifact in enumerate(built.artifacts) if number != first]
        return _Ran(records=[*built.records, wrong, *self._one_by_one(others)], winner=None)

    def _answer(self) -> Measured | None:
        """What the measuring worker answers; None if it does not."""
        try:
            answer: Measured = self._workers.measurer.collect()
        except WorkerError as error:
            if str(error).startswith("DeviceLost"):
                self._workers.measurer.kill()
            return None
        return answer

    # -- what comes of it ------------------------------------------------------------------------------------------

    def _judged(self, ran: _Ran, verdict: Verdict | None) -> list[TuningRecord]:
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
        return [measured_record(artifact, Measured(verdict=verdict), target=self._target)]

    def _one_by_one(self, artifacts: Sequence[Artifact]) -> list[TuningRecord]:
        """The records of candidates that are tried alone; the best is confirmed. Where PyTorch's op cannot be timed
        there is nothing to compare with: the workload has no record, and the next one is compared."""
        candidates = [artifact.candidate for artifact in artifacts]
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
        with LocalRunner(artifact.candidate.workload, self._target, workers=self._workers) as runner:
            return _raced(runner.confirm([artifact.candidate]))


def _raced(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    return [dataclasses.replace(record, raced=True) for record in records]
