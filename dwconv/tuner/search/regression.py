"""Regression: predicts from the candidates measured so far how fast the others would be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dwconv.schedules.space import Config
from dwconv.tuner.search.config_features import Features

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FAILED_IS_SLOWER_BY = 1.0  # in powers of two, than the slowest that worked
_TREES = 60
_PARAMETERS: dict[str, Any] = {
    "objective": "reg:squarederror",
    "tree_method": "exact",  # a few hundred rows at most
    "max_depth": 5,
    "eta": 0.2,
    "min_child_weight": 1,
    "lambda": 0.5,
    "nthread": 1,  # the cores belong to the kernel that is timed, and one thread gives the same trees every time
    "verbosity": 0,
}


class Regression:
    """Boosted trees over the features of a configuration, trained on the logarithm of its time.

    A candidate that failed is learnt as slower than all that worked, so that the search moves away from it.
    """

    def __init__(self, features: Features, *, seed: int) -> None:
        self._features = features
        self._parameters = {**_PARAMETERS, "seed": seed}
        self._trees: Any = None

    def fit(self, times: Mapping[Config, float | None]) -> None:
        """Train anew; None is a candidate that failed. The order of ``times`` does not matter."""
        import numpy as np
        import xgboost

        worked = [math.log2(time) for time in times.values() if time is not None]
        if not worked:
            self._trees = None
            return
        configs = sorted(times, key=lambda config: config.to_dict().__repr__())
        worst = max(worked) + _FAILED_IS_SLOWER_BY
        labels = [worst if (time := times[config]) is None else math.log2(time) for config in configs]
        data = xgboost.DMatrix(self._features.rows(configs), label=np.array(labels) - min(worked), nthread=1)
        self._trees = xgboost.train(self._parameters, data, num_boost_round=_TREES)

    def predict(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        """Predicted time of each over the best time, as a power of two; all zeros until a candidate has worked."""
        import numpy as np
        import xgboost

        if self._trees is None or not configs:
            return np.zeros(len(configs), dtype=np.float32)
        predicted: NDArray[np.float32] = self._trees.predict(xgboost.DMatrix(self._features.rows(configs), nthread=1))
        return predicted
