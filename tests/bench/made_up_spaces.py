"""A table of a tiny pass whose times are made up: every knob has a value near which it is fast."""

from __future__ import annotations

import dataclasses
import json
import lzma
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.replay import FORMAT, MeasuredPass, MeasuredSpaces
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.tuner.search.spaces import SpaceUnion, Unvisited

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


def write_spaces(spaces: MeasuredSpaces, path: Path) -> None:
    """The table as a file: knobs are columns, times have four digits, and all of it is compressed."""
    fields = {
        "format": FORMAT,
        "target": dataclasses.asdict(spaces.target),
        "versions": spaces.versions,
        "created": spaces.created,
        "passes": [_written(one) for one in spaces.passes],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(fields, separators=(",", ":"))
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def _written(one: MeasuredPass) -> dict[str, Any]:
    """Rows by template; ``drawn`` and the starts are the numbers of rows."""
    configs = sorted(one.us, key=lambda config: (config.template, [str(value) for value in config.values]))
    numbers = {config: number for number, config in enumerate(configs)}
    names = list(dict.fromkeys(config.template for config in configs))
    return {
        "workload": one.workload.to_dict(),
        "templates": [_columns(name, [c for c in configs if c.template == name], one.us) for name in names],
        "drawn": _numbers(one.drawn, numbers),
        "starts": _numbers(one.starts, numbers),
        "untuned_starts": _numbers(one.untuned_starts, numbers),
    }


def _columns(template: str, configs: Sequence[Config], us: dict[Config, float | None]) -> dict[str, Any]:
    knobs = [name for name, _ in configs[0].values]
    return {
        "template": template,
        "knobs": {knob: [dict(config.values)[knob] for config in configs] for knob in knobs},
        "us": [None if (time := us[config]) is None else float(f"{time:.4g}") for config in configs],
    }


def _numbers(configs: Iterable[Config], numbers: dict[Config, int]) -> list[int]:
    return [numbers[config] for config in configs if config in numbers]
