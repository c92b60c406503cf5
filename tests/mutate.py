"""Does the suite notice? Breaks the product in one small place at a time, runs the tests, and lists what no test saw.

    python tests/mutate.py --count 30 --seed 1                   thirty places, drawn evenly from all files
    python tests/mutate.py --only dwconv/dispatch/decide.py --count 5   of one file or folder
    python tests/mutate.py --list --only dwconv/dispatch/decide.py      what could be broken there
    python tests/mutate.py --places dwconv/nn.py:88:12 …         these again, by file, line and column

A mutation flips a sign or a comparison, moves a number by one, swaps two words (``min`` and ``max``, ``and`` and
``or``), turns a condition round, or drops a call or an assignment to an attribute. The tests that import the file run
first, those of its own folder next, then those of whole commands and calls, then all; the first that fails ends it. A
mutation that survives is a hole in the suite, or changes nothing that can be seen: a person has to look. Exits
with 1 if any survived.

The tree is changed in place, so it must have no uncommitted changes; every file is put back, after ctrl-C and SIGTERM
too.
"""

from __future__ import annotations

import argparse
import ast
import functools
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
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("dwconv", "schedules", "bench")
RUN_CUDA_KERNELS = ("tests/measure/simulator/test_simulate.py", "tests/kernels")
"""Pytest runs nothing at all where one of the paths that it is given does not exist."""
TIMEOUT_S = 1800.0
"""For the tests of one mutation: one that hangs them is noticed, too."""

_OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "all": "any", "any": "all"}


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """The place ``number`` of all that can be broken in ``file``: ``old`` becomes ``new``."""

    file: Path
    number: int
    line: int
    column: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.old[:60]} → {self.new[:60]}"

    def applied_to(self, text: str) -> str:
        return ast.unparse(_Breaker(self.file, at=self.number).visit(ast.parse(text)))


class _Breaker(ast.NodeTransformer):
    """Finds what can be broken in one file, and breaks the place ``at``; annotations and docstrings are no code."""

    def __init__(self, file: Path, *, at: int = -1) -> None:
        self.found: list[Mutation] = []
        self._file, self._at = file, at

    def _changed(self, node: Any, new: ast.AST, *, old: ast.AST | None = None) -> Any:
        """``new`` if this place is to be broken, or else ``node``."""
        texts = {"old": _shown(old or node), "new": _shown(new)}
        place = Mutation(file=self._file, number=len(self.found), line=node.lineno, column=node.col_offset, **texts)
        self.found.append(place)
        return ast.copy_location(new, node) if place.number == self._at else node

    def _operator(self, node: Any, operator: ast.AST) -> ast.AST:
        """The operator of ``node``, or another."""
        other = _OPERATORS.get(type(operator))
        changed = self._changed(node, other(), old=operator) if other is not None else node
        return operator if changed is node else changed

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if not (isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)):  # "…" % …
            node.op = self._operator(node, node.op)
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        node.op = self._operator(node, node.op)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        node.ops[0] = self._operator(node, node.ops[0])
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            return self._changed(node, ast.Constant(not node.value))
        return self._changed(node, ast.Constant(node.value + 1)) if isinstance(node.value, int) else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        is_sign = isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant)
        node.operand = self.visit(node.operand)
        return self._changed(node, node.operand) if is_sign or isinstance(node.op, ast.Not) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            node.func = self._changed(node.func, ast.Name(_NAMES[node.func.id]))
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node
        node.test = self._changed(node.test, ast.UnaryOp(ast.Not(), node.test))
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant):  # a docstring
            return node
        self.generic_visit(node)
        return self._changed(node, ast.Pass()) if isinstance(node.value, ast.Call) else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        dropped = all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
        return self._changed(node, ast.Pass()) if dropped else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.args.defaults = [self.visit(each) for each in node.args.defaults]
        node.args.kw_defaults = [each and self.visit(each) for each in node.args.kw_defaults]
        return self.visit_ClassDef(node)

    def visit_ClassDef(self, node: Any) -> ast.AST:
        """Not its decorators: a dataclass that is not frozen changes nothing."""
        node.body = [self.visit(statement) for statement in node.body]
        return node


def _shown(node: ast.AST) -> str:
    """An operator as it is written: it has no text of its own."""
    if isinstance(node, ast.operator):
        return ast.unparse(ast.BinOp(ast.Name("a"), node, ast.Name("b")))[2:-2]
    if isinstance(node, ast.cmpop):
        return ast.unparse(ast.Compare(ast.Name("a"), [node], [ast.Name("b")]))[2:-2]
    return type(node).__name__.lower() if isinstance(node, ast.boolop) else ast.unparse(node)


def mutations_of(file: Path) -> list[Mutation]:
    """Everything in ``file``, relative to the tree, that can be broken."""
    breaker = _Breaker(file)
    breaker.visit(ast.parse((ROOT / file).read_text()))
    return breaker.found


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
    parts = file.with_suffix("").parts
    module = ".".join(("dwconv", *parts) if parts[0] == "schedules" else parts)
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


def seen_by(mutation: Mutation, *, near_only: bool) -> str:
    """The first test that fails because of the mutation; empty if none does."""
    rounds = tests_for(mutation.file)
    path = ROOT / mutation.file
    text = path.read_text()
    path.write_text(mutation.applied_to(text))
    try:
        return next(filter(None, map(_failed, rounds[: max(1, len(rounds) - 2)] if near_only else rounds)), "")
    finally:
        path.write_text(text)


def _failed(tests: list[str]) -> str:
    """The first of ``tests`` that fails; empty if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "--tb=no", "-q", "-rfE", "-p", "no:cacheprovider", *tests]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"no end after {TIMEOUT_S:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode == 0:
        return ""
    told = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", printed, re.MULTILINE)
    return (told or printed.splitlines() or [f"exit status {process.returncode}"])[-1][:150]


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
    survivors = []
    for number, mutation in enumerate(_chosen(args), start=1):
        started = time.monotonic()
        seen = seen_by(mutation, near_only=args.near)
        survivors += [] if seen else [mutation]
        print(f"{number} {mutation}\n    {seen or 'SURVIVED'} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(survivors)} survived", *survivors, sep="\n    ")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
