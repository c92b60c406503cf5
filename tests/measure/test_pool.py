"""What an isolated process may take, and what the machine was short of when one failed; pools of them, and what they
try again."""

import errno
import math
import os
import subprocess
import tempfile
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace

import pytest

from dwconv.errors import (
    EnvironmentFailure,
    RequestFailed,
    Shortage,
    WorkerCannotStart,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from dwconv.measure.processes import process as process_module
from dwconv.measure.processes import shortages, started_process
from dwconv.measure.processes import worker as worker_module
from dwconv.measure.processes.pool import Pool
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.processes.shortages import Patience, shortage_of
from dwconv.system import memory
from tests.waiting import time_is_up_once

pytestmark = pytest.mark.usefixtures("started_anew", "no_pauses")


# -- one process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["allocate", "allocate_in_a_child"])
def test_a_worker_that_takes_all_memory_is_ended(faulty, monkeypatch, deed):
    monkeypatch.setattr(memory, "available_bytes", lambda: 256 << 20)
    monkeypatch.setattr(memory, "LITTLE_BYTES", 64 << 20)
    with pytest.raises(WorkerDied, match=r"^it took more than 0\.\d GiB of memory$") as raised:
        faulty.call(deed, timeout_s=60)
    assert not raised.value.may_be_the_machine
    monkeypatch.setattr(memory, "LITTLE_BYTES", 320 << 20)  # on a machine that has next to none it may be innocent
    with pytest.raises(WorkerDied, match="of memory") as raised:
        faulty.call(deed, timeout_s=60)
    assert raised.value.shortage is Shortage.MEMORY


def test_a_worker_that_prints_without_end_is_ended(faulty, monkeypatch):
    monkeypatch.setattr(process_module, "MOST_PRINTED_BYTES", 1 << 20)
    with pytest.raises(WorkerDied, match=r"^it printed more than 1 MiB$"):
        faulty.call("print_without_end", timeout_s=60)


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
    "told", ["CUDA out of memory. Tried to allocate 2.00 GiB", "CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY"]
)
def test_memory_of_a_gpu_is_the_machines(told):
    assert shortage_of(RuntimeError(told)) is Shortage.GPU_MEMORY


@pytest.mark.parametrize(
    ("free_gib", "needs_gib", "ends"),
    [
        (0.5, 0.1, "the machine is short of memory of the GPU: .*; end other programs on the GPU"),
        (5, 4, "the machine is short of memory of the GPU: "),
        (60, 4, None),
        (0.5, 50, None),
    ],
)
def test_no_memory_on_a_gpu_is_a_candidates_fault_where_there_is_enough_for_it(monkeypatch, free_gib, needs_gib, ends):
    """Planted: a GPU of 80 GiB, and a machine of plenty, which says nothing about the GPU."""
    for name, of_gpu in (("free_bytes", free_gib), ("whole_bytes", 80)):
        monkeypatch.setattr(memory, name, lambda kind, of_gpu=of_gpu: int((of_gpu if kind == "cuda" else 500) * 2**30))
    patience = Patience(needs_bytes=int(needs_gib * 2**30))
    error = RequestFailed("OutOfMemoryError: CUDA out of memory", shortage=Shortage.GPU_MEMORY)
    if ends is None:
        tries = [patience.again(error) for _ in range(2)]
        assert tries == [2 * needs_gib <= 80, False]
        return
    assert [patience.again(error) for _ in range(2)] == [True, True]
    with pytest.raises(EnvironmentFailure, match=ends):
        patience.again(error)


@pytest.mark.parametrize(
    ("number", "shortage"), [(errno.EMFILE, Shortage.FILES), (errno.EAGAIN, Shortage.PROCESSES), (errno.EPERM, None)]
)
def test_a_start_that_the_system_refuses_leaves_nothing(tmp_path, monkeypatch, number, shortage):
    def refuse(*given, **named):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    process = IsolatedProcess("tests.measure.planted_handlers:Faulty", "fine", threads=1)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    process.start()  # the request will show it
    with pytest.raises(WorkerCannotStart, match=os.strerror(number)) as raised:
        process.call("answer", timeout_s=10)
    assert raised.value.shortage is shortage
    assert list(tmp_path.iterdir()) == [] and len(list(Path("/proc/self/fd").iterdir())) == opened


