"""Pools of isolated processes, and what they try again."""

import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dwconv import settings
from dwconv.errors import EnvironmentFailure, Shortage, WorkerCannotStart, WorkerDied, WorkerTimeout
from dwconv.measure.processes import pool as pool_module
from dwconv.measure.processes.pool import Pool
from dwconv.system import memory

pytestmark = pytest.mark.usefixtures("started_anew")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(settings, "RETRY_PAUSES_S", (0.0, 0.0))


@pytest.fixture(scope="module")
def pool():
    pool = Pool("tests.measure.planted_handlers:Sleeper", None, size=2, threads=1)
    yield pool
    pool.kill()


def test_pool_shares_the_work(pool):
    answers = dict(pool.map([0.1] * 6, timeout_s=10))
    assert sorted(answers) == [0, 1, 2, 3, 4, 5]
    assert len({pid for _, pid in answers.values()}) == 2


def test_pool_gives_answers_as_they_come(pool):
    assert [position for position, _ in pool.map([0.6, 0.0, 0.0], timeout_s=10)] == [1, 2, 0]


def test_a_stream_takes_a_request_when_a_process_is_idle_and_ends_no_other_one(pool):
    beside = Pool("tests.measure.planted_handlers:Sleeper", None, size=1, threads=1)._processes[0]
    beside.call(0.0, timeout_s=30)
    coming, taken = iter([0.0, 1.0, 0.0, 0.0]), []
    beside.submit(0.0, timeout_s=30)
    stream = pool.stream(lambda: taken.append(next(coming, None)) or taken[-1], timeout_s=30, beside=beside)
    seen = [next(stream)]
    assert len(taken) == 2, "there are two processes"
    seen += stream
    assert None in seen and beside.settled
    assert [each[0] for each in seen if each] == [0, 2, 3, 1], "nothing waits for the slowest"
    beside.kill()


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


def test_a_pool_forgets_abandoned_requests(pool):
    answers = pool.map([0.0, 30.0, 30.0], timeout_s=40)
    next(answers)
    answers.close()
    assert dict(pool.map([0.0], timeout_s=10))[0][0] == 0.0


# -- what the machine may be to blame for ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def faulty():
    pool = Pool("tests.measure.planted_handlers:Faulty", "fine", size=2, threads=1)
    yield pool
    pool.kill()


@pytest.mark.parametrize("deed", ["no_space", "no_space_for_the_compiler", "no_memory", "be_killed"])
def test_what_passes_is_tried_again(faulty, tmp_path, capsys, deed):
    bodies = ["print_noise", f"{deed} {tmp_path / 'mark'}", "print_noise"]
    answers = dict(faulty.map(bodies, timeout_s=30))
    assert answers[0] == answers[2] == "quiet" and answers[1]["setup"] == "fine"
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("note: short of ") and note.endswith("trying again in 0 s")


def test_what_stays_ends_it_all_and_names_the_way_out(faulty):
    answers = faulty.map(["no_space", "print_noise"], timeout_s=30)
    assert next(answers) == (1, "quiet"), "what works is not held up"
    with pytest.raises(EnvironmentFailure, match=r"short of disk space: OSError: .*; make room in .* or set TMPDIR"):
        next(answers)


def test_a_request_killed_again_with_memory_to_spare_is_to_blame(faulty, monkeypatch):
    ((_, outcome),) = faulty.map(["be_killed"], timeout_s=30)
    assert isinstance(outcome, WorkerDied) and "SIGKILL" in str(outcome)
    monkeypatch.setattr(memory, "available_bytes", lambda: memory.LITTLE_BYTES // 2)
    with pytest.raises(EnvironmentFailure, match=r"short of memory: killed by SIGKILL; close other programs"):
        list(faulty.map(["be_killed"], timeout_s=30))


def test_nonsense_costs_one_request_even_if_it_is_found_late(faulty, monkeypatch):
    """A second answer may arrive before the next request or after it. Of two that come late both may cost one."""
    answers = dict(faulty.map(["say_it_twice", *["print_noise"] * 5], timeout_s=30))
    assert [answers[i] for i in range(6)] == ["twice"] + ["quiet"] * 5


def test_a_process_that_cannot_start_does_not_stop_the_others(monkeypatch):
    pool = Pool("tests.measure.planted_handlers:Sleeper", None, size=2, threads=1)
    first = pool._processes[0]

    def refuse():
        raise WorkerCannotStart("a worker cannot start: no files", shortage=Shortage.FILES)

    monkeypatch.setattr(first, "_launch", refuse)
    answers = dict(pool.map([0.0, 0.1, 0.2], timeout_s=30))
    assert [answers[i][0] for i in range(3)] == [0.0, 0.1, 0.2]
    assert first.starts == 0
    monkeypatch.setattr(pool._processes[1], "_launch", refuse)
    pool.kill()
    with pytest.raises(EnvironmentFailure, match=r"short of open files: .*; raise the limit \(ulimit -n\)"):
        list(pool.map([0.0], timeout_s=30))


def test_real_want_of_open_files(tmp_path):
    program = textwrap.dedent("""
        import os, resource, sys
        sys.path.insert(0, sys.argv[1])
        from dwconv import settings
        from dwconv.errors import EnvironmentFailure
        from dwconv.measure.processes.pool import Pool
        settings.RETRY_PAUSES_S = (0.0, 0.0)
        pool = Pool("tests.measure.planted_handlers:Sleeper", None, size=2, threads=1)
        opened = len(os.listdir("/proc/self/fd"))
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 2, most))
        try:
            print(list(pool.map([0.0, 0.0], timeout_s=30)))
        except EnvironmentFailure as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 1024), most))
        print(len(list(pool.map([0.0, 0.0], timeout_s=30))))
        pool.kill()
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(Path(__file__).parents[2])], capture_output=True, text=True, timeout=300
    )
    short, answered = done.stdout.splitlines()
    assert short.startswith("the machine is short of open files: ") and answered == "2", done.stderr


def test_real_want_of_disk_space(tmp_path, monkeypatch, capsys):
    """The disk is full, and somebody makes room while we wait."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    pool = Pool("tests.measure.planted_handlers:Faulty", "fine", size=1, threads=1)
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        pool.start()
        filler = tmp_path / "filler"
        filler.write_bytes(b"x" * (900 << 10))
        monkeypatch.setattr(pool_module, "time", SimpleNamespace(sleep=lambda seconds: filler.unlink()))
        assert list(pool.map(["fill_own_folder"], timeout_s=30)) == [(0, "filled")]
        assert "short of disk space" in capsys.readouterr().err and not filler.exists()
    finally:
        pool.kill()
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
