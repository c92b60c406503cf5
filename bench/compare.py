"""``python -m bench compare A.json B.json``: what got faster or slower from one result of a benchmark to another.

It compares how many times as fast dwconv was as PyTorch, measured in turns; never times of two runs, since the machine
may have changed between them. A row got faster or slower if its intervals do not overlap. Old results without intervals
have those of their spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.evidence import Ratio, name_of
from bench.report.files import KINDS, ResultFile, over_pytorch, read
from bench.results import UnreadableResults
from dwconv.commands.command_line import ArgumentParser
from dwconv.errors import say


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench compare", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path, metavar="A.json", help="results of a benchmark")
    parser.add_argument("after", type=Path, metavar="B.json", help="later results of the same benchmark")
    paths = parser.parse_args(argv)
    before, after = read(paths.before), read(paths.after)
    old, new = ratios_of(before, paths.before), ratios_of(after, paths.after)
    if before.benchmark != after.benchmark:
        raise UnreadableResults(
            f"{paths.before} has results of {before.benchmark}, {paths.after} of {after.benchmark}; compare two of one "
            "benchmark"
        )
    for name, (one, other) in _differences(before, after).items():
        say(f"note: {name} {one} before, {other} after")
    both = [name for name in old if name in new]
    slower = [name for name in both if new[name].interval[1] < old[name].interval[0]]
    faster = [name for name in both if new[name].interval[0] > old[name].interval[1]]
    same = len(both) - len(slower) - len(faster)
    print(f"{len(slower)} slower, {len(faster)} faster, {same} the same, of {len(both)} rows that both have")
    for verdict, names in (("slower", slower), ("faster", faster)):
        for name in names:
            print(f"  {verdict:6} {name}: {old[name]} before, {new[name]} after, as fast as PyTorch")
    for verdict, those, others, file in (("gone", old, new, after), ("new", new, old, before)):
        why = {_name(row, file): f"; it failed: {row['failed']}" for row in file.rows if "failed" in row}
        for name in (name for name in those if name not in others):
            print(f"  {verdict:6} {name}: {those[name]}{why.get(name, '')}")
    return 1 if slower else 0


def ratios_of(file: ResultFile, path: Path) -> dict[str, Ratio]:
    """The ratios over PyTorch by the names of their rows. Raises UnreadableResults."""
    if file.kind not in KINDS:
        raise UnreadableResults(f"{path} has results of {file.benchmark}; compare reads those of {', '.join(KINDS)}")
    names = [_name(row, file) for row in file.rows if "failed" not in row]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise UnreadableResults(f"{path}: two rows are called {twice[0]}")
    dots = [over_pytorch(row) for rows in (file.layer_rows, file.block_rows, file.step_rows) for row in rows]
    ratios = [Ratio(value=dot.ratio, interval=(dot.low, dot.high)) for dot in dots]
    return dict(zip(names, ratios, strict=True))


def _name(row: dict[str, object], file: ResultFile) -> str:
    return name_of({"caches": "warm", **row} if file.kind == "cpu" else row)


def _differences(before: ResultFile, after: ResultFile) -> dict[str, tuple[object, object]]:
    """What the two were measured on, where it differs."""
    one, other = ({"device": file.device, "threads": file.threads, **file.versions} for file in (before, after))
    pairs = {name: (one.get(name), other.get(name)) for name in (*one, *other)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
