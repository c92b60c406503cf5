"""The starts of passes as another device would know them: this device's own records are left out.

Twice: with all records of other devices, and without those of the layer itself, as if nobody had tuned it anywhere.
Making the portfolio takes a minute or two, so they are kept in a file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dwconv.problems.layer_files import shipped_networks
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.schedules.space import Config
from dwconv.untuned.make import make_portfolio
from dwconv.untuned.starts import starts


@dataclass(frozen=True, kw_only=True)
class KnownStarts:
    """Configurations that a pass is searched from, the most promising first."""

    tuned: tuple[Config, ...]
    """Where other devices have records of the layer."""
    untuned: tuple[Config, ...]
    """Where no device has."""


def known_starts(workloads: Sequence[Workload], target: CpuTarget, *, path: Path) -> dict[str, KnownStarts]:
    """By the workloads' keys. ``path`` keeps them."""
    if not path.exists():
        made = _made(workloads, target)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key: _written(known) for key, known in made.items()}))
    return {key: _read(fields) for key, fields in json.loads(path.read_text()).items()}


def _made(workloads: Sequence[Workload], target: CpuTarget) -> dict[str, KnownStarts]:
    records = [record for record in Database.usual() if record.device != target.device]
    print(f"making a portfolio of {len(records)} records of other devices: a minute or two", file=sys.stderr)
    portfolio = make_portfolio(records, shipped_networks())
    found: dict[str, KnownStarts] = {}
    for workload in workloads:
        others = [record for record in records if record.workload.batchless_key != workload.batchless_key]
        tuned, untuned = (
            tuple(start.config for start in starts(workload, target, known, portfolio=portfolio))
            for known in (records, others)
        )
        found[workload.key] = KnownStarts(tuned=tuned, untuned=untuned)
    return found


def _written(known: KnownStarts) -> dict[str, list[dict[str, int | str]]]:
    return {
        "tuned": [config.to_dict() for config in known.tuned],
        "untuned": [config.to_dict() for config in known.untuned],
    }


def _read(fields: dict[str, list[dict[str, int | str]]]) -> KnownStarts:
    tuned, untuned = (tuple(map(_config, fields[name])) for name in ("tuned", "untuned"))
    return KnownStarts(tuned=tuned, untuned=untuned)


def _config(fields: dict[str, int | str]) -> Config:
    values = dict(fields)
    return Config.of(str(values.pop("template")), **values)
