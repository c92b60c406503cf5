"""The tool that breaks the product: what it makes is a program, another one, and put back afterwards."""

import ast
import sys

import pytest

from tests import mutate

SOURCE = '''
"""A docstring with 1 - 2."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Ä:
    size: "list[2]" = 3

    def grow(self, by: int = -4) -> int:
        """More than 5."""
        if not self.size < by and min(by, 6) == 7:
            print("ä", by - 8)
        self.size = self.size // 9
        return self.size
'''


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    (tmp_path / "dwconv").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "dwconv" / "a.py").write_text(SOURCE)
    return tmp_path


def test_every_mutation_is_another_program(tree):
    (file,) = mutate.product_files([])
    found = mutate.mutations_of(file)
    changed = [mutation.applied_to(SOURCE) for mutation in found]
    assert len(set(changed) - {ast.unparse(ast.parse(SOURCE))}) == len(found)
    condition = "not self.size < by and min(by, 6) == 7"
    assert {(mutation.old, mutation.new) for mutation in found} == {
        ("3", "4"), ("4", "5"), (condition, f"not ({condition})"), ("not self.size < by", "self.size < by"),
        ("<", "<="), ("and", "or"), ("min", "max"), ("6", "7"), ("==", "!="), ("7", "8"),
        ("print('ä', by - 8)", "pass"), ("-", "+"), ("8", "9"), ("self.size = self.size // 9", "pass"), ("//", "*"),
        ("9", "10"),
    }  # fmt: skip


def test_the_tests_to_run_for_a_file_exist():
    """Pytest would end with an error for another path, and that would pass for a test that failed."""
    of = {str(file): mutate.tests_for(file) for file in mutate.product_files([])}
    assert all((mutate.ROOT / test).exists() for rounds in of.values() for tests in rounds for test in tests)
    assert "on_gpu" not in str(of), "they fail without a GPU"
    assert "tests/commands/test_tune_arguments.py" in of["dwconv/problems/layer_files.py"][0]
    assert of["dwconv/problems/layer_files.py"][1] == ["tests/problems"]
    steps, *room = of["bench/report/steps.py"][:2]
    assert "tests/bench/test_report.py" in steps and room == [["tests/bench"]]
    assert of["schedules/cuda/fprop_dgrad_nchw/cut.py"][-4:-2] == [["tests/schedules"], list(mutate.RUN_CUDA_KERNELS)]


@pytest.mark.slow
def test_a_failing_test_sees_it_and_the_file_is_put_back(tree):
    """The tests of this tree pass for one of two mutations."""
    (tree / "tests" / "test_a.py").write_text(
        "from pathlib import Path\ndef test_it():\n    assert '// 9' in Path('dwconv/a.py').read_text()\n"
    )
    found = {mutation.old: mutation for mutation in mutate.mutations_of(*mutate.product_files([]))}
    assert mutate.seen_by(found["//"], near_only=False) == "tests/test_a.py::test_it"
    assert not mutate.seen_by(found["8"], near_only=False)
    assert (tree / "dwconv" / "a.py").read_text() == SOURCE


def test_the_draw_is_the_same_for_the_same_seed(tree):
    files = mutate.product_files([])
    assert mutate.drawn(files, count=5, seed=1) == mutate.drawn(files, count=5, seed=1)
    assert mutate.drawn(files, count=5, seed=1) != mutate.drawn(files, count=5, seed=2)
    assert len(mutate.drawn(files, count=1000, seed=1)) == 16


def test_places_that_are_none_are_refused(tree, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mutate.py", "--places", "dwconv/a.py:1:1"])
    monkeypatch.setattr(mutate.subprocess, "run", lambda *_, **__: type("", (), {"stdout": ""}))
    with pytest.raises(SystemExit, match=r"dwconv/a.py:1:1: nothing can be broken there"):
        mutate.main()
