"""Isolated processes: they answer, what is planted in one costs its request, and nothing of one outlives those that it
works for.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import platform
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

from dwconv.errors import RequestFailed, WorkerCannotStart, WorkerDied, WorkerTimeout
from dwconv.measure.limits import measure_limits
from dwconv.measure.processes import process as process_module
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.processes.started_process import ProcessWatch
from dwconv.measure.runner import WorkerProcesses
from dwconv.problems.target import CpuTarget
from dwconv.system import cpu_facts
from tests.waiting import eventually, gone, time_is_up_once

pytestmark = pytest.mark.usefixtures("started_anew")


FAULTY = "tests.measure.planted_handlers:Faulty"


def test_answers_apart_from_the_terminal_and_lives_on(faulty):
    assert not faulty.running
    first = faulty.call("answer", timeout_s=10)
    assert first["setup"] == "fine" and first["pid"] != os.getpid()
    assert faulty.call("print_noise", timeout_s=10) == "quiet"
    assert faulty.call("be_hard_to_interrupt", timeout_s=10) == (True, True)
    tunables = "glibc.malloc.tcache_count=0"
    expected = {"threads": "2", "malloc": "0", "tunables": tunables, "parent": os.getpid(), "looks for garbage": True}
    assert faulty.call("environment", timeout_s=10) == expected
    assert faulty.call("answer", timeout_s=10) == first and faulty.starts == 1


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="these are settings of glibc")
def test_results_lie_where_the_last_ones_lay(faulty):
    """Else a call finds more in the caches than the one that it is compared to."""
    assert set(faulty.call("places_of_results", timeout_s=60)) == {1}


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
def test_a_death_is_an_error_and_followed_by_a_new_start(faulty, deed, cause):
    with pytest.raises(WorkerDied, match=cause):
        faulty.call(deed, timeout_s=10)
    assert not faulty.running
    faulty.call("answer", timeout_s=10)
    assert faulty.starts == 2


def test_what_it_takes_of_a_core_is_counted_over_all_of_its_starts(faulty):
    if not Path("/proc/self/stat").exists():
        pytest.skip("the system does not tell")
    assert faulty.cpu_s == 0.0
    faulty.call("answer", timeout_s=10)
    assert (first_s := faulty.cpu_s) > 0.0, "its imports"
    with pytest.raises(WorkerDied):
        faulty.call("segfault", timeout_s=10)
    assert faulty.cpu_s >= first_s
    faulty.call("answer", timeout_s=10)
    assert faulty.cpu_s > first_s


def test_a_worker_keeps_the_time_limit_itself(faulty):
    """For a parent that is gone or asleep."""
    faulty.call("answer", timeout_s=10)
    faulty.submit("hang_natively", timeout_s=0.1)
    assert wait([faulty.connection], timeout=1200)
    with pytest.raises(WorkerTimeout, match=r"no answer after 0.1 s"):
        faulty.collect()


@pytest.mark.parametrize("deed", ["hang", "hang_natively"])
def test_a_hang_ends_at_the_time_limit(faulty, deed):
    pid = faulty.call("answer", timeout_s=10)["pid"]
    started = time.monotonic()
    with pytest.raises(WorkerTimeout, match=r"no answer after 0.3 s"):
        faulty.call(deed, timeout_s=0.3)
    assert time.monotonic() - started < 300, "it hangs for 600 s; a busy machine extends the limit"
    assert gone(pid)


def test_a_death_between_requests_costs_nothing(faulty):
    pid = faulty.call("die_when_idle", timeout_s=10)
    assert wait([faulty.connection], timeout=1200)  # the end of it
    assert faulty.call("answer", timeout_s=10)["pid"] != pid


@pytest.mark.parametrize(
    ("setup", "reason", "starts"),
    [("refuse", "no such device", 1), ("die", "exit status 3: cannot map memory", 3), ("killed twice: ", None, 3)],
)
def test_a_death_while_starting_is_tried_again_and_no_start_is_one_clear_error(tmp_path, setup, reason, starts):
    process = IsolatedProcess(FAULTY, setup if reason else f"{setup}{tmp_path}", threads=1)
    if reason:
        with pytest.raises(WorkerCannotStart, match=f"a worker cannot start: .*{reason}"):
            process.call("answer", timeout_s=10)
        assert not process.running
    else:
        process.call("answer", timeout_s=10)
    assert process.starts == starts
    process.kill()


@pytest.mark.skipif(not cpu_facts.cpu_facts().has("avx2"), reason="this CPU has no avx2")
def test_pytorch_uses_no_wider_vectors_than_the_target():
    """A kernel for forced vectors would else be compared with one that has wider ones."""
    process = IsolatedProcess(FAULTY, "fine", threads=1, vector_set="avx2")
    try:
        assert process.call("name_vectors", timeout_s=60) == ("AVX2", "AVX2")
    finally:
        process.kill()


def test_what_is_timed_beside_forced_vectors_is_forced_too(monkeypatch):
    asked = {}

    def start(role, *, threads, vector_set, **_):
        asked[role.rpartition(":")[2]] = vector_set
        raise OSError("it would start here")

    monkeypatch.setattr(process_module.Running, "start", start)
    target = CpuTarget(device="test", threads=1, vector_bytes=32, vector_set="avx2")
    with WorkerProcesses(target, jobs=1) as workers, contextlib.suppress(WorkerCannotStart):
        workers.start()
        measure_limits(target)
    assert asked == {"BuildHandler": None, "TimingHandler": "avx2", "Meter": "avx2"}


# -- answers that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["send_noise", "say_it_twice", "say_nothing"])
def test_answers_are_not_shifted(faulty, deed):
    """Whatever the worker sends, the next request gets its own answer."""
    faulty.call("answer", timeout_s=10)
    try:
        assert faulty.call(deed, timeout_s=1.0 if deed == "say_nothing" else 60) == "twice"
    except WorkerDied as error:
        assert deed == "say_nothing" or "its answer is invalid" in str(error)
    else:
        assert wait([faulty.connection], timeout=1200)  # for the second one
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
    with pytest.raises(WorkerDied, match="answers nothing") as raised:
        faulty.call("answer", timeout_s=10)
    assert raised.value.is_nonsense and raised.value.may_be_the_machine
    assert faulty.call("answer", timeout_s=10)["setup"] == "fine"


def test_an_answer_that_does_not_fit_is_nonsense():
    def misfit(request, answer):
        return f"{answer} for {request}" if answer == "quiet" else ""

    process = IsolatedProcess(FAULTY, "fine", threads=1, misfit=misfit)
    with pytest.raises(WorkerDied, match=r"^its answer is invalid: quiet for print_noise$"):
        process.call("print_noise", timeout_s=10)
    assert not process.running
    process.kill()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_leaves_the_process_to_its_parent(faulty):
    faulty.call("answer", timeout_s=10)
    child = os.fork()
    if child == 0:
        faulty.leave()
        gc.collect()
        os._exit(1 if faulty.running or faulty._end else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    faulty.call("answer", timeout_s=10)
    assert faulty.starts == 1


def test_its_children_end_with_it(tmp_path, monkeypatch):
    written = tmp_path / "children"

    def there_are_both():
        return written.exists() and len(written.read_text().splitlines()) == 2

    time_is_up_once(there_are_both, monkeypatch=monkeypatch, of=process_module)
    process = IsolatedProcess("tests.measure.planted_handlers:Faulty", str(written), threads=1)
    with pytest.raises(WorkerTimeout):
        process.call("hang_with_children", timeout_s=600)
    children = [int(line) for line in written.read_text().split()]
    assert len(children) == 2
    assert all(map(gone, children))


def test_a_forgotten_one_ends():
    process = IsolatedProcess("tests.measure.planted_handlers:Faulty", "fine", threads=1)
    pid = process.call("answer", timeout_s=10)["pid"]
    del process
    gc.collect()
    assert gone(pid)


def parent_of(tmp_path, deed, setup="fine"):
    """A process that has started a worker, which does the deed; and the worker's number."""
    program = textwrap.dedent("""
        import sys, time
        sys.path.insert(0, sys.argv[1])
        from dwconv.measure.processes.process import IsolatedProcess
        process = IsolatedProcess("tests.measure.planted_handlers:Faulty", sys.argv[3], threads=1)
        print(process.call("answer", timeout_s=100)["pid"], flush=True)
        process.submit(sys.argv[2], timeout_s=0.2 if sys.argv[2] == "hang_natively" else 100)
        time.sleep(1000)
    """)
    command = [sys.executable, "-c", program, str(Path(__file__).parents[2]), deed, setup]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)})
    return parent, int(parent.stdout.readline())


