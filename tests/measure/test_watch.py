"""Watching processes: real ones."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from dwconv.measure.processes.started_process import Watch

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
    sleeper = Watch(asleep.pid)
    sleeper.begin()
    crowd = [Watch(started(SPIN_ON_THE_FIRST_CORE).pid) for _ in range(3)]
    began_s = time.monotonic()
    while any(watch.waited_s < 1.0 for watch in crowd):
        assert time.monotonic() - began_s < 60
        time.sleep(0.1)
        for watch in (*crowd, sleeper):
            watch.look()
    assert sleeper.waited_s < 0.5
    crowd[0].begin()
    assert crowd[0].waited_s == 0


def test_memory_is_counted_with_that_of_children(started):
    child = "import sys; x = b'x' * (64 << 20); print(flush=True); sys.stdin.read()"
    parent = started(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    parent.stdout.readline()
    watch = Watch(parent.pid)
    watch.look()
    assert 64 << 20 < watch.resident_bytes < 1 << 30
    parent.kill()
    parent.wait()  # its child is no longer its own
    watch.look()
    assert watch.resident_bytes == 0