class Waiting:
    """Stands for a Watch of a process that gets a core for ``share`` of the time, on the clock of time limits."""

    def __init__(self, share):
        self.resident_bytes, self.waited_s = 0, 0.0
        self._share = share

    def begin(self):
        self._began_s = process_module.time.monotonic()

    def look(self):
        self.waited_s = (1 - self._share) * (process_module.time.monotonic() - self._began_s)


def read_by_read(monkeypatch, *, until_s=math.inf, then=lambda: None):
    """Time limits are kept by a clock that goes on by 10 ms whenever it is read. At ``until_s`` it stops, and calls
    ``then``."""
    now_s = [0.0]

    def monotonic():
        if now_s[0] < until_s:
            now_s[0] += 0.01
        else:
            then()
        return now_s[0]

    monkeypatch.setattr(process_module, "time", SimpleNamespace(monotonic=monotonic))


def test_time_without_a_core_does_not_count(monkeypatch, tmp_path):
    monkeypatch.setattr(started_process, "ProcessWatch", lambda pid: Waiting(share=0.25))
    go = tmp_path / "go"
    patient = IsolatedProcess("tests.measure.planted_handlers:Faulty", str(go), threads=1)
    patient.call("answer", timeout_s=60)
    with monkeypatch.context() as patched:
        read_by_read(patched, until_s=0.5, then=go.touch)
        assert patient.call("take_a_while", timeout_s=0.25) == "a while"
    patient.kill()


def test_a_hang_beside_other_work_ends_and_one_without_a_core_is_the_machines(faulty, monkeypatch):
    read_by_read(monkeypatch)
    monkeypatch.setattr(started_process, "ProcessWatch", lambda pid: Waiting(share=0.25))
    with pytest.raises(WorkerTimeout, match=r"no answer after 0.1 s") as raised:
        faulty.call("hang", timeout_s=0.1)
    assert not raised.value.may_be_the_machine, "it had its time, and more"
    monkeypatch.setattr(started_process, "ProcessWatch", lambda pid: Waiting(share=0.01))
    with pytest.raises(WorkerTimeout) as raised:
        faulty.call("hang", timeout_s=0.1)
    assert raised.value.shortage is Shortage.CORES, "it never got a core"


# -- a pool ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool():
    pool = Pool("tests.measure.planted_handlers:Sleeper", None, size=2)
    yield pool
    pool.kill()


def test_pool_shares_the_work_and_gives_answers_as_they_come(pool, tmp_path):
    go = tmp_path / "go"
    coming = pool.map([str(go), 0.0, 0.0], timeout_s=600)
    answers = [next(coming), next(coming)]
    go.touch()
    answers += coming
    assert [position for position, _ in answers] == [1, 2, 0]
    assert len({pid for _, (_, pid) in answers}) == 2


def test_a_stream_takes_a_request_when_a_process_is_idle_and_ends_no_other_one(pool, tmp_path):
    go = tmp_path / "go"
    beside = Pool("tests.measure.planted_handlers:Sleeper", None, size=1)._processes[0]
    beside.call(0.0, timeout_s=30)
    coming, taken = iter([0.0, str(go), 0.0, 0.0]), []
    beside.submit(0.0, timeout_s=30)
    stream = pool.stream(lambda: taken.append(next(coming, None)) or taken[-1], timeout_s=600, beside=beside)
    seen = [next(stream)]
    assert len(taken) == 2, "there are two processes"
    for each in stream:
        seen.append(each)
        if sum(one is not None for one in seen) == 3:
            go.touch()
    assert None in seen and beside.settled
    assert [each[0] for each in seen if each] == [0, 2, 3, 1], "nothing waits for the slowest"
    beside.kill()