@pytest.mark.parametrize("deed", ["answer", "hang_natively", "hang_with_children"])
def test_ends_when_its_parent_is_killed(tmp_path, deed):
    """Not even a busy worker, or its children, or their files, outlive a parent that had no chance to end them."""
    (tmp_path / "marks").mkdir()
    written = tmp_path / "marks" / "children"
    parent, worker = parent_of(tmp_path, deed, str(written))
    if deed == "hang_with_children":
        assert eventually(lambda: written.exists() and len(written.read_text().split()) == 2)
    parent.kill()
    parent.wait()
    assert gone(worker)
    if deed == "hang_with_children":
        assert all(gone(int(line)) for line in written.read_text().split())
    if deed != "hang_natively":  # then the kernel ended it, at the time limit
        assert eventually(lambda: list(tmp_path.glob("dwconv-*")) == [])


def test_the_next_start_removes_what_is_left_of_a_killed_process(tmp_path, monkeypatch):
    """Folders of workers that were killed together with their parents; not those of the living."""
    (dead, worker), (other, living_worker) = (parent_of(tmp_path, "hang") for _ in range(2))
    try:
        abandoned, living = (Path(psutil.Process(each).environ()["TMPDIR"]) for each in (worker, living_worker))
        dead.send_signal(signal.SIGSTOP)  # or it would tidy up
        os.kill(worker, signal.SIGKILL)
        dead.kill()
        dead.wait()
        assert eventually(lambda: unlocked(abandoned / "printed"))  # a zombie's other threads may still be ending
        (tmp_path / "dwconv-worker-of-nobody").mkdir()
        assert len(list(tmp_path.iterdir())) == 3
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        process = IsolatedProcess(FAULTY, "fine", threads=1)
        process.call("answer", timeout_s=10)
        process.kill()
        assert list(tmp_path.iterdir()) == [living]
    finally:
        for parent in (dead, other):
            parent.kill()
            parent.wait()


