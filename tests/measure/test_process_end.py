"""Isolated processes: nothing of one outlives those that it works for."""

import fcntl
import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.measure.processes.process import IsolatedProcess
from tests.measure.process_ends import gone, wait_until


def test_its_children_end_with_it(tmp_path):
    written = tmp_path / "children"
    process = IsolatedProcess("tests.measure.planted_handlers:Faulty", str(written), threads=1)
    with pytest.raises(WorkerTimeout):
        process.call("hang_with_children", timeout_s=1.0)
    children = [int(line) for line in written.read_text().split()]
    assert len(children) == 2
    wait_until(lambda: all(gone(child) for child in children))


def test_a_forgotten_one_ends():
    process = IsolatedProcess("tests.measure.planted_handlers:Faulty", "fine", threads=1)
    pid = process.call("answer", timeout_s=10)["pid"]
    del process
    gc.collect()
    wait_until(lambda: gone(pid))


@pytest.mark.parametrize("deed", ["answer", "hang", "hang_natively", "hang_with_children"])
def test_ends_when_its_parent_is_killed(tmp_path, deed):
    """Not even a busy worker, or its children, or their files, outlive a parent that had no chance to end them."""
    marks = tmp_path / "marks"
    marks.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent("""
            import sys, time
            sys.path.insert(0, sys.argv[1])
            from dwconv.measure.processes.process import IsolatedProcess
            process = IsolatedProcess("tests.measure.planted_handlers:Faulty", sys.argv[3], threads=1)
            print(process.call("answer", timeout_s=10)["pid"], flush=True)
            process.submit(sys.argv[2], timeout_s=0.2 if sys.argv[2] == "hang_natively" else 100)
            time.sleep(100)
        """), str(Path(__file__).parents[2]), deed, str(marks / "children")],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    worker = int(parent.stdout.readline())
    if deed == "hang_with_children":
        wait_until(
            lambda: len((marks / "children").read_text().split()) == 2 if (marks / "children").exists() else False
        )
    else:
        time.sleep(0.2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: gone(worker))
    if deed == "hang_with_children":
        children = [int(line) for line in (marks / "children").read_text().split()]
        wait_until(lambda: all(gone(child) for child in children))
    if deed != "hang_natively":  # then the kernel ended it, at the time limit
        wait_until(lambda: list(tmp_path.glob("dwconv-*")) == [])


def test_the_next_start_removes_what_nobody_could(tmp_path, monkeypatch):
    """Folders of workers that were killed together with their parents; not those of the living."""
    program = textwrap.dedent("""
        import sys, time
        sys.path.insert(0, sys.argv[1])
        from dwconv.measure.processes.process import IsolatedProcess
        process = IsolatedProcess("tests.measure.planted_handlers:Faulty", "fine", threads=1)
        print(process.call("answer", timeout_s=100)["pid"], flush=True)
        time.sleep(1000)
    """)
    parents = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(Path(__file__).parents[2])],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        for _ in range(2)
    ]
    try:
        workers = [int(parent.stdout.readline()) for parent in parents]
        abandoned, living = (Path(psutil.Process(worker).environ()["TMPDIR"]) for worker in workers)
        parents[0].send_signal(signal.SIGSTOP)  # or it would tidy up
        os.kill(workers[0], signal.SIGKILL)
        parents[0].kill()
        parents[0].wait()
        wait_until(lambda: unlocked(abandoned / "printed"))  # a zombie's other threads may still be ending
        (tmp_path / "dwconv-worker-of-nobody").mkdir()
        assert len(list(tmp_path.iterdir())) == 3
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        process = IsolatedProcess("tests.measure.planted_handlers:Faulty", "fine", threads=1)
        process.call("answer", timeout_s=10)
        process.kill()
        assert list(tmp_path.iterdir()) == [living]
    finally:
        for parent in parents:
            parent.kill()
            parent.wait()


def unlocked(path):
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_commands_work_with_closed_standard_streams(tmp_path, closed):
    program = textwrap.dedent("""
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from dwconv.commands.command_line import run

        def command(argv):
            with Path(sys.argv[2]).open("w") as file:
                from dwconv.measure.processes.process import IsolatedProcess
                print("printed")
                print("printed", file=sys.stderr)
                os.system("echo printed; echo printed >&2")
                process = IsolatedProcess("tests.measure.planted_handlers:Faulty", "fine", threads=1)
                file.write(process.call("answer", timeout_s=100)["setup"])
                process.kill()
            return 7

        sys.exit(run(command))
    """)
    written = tmp_path / "written"
    arguments = [sys.executable, "-c", program, str(Path(__file__).parents[2]), str(written)]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *arguments], capture_output=True, timeout=300)
    assert done.returncode == 7, done.stderr
    assert written.read_text() == "fine"


def test_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = IsolatedProcess("tests.measure.planted_handlers:Faulty", "fine", threads=1)
    process.call("print_noise", timeout_s=10)
    assert list(tmp_path.iterdir())
    process.kill()
    with pytest.raises(WorkerDied):
        process.call("segfault", timeout_s=10)
    assert list(tmp_path.iterdir()) == []
