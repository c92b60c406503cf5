"""TuningLog: what was acknowledged survives, what is damaged is set aside."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from planted_records import record_of, workload_of

from dwconv import settings
from dwconv.errors import LogError
from dwconv.records.log import TuningLog, decode, encode, log_path
from dwconv.records.record import Measurement, Status, TuningRecord, Verdict
from dwconv.schedules.space import Config
from dwconv.target import cpu_target

TESTS = Path(__file__).resolve().parent.parent
RECORD = record_of(workload_of())
LINE = encode(RECORD)

times_us = st.floats(min_value=1e-3, max_value=1e9)
measurements = st.builds(
    Measurement,
    median_us=times_us,
    spread_us=times_us,
    rounds=st.integers(0, 10**6),
    predicted=st.booleans(),
)
names = st.text(st.characters(codec="utf-8"), max_size=12)
records = st.builds(
    TuningRecord,
    workload=st.builds(
        workload_of,
        shape=st.tuples(*[st.integers(3, 300)] * 4),
        stride=st.integers(1, 3),
        padding=st.integers(0, 2),
        multiplier=st.integers(1, 3),
        pass_=st.sampled_from(["fprop", "dgrad", "wgrad"]),
        layout=st.sampled_from(["nchw", "nhwc"]),
        bias=st.booleans(),
    ),
    config=st.dictionaries(names.filter(lambda name: name != "template"), st.integers(-5, 500) | names, max_size=4).map(
        lambda knobs: Config("cpu.made_up", tuple(knobs.items()))
    ),
    device=names,
    status=st.sampled_from(Status),
    measurement=st.none() | measurements,
    verdict=st.none()
    | st.builds(Verdict, right=st.booleans(), max_error=times_us, allowed_error=times_us, reason=names),
    providers=st.dictionaries(names, measurements, max_size=2),
    resources=st.dictionaries(names, st.integers(0, 10**9), max_size=2),
    detail=names,
    versions=st.dictionaries(names, names, max_size=2),
    created=names,
)


@hypothesis_settings(deadline=None, max_examples=100)
@given(records)
def test_a_record_is_one_line_and_reads_back_the_same(record):
    line = encode(record)
    assert b"\n" not in line
    assert decode(line) == record


def test_infinite_errors_and_strange_bytes_of_a_failed_candidate_can_be_written(tmp_path):
    verdict = Verdict(right=False, max_error=math.nan, allowed_error=math.inf, reason="value")
    log = TuningLog(tmp_path / "log.jsonl")
    log.append(dataclasses.replace(RECORD, status=Status.WRONG, verdict=verdict, detail="clang said \udcff"))
    (read,) = log.load().records
    assert read.verdict == Verdict(right=False, max_error=math.inf, allowed_error=math.inf, reason="value")
    assert read.detail == "clang said ?"


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    log = TuningLog(tmp_path / "log.jsonl")
    with pytest.raises(LogError, match="median_us"):
        log.append(dataclasses.replace(RECORD, measurement=Measurement(median_us=math.nan, spread_us=0, rounds=1)))
    assert log.load().records == []


DAMAGED = {
    "half a line": LINE[: len(LINE) // 2],
    "not JSON": b"Traceback (most recent call last):",
    "not text": b"\xff\xfe\x00",
    "another kind of JSON": b"[1, 2]",
    "too deep": b'{"format":1,"more":' + b"[" * 100_000,
    "a format from the future": LINE.replace(b'"format":1', b'"format":2'),
    "no format": LINE.replace(b'"format":1,', b""),
    "an unknown status": LINE.replace(b'"ok"', b'"great"'),
    "a negative time": LINE.replace(b'"median_us":50.0', b'"median_us":-1'),
    "an infinite time": LINE.replace(b'"median_us":50.0', b'"median_us":1e999'),
    "a kernel larger than the image": LINE.replace(b'"kernel":[3,3]', b'"kernel":[99,3]'),
    "a size that is no number": LINE.replace(b'"batch":2', b'"batch":true'),
    "a problem with more to it": LINE.replace(b'"batch":2', b'"batch":2,"depth":4'),
    "a knob that is no number or name": LINE.replace(b'"block_h":4', b'"block_h":["__import__"]'),
    "no template": LINE.replace(b'"template":', b'"pattern":'),
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_line_is_set_aside_and_counted(tmp_path, line):
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINE + b"\n" + line + b"\n\n" + LINE + b"\n")
    loaded = TuningLog(path).load()
    assert loaded.records == [RECORD, RECORD]
    assert loaded.damaged == [2]
    assert loaded.damages[0].reason
    assert "\n" not in loaded.damages[0].reason


def test_what_a_later_version_adds_to_a_record_is_passed_over():
    assert decode(LINE.replace(b'"format":1', b'"format":1,"temperature":{"c":[70]}')) == RECORD


def test_a_torn_last_line_costs_itself_only(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINE + b"\n" + LINE[:-7])
    log = TuningLog(path)
    assert (len(log.load().records), log.load().damaged) == (1, [2])
    log.append(RECORD)
    assert (len(log.load().records), log.load().damaged) == (2, [2])
    assert path.read_bytes().endswith(LINE + b"\n")


def test_a_missing_log_holds_nothing_and_is_made_with_its_folder(tmp_path):
    log = TuningLog(tmp_path / "new" / "folder" / "log.jsonl")
    assert log.load().records == []
    log.check_writable()
    assert log.load().records == []
    log.append(RECORD)
    assert log.load().records == [RECORD]


def test_the_default_log_is_the_users_own_or_the_first_that_is_listed(monkeypatch):
    target = cpu_target()
    monkeypatch.delenv("DWCONV_TUNING_LOGS", raising=False)
    own = log_path(target)
    assert own.name == f"{target.device}.jsonl" and own.is_absolute()
    assert own.parent == settings.tuning_log_paths()[0] and settings.shipped_log_folder() not in own.parents
    for listed, written in (("a:b", Path("a") / own.name), ("a.jsonl:b", Path("a.jsonl")), ("", own)):
        monkeypatch.setenv("DWCONV_TUNING_LOGS", listed.replace(":", os.pathsep))
        assert log_path(target) == written


# -- what the machine does to it -----------------------------------------------------------------------------------


def test_a_folder_is_no_log(tmp_path):
    with pytest.raises(LogError, match=f"^log={tmp_path} is a folder; name a file in it") as caught:
        TuningLog(tmp_path)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("act", [TuningLog.check_writable, lambda log: log.append(RECORD)], ids=["check", "append"])
def test_an_unwritable_log_is_one_line(tmp_path, act):
    (tmp_path / "file").touch()
    log = TuningLog(tmp_path / "file" / "log.jsonl")
    with pytest.raises(LogError, match=f"^log={log.path} cannot be written: .*; name another file with --log$"):
        act(log)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_log_is_one_line(tmp_path):
    log = TuningLog(tmp_path / "log.jsonl")
    log.append(RECORD)
    log.path.chmod(0)
    with pytest.raises(LogError, match=f"^log={log.path} cannot be read: Permission denied"):
        log.load()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_device_is_one_line():
    with pytest.raises(LogError, match=r"^log=/dev/full cannot be written: No space left on device; "):
        TuningLog("/dev/full").append(RECORD)


def python(program: str, *arguments: object) -> subprocess.Popen[str]:
    head = (
        "import resource, sys\n"
        f"sys.path.insert(0, {str(TESTS)!r})\n"
        "from planted_records import record_of, workload_of\n"
        "from dwconv.errors import LogError\n"
        "from dwconv.records.log import TuningLog\n"
        "log = TuningLog(sys.argv[1])\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + program, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def test_a_full_disk_leaves_whole_lines_and_says_so(tmp_path):
    """The limit cuts the third record in its middle; what is written of it is taken back."""
    path = tmp_path / "log.jsonl"
    full = python(
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))\n"
        "for _ in range(3):\n"
        "    try:\n"
        "        log.append(record_of(workload_of()))\n"
        "    except LogError as error:\n"
        "        print(error)\n",
        path,
        2 * (len(LINE) + 1) + len(LINE) // 2,
    )
    said, _ = full.communicate(timeout=60)
    assert full.returncode == 0
    assert said.count("\n") == 1
    assert said.startswith(f"log={path}")
    assert path.read_bytes() == (LINE + b"\n") * 2
    TuningLog(path).append(RECORD)
    assert TuningLog(path).load().records == [RECORD] * 3


def test_what_was_acknowledged_survives_kill_9(tmp_path):
    path = tmp_path / "log.jsonl"
    writer = python(
        "batch = 0\n"
        "while True:\n"
        "    batch += 1\n"
        "    log.append(record_of(workload_of(shape=(batch, 8, 9, 7))))\n"
        "    print(batch, flush=True)\n",
        path,
    )
    acknowledged = 0
    while acknowledged < 20:
        acknowledged = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
    writer.wait()
    loaded = TuningLog(path).load()
    read = [record.workload.batch for record in loaded.records]
    assert read == list(range(1, len(read) + 1))
    assert len(read) >= acknowledged
    assert len(loaded.damaged) <= 1


def test_two_writers_lose_nothing(tmp_path):
    """Long lines, so that a write that is not whole would be seen."""
    path = tmp_path / "log.jsonl"
    program = (
        "import dataclasses\n"
        "for batch in range(1, 61):\n"
        "    record = record_of(workload_of(shape=(batch, 8, 9, 7)), device=sys.argv[2])\n"
        "    log.append(dataclasses.replace(record, detail='x' * 20_000))\n"
    )
    writers = [python(program, path, name) for name in ("a", "b")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    loaded = TuningLog(path).load()
    assert loaded.damaged == []
    for name in ("a", "b"):
        assert [r.workload.batch for r in loaded.records if r.device == name] == list(range(1, 61))