def unlocked(path):
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_commands_work_with_closed_standard_streams(tmp_path):
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
    arguments = [sys.executable, "-c", program, str(Path(__file__).parents[2]), str(tmp_path / "written")]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *arguments], capture_output=True, timeout=1200)
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "written").read_text() == "fine"


def test_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = IsolatedProcess("tests.measure.planted_handlers:Faulty", "fine", threads=1)
    process.call("print_noise", timeout_s=10)
    assert list(tmp_path.iterdir())
    process.kill()
    with pytest.raises(WorkerDied):
        process.call("segfault", timeout_s=10)
    assert list(tmp_path.iterdir()) == []


if not Path("/proc/self/schedstat").exists():
    pytest.skip("this system does not tell how long a process waits", allow_module_level=True)

SPIN_ON_THE_FIRST_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"


@pytest.fixture
def started():
    processes = []

    def start(program):
        processes.append(
            subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()  # and so ends a child that reads


def test_waiting_for_a_core_is_seen_and_sleeping_is_none(started):
    asleep = started("import time; print(flush=True); time.sleep(1000)")
    asleep.stdout.readline()
    assert eventually(lambda: psutil.Process(asleep.pid).status() == psutil.STATUS_SLEEPING)
    sleeper = ProcessWatch(asleep.pid)
    sleeper.begin()
    crowd = [ProcessWatch(started(SPIN_ON_THE_FIRST_CORE).pid) for _ in range(3)]
    began_s = time.monotonic()
    while any(watch.waited_s < 0.3 for watch in crowd):
        assert time.monotonic() - began_s < 600
        time.sleep(0.05)
        for watch in (*crowd, sleeper):
            watch.look()
    assert sleeper.waited_s < 0.2
    crowd[0].begin()
    assert crowd[0].waited_s == 0


def test_memory_is_counted_with_that_of_children(started):
    child = "import sys; x = b'x' * (64 << 20); print(flush=True); sys.stdin.read()"
    parent = started(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    parent.stdout.readline()
    watch = ProcessWatch(parent.pid)
    watch.look()
    assert 64 << 20 < watch.resident_bytes < 1 << 30
    parent.kill()
    parent.wait()  # its child is no longer its own
    watch.look()
    assert watch.resident_bytes == 0
