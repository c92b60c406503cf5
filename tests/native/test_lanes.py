"""Lanes without PyTorch: which task each of them takes, and under ThreadSanitizer, which cannot see into libraries that
were compiled without it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dwconv import settings

HERE = Path(__file__).parent
LIMIT_S = 1200


def compiled(tmp_path: Path, *flags: str, source: str = "lanes_stress.cpp") -> Path:
    compiler = settings.linker()
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler {compiler}")
    program = tmp_path / "stress"
    command = [compiler, "-std=c++20", "-O1", "-g", *flags, str(HERE / source), "-o", str(program), "-pthread"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if made.returncode and "tsan" in made.stderr:
        pytest.skip("the compiler has no ThreadSanitizer")
    assert made.returncode == 0, made.stderr
    return program


def ran(program: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    found = subprocess.run([str(program)], capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    if "unexpected memory mapping" in found.stderr:
        pytest.skip("ThreadSanitizer does not run on this kernel")
    return found


def test_lanes_take_ready_tasks_by_their_way_their_threads_and_what_is_free(tmp_path):
    found = ran(compiled(tmp_path, "-O0", source="queue_checks.cpp"))
    assert (found.returncode, found.stdout) == (0, "right\n")


@pytest.mark.slow
def test_lanes_have_no_data_race(tmp_path):
    found = ran(compiled(tmp_path, "-fsanitize=thread"))
    assert (found.returncode, found.stdout) == (0, "right\n"), found.stderr


@pytest.mark.slow
def test_a_missing_wait_is_seen(tmp_path):
    found = ran(compiled(tmp_path, "-fsanitize=thread", "-DPLANTED"))
    assert found.returncode != 0 and "data race" in found.stderr