def test_an_answer_that_waited_counts(pool, monkeypatch):
    """The caller may be late; the worker was not."""
    (process, _) = pool._processes
    process.call(0.0, timeout_s=60)  # it is ready
    process.submit(0.0, timeout_s=60)
    assert wait([process.connection], timeout=600)
    for module in (process_module, worker_module):
        time_is_up_once(lambda: True, monkeypatch=monkeypatch, of=module)
    assert process.collect()[0] == 0.0


def test_pool_pays_for_each_fault_once(pool, monkeypatch, tmp_path):
    """One hangs until its time is up: once all others are answered, but for the one that is tried again."""
    answers = {}
    monkeypatch.setattr(memory, "available_bytes", lambda: 2 * memory.LITTLE_BYTES)
    time_is_up_once(lambda: len(answers) >= 3, monkeypatch=monkeypatch, of=process_module)
    for position, answer in pool.map([0.0, -1.0, str(tmp_path / "never"), 0.0, 0.0], timeout_s=600):
        answers[position] = answer
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
def faulty_pool():
    pool = Pool("tests.measure.planted_handlers:Faulty", "fine", size=2)
    yield pool
    pool.kill()


@pytest.mark.parametrize("deed", ["no_space", "be_killed"])
def test_what_passes_is_tried_again(faulty_pool, tmp_path, capsys, deed):
    bodies = ["print_noise", f"{deed} {tmp_path / 'mark'}", "print_noise"]
    answers = dict(faulty_pool.map(bodies, timeout_s=30))
    assert answers[0] == answers[2] == "quiet" and answers[1]["setup"] == "fine"
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("note: short of ") and note.endswith("trying again in 0 s")


def test_what_stays_ends_it_all_and_names_the_way_out(faulty_pool):
    answers = faulty_pool.map(["no_space", "print_noise"], timeout_s=30)
    assert next(answers) == (1, "quiet"), "what works is not held up"
    with pytest.raises(EnvironmentFailure, match=r"short of disk space: OSError: .*; make room in .* or set TMPDIR"):
        next(answers)


def test_a_request_killed_again_with_memory_to_spare_is_to_blame(faulty_pool, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2 * memory.LITTLE_BYTES)
    ((_, outcome),) = faulty_pool.map(["be_killed"], timeout_s=30)
    assert isinstance(outcome, WorkerDied) and "SIGKILL" in str(outcome)
    monkeypatch.setattr(memory, "available_bytes", lambda: memory.LITTLE_BYTES // 2)
    with pytest.raises(EnvironmentFailure, match=r"short of memory: killed by SIGKILL; close other programs"):
        list(faulty_pool.map(["be_killed"], timeout_s=30))


def test_nonsense_costs_one_request_even_if_it_is_found_late(faulty_pool, monkeypatch):
    """A second answer may arrive before the next request or after it. Of two that come late both may cost one."""
    answers = dict(faulty_pool.map(["say_it_twice", *["print_noise"] * 5], timeout_s=30))
    assert [answers[i] for i in range(6)] == ["twice"] + ["quiet"] * 5


def test_a_process_that_cannot_start_does_not_stop_the_others(monkeypatch):
    pool = Pool("tests.measure.planted_handlers:Sleeper", None, size=2)
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


def test_a_disk_that_is_really_full(tmp_path, monkeypatch, capsys):
    """The disk is full, and room is made while the pool waits."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    pool = Pool("tests.measure.planted_handlers:Faulty", "fine", size=1)
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        pool.start()
        filler = tmp_path / "filler"
        filler.write_bytes(b"x" * (900 << 10))
        monkeypatch.setattr(shortages, "time", SimpleNamespace(sleep=lambda seconds: filler.unlink()))
        assert list(pool.map(["fill_own_folder"], timeout_s=30)) == [(0, "filled")]
        assert "short of disk space" in capsys.readouterr().err and not filler.exists()
    finally:
        pool.kill()
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
