"""A task's time by its number of threads, predicted from a few profiled runs by a model fitted on some tasks.

some tasks   every count timed    ──► learner: what a guess from the profile must be multiplied by
every task   profile: 1 thread, all cores where there are more than two, and a count between where there are many;
             and counters of a few runs, of the hardware or else of the kernel
             ──► guess (Amdahl through the profile) × learner = curve
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dwconv.concurrency.hill_climbing import TimeOnThreads, interpolated
from dwconv.concurrency.learners import Learnt, Numbers, learnt
from dwconv.concurrency.task_graph import ScalingCurve, Task

TRAINED_ON = 16
"""Signatures whose every count is timed, by default."""
_MANY_CORES = 8
"""With more than so many, a third count is profiled."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What the runs of a profile can count."""

    events: tuple[str, ...] = ()
    of: Callable[[Task, int], Mapping[str, float]] = lambda task, threads: {}
    """Of one run of a task with that many threads, by event."""


class Regression:
    """Curves of tasks by regression. ``fit`` comes first; then a new signature costs the runs of its profile alone."""

    def __init__(self, *, cores: int, counts: Counts | None = None) -> None:
        self._cores = cores
        self._counts = counts or Counts()
        self._profiles: dict[str, Profile] = {}
        self._known: dict[str, ScalingCurve] = {}
        self.learnt: Learnt | None = None
        """None before ``fit``, and where the profile has every count."""

    @property
    def profiled_counts(self) -> tuple[int, ...]:
        """Thread counts that are timed. With two cores one of them is left to be predicted."""
        if self._cores <= 2:
            return (1,)
        return (1, round(math.sqrt(self._cores)), self._cores) if self._cores > _MANY_CORES else (1, self._cores)

    @property
    def fitted_on(self) -> frozenset[str]:
        """The signatures whose every count was timed."""
        return frozenset(self._known)

    def fit(self, tasks: Sequence[Task], timed: TimeOnThreads, *, trained_on: int = TRAINED_ON) -> None:
        """Time every count of ``trained_on`` signatures of ``tasks``, small and large ones, and learn from them."""
        chosen = _spread(tasks, count=trained_on)
        self._known |= sweep(chosen, timed, cores=self._cores)
        rows: list[dict[str, float]] = []
        labels, weights, groups = [], [], []
        for group, task in enumerate(chosen):
            profile = self._profile(task, timed)
            guess = self._guess(profile)
            for count in self._predicted_counts():
                ratio = self._known[task.signature].median_us[count] / guess.median_us[count]
                rows.append(self._row(task, profile, count))
                labels.append(math.log(ratio) / self._distance(count))
                weights.append(self._distance(count))
                groups.append(group)
        if rows:
            numbers = np.array([list(row.values()) for row in rows])
            self.learnt = learnt(numbers, np.array(labels), groups, weights=np.array(weights), names=list(rows[0]))

    def curve(self, task: Task, timed: TimeOnThreads) -> ScalingCurve:
        """The time of ``task`` for 1 to all cores: measured if the model was fitted on it, else predicted."""
        return self._known.get(task.signature) or self.predicted(task, timed)

    def predicted(self, task: Task, timed: TimeOnThreads) -> ScalingCurve:
        """The prediction for ``task``, even if the model was fitted on it. Calls ``timed`` for a new signature only."""
        profile = self._profile(task, timed)
        us = dict(profile.us)
        counts = self._predicted_counts()
        if counts:
            assert self.learnt is not None, "fit comes first"
            guess = self._guess(profile)
            rows: Numbers = np.array([list(self._row(task, profile, count).values()) for count in counts])
            for count, label in zip(counts, self.learnt.predict(rows).tolist(), strict=True):
                us[count] = guess.median_us[count] * math.exp(label * self._distance(count))
        return ScalingCurve(median_us={count: us[count] for count in sorted(us)})

    def _predicted_counts(self) -> list[int]:
        return [count for count in range(1, self._cores + 1) if count not in self.profiled_counts]

    def _profile(self, task: Task, timed: TimeOnThreads) -> Profile:
        if task.signature not in self._profiles:
            known = self._known.get(task.signature)
            counted = {1, *self.profiled_counts, self._cores} if self._counts.events else ()
            self._profiles[task.signature] = Profile(
                us={count: known.median_us[count] if known else timed(task, count) for count in self.profiled_counts},
                counts={
                    threads: {event: found.get(event, 0.0) for event in self._counts.events}
                    for threads in sorted(counted)
                    for found in [self._counts.of(task, threads)]
                },
            )
        return self._profiles[task.signature]

    def _guess(self, profile: Profile) -> ScalingCurve:
        if len(profile.us) == 1:
            return ScalingCurve(median_us={count: profile.us[1] / count for count in range(1, self._cores + 1)})
        return interpolated(profile.us, cores=self._cores)

    def _distance(self, count: int) -> float:
        """How far a count is from those profiled: there the guess needs no correction."""
        return min(abs(math.log2(count / profiled)) for profiled in self.profiled_counts)

    def _row(self, task: Task, profile: Profile, count: int) -> dict[str, float]:
        return {"threads": math.log2(count), **features(task, profile)}


