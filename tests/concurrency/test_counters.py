"""Counters: what the kernel gives for a group, counting for real with software events, and machines that have none."""

from __future__ import annotations

import errno
import mmap
import os
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

from dwconv.__main__ import main as dwconv_main
from dwconv.concurrency import counters, second_threads
from dwconv.concurrency.__main__ import main as concurrency_main
from dwconv.concurrency.counters import HARDWARE, NONE, SOFTWARE, CounterReading, available, between, counted, parsed

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="perf_event_open is Linux's")


@pytest.fixture
def fresh():
    """What is available is found out anew, before and after."""
    available.cache_clear()
    yield
    available.cache_clear()


# -- what is read ------------------------------------------------------------------------------------------------------


TRACE = [
    # cycles, instructions, branches, stalled cycles of one thread, as the kernel lays a group out: the number of
    # events, time enabled and time running in ns, then each count with its number. The second group of the thread had
    # the counters in turns, so this one was counted for 3 of 4 ms, then for 2 of 8 ms more.
    struct.pack("=11Q", 4, 4_000_000, 3_000_000, 9_000_000, 71, 18_000_000, 72, 2_400_000, 73, 600_000, 74),
    struct.pack("=11Q", 4, 12_000_000, 5_000_000, 15_000_000, 71, 32_000_000, 72, 4_400_000, 73, 900_000, 74),
    # Then the thread slept: nothing was counted.
    struct.pack("=11Q", 4, 20_000_000, 5_000_000, 15_000_000, 71, 32_000_000, 72, 4_400_000, 73, 900_000, 74),
]


def test_a_group_is_read_with_its_times_and_the_numbers_of_its_events():
    assert parsed(TRACE[0]) == CounterReading(
        enabled_ns=4_000_000, running_ns=3_000_000,
        counts={71: 9_000_000, 72: 18_000_000, 73: 2_400_000, 74: 600_000},
    )  # fmt: skip


def test_counts_are_scaled_to_the_time_in_which_the_group_had_no_turn():
    first, second, third = map(parsed, TRACE)
    assert between(first, second) == {71: 24_000_000, 72: 56_000_000, 73: 8_000_000, 74: 1_200_000}
    assert between(second, third) == {}
    start = CounterReading(enabled_ns=0, running_ns=0, counts={})
    assert between(start, first)[71] == pytest.approx(12_000_000)
    always = CounterReading(enabled_ns=50, running_ns=50, counts={71: 7})
    assert between(start, always) == {71: 7}


@pytest.mark.parametrize("data", [b"", TRACE[0][:20], TRACE[0][:-8], TRACE[0] + b"\0" * 16])
def test_a_reading_of_another_length_is_refused(data):
    with pytest.raises(ValueError, match=f"a reading of {len(data)} bytes"):
        parsed(data)


# -- counting ----------------------------------------------------------------------------------------------------------


def work(seconds):
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


@on_linux
def test_software_events_are_counted_on_all_threads(fresh, monkeypatch):
    """Those that were there before, and those that start in the meantime."""
    if not counters.events_of(SOFTWARE)[0]:
        pytest.skip("the kernel counts nothing for this process")
    monkeypatch.setitem(counters.GROUPS, HARDWARE, ())
    assert available().kind == SOFTWARE and "task-clock" in available().events
    begin, worked = threading.Event(), threading.Event()
    there_before = threading.Thread(target=lambda: (begin.wait(), work(0.02), worked.set(), end.wait()))
    end = threading.Event()
    there_before.start()
    try:
        with counted() as found:
            begin.set()
            started = threading.Thread(target=work, args=(0.02,))
            started.start()
            work(0.02)
            started.join()
            worked.wait()
            with mmap.mmap(-1, 1 << 22) as pages:  # the heap may hand out pages that were touched before
                for at in range(0, 1 << 22, 1 << 12):
                    pages[at] = 1
        assert set(found.counts) == set(available().events)
        assert found.counts["task-clock"] >= 0.055e9, "in nanoseconds, of three threads"
        assert found.counts["page-faults"] > 0
        before_s = time.process_time()
        with counted() as idle:
            time.sleep(0.01)
        taken_s = time.process_time() - before_s  # threads of OpenMP may take some, too
        assert idle.counts.get("task-clock", 0.0) < (taken_s + 0.02) * 1e9, "what ran before is not counted"
    finally:
        end.set()
        there_before.join()


