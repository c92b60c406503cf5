"""A task's time by its number of threads, predicted from a few profiled runs by a model learnt on some tasks.

some tasks   every count timed    ──► learner: what a guess from the profile must be multiplied by
every task   profile: 1 thread, and all cores where there are more than two; hardware events if they can be counted
             ──► guess (Amdahl through the profile) × learner = curve
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dwconv.concurrency.graph.task_graph import ScalingCurve, Task
from dwconv.concurrency.times.accuracy import sweep
from dwconv.concurrency.times.counters import counted, unavailable
from dwconv.concurrency.times.hill_climbing import Timed
from dwconv.concurrency.times.interpolation import amdahl_us
from dwconv.concurrency.times.learners import Learnt, Numbers, learnt
from dwconv.concurrency.times.task_features import Profile, features
from dwconv.errors import InvalidChoice

TRAINED_ON = 16
"""Signatures whose every count is timed, by default."""


class Regression:
    """Curves of tasks by regression. ``fit`` comes first; then a new signature costs the runs of its profile alone."""

    def __init__(self, *, cores: int) -> None:
        self._cores = cores
        self._profiles: dict[str, Profile] = {}
        self._known: dict[str, ScalingCurve] = {}
        self.learnt: Learnt | None = None
        """What learnt it, and how well; None before ``fit``, and where the profile says everything."""

    @property
    def profiled_counts(self) -> tuple[int, ...]:
        """Thread counts that are timed. With two cores one of them is left to be predicted."""
        return (1, self._cores) if self._cores > 2 else (1,)

    @property
    def note(self) -> str:
        """What the model does without, and why; empty if it has everything."""
        return unavailable()

    def fit(self, tasks: Sequence[Task], timed: Timed, *, trained_on: int = TRAINED_ON) -> None:
        """Time every count of ``trained_on`` signatures of ``tasks``, small and large ones, and learn from them.
        Raises InvalidChoice without tasks."""
        if not tasks:
            raise InvalidChoice("the regression has no tasks to learn from; fit it on the tasks of a graph")
        chosen = _spread(tasks, count=trained_on)
        self._known |= sweep(chosen, timed, cores=self._cores)
        rows, labels, weights, groups = [], [], [], []
        for group, task in enumerate(chosen):
            profile = self._profile(task, timed)
            for count in self._predicted_counts():
                ratio = self._known[task.signature].median_us[count] / self._guess_us(profile, count)
                rows.append(self._row(task, profile, count))
                labels.append(math.log(ratio) / self._distance(count))
                weights.append(self._distance(count))
                groups.append(group)
        if rows:
            self.learnt = learnt(np.array(rows), np.array(labels), groups, weights=np.array(weights))

    def curve(self, task: Task, timed: Timed) -> ScalingCurve:
        """The time of ``task`` for 1 to all cores: measured if the model was fitted on it, else predicted."""
        return self._known.get(task.signature) or self.predicted(task, timed)

    def predicted(self, task: Task, timed: Timed) -> ScalingCurve:
        """What the model says of ``task``, even if it was fitted on it. Calls ``timed`` for a new signature only.
        Raises InvalidChoice before ``fit``."""
        profile = self._profile(task, timed)
        us = dict(profile.us)
        counts = self._predicted_counts()
        if counts:
            if self.learnt is None:
                raise InvalidChoice("the regression has learnt nothing yet; call fit on some tasks first")
            rows: Numbers = np.array([self._row(task, profile, count) for count in counts])
            for count, label in zip(counts, self.learnt.predict(rows).tolist(), strict=True):
                us[count] = self._guess_us(profile, count) * math.exp(label * self._distance(count))
        return ScalingCurve(median_us={count: us[count] for count in sorted(us)})

    def _predicted_counts(self) -> list[int]:
        return [count for count in range(1, self._cores + 1) if count not in self.profiled_counts]

    def _profile(self, task: Task, timed: Timed) -> Profile:
        if task.signature not in self._profiles:
            known = self._known.get(task.signature)
            with counted() as events:
                us = {1: timed(task, 1)}
            for count in self.profiled_counts[1:]:
                us[count] = known.median_us[count] if known else timed(task, count)
            self._profiles[task.signature] = Profile(us=us, events=events)
        return self._profiles[task.signature]

    def _guess_us(self, profile: Profile, count: int) -> float:
        if len(self.profiled_counts) == 1:
            return profile.us[1] / count
        return amdahl_us(count, one_us=profile.us[1], all_us=profile.us[self._cores], cores=self._cores)

    def _distance(self, count: int) -> float:
        """How far a count is from those profiled: there the guess needs no correction."""
        return min(abs(math.log2(count / profiled)) for profiled in self.profiled_counts)

    def _row(self, task: Task, profile: Profile, count: int) -> list[float]:
        return [math.log2(count), *features(task, profile)]


def _spread(tasks: Sequence[Task], *, count: int) -> list[Task]:
    """One task of each of at most ``count`` signatures, evenly from the least work to the most."""
    by_signature = {task.signature: task for task in tasks}
    by_work = sorted(by_signature.values(), key=lambda task: (task.flops + task.bytes, task.signature))
    if len(by_work) <= count:
        return by_work
    places = np.linspace(0, len(by_work) - 1, count).round().astype(int)
    return [by_work[place] for place in places]
