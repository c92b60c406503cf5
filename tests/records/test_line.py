"""The line: a record reads back as it was written, and everything else is refused."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dwconv.errors import LogError
from dwconv.problems.workload import Workload
from dwconv.records.held import HeldLog
from dwconv.records.line import LEAST_BYTES, checked, decode, encode
from dwconv.records.log import TuningLog
from dwconv.records.record import AtSize, Measurement, Status, TuningRecord, Verdict, is_current, made_with
from dwconv.schedules import template as template_module
from dwconv.schedules.space import Config
from tests.planted_records import record_of, workload_of

RECORD = record_of(workload_of())
LINE = encode(RECORD)
ANY = dataclasses.replace(
    RECORD,
    workload=dataclasses.replace(workload_of(), any_size=True, also_at=((20, 21), (1, 40))),
    others=tuple(
        AtSize(input_size=size, measurement=RECORD.measurement, providers=RECORD.providers)
        for size in ((20, 21), (1, 40))
    ),
)

times_us = st.floats(min_value=1e-3, max_value=1e9)
measurements = st.builds(
    Measurement,
    median_us=times_us,
    spread_us=times_us,
    rounds=st.integers(0, 10**6),
    computed=st.booleans(),
)
names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=12)


def workloads_of(axes: int) -> st.SearchStrategy[Workload]:
    return st.builds(
        workload_of,
        shape=st.tuples(*[st.integers(3, 100)] * (2 + axes)),
        kernel=st.tuples(*[st.integers(1, 3)] * axes),
        stride=st.tuples(*[st.integers(1, 3)] * axes),
        padding=st.tuples(*[st.integers(0, 2)] * axes),
        multiplier=st.integers(1, 3),
        pass_=st.sampled_from(["fprop", "dgrad", "wgrad"]),
        layout=st.sampled_from(["nchw", "nhwc"]),
        bias=st.booleans(),
    )


records = st.builds(
    TuningRecord,
    workload=workloads_of(2) | workloads_of(3),
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


DAMAGED = {
    "not text": b"\xff\xfe\x00",
    "too deep": b'{"format":1,"more":' + b"[" * 100_000,
    "a format from the future": LINE.replace(b'"format":1', b'"format":2'),
    "an unknown status": LINE.replace(b'"ok"', b'"great"'),
    "a kernel of more axes than the image": LINE.replace(b'"kernel":[3,3]', b'"kernel":[3,3,3]'),
    "an image of four axes": LINE.replace(b"[9,7]", b"[4,4,9,7]").replace(b"[3,3]", b"[3,3,3,3]"),
    "a kernel larger than the image": LINE.replace(b'"kernel":[3,3]', b'"kernel":[99,3]'),
    "a size that is no number": LINE.replace(b'"batch":2', b'"batch":true'),
    "a problem with more to it": LINE.replace(b'"batch":2', b'"batch":2,"depth":4'),
    "a knob as long as a book": LINE.replace(b'"block_h":4', b'"block_h":"' + b"x" * 1000 + b'"'),
    "as many knobs as stars": LINE.replace(b'"block_h":4', b",".join(b'"k%d":1' % knob for knob in range(1000))),
    "a template that clears the screen": LINE.replace(b"cpu.made_up", b"\\u001b[2J"),
    "a device of two lines": LINE.replace(b'"device":"', b'"device":"\\n'),
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_line_is_set_aside_and_counted(tmp_path, line):
    path = tmp_path / "log.jsonl"
    path.write_bytes(LINE + b"\n" + line + b"\n\n" + LINE + b"\n")
    loaded = TuningLog(path).load()
    assert loaded.records == [RECORD, RECORD]
    assert loaded.damaged == 1
    (damage,) = loaded.damages
    assert damage.line == 2
    assert damage.reason and damage.reason.isprintable() and len(damage.reason) <= 200


ODD = (
    *(b"1e400", b"-1e400", b"1e-400", b"NaN", b"Infinity", b"-0.0", b"-1", b"0", b"1.5", b"2147483648", b"9" * 30),
    *(b"1" + b"0" * 5000, b"9223372036854775808", b"null", b"true", b"{}", b"[]", b"[[", b'""', b'"', b"}", b",", b""),
    *(b'"\\ud800"', b'"\\u0000"', b'"a\\nb"', b'"\\u001b[2J"', b'"\xc2\x9b2J"', b"\x00", b"\xff", b'"cls"', b'"self"'),
    *(b'"template"', b'"format"', b'"pass":"dgrad","pass"'),
)  # fmt: skip


def test_any_part_of_a_line_may_be_anything():
    """Each is refused, or read as a record that can be used, printed and written again."""
    read = 0
    for part in re.finditer(rb'"[^"]*"|[\w.-]+|[{}\[\]:,]', LINE):
        for odd in ODD:
            try:
                record = decode(LINE[: part.start()] + odd + LINE[part.end() :])
            except LogError as error:
                assert str(error).isprintable() and len(str(error)) <= 200
                continue
            read += 1
            assert decode(encode(record)) == record
            printed = [str(record.config), record.detail, record.device, record.workload.key, *record.providers]
            assert "".join(printed).isprintable()
            assert (
                record.time_us > 0
                and record.slowness
                and isinstance(record.rank, tuple)
                and hash((record.workload, record.config))
            )
    assert read > 20, "some do no harm"


def test_what_went_wrong_is_one_line_that_does_nothing_to_a_terminal():
    said = "\x1b[31mclang:\x1b[0m no\r\nregister\x9b2J \u202e" + "x" * 5000
    verdict = Verdict(right=False, max_error=1.0, allowed_error=0.5, reason="value\n\x07")
    record = dataclasses.replace(RECORD, status=Status.WRONG, detail=said, verdict=verdict)
    plain = encode(record)
    escaped = plain.replace(b'"detail":"?[31mclang', b'"detail":"\\u001b[31mclang')
    assert escaped != plain
    for line in (plain, escaped):
        read = decode(line)
        assert read.detail.startswith("?[31mclang:?[0m no register?2J ?xxx") and len(read.detail) <= 1000
        assert read.verdict.reason == "value ?"


def test_no_record_is_so_short_that_it_is_passed_over_unread():
    shortest = workload_of(shape=(1, 1, 1, 1), kernel=(1, 1), padding=0)
    assert len(msgspec.json.encode(shortest.to_dict())) > LEAST_BYTES


def test_a_record_of_several_sizes_reads_back_with_the_times_at_each():
    assert decode(encode(ANY)) == ANY
    assert not {"any_size", "also_at"} & json.loads(LINE)["workload"].keys() and "others" not in json.loads(LINE)
    assert decode(LINE.replace(b'"format":1', b'"format":1,"temperature":{"c":[70]}')) == RECORD, "of a later version"
    held = HeldLog()
    held.add(line := encode(ANY), checked(line))
    assert [list(records) for records in held.values()] == [[ANY]]
    assert [each.workload.input_size for each in ANY.at_each_size] == [(9, 7), (20, 21), (1, 40)]
    slow = dataclasses.replace(ANY.others[0], measurement=dataclasses.replace(RECORD.measurement, median_us=800.0))
    assert dataclasses.replace(ANY, others=(slow, ANY.others[1])).relative_time == pytest.approx(
        (0.5 * 8 * 0.5) ** (1 / 3)
    )
    for others in (ANY.others[:1], ANY.others[::-1]):
        with pytest.raises(LogError, match="others are not of the sizes of also_at"):
            encode(dataclasses.replace(ANY, others=others))


# -- what a record holds for -------------------------------------------------------------------------------------------


INSTALLED = {"dwconv": "9", "torch": "2.13.0+cpu", "tvm": "0.27.0"}
MADE = {"torch": "2.13.0+cpu", "tvm": "0.27.0", "template": "1"}
CPU, CUDA = Config.of("cpu.fprop_nhwc"), Config.of("cuda.fprop_nhwc")


def made(*, config=CPU, without=(), status=Status.OK, computed=False, **other):
    versions = {name: version for name, version in {**MADE, **other}.items() if name not in without}
    record = record_of(workload_of(), config=config, status=status, computed=computed)
    return dataclasses.replace(record, versions=versions)


@pytest.mark.parametrize(
    ("record", "difference"),
    [
        (made(), ""),
        (made(dwconv="0.1"), ""),
        (made(torch="2.13.0"), ""),  # another build of the same release
        (made(torch="2.13.1"), "PyTorch 2.13.1"),
        (made(torch="2.12.0+cpu", tvm="0.26"), "PyTorch 2.12.0+cpu, TVM 0.26"),
        (made(without=["torch"]), "PyTorch an unknown version"),
        (made(without=["template"]), ""),  # written before there were any
        (made(template="2"), "version 2 of cpu.fprop_nhwc"),
        (made(config=CUDA, torch="2.13.0+cu130"), "PyTorch 2.13.0+cu130"),  # with libraries of its own
        (made(computed=True, torch="2.12.0"), ""),  # computed: PyTorch's op has no part in it
        (made(status=Status.COMPILE_ERROR, torch="2.12.0"), ""),
        (made(status=Status.COMPILE_ERROR, tvm="0.26"), "TVM 0.26"),
    ],
)
def test_a_record_is_current_if_it_was_made_with_what_is_installed(record, difference):
    assert made_with(record, INSTALLED) == difference
    assert is_current(record, INSTALLED) == (difference == "")


def test_a_template_that_was_changed_leaves_its_records_behind(monkeypatch):
    known = template_module.all_templates()
    changed = {**known, CPU.template: dataclasses.replace(known[CPU.template], version=2)}
    monkeypatch.setattr(template_module, "all_templates", lambda: changed)
    assert made_with(made(), INSTALLED) == "version 1 of cpu.fprop_nhwc"
    assert made_with(made(without=["template"]), INSTALLED) == "version 1 of cpu.fprop_nhwc"
    assert is_current(made(template="2"), INSTALLED)
    assert is_current(made(config=CUDA, torch="2.13.0+cpu"), INSTALLED), "another template"
