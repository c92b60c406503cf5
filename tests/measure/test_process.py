"""Isolated processes: each fault is planted in a real one."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from multiprocessing.connection import wait
from pathlib import Path

import psutil
import pytest

from dwconv.errors import RequestFailed, WorkerDied, WorkerTimeout
from dwconv.measure.process import IsolatedProcess, Pool


@pytest.fixture
def faulty():
    process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=2)
    yield process
    process.kill()


def wait_until(condition, *, seconds=5.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_answers_and_lives_on(faulty):
    assert not faulty.running
    first = faulty.call("answer", timeout_s=10)
    assert first["setup"] == "fine" and first["pid"] != os.getpid()
    assert faulty.call("answer", timeout_s=10) == first
    assert faulty.starts == 1


def test_runs_apart_from_the_terminal_and_with_honest_allocation(faulty):
    assert faulty.call("be_hard_to_interrupt", timeout_s=10) == (True, True)
    assert faulty.call("environment", timeout_s=10) == {"threads": "2", "malloc": "0", "parent": os.getpid()}


def test_what_is_printed_does_no_harm(faulty):
    assert faulty.call("print_noise", timeout_s=10) == "quiet"


def test_an_exception_costs_the_request_only(faulty):
    pid = faulty.call("answer", timeout_s=10)["pid"]
    with pytest.raises(RequestFailed, match=r"^ValueError: first line$"):
        faulty.call("fail", timeout_s=10)
    with pytest.raises(RequestFailed, match="lock cannot pass between processes"):
        faulty.call("answer_unsendable", timeout_s=10)
    assert faulty.call("answer", timeout_s=10)["pid"] == pid


@pytest.mark.parametrize(
    ("deed", "cause"), [("segfault", "^killed by SIGSEGV: .*"), ("exit", "^exit status 1: SystemExit: 5$")]
)
def test_a_death_is_told_and_followed_by_a_new_start(faulty, deed, cause):
    with pytest.raises(WorkerDied, match=cause):
        faulty.call(deed, timeout_s=10)
    assert not faulty.running
    faulty.call("answer", timeout_s=10)
    assert faulty.starts == 2


def test_a_worker_keeps_the_time_limit_itself(faulty):
    """For a parent that is gone or asleep."""
    faulty.submit("hang_natively", timeout_s=0.1)
    assert wait([faulty.connection], timeout=5)
    with pytest.raises(WorkerTimeout, match=r"no answer after 0.1 s"):
        faulty.collect()


@pytest.mark.parametrize("deed", ["hang", "hang_natively"])
def test_a_hang_ends_at_the_time_limit(faulty, deed):
    pid = faulty.call("answer", timeout_s=10)["pid"]
    started = time.monotonic()
    with pytest.raises(WorkerTimeout, match=r"no answer after 0.3 s"):
        faulty.call(deed, timeout_s=0.3)
    assert time.monotonic() - started < 3
    assert gone(pid)


def test_a_death_between_requests_costs_nothing(faulty):
    pid = faulty.call("die_when_idle", timeout_s=10)
    assert wait([faulty.connection], timeout=5)  # the end of it
    assert faulty.call("answer", timeout_s=10)["pid"] != pid


def test_its_children_end_with_it(tmp_path):
    written = tmp_path / "children"
    process = IsolatedProcess("planted_handlers:Faulty", str(written), threads=1)
    with pytest.raises(WorkerTimeout):
        process.call("hang_with_children", timeout_s=1.0)
    children = [int(line) for line in written.read_text().split()]
    assert len(children) == 2
    wait_until(lambda: all(gone(child) for child in children))


@pytest.mark.parametrize(
    ("setup", "reason"), [("refuse", "no such device"), ("die", "exit status 3: cannot map memory")]
)
def test_no_start_is_one_clear_error(setup, reason):
    process = IsolatedProcess("planted_handlers:Faulty", setup, threads=1)
    with pytest.raises(WorkerDied, match=f"a worker cannot start: .*{reason}"):
        process.call("answer", timeout_s=10)
    assert not process.running


def test_a_forgotten_one_ends():
    process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=1)
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
            from dwconv.measure.process import IsolatedProcess
            process = IsolatedProcess("planted_handlers:Faulty", sys.argv[3], threads=1)
            print(process.call("answer", timeout_s=10)["pid"], flush=True)
            process.submit(sys.argv[2], timeout_s=1 if sys.argv[2] == "hang_natively" else 100)
            time.sleep(100)
        """), str(Path(__file__).parent), deed, str(marks / "children")],
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


def test_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=1)
    process.call("print_noise", timeout_s=10)
    assert list(tmp_path.iterdir())
    process.kill()
    with pytest.raises(WorkerDied):
        process.call("segfault", timeout_s=10)
    assert list(tmp_path.iterdir()) == []


# -- pools -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool():
    pool = Pool("planted_handlers:Sleeper", None, size=2, threads=1)
    yield pool
    pool.kill()


def test_pool_shares_the_work(pool):
    answers = dict(pool.map([0.1] * 6, timeout_s=10))
    assert sorted(answers) == [0, 1, 2, 3, 4, 5]
    assert len({pid for _, pid in answers.values()}) == 2


def test_pool_gives_answers_as_they_come(pool):
    assert [position for position, _ in pool.map([0.6, 0.0, 0.0], timeout_s=10)] == [1, 2, 0]


def test_an_answer_that_waited_counts(pool):
    """The caller may be late; the worker was not."""
    (process, _) = pool._processes
    process.submit(0.0, timeout_s=0.2)
    time.sleep(0.4)
    assert process.collect()[0] == 0.0


def test_pool_pays_for_each_fault_once(pool):
    answers = dict(pool.map([0.0, -1.0, 30.0, 0.0, 0.0], timeout_s=0.5))
    assert isinstance(answers[1], WorkerDied) and "SIGKILL" in str(answers[1])
    assert isinstance(answers[2], WorkerTimeout)
    assert [answers[i][0] for i in (0, 3, 4)] == [0.0, 0.0, 0.0]


def test_pool_forgets_what_nobody_waits_for(pool):
    answers = pool.map([0.0, 30.0, 30.0], timeout_s=40)
    next(answers)
    answers.close()
    assert dict(pool.map([0.0], timeout_s=10))[0][0] == 0.0
