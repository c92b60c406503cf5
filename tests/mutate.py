"""Does the suite notice? Breaks the product in one small place at a time, runs the tests, and lists what no test saw.

    python tests/mutate.py --count 30 --seed 1                   thirty places, drawn evenly from all files
    python tests/mutate.py --only dwconv/dispatch/decide.py --count 5   of one file or folder
    python tests/mutate.py --list --only dwconv/dispatch/decide.py      what could be broken there
    python tests/mutate.py --places dwconv/nn.py:88:12 …         these again, by file, line and column
    python tests/mutate.py --near --matrix kills.json            all tests that see each, not the first alone

A mutation flips a sign or a comparison, moves a number by one, swaps two words (``min`` and ``max``, ``and`` and
``or``), turns a condition round, or drops a call or an assignment to an attribute. The tests that import the file run
first, those of its own folder next, then those of whole commands and calls, then all; the first that fails ends it. A
mutation that survives is a hole in the suite, or changes nothing that anybody can see: a person has to look. Exits
with 1 if any survived.

The matrix tells what tests are worth: how many mutations each sees, and how many no other does. Its file can be
read both ways: ``seen_by``, the tests that failed by mutation, and ``sees``, the mutations by test, for all that ran.

The tree is changed in place, so it must have no uncommitted changes; every file is put back, after ctrl-C and SIGTERM
too.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("dwconv", "schedules")
RUN_CUDA_KERNELS = ("tests/measure/simulator/test_simulate.py", "tests/kernels")
"""Pytest runs nothing at all where one of the paths that it is given does not exist."""
TIMEOUT_S = 1800.0
"""For the tests of one mutation: one that hangs them is noticed, too."""

_OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
_TOLD = re.compile(r"(?P<outcome>PASSED|FAILED|ERROR) (?P<test>[^\[ ]+(\[.*?\])?)( - .*)?")
"""A line of pytest's summary: the id of a case may have a dash, too."""
_NAMES = {"min": "max", "max": "min", "all": "any", "any": "all"}


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """``old`` at ``start`` (an offset into the file's text) becomes ``new``."""

    file: Path
    start: int
    line: int
    column: int
    old: str
    new: str

    def __str__(self) -> str:
        shown = " ".join(self.old.split())
        return f"{self.file}:{self.line}:{self.column}: {shown[:60]} → {self.new}"

    def applied_to(self, text: str) -> str:
        assert text[self.start :].startswith(self.old)
        return text[: self.start] + self.new + text[self.start + len(self.old) :]


