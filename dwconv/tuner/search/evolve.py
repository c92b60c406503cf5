"""Evolution: breed configurations from the best so far, guided by a prediction.

GaussianProcess predicts from a handful of measured candidates how fast the others would be, and how surely. It learns
how far the estimated cost of a configuration is off: configurations that are alike are off alike. Far from all that was
measured it predicts the estimate, with a large uncertainty. Trees need some dozens of candidates to say as much.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.tuner.search.search_result import Stop
from dwconv.tuner.search.space_union import Features, SpaceUnion, Unvisited

Numbers = NDArray[np.float64]
Prior = Callable[[Config], float]
"""What a configuration is expected to take before anything is measured, as a power of two; constants do not matter."""

OPTIMISM = 1.0
"""Standard deviations by which a candidate is taken to be faster than predicted: what is uncertain is worth a trial."""
_LENGTHS = (1.0, 2.0, 4.0)
"""Distances over which configurations are alike, in standard deviations of all features; the likeliest is taken."""
_NOISES = (0.05, 0.15)
"""Shares of the variance that features do not explain; the likeliest is taken."""
_FAILED_IS_SLOWER_BY = 1.0
"""In powers of two, than the slowest that worked."""
_MOST = 128
"""Candidates to learn from: half of them the fastest, half from all over the others. Larger matrices are multiplied by
several threads, which wait for each other on a busy machine."""


class GaussianProcess:
    """A Gaussian process over the features of a configuration; it learns the logarithm of the time over the ``prior``.

    ``sample`` shows how much features vary. A candidate that failed is learnt as slower than all that worked, so that
    the search moves away from it."""

    def __init__(self, features: Features, *, prior: Prior, sample: Sequence[Config]) -> None:
        self._features = features
        self._prior = prior
        rows = features.rows(sample).astype(np.float64)
        known = ~np.isnan(rows)
        counts = np.maximum(known.sum(axis=0), 1)
        self._mean = np.where(known, rows, 0.0).sum(axis=0) / counts
        deviation = np.sqrt((np.where(known, rows - self._mean, 0.0) ** 2).sum(axis=0) / counts)
        self._scale = np.where(deviation > 0, deviation, 1.0) * math.sqrt(max(1, int((deviation > 0).sum())))
        self._middle = 0.0
        self._posterior: _Posterior | None = None

    def fit(self, times: Mapping[Config, float | None]) -> None:
        """Learn anew; None is a candidate that failed. The order of ``times`` does not matter."""
        worked = [math.log2(time) for time in times.values() if time is not None]
        self._posterior = None
        if not worked:
            return
        worst = max(worked) + _FAILED_IS_SLOWER_BY
        powers = {config: worst if time is None else math.log2(time) for config, time in times.items()}
        configs = _some(powers)
        labels = np.array([powers[config] for config in configs]) - self._expected(configs)
        self._middle = float(labels.mean())
        rows = self._rows(configs)
        fits = [
            _Posterior.of(rows, labels - self._middle, length=length, noise=noise)
            for length in _LENGTHS
            for noise in _NOISES
        ]
        self._posterior = max(fits, key=lambda fit: fit.evidence)

    def predict(self, configs: Sequence[Config]) -> Numbers:
        """The time that each may take if it is as fast as is likely, as a power of two; the least is the most
        promising. The prior until a candidate has worked."""
        expected, posterior = self._expected(configs), self._posterior
        if posterior is None or not configs:
            return expected
        mean, known = posterior.outlook(self._rows(configs))
        return expected + self._middle + mean - OPTIMISM * posterior.deviation(1.0 - (known**2).sum(axis=0))

    def choose(self, configs: Sequence[Config], count: int) -> list[Config]:
        """Up to ``count`` of ``configs``, the most promising first. Each is chosen as if those before it were measured
        already, and as fast as predicted, so that they are not all alike."""
        expected, posterior = self._expected(configs), self._posterior
        if posterior is None or not configs:
            return [configs[at] for at in np.argsort(expected, kind="stable")[:count]]
        rows = self._rows(configs)
        mean, known = posterior.outlook(rows)
        mean, unknown = expected + mean, 1.0 - (known**2).sum(axis=0)
        chosen: list[int] = []
        for _ in range(min(count, len(configs))):
            promise = mean - OPTIMISM * posterior.deviation(unknown)
            promise[chosen] = math.inf
            at = int(np.argmin(promise))
            chosen.append(at)
            row = _alike(rows, rows[at : at + 1], length=posterior.length)[:, 0] - known.T @ known[:, at]
            row /= math.sqrt(max(float(unknown[at]), 0.0) + posterior.noise)
            known, unknown = np.vstack([known, row]), unknown - row**2
        return [configs[at] for at in chosen]

    def _expected(self, configs: Sequence[Config]) -> Numbers:
        return np.array([self._prior(config) for config in configs], dtype=np.float64)

    def _rows(self, configs: Sequence[Config]) -> Numbers:
        """Features in standard deviations, so that the distance of two configurations is about 1; a feature that a
        template does not have is average."""
        rows = self._features.rows(configs).astype(np.float64)
        scaled: Numbers = np.where(np.isnan(rows), 0.0, rows - self._mean) / self._scale
        return scaled


@dataclass(frozen=True, kw_only=True)
class _Posterior:
    """What is known of all configurations from those that were measured."""

    rows: Numbers
    length: float
    noise: float
    whitening: Numbers
    """The inverse of the covariance's Cholesky factor."""
    weights: Numbers
    variance: float
    """Of the labels."""
    evidence: float
    """The logarithm of the labels' likelihood, but for constants."""

    @classmethod
    def of(cls, rows: Numbers, labels: Numbers, *, length: float, noise: float) -> _Posterior:
        count = len(labels)
        factor = np.linalg.cholesky(_alike(rows, rows, length=length) + noise * np.eye(count))
        whitening = np.linalg.inv(factor)
        white = whitening @ labels
        variance = (float(white @ white) + 0.1) / (count + 1)  # as if one more label had been a third off
        evidence = (
            -0.5 * count * math.log(variance)
            - float(np.log(np.diag(factor)).sum())
            - (0.5 * float(white @ white) / variance)
        )
        weights = whitening.T @ white
        return cls(
            rows=rows, length=length, noise=noise, whitening=whitening, weights=weights, variance=variance,
            evidence=evidence,
        )  # fmt: skip

    def outlook(self, rows: Numbers) -> tuple[Numbers, Numbers]:
        """The mean of each, and what the measured candidates predict of it, one row for each of them."""
        alike = _alike(rows, self.rows, length=self.length)
        return alike @ self.weights, self.whitening @ alike.T

    def deviation(self, unknown: Numbers) -> Numbers:
        """Standard deviations, from the share of the variance that is left of each."""
        deviation: Numbers = np.sqrt(np.maximum(unknown, 0.0) * self.variance)
        return deviation