def sweep(tasks: Iterable[Task], timed: TimeOnThreads, *, cores: int) -> dict[str, ScalingCurve]:
    """The measured curve of each signature: every count from 1 to all cores, timed once."""
    by_signature = {task.signature: task for task in tasks}
    return {
        signature: ScalingCurve(median_us={count: timed(task, count) for count in range(1, cores + 1)})
        for signature, task in by_signature.items()
    }


def _spread(tasks: Sequence[Task], *, count: int) -> list[Task]:
    """One task of each of at most ``count`` signatures, evenly from the least work to the most."""
    by_signature = {task.signature: task for task in tasks}
    by_work = sorted(by_signature.values(), key=lambda task: (task.flops + task.bytes, task.signature))
    if len(by_work) <= count:
        return by_work
    places = np.linspace(0, len(by_work) - 1, count).round().astype(int)
    return [by_work[place] for place in places]


# -- features of a task for any number of threads ----------------------------------------------------------------------


_SIZES = re.compile(r"[(\[](\d+(?:, ?\d+)*),?[)\]]")
"""Lists of numbers in a signature: shapes and strides."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A few runs of a task."""

    us: Mapping[int, float]
    """Times by number of threads; one thread is among them."""
    counts: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """By number of threads, what a run counted, by event; the same events for every task."""


def features(task: Task, profile: Profile) -> dict[str, float]:
    """Numbers on which the scaling of a task depends, on logarithmic scales where only ratios matter; by name, in the
    same order for every task."""
    one_us = profile.us[1]
    found = {"time": _log(one_us)}
    found |= {f"time on {count}": _log(us / one_us) for count, us in sorted(profile.us.items()) if count > 1}
    return {
        **found,
        "work rate": _log(task.flops / one_us),
        "byte rate": _log(task.bytes / one_us),
        "work per byte": _log(task.flops / max(1, task.bytes)),
        "bytes": _log(task.bytes),
        **_shape(task.signature),
        "convolution": float("convolution" in task.kind),
        "backward": float("backward" in task.kind),
        "product": float("mm" in task.kind),
        "norm": float("norm" in task.kind),
        **_of_counters(profile.counts, one_us=one_us),
    }


def _of_counters(counts: Mapping[int, Mapping[str, float]], *, one_us: float) -> dict[str, float]:
    """Events per thousand instructions, if instructions were counted; CPU time by the time on one thread; other events
    of a run as they are."""
    found: dict[str, float] = {}
    for threads, of_run in sorted(counts.items()):
        for event, count in of_run.items():
            if event == "task-clock":
                value = _log(count / 1e3 / one_us)
            elif event != "instructions" and "instructions" in of_run:
                value = math.log1p(1e3 * count / max(1.0, of_run["instructions"]))
            else:
                value = math.log1p(count)
            found[f"{event} on {threads}"] = value
    return found


def _shape(signature: str) -> dict[str, float]:
    """Of the largest list of sizes: how many elements, and its first and last size."""
    lists = [[int(size) for size in found.split(",")] for found in _SIZES.findall(signature)]
    largest = max(lists, key=math.prod, default=[1])
    return {"elements": _log(math.prod(largest)), "first size": _log(largest[0]), "last size": _log(largest[-1])}


def _log(value: float) -> float:
    return math.log(max(value, 1e-6))
