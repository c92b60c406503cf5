"""The interpreter of processes, in programs that have Python inside."""

import os
import subprocess
import sys
from multiprocessing import spawn

import pytest

from dwconv.errors import NoDevice, WorkerCannotStart
from dwconv.measure.processes.pool import Pool
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.native.build_once import Build, made_once
from dwconv.system import interpreter
from dwconv.tuner.cluster import on_ray

HANDLER = "tests.measure.planted_handlers:Faulty"


@pytest.fixture
def application(tmp_path):
    """The path of a program, and a function that counts its starts."""
    starts, program = tmp_path / "starts", tmp_path / "application"
    program.write_text(f"#!/bin/sh\necho start >> {starts}\n")
    program.chmod(0o755)
    return str(program), lambda: starts.read_text().count("start") if starts.exists() else 0


def inside(monkeypatch, executable, *, frozen=False):
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)


@pytest.mark.usefixtures("started_anew")
@pytest.mark.parametrize("frozen", [True, False])
def test_an_application_does_not_start_itself(application, monkeypatch, tmp_path, frozen):
    program, starts = application
    inside(monkeypatch, program, frozen=frozen)
    for process in (IsolatedProcess(HANDLER, "fine", threads=1), Pool(HANDLER, "fine", size=2)):
        with pytest.raises(WorkerCannotStart, match=r"application is .*; name a Python .*set_executable") as raised:
            process.call("answer", timeout_s=10) if isinstance(process, IsolatedProcess) else list(
                process.map(["answer"] * 3, timeout_s=10)
            )
        assert "\n" not in str(raised.value)
        process.kill()
    build = Build(command=["/bin/sh", "-c", "echo made > made"], sources={}, result="made")
    assert made_once(tmp_path / "made.sealed", build, limit_s=10).content == b"made\n"
    with pytest.raises(NoDevice, match="would start this program again"):
        on_ray._connect(None)
    assert starts() == 0
    subprocess.run([program], check=True)
    assert starts() == 1


@pytest.mark.parametrize("executable", [None, "", "/usr/bin/uwsgi", "/opt/pythonista", "/usr/bin/python3-config"])
def test_what_is_no_interpreter(monkeypatch, executable):
    inside(monkeypatch, executable)
    assert interpreter.interpreter() is None
    assert interpreter.why_none().startswith(f"{executable or 'this program'} is no Python interpreter; ")


@pytest.mark.parametrize("name", ["python", "python3.11", "python3.14t", "python.exe", "pythonw.exe", "python_d.exe",
                                  "Python", "pypy3.10", "python3-dbg", ".python3.11-wrapped"])  # fmt: skip
def test_what_is_one(monkeypatch, name):
    inside(monkeypatch, f"/usr/bin/{name}")
    assert interpreter.interpreter() == f"/usr/bin/{name}" and not interpreter.why_none()
    inside(monkeypatch, f"/usr/bin/{name}", frozen=True)
    assert interpreter.interpreter() is None and "frozen" in interpreter.why_none()


def test_the_interpreter_that_is_named_starts_workers(application, monkeypatch):
    python = sys.executable
    program, starts = application
    inside(monkeypatch, program, frozen=True)
    monkeypatch.setattr(spawn, "_python_exe", spawn.get_executable())
    other = f"{os.path.dirname(python)}/./{os.path.basename(python)}"  # noqa: PTH119, PTH120  Path would shorten it
    spawn.set_executable(other)
    command = interpreter.command("print(sys.argv[2])", "é")
    assert command[0] == other
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env={**os.environ, "PYTHONUTF8": "1"})
    assert done.stdout == "é\n" and starts() == 0
