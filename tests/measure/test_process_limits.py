"""Isolated processes: what one may take, and what the machine was short of when one failed."""

import errno
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from dwconv import settings
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
from dwconv.measure.processes import started_process
from dwconv.measure.processes.pool import Patience
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.processes.worker import shortage_of
from dwconv.system import memory

# -- what a worker may take ------------------------------------------------------------------------------------------

pytestmark = pytest.mark.usefixtures("started_anew")


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
    "told",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.81 GiB",
        "CUDA error: out of memory",
        "CUDA driver: CUDA_ERROR_OUT_OF_MEMORY for cuda.fprop_nchw",
    ],
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
    monkeypatch.setattr(settings, "RETRY_PAUSES_S", (0.0, 0.0))
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
    monkeypatch.setattr(started_process, "Watch", lambda pid: Waiting(share=0.25))
    started = time.monotonic()
    assert faulty.call("take_a_second", timeout_s=0.9) == "a second"
    with pytest.raises(WorkerTimeout, match=r"no answer after 0.3 s") as raised:
        faulty.call("hang", timeout_s=0.3)
    assert not raised.value.may_be_the_machine, "it had its time, and more"
    assert time.monotonic() - started > 1 + 0.3 / 0.25


def test_a_process_that_never_gets_a_core_is_not_to_blame(faulty, monkeypatch):
    monkeypatch.setattr(started_process, "Watch", lambda pid: Waiting(share=0.01))
    with pytest.raises(WorkerTimeout) as raised:
        faulty.call("hang", timeout_s=0.2)
    assert raised.value.shortage is Shortage.CORES