@on_linux
def test_nothing_stays_open(fresh):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with counted():
            pass
    with pytest.raises(RuntimeError), counted():
        raise RuntimeError
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# -- machines ----------------------------------------------------------------------------------------------------------


def kernel(monkeypatch, *, hardware=0, software=0):
    """A kernel that opens events, or refuses them with these errors."""

    def opened(type_, config, *, thread, leader, flags):
        code = software if type_ else hardware
        if code:
            raise OSError(code, os.strerror(code))
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(counters, "_opened_file", opened)
    monkeypatch.setattr(counters, "_number", lambda file: file)


@on_linux
def test_a_machine_with_counters(fresh, monkeypatch):
    kernel(monkeypatch)
    found = available()
    assert (found.kind, found.note) == (HARDWARE, "")
    assert found.events == ("cycles", "instructions", "branches", "stalled-cycles", "cache-references", "cache-misses")


@on_linux
@pytest.mark.parametrize(
    "hardware, said",
    [
        (errno.ENOENT, "no hardware counters here, as in many virtual machines; software events are counted instead"),
        (errno.EACCES, "kernel.perf_event_paranoid is 4; set it to 2 or less; software events"),
        (errno.EPERM, "the kernel forbids hardware counters"),
        (errno.EMFILE, "hardware counters cannot be read: Too many open files"),
    ],
)
def test_a_machine_without_hardware_counters_says_why_in_a_line(fresh, monkeypatch, tmp_path, hardware, said):
    (tmp_path / "paranoid").write_text("4\n")
    monkeypatch.setattr(counters, "PARANOID", tmp_path / "paranoid")
    kernel(monkeypatch, hardware=hardware)
    found = available()
    assert found.kind == SOFTWARE and said in found.note and "\n" not in found.note


@on_linux
def test_a_kernel_that_forbids_all_leaves_nothing_to_count(fresh, monkeypatch):
    kernel(monkeypatch, hardware=errno.EPERM, software=errno.EPERM)
    assert available().kind == NONE and "nor does the kernel count software events" in available().note
    with counted() as found:
        work(0.001)
    assert found.counts == {}


def test_other_systems_have_none(fresh, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert available().kind == NONE and "not on darwin" in available().note


@on_linux
def test_an_event_that_the_processor_lacks_is_left_out_of_its_group(fresh, monkeypatch):
    def opened(type_, config, *, thread, leader, flags):
        if config == counters.GROUPS[HARDWARE][0]["stalled-cycles"]:
            raise OSError(errno.ENOENT, "")
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(counters, "_opened_file", opened)
    monkeypatch.setattr(counters, "_number", lambda file: file)
    assert available().events == ("cycles", "instructions", "branches", "cache-references", "cache-misses")


@on_linux
def test_of_a_kernel_that_permits_less_less_is_read(fresh, monkeypatch):
    """Without its own part, and without threads that start later, as old ones cannot read both in a group."""
    tried = []

    def opened(type_, config, *, thread, leader, flags):
        tried.append(flags)
        if not flags & counters._NO_KERNEL:
            raise OSError(errno.EACCES, "")
        if flags & counters._INHERIT:
            raise OSError(errno.EINVAL, "")
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(counters, "_opened_file", opened)
    monkeypatch.setattr(counters, "_number", lambda file: file)
    assert available().kind == HARDWARE and len(available().events) == 6
    assert tried[:3] == [0b1000010, 0b1100010, 0b1100000]


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_prints_what_this_machine_has(fresh, monkeypatch, capsys):
    monkeypatch.setattr(second_threads, "sibling_pairs", lambda: [(0, 2)])
    for main, given in ((dwconv_main, ["concurrency", "counters"]), (concurrency_main, ["counters"])):
        assert main(given) == 0
        out = capsys.readouterr().out
        assert all(name in out for name in ("hardware events", "software events", "perf_event_paranoid"))
        assert "processor 2 beside 0" in out and available().note in out
        assert all(f"  {event}" in out for event in available().events)


def test_another_command_or_option_is_refused_in_a_line(capsys):
    assert dwconv_main(["concurrency", "counts"]) == 2
    assert "command=counts is unknown; did you mean counters?" in capsys.readouterr().err
    assert dwconv_main(["concurrency"]) == 2
    assert "no command given; use one of counters" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        concurrency_main(["counters", "--all"])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_the_list_of_commands_has_it(capsys):
    assert dwconv_main(["--help"]) == 0
    assert "  concurrency  what this machine can count" in capsys.readouterr().out
