"""What commands print: where a stream is closed, its disk is full, or its encoding lacks a letter."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dwconv.commands import command_line
from dwconv.errors import say
from dwconv.problems.workload import Workload
from dwconv.tuner.results_table import Progress

ROOT = Path(__file__).resolve().parents[2]
SHOW = "-m dwconv.show --shape 2,8,9,9 --kernel 3 --target cpu:avx2 --what config"
WORKLOAD = Workload(pass_="fprop", batch=1, channels=8, input_size=(6, 6), kernel=(3, 3), layout="nhwc")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        (SHOW, "1"),
        *(
            (command, unbuffered)
            for command in (
                "-m dwconv --version",
                "-m dwconv tune --help",
                "-m bench --help",
                "-m dwconv.parallel --help",
            )
            for unbuffered in ("", "1")
        ),
    ],
)
def test_a_full_disk_is_one_line(command, unbuffered):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, *command.split()], stdout=full, stderr=subprocess.PIPE, encoding="utf-8", cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert lines == ["error: stdout cannot be written: No space left on device; send it elsewhere"]
    assert done.returncode == 2


def test_another_error_of_the_system_is_no_full_disk(capsys):
    def command(argv):
        raise FileNotFoundError(2, "none", "file")

    with pytest.raises(FileNotFoundError):
        command_line.run(command, [])
    assert "stdout" not in capsys.readouterr().err


class Full(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        raise OSError(28, "No space left on device")


def _closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stderr", [lambda: None, _closed, lambda: io.TextIOWrapper(Full(), write_through=True)])
def test_progress_is_not_for_stdout(monkeypatch, capsys, stderr):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stderr())
        say("note: something")
        with Progress(workloads=1) as progress:
            progress.begin(WORKLOAD)
            progress.finish("done")
    assert capsys.readouterr().out == ""


def test_stderr_that_python_found_closed_stays_closed(monkeypatch, capsys):
    """A file may have its number by the time that a command begins."""
    monkeypatch.setattr(sys, "stderr", None)

    def command(argv):
        print("progress", file=sys.stderr)
        print("result")
        return 0

    assert command_line.run(command, []) == 0
    assert capsys.readouterr().out == "result\n"


def test_letters_that_stdout_lacks_are_replaced(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert command_line.run(lambda argv: print("2.1 ± 0.1 µs, 3 × 中 − …") or 0, []) == 0
    assert written.getvalue() == rb"2.1 + 0.1 us, 3 x \u4e2d - ..." + b"\n"
