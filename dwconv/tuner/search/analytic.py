"""Analytic search: the least computed cost, for a GPU that need not be here."""

from __future__ import annotations

import random

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import estimated_us
from dwconv.tuner.search import spaces as search_spaces
from dwconv.tuner.search.spaces import SpaceUnion, Unvisited


class Analytic:
    """The least computed cost; nothing is measured.

    All legal configurations are ranked by an estimate from their knobs. The defaults are tried first, then the most
    promising: what they cost with the registers that the compiler gives them decides.
    """

    LISTED = 8000
    """Configurations to rank of a space that is too large to list: so many are drawn."""

    def __init__(self, spaces: SpaceUnion, *, workload: Workload, target: CudaTarget, seed: int) -> None:
        self._unseen = Unvisited(spaces, seed=seed)
        legal = list(spaces) if spaces.size <= search_spaces.ENUMERABLE else self._some(spaces, seed=seed)
        estimates = {config: estimated_us(workload, config, target) for config in legal}
        self._order = sorted(estimates, key=lambda config: (estimates[config], str(config)))

    @property
    def ranked(self) -> int:
        """How many configurations were ranked."""
        return len(self._order)

    def tell(self, record: TuningRecord) -> None:
        self._unseen.mark(record.config)

    def ask(self, count: int) -> list[Config]:
        found = self._unseen.defaults(count)
        new = [config for config in self._order if self._unseen.is_new(config)]
        return found + self._unseen.take(new[: count - len(found)])

    def _some(self, spaces: SpaceUnion, *, seed: int) -> list[Config]:
        rng = random.Random(seed)
        drawn = (spaces.sample(rng) for _ in range(self.LISTED))
        return list(dict.fromkeys(config for config in (*spaces.defaults, *drawn) if config is not None))
