"""Features: a configuration as numbers that a regression can learn from.

Knobs are taken as logarithms, since tile sizes act by their ratios. Combinations of knobs are spelt out: how many
tiles a knob makes of the axis in its name, how much of the last tile is wasted, how many outputs all tiles hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config, Value
from dwconv.tuner.search.spaces import SpaceUnion

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LEVELS = ("block", "tile", "thread", "threads", "vthread", "vectors", "vector", "group", "split")
"""First words of knob names that are sizes along an axis, at one level of the partition."""


class Features:
    """Turns configurations of one workload into rows of numbers; NaN where a template has no such knob."""

    def __init__(self, spaces: SpaceUnion, workload: Workload) -> None:
        self._templates = list(spaces.by_template)
        self._choices: dict[str, tuple[Value, ...]] = {}
        """Values of every knob; a word stands for its position."""
        for space in spaces.by_template.values():
            for knob in space.knobs:
                known = self._choices.get(knob.name, ())
                self._choices[knob.name] = tuple(dict.fromkeys((*known, *knob.values)))
        *_, height, width = workload.result_size
        self._extents = {
            "h": height, "w": width, "c": workload.out_channels, "n": workload.batch,
            "kh": workload.kernel[-2], "kw": workload.kernel[-1],
        }  # fmt: skip
        self._sized = [name for name in self._choices if _level(name) and _axis(name) in self._extents]
        self._levels = sorted({_level(name) for name in self._sized})

    def rows(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        """(len(configs), number of features)."""
        import numpy as np

        return np.array([self._row(config) for config in configs], dtype=np.float32)

    def _row(self, config: Config) -> list[float]:
        values = dict(config.values)
        row = [float(config.template == template) for template in self._templates]
        for name, choices in self._choices.items():
            row.append(_number(values[name], choices) if name in values else math.nan)
        outputs = dict.fromkeys(self._levels, 0.0)
        for name in self._sized:
            size, extent = values.get(name), self._extents[_axis(name)]
            if not isinstance(size, int) or size < 1:
                row += [math.nan, math.nan]
                continue
            tiles = -(-extent // size)
            row += [math.log2(tiles), tiles * size / extent]
            outputs[_level(name)] += math.log2(size)
        return row + list(outputs.values()) + [sum(outputs.values())]


def _number(value: Value, choices: tuple[Value, ...]) -> float:
    if isinstance(value, int):
        return math.log2(value) if value > 0 else float(value - 1)
    return float(choices.index(value))


def _level(name: str) -> str:
    first = name.partition("_")[0]
    return first if first in _LEVELS else ""


def _axis(name: str) -> str:
    return name.rpartition("_")[2]
