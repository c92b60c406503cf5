"""A table of a tiny pass whose times are made up: every knob has a value near which it is fast."""

from __future__ import annotations

import math

from bench.spaces.measured_spaces import MeasuredPass, MeasuredSpaces
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.tuner.search.spaces import SpaceUnion
from dwconv.tuner.search.unvisited import Unvisited

TARGET = CpuTarget(device="made-up-2t", threads=2, vector_bytes=64)
WORKLOAD = Workload(
    pass_="fprop", batch=2, channels=64, input_size=(14, 14), kernel=(3, 3), padding=((1, 1), (1, 1)), layout="nhwc"
)


def time_us(config: Config) -> float | None:
    """None for one that fails."""
    numbers = [value for _, value in config.values if isinstance(value, int)]
    if sum(numbers) % 5 == 0:
        return None
    return 100.0 + 7 * sum((place + 1) * abs(math.log2(max(value, 1)) - 1.5) for place, value in enumerate(numbers))


def spaces(*, drawn: int = 150) -> MeasuredSpaces:
    union = SpaceUnion.of(WORKLOAD, TARGET)
    configs = Unvisited(union, seed=1).draw(drawn)
    best = min(configs, key=lambda config: time_us(config) or math.inf)
    near = union.neighbours(best)
    listed = dict.fromkeys([*union.defaults, *configs, *near])
    one = MeasuredPass(
        workload=WORKLOAD,
        us={config: time_us(config) for config in listed},
        drawn=tuple(configs),
        starts=tuple(near[:3]),
        untuned_starts=tuple(near[1:2]),
    )
    return MeasuredSpaces(target=TARGET, versions={"dwconv": "0"}, created="2026-01-01T00:00:00+00:00", passes=(one,))
