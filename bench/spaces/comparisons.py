"""SpaceComparisons: many configurations of one workload, timed a dozen at a time.

    build workers       build some 50    │ build the next 50                │ rest
    measuring worker                     │ load and verify the first 50     │ time them, a dozen at a time, …

One configuration, the reference, is in every comparison: times of different comparisons compare by their ratio to
it. A comparison that other work disturbed is run again. One that fails is halved until the configuration to blame is
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dwconv import settings
from dwconv.errors import WorkerError
from dwconv.kernels.artifact import Artifact
from dwconv.measure.measuring import Comparison, LineUp, Measured
from dwconv.measure.runner import Workers, is_vandalism
from dwconv.problems.workload import Workload
from dwconv.records.record import CONTENDED
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate

AT_ONCE = 52
"""Configurations that are built before the first of them is timed."""
IN_A_HEAT = 13
"""Configurations beside the reference."""
ATTEMPTS = 3
"""Times that a contended comparison is run; then the least contended attempt counts."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A configuration's time in one comparison."""

    config: Config
    us: float | None
    reference_us: float | None
    """The reference's time in the same comparison; None if the configuration failed."""
    contention: float = 0.0
    reason: str = ""
    """Why it failed."""


class SpaceComparisons:
    """Times configurations of ``workload`` on the processes ``workers``, each comparison with ``reference`` in it."""

    def __init__(self, workers: Workers, *, workload: Workload, reference: Config) -> None:
        self._workers = workers
        self._workload = workload
        built, _ = self._built([reference])
        if not built:
            raise WorkerError(f"the reference {reference} of {workload.key} cannot be built")
        self._reference = built[0]

    def run(self, configs: Sequence[Config]) -> Iterator[list[Outcome]]:
        """The outcomes of all ``configs``, some at a time."""
        coming = iter([configs[start : start + AT_ONCE] for start in range(0, len(configs), AT_ONCE)])
        waiting = self._built(next(coming, ()))
        while waiting[0] or waiting[1]:
            artifacts, failed = waiting
            if failed:
                yield failed
            waiting = self._line_up(artifacts, coming)
            for start in range(0, len(artifacts), IN_A_HEAT):
                yield self._timed(artifacts[start : start + IN_A_HEAT])

    def _built(self, configs: Iterable[Config]) -> tuple[list[Artifact], list[Outcome]]:
        """The artifacts, and the outcomes of those that cannot be built."""
        candidates = [Candidate(self._workload, config) for config in configs]
        artifacts: dict[int, Artifact] = {}
        failed: list[Outcome] = []
        for position, outcome in self._workers.builders.map(candidates, timeout_s=settings.BUILD_TIMEOUT_S):
            if isinstance(outcome, WorkerError):
                failed.append(_failure(candidates[position].config, f"build: {outcome}"))
            else:
                artifacts[position] = outcome
        return [artifacts[position] for position in sorted(artifacts)], failed

    def _line_up(
        self, artifacts: Sequence[Artifact], coming: Iterator[Sequence[Config]]
    ) -> tuple[list[Artifact], list[Outcome]]:
        """Load and verify ``artifacts``, while the next ones are built: these are returned."""
        measurer = self._workers.measurer
        if not artifacts:
            return self._built(next(coming, ()))
        together = (self._reference, *artifacts)
        measurer.submit(LineUp(artifacts=together), timeout_s=settings.RUN_TIMEOUT_S * len(together))
        try:
            following = self._built(next(coming, ()))
        except BaseException:  # ctrl-C: nobody waits for the answer
            measurer.kill()
            raise
        self._answer()
        return following

    def _timed(self, artifacts: Sequence[Artifact]) -> list[Outcome]:
        attempts: list[list[Outcome]] = []
        for _ in range(ATTEMPTS):
            together = (self._reference, *artifacts)
            timeout_s = settings.RUN_TIMEOUT_S * len(together)
            self._workers.measurer.submit(Comparison(artifacts=together), timeout_s=timeout_s)
            answer = self._answer()
            if isinstance(answer, Measured) and any(is_vandalism(verdict) for verdict in answer.verdicts_after):
                self._workers.measurer.kill()
                answer = "it wrote where it must not"
            if isinstance(answer, str):
                return self._halved(artifacts, reason=answer)
            attempts.append(_outcomes(artifacts, answer))
            if _contention(attempts[-1]) <= CONTENDED:
                break
        return min(attempts, key=_contention)

    def _halved(self, artifacts: Sequence[Artifact], *, reason: str) -> list[Outcome]:
        if len(artifacts) == 1:
            return [_failure(artifacts[0].candidate.config, reason)]
        middle = len(artifacts) // 2
        return self._timed(artifacts[:middle]) + self._timed(artifacts[middle:])

    def _answer(self) -> Measured | str:
        """What the measuring worker answers; or why it does not."""
        try:
            answer: Measured = self._workers.measurer.collect()
        except WorkerError as error:
            return str(error)
        return answer


def _outcomes(artifacts: Sequence[Artifact], answer: Measured) -> list[Outcome]:
    taken = iter(answer.kernels)
    reference, *verdicts = answer.verdicts_after
    if not reference.right:
        raise WorkerError(f"the reference is wrong: {reference.reason}")
    known = next(taken)
    found = []
    for artifact, verdict in zip(artifacts, verdicts, strict=True):
        config = artifact.candidate.config
        if not verdict.right:
            found.append(_failure(config, verdict.reason))
            continue
        own = next(taken)
        contention = max(own.contention, known.contention)
        found.append(Outcome(config=config, us=own.median_us, reference_us=known.median_us, contention=contention))
    return found


def _failure(config: Config, reason: str) -> Outcome:
    return Outcome(config=config, us=None, reference_us=None, reason=reason)


def _contention(outcomes: Sequence[Outcome]) -> float:
    return max((outcome.contention for outcome in outcomes), default=0.0)
