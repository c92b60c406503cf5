"""Isolated processes: each fault is planted in a real one."""

import errno
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

from dwconv.errors import (
    NonsenseAnswer,
    RequestFailed,
    Shortage,
    WorkerCannotStart,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from dwconv.measure import memory, running
from dwconv.measure import process as process_module
from dwconv.measure.process import IsolatedProcess


@pytest.fixture
def faulty():
    process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=2)
    yield process
    process.kill()


def wait_until(condition, *, seconds=60.0):
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
    faulty.call("answer", timeout_s=10)
    faulty.submit("hang_natively", timeout_s=0.1)
    assert wait([faulty.connection], timeout=300)
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
    assert wait([faulty.connection], timeout=300)  # the end of it
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
    ("setup", "reason", "starts"),
    [("refuse", "no such device", 1), ("die", "exit status 3: cannot map memory", 3)],
)
def test_no_start_is_one_clear_error(setup, reason, starts):
    process = IsolatedProcess("planted_handlers:Faulty", setup, threads=1)
    with pytest.raises(WorkerCannotStart, match=f"a worker cannot start: .*{reason}"):
        process.call("answer", timeout_s=10)
    assert not process.running and process.starts == starts


def test_a_death_while_starting_is_tried_again(tmp_path):
    process = IsolatedProcess("planted_handlers:Faulty", f"killed twice: {tmp_path}", threads=1)
    process.call("answer", timeout_s=10)
    assert process.starts == 3
    process.kill()


# -- what a worker may take ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["allocate", "allocate_in_a_child"])
def test_a_worker_that_takes_all_memory_is_ended(faulty, monkeypatch, deed):
    monkeypatch.setattr(memory, "available_bytes", lambda: 256 << 20)
    monkeypatch.setattr(memory, "LITTLE_BYTES", 64 << 20)
    with pytest.raises(WorkerDied, match=r"^it took more than 0\.\d GiB of memory$") as raised:
        faulty.call(deed, timeout_s=60)
    assert not raised.value.doubtful
    monkeypatch.setattr(memory, "LITTLE_BYTES", 320 << 20)  # on a machine that has next to none it may be innocent
    with pytest.raises(WorkerDied, match="of memory") as raised:
        faulty.call(deed, timeout_s=60)
    assert raised.value.shortage is Shortage.MEMORY


def test_a_worker_that_prints_without_end_is_ended(faulty, monkeypatch):
    monkeypatch.setattr(process_module, "MOST_PRINTED_BYTES", 1 << 20)
    with pytest.raises(WorkerDied, match=r"^it printed more than 1 MiB$"):
        faulty.call("print_without_end", timeout_s=60)


def test_only_the_end_of_what_is_printed_is_read(faulty, monkeypatch):
    """And only of what the last request printed."""
    most = []
    usual = os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, at: most.append(count) or usual(file, count, at))
    faulty.call("print_noise", timeout_s=10)
    with pytest.raises(WorkerDied, match=r"^killed by SIGABRT: LLVM ERROR"):
        faulty.call("no_space_for_the_compiler", timeout_s=10)
    with pytest.raises(WorkerDied, match=r"^killed by SIGKILL$"):
        faulty.call("be_killed", timeout_s=10)
    assert len(most) == 2 and max(most) < 10_000


# -- answers that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["send_noise", "say_it_twice", "say_nothing"])
def test_answers_are_not_shifted(faulty, deed):
    """Whatever the worker sends, the next request gets its own answer."""
    faulty.call("answer", timeout_s=10)
    try:
        assert faulty.call(deed, timeout_s=1.0) == "twice"
    except WorkerDied as error:
        assert deed == "say_nothing" or "it answered nonsense" in str(error)
    else:
        assert wait([faulty.connection], timeout=300)  # for the second one
    for request in ("quiet", "fine"):
        answer = faulty.call("print_noise" if request == "quiet" else "answer", timeout_s=10)
        assert request in (answer, answer["setup"] if isinstance(answer, dict) else "")
    assert faulty.starts == 2


def test_an_old_answer_is_nonsense(faulty, monkeypatch):
    """Should it arrive after the next request was handed over."""
    monkeypatch.setattr(
        process_module, "wait", lambda processes, timeout: [] if timeout == 0 else wait(processes, timeout)
    )
    assert faulty.call("say_it_twice", timeout_s=10) == "twice"
    with pytest.raises(NonsenseAnswer, match="answers nothing") as raised:
        faulty.call("answer", timeout_s=10)
    assert raised.value.doubtful
    assert faulty.call("answer", timeout_s=10)["setup"] == "fine"


def test_an_answer_that_does_not_fit_is_nonsense():
    def misfit(request, answer):
        return f"{answer} for {request}" if answer == "quiet" else ""

    process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=1, misfit=misfit)
    with pytest.raises(NonsenseAnswer, match=r"^it answered nonsense: quiet for print_noise$"):
        process.call("print_noise", timeout_s=10)
    assert not process.running
    process.kill()


