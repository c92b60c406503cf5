"""MeasuredSpaces: the times of hundreds of configurations of every pass, in one small file.

Knobs are columns, times have four digits, and all of it is compressed: some 10 bytes a configuration.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwconv.errors import UnreadableSpaces
from dwconv.problems.target import CacheLevel, CpuTarget, Limits
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config

FORMAT = 1
FOLDER = Path("bench/spaces")


@dataclass(frozen=True, kw_only=True)
class MeasuredPass:
    """What was measured of one pass."""

    workload: Workload
    us: dict[Config, float | None]
    """Every configuration that was measured; None if it failed."""
    drawn: tuple[Config, ...]
    """Those that were drawn evenly, in the order of the draws."""
    starts: tuple[Config, ...]
    """Where a search starts that has the records of other devices, the most promising first."""
    untuned_starts: tuple[Config, ...]
    """The same without records of the layer itself."""


@dataclass(frozen=True, kw_only=True)
class MeasuredSpaces:
    """The passes that were measured on a device."""

    target: CpuTarget
    versions: dict[str, str]
    created: str
    passes: tuple[MeasuredPass, ...]


def table_path(device: str, *, layout: str, folder: Path = FOLDER) -> Path:
    return folder / f"{device}-{layout}.json.xz"


def tables(path: Path, *, layout: str) -> list[Path]:
    """``path``; if it is a folder, the tables of ``layout`` in it. Raises UnreadableSpaces if there are none."""
    if not path.is_dir():
        return [path]
    if found := sorted(path.glob(f"*-{layout}.json.xz")):
        return found
    raise UnreadableSpaces(f"{path} has no table of layout {layout}; python -m bench spaces makes one")


def write_spaces(spaces: MeasuredSpaces, path: Path) -> None:
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


def read_spaces(path: Path) -> MeasuredSpaces:
    """Raises UnreadableSpaces for a file that is not there, or is none."""
    try:
        fields = json.loads(lzma.decompress(path.read_bytes()))
        if fields["format"] != FORMAT:
            raise ValueError(f"format {fields['format']} is not {FORMAT}")
        if not fields["passes"]:
            raise ValueError("it has no passes")
        return MeasuredSpaces(
            target=_target(fields["target"]),
            versions=fields["versions"],
            created=fields["created"],
            passes=tuple(map(_read, fields["passes"])),
        )
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UnreadableSpaces(
            f"{path} is not a table of measured spaces: {error}; python -m bench spaces makes one"
        ) from None


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


def _read(fields: dict[str, Any]) -> MeasuredPass:
    us: dict[Config, float | None] = {}
    for rows in fields["templates"]:
        names = list(rows["knobs"])
        for values, time in zip(zip(*rows["knobs"].values(), strict=True), rows["us"], strict=True):
            us[Config.of(rows["template"], **dict(zip(names, values, strict=True)))] = time
    configs = list(us)
    drawn, starts, untuned = (
        tuple(configs[number] for number in fields[name]) for name in ("drawn", "starts", "untuned_starts")
    )
    workload = Workload.from_dict(fields["workload"])
    return MeasuredPass(workload=workload, us=us, drawn=drawn, starts=starts, untuned_starts=untuned)


def _target(fields: dict[str, Any]) -> CpuTarget:
    limits = fields["limits"]
    if limits is not None:
        levels = tuple(CacheLevel(**level) for level in limits["levels"])
        limits = Limits(**{**limits, "levels": levels})
    return CpuTarget(**{**fields, "limits": limits})