class _Finder(ast.NodeVisitor):
    """Collects what can be broken in one file; annotations and docstrings are no code."""

    def __init__(self, file: Path, text: str) -> None:
        self.found: list[Mutation] = []
        self._file, self._text = file, text
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def _offset(self, line: int, column: int) -> int:
        start = self._lines[line - 1]
        text_line = self._text[start : self._lines[line]]
        return start + len(text_line.encode()[:column].decode())  # ast counts bytes

    def _add(self, start: int, old: str, new: str) -> None:
        line = self._text.count("\n", 0, start) + 1
        column = start - self._lines[line - 1]
        self.found.append(Mutation(file=self._file, start=start, line=line, column=column, old=old, new=new))

    def _source(self, node: ast.expr | ast.stmt) -> tuple[int, str]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._offset(node.lineno, node.col_offset)
        return start, self._text[start : self._offset(node.end_lineno, node.end_col_offset)]

    def _between(self, left: ast.expr, right: ast.expr, operator: ast.AST) -> None:
        """The operator that stands between two operands."""
        if type(operator) not in _OPERATORS:
            return
        old, new = _OPERATORS[type(operator)]
        start, source = self._source(left)
        after = start + len(source)
        at = self._text.find(old, after, self._source(right)[0])
        if at >= 0:
            self._add(at, old, new)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not isinstance(node.left, ast.Constant) or not isinstance(node.left.value, str):  # "…" % …
            self._between(node.left, node.right, node.op)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._between(node.values[0], node.values[1], node.op)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._between(node.left, node.comparators[0], node.ops[0])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        start, source = self._source(node)
        if isinstance(node.value, bool):
            self._add(start, source, str(not node.value))
        elif isinstance(node.value, int):
            self._add(start, source, str(node.value + 1))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        start, _ = self._source(node)
        if isinstance(node.op, ast.Not):
            self._add(start, "not ", "")
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self._add(start, "-", "")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            self._add(self._source(node.func)[0], node.func.id, _NAMES[node.func.id])
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        start, source = self._source(node.test)
        self._add(start, source, f"not ({source})")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):  # a docstring
            return
        if isinstance(node.value, ast.Call):
            start, source = self._source(node)
            self._add(start, source, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            start, source = self._source(node)
            self._add(start, source, "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:  # not its decorators: a dataclass that is not frozen changes nothing
            self.visit(statement)


def mutations_of(file: Path) -> list[Mutation]:
    """Everything in ``file``, relative to the tree, that can be broken."""
    text = (ROOT / file).read_text()
    finder = _Finder(file, text)
    finder.visit(ast.parse(text))
    return finder.found


def product_files(only: list[str]) -> list[Path]:
    """Files of the product, relative to the tree."""
    files = sorted(file.relative_to(ROOT) for folder in PRODUCT for file in (ROOT / folder).rglob("*.py"))
    return [file for file in files if not only or any(file.is_relative_to(wanted) for wanted in only)]


def drawn(files: list[Path], *, count: int, seed: int) -> list[Mutation]:
    """``count`` mutations: a file drawn by the root of its mutations, so that large files do not have them all, then
    one of its mutations."""
    rng = random.Random(seed)
    by_file = {file: found for file in files if (found := mutations_of(file))}
    chosen: dict[Mutation, None] = {}
    most = sum(map(len, by_file.values()))
    while len(chosen) < min(count, most):
        (file,) = rng.choices(list(by_file), weights=[len(found) ** 0.5 for found in by_file.values()])
        chosen[rng.choice(by_file[file])] = None
    return list(chosen)


def tests_for(file: Path) -> list[list[str]]:
    """The tests to run, one list after the other: those that import the file, those of its own folder or name, the
    commands and calls that users make, and everything."""
    *folders, _ = file.parts[1:] if file.parts[0] == "dwconv" else file.parts
    mirror = Path("tests", *folders[:1]) if folders else Path("tests", f"test_{file.stem}.py")
    own = [_importers(file), [str(mirror)] if (ROOT / mirror).exists() else []]
    if file.is_relative_to("schedules/cuda"):  # whose kernels run in the simulator
        own.append([test for test in RUN_CUDA_KERNELS if (ROOT / test).exists()])
    users = sorted(str(test.relative_to(ROOT)) for test in (ROOT / "tests").glob("test_*.py"))
    return [*(tests for tests in own if tests), users, ["tests"]]


def _importers(file: Path) -> list[str]:
    """Test files, whatever their folder, that import something of ``file``."""
    module = ".".join(("dwconv", *file.with_suffix("").parts[file.parts[0] == "dwconv" :]))
    package, _, name = module.rpartition(".")
    imports = re.compile(rf"^\s*(from {module} import |import {module}\b|from {package} import .*\b{name}\b)", re.M)
    return sorted(test for test, lines in _imports_of_tests(ROOT).items() if imports.search(lines))


@functools.cache
def _imports_of_tests(root: Path) -> dict[str, str]:
    """The lines of each test file that import something: all files of the product are looked for in them. But for those
    of a GPU, which fail without one, whatever is broken."""
    line = re.compile(r"^\s*(?:from|import) .*$", re.MULTILINE)
    tests = (test for test in (root / "tests").rglob("test_*.py") if test.parent.name != "on_gpu")
    return {str(test.relative_to(root)): "\n".join(line.findall(test.read_text())) for test in tests}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the tests said of one mutation, by node id."""

    passed: list[str]
    failed: list[str]


def seen_by(mutation: Mutation, *, near_only: bool, all_of_them: bool = False) -> Seen:
    """The tests that fail because of the mutation: the first, or all of them."""
    rounds = tests_for(mutation.file)
    rounds = rounds[: max(1, len(rounds) - 2)] if near_only else rounds
    if all_of_them:
        rounds = [[test for tests in rounds for test in tests]] if near_only else rounds[-1:]
    path = ROOT / mutation.file
    text = path.read_text()
    path.write_text(mutation.applied_to(text))
    try:
        seen = Seen(passed=[], failed=[])
        for tests in rounds:
            if not seen.failed:
                seen = _run(["-x", *tests] if not all_of_them else ["--continue-on-collection-errors", *tests])
        return seen
    finally:
        path.write_text(text)


def _run(tests: list[str]) -> Seen:
    command = [sys.executable, "-m", "pytest", "--tb=no", "-q", "-rpfE", "-p", "no:cacheprovider", *tests]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Seen(passed=[], failed=[f"no end after {TIMEOUT_S:.0f} s"])
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    told: dict[str, list[str]] = {"PASSED": [], "FAILED": [], "ERROR": []}
    for line in printed.splitlines():
        if found := _TOLD.fullmatch(line):
            told[found["outcome"]].append(found["test"])
    failed = told["FAILED"] + told["ERROR"]
    if process.returncode != 0 and not failed:
        failed = [(printed.splitlines() or [f"exit status {process.returncode}"])[-1][:150]]
    return Seen(passed=told["PASSED"], failed=failed)


def matrix_of(seen: dict[Mutation, Seen]) -> dict[str, dict[str, list[str]]]:
    """Tests by mutation, and mutations by test."""
    sees: dict[str, list[str]] = {test: [] for each in seen.values() for test in (*each.passed, *each.failed)}
    for mutation, each in seen.items():
        for test in each.failed:
            sees[test].append(str(mutation))
    return {"seen_by": {str(mutation): each.failed for mutation, each in seen.items()}, "sees": sees}


def table_of(matrix: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    """A line for each test that saw something, the most needed first."""
    alone = {test: sum(matrix["seen_by"][each] == [test] for each in found) for test, found in matrix["sees"].items()}
    yield "  sees  alone  test"
    for test, found in sorted(matrix["sees"].items(), key=lambda item: (-alone[item[0]], -len(item[1]), item[0])):
        if found:
            yield f"{len(found):6}{alone[test]:7}  {test}"
    yield f"{sum(not found for found in matrix['sees'].values())} tests saw none of them"


def _chosen(args: argparse.Namespace) -> Iterator[Mutation]:
    if not args.places:
        yield from drawn(product_files(args.only), count=args.count, seed=args.seed)
        return
    for place in args.places:
        name, line, column = place.rsplit(":", 2)
        found = [each for each in mutations_of(Path(name)) if (each.line, each.column) == (int(line), int(column))]
        if not found:
            sys.exit(f"{place}: nothing can be broken there; see --list --only {name}")
        yield from found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30, metavar="N", help="places, default 30")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draw, default 0")
    parser.add_argument("--only", action="append", default=[], metavar="PATH", help="a file or folder of the product")
    parser.add_argument("--places", nargs="+", metavar="FILE:LINE:COLUMN", help="just these")
    parser.add_argument(
        "--near", action="store_true", help="only the tests that import the file, or are of its own folder or name"
    )
    parser.add_argument("--matrix", type=Path, metavar="JSON", help="run on after a failure; write what each test sees")
    parser.add_argument("--list", action="store_true", help="print what could be broken, and run nothing")
    args = parser.parse_args()
    if args.list:
        for file in product_files(args.only):
            print(*mutations_of(file), sep="\n")
        return 0
    status = ["git", "status", "--porcelain", "--", *PRODUCT]
    if subprocess.run(status, cwd=ROOT, capture_output=True, text=True, check=True).stdout:
        sys.exit("the tree has uncommitted changes; commit them first: files are changed in place and put back")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    all_seen: dict[Mutation, Seen] = {}
    for number, mutation in enumerate(_chosen(args), start=1):
        started = time.monotonic()
        seen = all_seen[mutation] = seen_by(mutation, near_only=args.near, all_of_them=args.matrix is not None)
        told = ", ".join(seen.failed[:1]) + (f" and {len(seen.failed) - 1} more" if seen.failed[1:] else "")
        print(f"{number} {mutation}\n    {told or 'SURVIVED'} ({time.monotonic() - started:.0f} s)", flush=True)
        if args.matrix:  # after each: a run of hours may be ended
            args.matrix.write_text(json.dumps(matrix_of(all_seen), indent=1) + "\n")
    if args.matrix:
        print(*table_of(matrix_of(all_seen)), sep="\n")
    survivors = [mutation for mutation, seen in all_seen.items() if not seen.failed]
    print(f"{len(survivors)} survived", *survivors, sep="\n    ")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
