"""SpaceJournal: what ``bench spaces`` has measured so far, a line of JSON a comparison, so that a kill loses one
comparison."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.spaces.comparisons import Outcome
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config


class SpaceJournal:
    """The outcomes of configurations by workload; a configuration may be in several comparisons."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[Config, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
        if path.exists():
            for line in path.read_text().splitlines():
                self._take(line)

    def add(self, workload: Workload, outcomes: Sequence[Outcome]) -> None:
        """Write the outcomes of a comparison, and know them."""
        entry = {"workload": workload.key, "outcomes": [_written(outcome) for outcome in outcomes]}
        line = json.dumps(entry, separators=(",", ":"))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(f"\n{line}")  # after a line that a kill cut short, too
        self._take(line)

    def comparisons_of(self, workload: Workload) -> dict[Config, int]:
        """In how many comparisons each configuration was."""
        return {config: len(outcomes) for config, outcomes in self._known[workload.key].items()}

    def us_of(self, workload: Workload, *, readings: int | None = None) -> dict[Config, float | None]:
        """The time of each configuration; None if it failed. The median over its comparisons, or over the first
        ``readings`` of them, of its ratio to the reference, times the reference's median."""
        known = self._known[workload.key]
        references = [o.reference_us for outcomes in known.values() for o in outcomes if o.reference_us is not None]
        if not references:
            return dict.fromkeys(known)
        reference_us = statistics.median(references)
        return {config: _us(outcomes[:readings], reference_us=reference_us) for config, outcomes in known.items()}

    def _take(self, line: str) -> None:
        try:
            entry = json.loads(line)
        except ValueError:  # it was cut short
            return
        for fields in entry["outcomes"]:
            outcome = _read(fields)
            self._known[entry["workload"]][outcome.config].append(outcome)


def _us(outcomes: Sequence[Outcome], *, reference_us: float) -> float | None:
    ratios = [o.us / o.reference_us for o in outcomes if o.us is not None and o.reference_us is not None]
    return statistics.median(ratios) * reference_us if len(ratios) == len(outcomes) else None


def _written(outcome: Outcome) -> dict[str, Any]:
    fields: dict[str, Any] = {"config": outcome.config.to_dict()}
    if outcome.us is None:
        return {**fields, "reason": outcome.reason}
    return {**fields, "us": outcome.us, "reference_us": outcome.reference_us, "contention": outcome.contention}


def _read(fields: dict[str, Any]) -> Outcome:
    values = dict(fields["config"])
    config = Config.of(values.pop("template"), **values)
    return Outcome(
        config=config,
        us=fields.get("us"),
        reference_us=fields.get("reference_us"),
        contention=fields.get("contention", 0.0),
        reason=fields.get("reason", ""),
    )