def _alike(one: Numbers, other: Numbers, *, length: float) -> Numbers:
    """How far each of ``one`` predicts each of ``other``, 1 if they are the same: Matérn 5/2."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None] - 2 * one @ other.T
    distance = np.sqrt(5 * np.maximum(squares, 0.0)) / length
    alike: Numbers = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return alike


def _some(powers: Mapping[Config, float]) -> list[Config]:
    """All, or the ``_MOST`` to learn from; in an order that depends on nothing else."""
    ranked = sorted(powers, key=lambda config: (powers[config], config.template, str(config)))
    if len(ranked) <= _MOST:
        return ranked
    fastest, rest = ranked[: _MOST // 2], ranked[_MOST // 2 :]
    return fastest + [rest[i * len(rest) // (_MOST // 2)] for i in range(_MOST // 2)]


class Evolve:
    """Evolution guided by a Gaussian process.

    The defaults and the configurations nearest to the first ``starts`` come first. Then a population is bred from the
    best so far by small steps, mutation and crossing, and selected for a few generations by what the process predicts.
    The most promising are tried, the other starts among them; where little is known, a configuration is promising, too.
    Candidates that are tried ``at_once`` take hardly longer than one: then no batch has fewer.
    """

    stop = Stop.EXHAUSTED
    STARTS = 3
    """Starts that are tried at once; the others must be promising."""
    WARM_UP = 4
    """Configurations tried before the prediction is trusted."""
    FEW, UNTIL = 4, 8
    """So few are tried at a time until so many are: each teaches much."""
    PARENTS = 12
    POPULATION = 192
    GENERATIONS = 3

    def __init__(
        self,
        spaces: SpaceUnion,
        *,
        model: GaussianProcess,
        seed: int,
        starts: Sequence[Config] = (),
        at_once: int = 1,
    ) -> None:
        self._spaces = spaces
        self._few = max(self.FEW, at_once)
        self._model = model
        self._starts = list(dict.fromkeys(legal for config in starts if (legal := spaces.nearest(config))))
        self._unseen = Unvisited(spaces, seed=seed)
        self._rng = random.Random(seed + 1)
        self._times: dict[Config, float | None] = {}

    def tell(self, record: TuningRecord) -> None:
        if config := self._unseen.mark(record.config):
            time = record.time_us if record.relative_time is None else record.relative_time
            self._times[config] = time if math.isfinite(time) else None

    def ask(self, count: int) -> list[Config]:
        if len(self._times) < self.UNTIL:
            count = min(count, self._few)
        found = self._unseen.defaults(count)
        first = [config for config in self._starts[: self.STARTS] if self._unseen.is_new(config)]
        found += self._unseen.take(first[: count - len(found)])
        if len(self._times) >= self.WARM_UP and self._best():
            found += self._bred(count - len(found))
        else:
            others = [config for config in self._starts if self._unseen.is_new(config)]
            found += self._unseen.take(self._model.choose(others, count - len(found)))
        return found + self._unseen.draw(count - len(found))

    def _bred(self, count: int) -> list[Config]:
        if not count:
            return []
        self._model.fit(self._times)
        parents = self._best()
        pool = dict(zip(self._starts, map(float, self._model.predict(self._starts)), strict=True))
        for _ in range(self.GENERATIONS):
            children = [child for child in self._children(parents) if child not in pool]
            self._rng.shuffle(children)  # equal predictions: the order of knobs must not decide
            pool.update(zip(children, map(float, self._model.predict(children)), strict=True))
            parents = sorted(pool, key=lambda config: pool[config])[: self.PARENTS] or parents
        new = [config for config in pool if self._unseen.is_new(config)]
        return self._unseen.take(self._model.choose(new, count))

    def _best(self) -> list[Config]:
        """The fastest measured configurations, fastest first."""
        worked = [(time, str(config), config) for config, time in self._times.items() if time is not None]
        return [config for _, _, config in sorted(worked, key=lambda item: item[:2])[: self.PARENTS]]

    def _children(self, parents: list[Config]) -> list[Config]:
        rng, spaces = self._rng, self._spaces
        steps = [near for parent in parents for near in spaces.neighbours(parent)]
        born: list[Config | None] = list(steps)
        for _ in range(self.POPULATION):
            kind = rng.random()
            if kind < 0.4:
                born.append(spaces.mutate(rng.choice(parents), rng))
            elif kind < 0.8:
                born.append(spaces.cross(rng.choice(parents), rng.choice(parents), rng))
            else:
                born.append(spaces.sample(rng))
        return list(dict.fromkeys(config for config in born if config is not None))
