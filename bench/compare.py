"""``python -m bench compare A.json B.json``: what got faster or slower from one result of a benchmark to another.

It compares how many times as fast dwconv was as PyTorch, measured in turns; never times of two runs, since the machine
may have changed between them. A row got faster or slower if its intervals do not overlap. Old results without intervals
have those of their spread.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.evidence import Ratio, name_of
from dwconv.commands.command_line import ArgumentParser, run
from dwconv.errors import UnreadableResults

Row = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    return run(_compare, list(argv))


def _compare(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench compare", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path, metavar="A.json", help="results of a benchmark")
    parser.add_argument("after", type=Path, metavar="B.json", help="later results of the same benchmark")
    arguments = parser.parse_args(argv)
    before, after = (Results.read(path) for path in (arguments.before, arguments.after))
    if before.benchmark != after.benchmark:
        raise UnreadableResults(
            f"{arguments.before} has results of {before.benchmark}, {arguments.after} of {after.benchmark}; compare "
            "two of one benchmark"
        )
    for note in _differences(before, after):
        print(f"note: {note}", file=sys.stderr)
    changes = [_Change(name=name, before=ratio, after=after.ratios[name]) for name, ratio in before.ratios.items()
               if name in after.ratios]  # fmt: skip
    slower, faster = ([each for each in changes if each.verdict == verdict] for verdict in ("slower", "faster"))
    same = len(changes) - len(slower) - len(faster)
    print(f"{len(slower)} slower, {len(faster)} faster, {same} the same, of {len(changes)} rows that both have")
    for each in (*slower, *faster):
        print(f"  {each}")
    for text, one, other in (("gone", before, after), ("new", after, before)):
        for name in (name for name in one.ratios if name not in other.ratios):
            print(f"  {text:6} {name}: {one.ratios[name]}{_why(other, name)}")
    return 1 if slower else 0


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A row that both results have."""

    name: str
    before: Ratio
    after: Ratio

    @property
    def verdict(self) -> str:
        if self.after.interval[1] < self.before.interval[0]:
            return "slower"
        return "faster" if self.after.interval[0] > self.before.interval[1] else "same"

    def __str__(self) -> str:
        return f"{self.verdict:6} {self.name}: {self.before} before, {self.after} after, as fast as PyTorch"


@dataclass(frozen=True, kw_only=True)
class Results:
    """What a benchmark wrote: ratios by the names of their rows, and why other rows have none."""

    benchmark: str
    facts: dict[str, Any]
    """Device, threads and versions."""
    ratios: dict[str, Ratio]
    failed: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Results:
        """Raises UnreadableResults, which names the file and what is wrong with it."""
        try:
            data = json.loads(path.read_text())
        except OSError as error:
            raise UnreadableResults(f"{path} cannot be read: {error.strerror or error}") from error
        except ValueError as error:  # no text, or no JSON
            raise UnreadableResults(f"{path} is not JSON: {error}") from error
        if not (isinstance(data, dict) and isinstance(data.get("benchmark"), str) and _are_rows(data.get("rows"))):
            raise UnreadableResults(f"{path} holds no results of a benchmark; it has no benchmark, or no rows")
        benchmark: str = data["benchmark"]
        read = _READ.get(benchmark.partition("-")[0])
        if read is None:
            raise UnreadableResults(f"{path} has results of {benchmark}; compare reads those of {', '.join(_READ)}")
        ratios: dict[str, Ratio] = {}
        failed: dict[str, str] = {}
        for number, row in enumerate(data["rows"], 1):
            name = name_of({"caches": "warm", **row} if benchmark.startswith("cpu") else row)
            if "failed" in row:
                failed[name] = str(row["failed"])
                continue
            try:
                ratio = read(row)
            except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
                raise UnreadableResults(f"{path}: row {number}, {name}, has no ratio that can be read") from error
            if not all(math.isfinite(value) and value > 0 for value in (ratio.value, ratio.interval[1])):
                raise UnreadableResults(f"{path}: row {number}, {name}, has the ratio {ratio}")
            if name in ratios:
                raise UnreadableResults(f"{path}: two rows are called {name}")
            ratios[name] = ratio
        facts = {"device": data.get("device"), "threads": data.get("threads"), **(data.get("versions") or {})}
        return cls(benchmark=benchmark, facts=facts, ratios=ratios, failed=failed)


def _are_rows(rows: object) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) for row in rows)


def _differences(before: Results, after: Results) -> list[str]:
    """What the two were measured on, where it differs."""
    names = dict.fromkeys((*before.facts, *after.facts))
    return [
        f"{name} {before.facts.get(name)} before, {after.facts.get(name)} after"
        for name in names
        if before.facts.get(name) != after.facts.get(name)
    ]


def _why(results: Results, name: str) -> str:
    return f"; it failed: {results.failed[name]}" if name in results.failed else ""


# -- the ratio of a row, by benchmark --------------------------------------------------------------------------------


def _of_layer(row: Row) -> Ratio:
    return _ratio(float(row["ratio"]), row.get("ratio_interval"), off=row.get("ratio_spread", 0.0) / row["ratio"])


def _of_block(row: Row) -> Ratio:
    us, spread_us = row["median_us"], row["spread_us"]
    eager = min(("plain", "plain, contiguous"), key=lambda name: float(us.get(name, math.inf)))
    off = math.hypot(*(spread_us[name] / us[name] for name in (eager, "as one")))
    return _ratio(float(row["over_eager"]), row.get("over_eager_interval"), off=off)


def _of_step(row: Row) -> Ratio:
    ratio = row["ratio"]
    low, high = row.get("ratio_interval") or ratio["quartiles"]
    return Ratio(value=float(ratio["median"]), interval=(float(low), float(high)))


def _ratio(value: float, interval: Sequence[float] | None, *, off: float) -> Ratio:
    """``off``: the relative spread, for rows that have no interval."""
    low, high = interval or (value * (1 - off), value * (1 + off))
    return Ratio(value=value, interval=(float(low), float(high)))


_READ: dict[str, Callable[[Row], Ratio]] = {"cpu": _of_layer, "blocks": _of_block, "train": _of_step}
"""How to read the ratio of a row over PyTorch, by the first word of the benchmark's name."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