# -- what the machine is short of ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "shortage"),
    [
        ("no_space", Shortage.DISK),
        ("no_space_in_other_words", Shortage.DISK),
        ("no_space_for_the_compiler", Shortage.DISK),
        ("no_memory", Shortage.MEMORY),
        ("be_killed", Shortage.MEMORY),
        ("fail", None),
        ("segfault", None),
    ],
)
def test_errors_say_what_the_machine_was_short_of(faulty, deed, shortage):
    with pytest.raises(WorkerError) as raised:
        faulty.call(deed, timeout_s=10)
    assert raised.value.shortage is shortage


@pytest.mark.parametrize(
    ("number", "shortage"), [(errno.EMFILE, Shortage.FILES), (errno.EAGAIN, Shortage.PROCESSES), (errno.EPERM, None)]
)
def test_a_start_that_the_system_refuses_leaves_nothing(tmp_path, monkeypatch, number, shortage):
    def refuse(*given, **named):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=1)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    process.start()  # the request will tell
    with pytest.raises(WorkerCannotStart, match=os.strerror(number)) as raised:
        process.call("answer", timeout_s=10)
    assert raised.value.shortage is shortage
    assert list(tmp_path.iterdir()) == [] and len(list(Path("/proc/self/fd").iterdir())) == opened


class Waiting:
    """Stands for a Watch of a process that gets a core for ``share`` of the time."""

    def __init__(self, share):
        self.resident_bytes, self.waited_s = 0, 0.0
        self._share = share

    def begin(self):
        self._began_s = time.monotonic()

    def look(self):
        self.waited_s = (1 - self._share) * (time.monotonic() - self._began_s)


def test_time_without_a_core_does_not_count(faulty, monkeypatch):
    monkeypatch.setattr(running, "Watch", lambda pid: Waiting(share=0.25))
    started = time.monotonic()
    assert faulty.call("take_a_second", timeout_s=0.9) == "a second"
    with pytest.raises(WorkerTimeout, match=r"no answer after 0.3 s") as raised:
        faulty.call("hang", timeout_s=0.3)
    assert not raised.value.doubtful, "it had its time, and more"
    assert time.monotonic() - started > 1 + 0.3 / 0.25


def test_a_process_that_never_gets_a_core_is_not_to_blame(faulty, monkeypatch):
    monkeypatch.setattr(running, "Watch", lambda pid: Waiting(share=0.01))
    with pytest.raises(WorkerTimeout) as raised:
        faulty.call("hang", timeout_s=0.2)
    assert raised.value.shortage is Shortage.CORES


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
            process.submit(sys.argv[2], timeout_s=0.2 if sys.argv[2] == "hang_natively" else 100)
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


def test_the_next_start_removes_what_nobody_could(tmp_path, monkeypatch):
    """Folders of workers that were killed together with their parents; not those of the living."""
    program = textwrap.dedent("""
        import sys, time
        sys.path.insert(0, sys.argv[1])
        from dwconv.measure.process import IsolatedProcess
        process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=1)
        print(process.call("answer", timeout_s=100)["pid"], flush=True)
        time.sleep(1000)
    """)
    parents = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(Path(__file__).parent)],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        for _ in range(2)
    ]
    try:
        workers = [int(parent.stdout.readline()) for parent in parents]
        (living,) = (Path(psutil.Process(workers[1]).environ()["TMPDIR"]),)
        parents[0].send_signal(signal.SIGSTOP)  # or it would tidy up
        os.kill(workers[0], signal.SIGKILL)
        parents[0].kill()
        parents[0].wait()
        wait_until(lambda: gone(workers[0]))
        (tmp_path / "dwconv-worker-of-nobody").mkdir()
        assert len(list(tmp_path.iterdir())) == 3
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=1)
        process.call("answer", timeout_s=10)
        process.kill()
        assert list(tmp_path.iterdir()) == [living]
    finally:
        for parent in parents:
            parent.kill()
            parent.wait()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_commands_work_with_closed_standard_streams(tmp_path, closed):
    program = textwrap.dedent("""
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from dwconv.arguments import run

        def command(argv):
            with Path(sys.argv[2]).open("w") as file:
                from dwconv.measure.process import IsolatedProcess
                print("printed")
                print("printed", file=sys.stderr)
                os.system("echo printed; echo printed >&2")
                process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=1)
                file.write(process.call("answer", timeout_s=100)["setup"])
                process.kill()
            return 7

        sys.exit(run(command))
    """)
    written = tmp_path / "written"
    arguments = [sys.executable, "-c", program, str(Path(__file__).parent), str(written)]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *arguments], capture_output=True, timeout=300)
    assert done.returncode == 7, done.stderr
    assert written.read_text() == "fine"


def test_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = IsolatedProcess("planted_handlers:Faulty", "fine", threads=1)
    process.call("print_noise", timeout_s=10)
    assert list(tmp_path.iterdir())
    process.kill()
    with pytest.raises(WorkerDied):
        process.call("segfault", timeout_s=10)
    assert list(tmp_path.iterdir()) == []
