"""Grid: where the candidates of one workload wait, loaded and verified, until they are timed side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dwconv.kernels.artifact import Artifact
from dwconv.measure.clock.timing import RACE, Clock, Taken, rounds_in_turns
from dwconv.measure.prepared import Prepared
from dwconv.measure.verify.bare_kernel import LoadedKernel
from dwconv.measure.verify.verify import explained, verify, verify_call
from dwconv.records.record import CONTENDED, Measurement, Verdict
from dwconv.schedules.template import Candidate

IMAGES = 3
"""Different images that candidates of a race are verified on at first, as in the cases of finalists."""

_LATE = "after it was timed"
_CLEAR = 2.0
"""Times as fast as PyTorch's op from which on a kernel is told to be faster beside other work."""


def is_late(verdict: Verdict) -> bool:
    """True of a wrong verdict from after the timing; others came before it."""
    return verdict.reason.endswith(f"({_LATE})")


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What a comparison showed."""

    verdicts: tuple[Verdict, ...]
    """One per candidate, in order."""
    kernels: tuple[Measurement, ...]
    """One per candidate that is right, in order."""
    providers: dict[str, Measurement] = field(default_factory=dict)
    is_clear: bool = False
    """Other work disturbed it, and yet the fastest kernel is told to be so: the times of the others are the least that
    its turns allow."""


class Grid:
    """The candidates of one workload. ``load`` loads an artifact."""

    def __init__(self, prepared: Prepared, *, load: Callable[[Artifact], LoadedKernel]) -> None:
        self._prepared = prepared
        self._load = load
        self._kernels: dict[Candidate, LoadedKernel] = {}
        self._verdicts: dict[Candidate, Verdict] = {}

    def kernel(self, artifact: Artifact) -> LoadedKernel | None:
        """The kernel of a candidate that was lined up here."""
        return self._kernels.get(artifact.candidate)

    def line_up(self, artifacts: Sequence[Artifact]) -> None:
        """Load and verify the candidates that are not here yet."""
        for artifact in artifacts:
            if artifact.candidate not in self._kernels:
                kernel = self._load(artifact)
                self._verdicts[artifact.candidate] = verify(kernel, self._prepared.exact)
                self._kernels[artifact.candidate] = kernel

    def time(self, artifacts: Sequence[Artifact], *, clock: Clock) -> Timed:
        """Time those that are right, beside PyTorch's op; then judge one more call of each."""
        self.line_up(artifacts)
        candidates = [artifact.candidate for artifact in artifacts]
        right = {candidate: f"dwconv {i}" for i, candidate in enumerate(candidates) if self._verdicts[candidate].right}
        if not right:
            return Timed(verdicts=tuple(self._verdicts[candidate] for candidate in candidates), kernels=())
        calls = {name: self._prepared.call(self._kernels[candidate]) for candidate, name in right.items()}
        beside = self._prepared.beside
        taken = rounds_in_turns({**calls, **beside}, clock=clock, effort=RACE)
        for candidate in right:
            last = verify_call(self._kernels[candidate], self._prepared.exact)
            if not last.right:
                self._verdicts[candidate] = explained(last, _LATE)
        still_right = [right[candidate] for candidate in right if self._verdicts[candidate].right]
        clear = {} if self._prepared.workload.block else clearly_faster(taken, still_right, beside)
        times = {**taken.measurements, **clear}
        return Timed(
            verdicts=tuple(self._verdicts[candidate] for candidate in candidates),
            kernels=tuple(times[right[each]] for each in candidates if self._verdicts[each].right),
            providers={name: times[name] for name in beside},
            is_clear=bool(clear),
        )


def clearly_faster(taken: Taken, kernels: Sequence[str], others: Iterable[str]) -> dict[str, Measurement]:
    """Beside other work times say little, but turns say which call is the faster one. Where the fastest of ``kernels``
    is faster than all ``others`` by far: its least time, and for the others as many times that as their turns make
    sure. Empty where nothing disturbed them, and where it is not clear."""
    times = taken.measurements
    if not kernels or max(each.contention for each in times.values()) <= CONTENDED:
        return {}
    least_us = {name: min(taken.turns_us[name]) for name in kernels}
    fastest = min(kernels, key=least_us.__getitem__)
    sure = {name: taken.at_least(name, fastest) for name in others}
    if not sure or min(sure.values()) < _CLEAR:
        return {}
    found = least_us | {name: ratio * least_us[fastest] for name, ratio in sure.items()}
    return {name: dataclasses.replace(times[name], median_us=us) for name, us in found.items()}
